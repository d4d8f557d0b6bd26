-- The name of this ledger, wherever it is and however it is reached: an agent is kept from the ledger
-- of its own worker by it. `agentq move` takes it along. It is no secret.
ALTER TABLE head ADD COLUMN ledger_id TEXT NOT NULL DEFAULT '';
UPDATE head SET ledger_id = lower(hex(randomblob(16)));
