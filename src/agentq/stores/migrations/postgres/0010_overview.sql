-- What `agentq status` and `agentq workers` read, without a look at every task.

-- Dead letters, the newest first.
CREATE INDEX tasks_dead ON tasks (key) WHERE state IN (6, 8);

-- Tasks that wait and need an approval. The bit says that they need one, not that it is missing:
-- the ledger looks at each. A task that is over may be opened again, so it has the bit as well.
UPDATE tasks SET flags = flags | 8 WHERE key IN (
    SELECT key FROM specs
    WHERE body LIKE '%"irreversible":%' OR body LIKE '%"requires_approval":%');
CREATE INDEX tasks_approval ON tasks (key) WHERE state = 0 AND flags >= 8;

-- Workers have leases beside those of the loops; this is what they say of themselves, as JSON.
ALTER TABLE terms ADD COLUMN body text NOT NULL DEFAULT '';

-- The part of what was spent that no tool has named: worked out from tokens and prices.
ALTER TABLE spending ADD COLUMN estimated double precision NOT NULL DEFAULT 0;
