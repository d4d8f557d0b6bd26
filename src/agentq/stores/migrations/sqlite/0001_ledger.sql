-- The ledger. The immutable spec is apart from the narrow row that changes on every step, so that a
-- step rewrites little; one partial index holds what is live, so that history costs claims nothing.

CREATE TABLE head (
    only        INTEGER PRIMARY KEY CHECK (only = 1),
    floor       INTEGER NOT NULL DEFAULT 0,  -- positions up to here were used, even if pruned since
    key_floor   INTEGER NOT NULL DEFAULT 0,  -- and task keys: neither is ever used twice
    lanes       TEXT NOT NULL DEFAULT ''     -- open outbox lanes, joined by spaces
);
INSERT INTO head (only, lanes) VALUES (1, 'results');

CREATE TABLE roles (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    max_running INTEGER NOT NULL DEFAULT 0,
    max_review  INTEGER NOT NULL DEFAULT 0,
    paused      INTEGER NOT NULL DEFAULT 0,
    seen_at     INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE specs (
    key          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    submitted_at INTEGER NOT NULL,
    body         TEXT NOT NULL
);

CREATE TABLE tasks (
    key        INTEGER PRIMARY KEY,
    role       INTEGER NOT NULL,
    priority   INTEGER NOT NULL,
    state      INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    wake_at    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    holder     TEXT NOT NULL,
    memo       TEXT NOT NULL,
    flags      INTEGER NOT NULL,
    last_event INTEGER NOT NULL  -- position of its newest event
);
CREATE INDEX tasks_live ON tasks (role, state, priority, key) WHERE state < 5;
-- Cancelled, but the holder has not said that it stopped: still counts against limits.
CREATE INDEX tasks_stopping ON tasks (role) WHERE state = 7 AND wake_at > 0;
CREATE INDEX tasks_due ON tasks (wake_at) WHERE wake_at > 0;

CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    previous INTEGER NOT NULL,  -- position of the same task's event before: its history is a chain,
    key      INTEGER NOT NULL,  -- which spares every commit an index page
    version  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    trigger  TEXT NOT NULL,
    state    INTEGER NOT NULL,
    epoch    INTEGER NOT NULL,
    data     TEXT NOT NULL
);

CREATE TABLE edges (
    parent INTEGER NOT NULL,
    child  INTEGER NOT NULL,
    PRIMARY KEY (parent, child)
) WITHOUT ROWID;
CREATE INDEX edges_of_child ON edges (child);

CREATE TABLE wants (
    key      INTEGER NOT NULL,
    resource TEXT NOT NULL,
    PRIMARY KEY (key, resource)
) WITHOUT ROWID;

CREATE TABLE holds (
    resource TEXT PRIMARY KEY,
    key      INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX holds_of_task ON holds (key);

CREATE TABLE dedup (
    name       TEXT PRIMARY KEY,
    task_id    TEXT NOT NULL,
    digest     TEXT NOT NULL,
    state      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX dedup_expiry ON dedup (expires_at);
CREATE INDEX dedup_of_task ON dedup (task_id);

CREATE TABLE artifacts (
    key        INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    name       TEXT NOT NULL,
    size       INTEGER NOT NULL,
    sha256     TEXT NOT NULL,
    media_type TEXT NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (key, epoch, name)
) WITHOUT ROWID;

CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    key      INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    lane     TEXT NOT NULL,
    payload  TEXT NOT NULL,
    due_at   INTEGER NOT NULL DEFAULT 0,
    tries    INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX outbox_due ON outbox (lane, due_at, sequence);
CREATE INDEX outbox_of_task ON outbox (key);
