-- Webhooks, both ways: what others have sent us (`in`), kept whole until it is turned into tasks and
-- for a while after, and what we have sent others (`out`). The ids by which a delivery is known again
-- are records of `dedup`, which have a lifetime of their own.

CREATE TABLE hook_deliveries (
    number      INTEGER PRIMARY KEY,
    way         TEXT NOT NULL,
    hook        TEXT NOT NULL,      -- the name of the hook's file; of the target, on the way out
    delivery_id TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    state       INTEGER NOT NULL,   -- 0 waits, 1 done, 2 ignored by every rule, 3 failed
    attempts    INTEGER NOT NULL,
    error       TEXT NOT NULL,
    tasks       TEXT NOT NULL,      -- the ids of what came of it, as JSON
    headers     TEXT NOT NULL,      -- those that rules may ask for, as JSON
    body        TEXT NOT NULL       -- as it came, in base64
);
CREATE UNIQUE INDEX hook_deliveries_by_id ON hook_deliveries (way, hook, delivery_id);
CREATE INDEX hook_deliveries_waiting ON hook_deliveries (way, number, hook) WHERE state = 0;

-- How far each target of webhooks has been told of the log.
CREATE TABLE webhook_targets (
    name        TEXT PRIMARY KEY,
    position    INTEGER NOT NULL,
    failures    INTEGER NOT NULL,   -- in a row
    due_at      INTEGER NOT NULL,   -- when it is tried again
    disabled_at INTEGER NOT NULL,   -- 0 while it is told of anything
    sent        INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    error       TEXT NOT NULL
) WITHOUT ROWID;
