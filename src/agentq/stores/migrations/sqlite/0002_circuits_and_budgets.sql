-- Circuits of providers, budgets of a role per day, and budgets of a task with all that follow it.

-- Out of quota until then; the row of a circuit that has closed by itself may stay.
CREATE TABLE circuits (
    provider   TEXT PRIMARY KEY,
    open_until INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    opened_at  INTEGER NOT NULL,
    opened_by  TEXT NOT NULL
) WITHOUT ROWID;

ALTER TABLE roles ADD COLUMN provider TEXT NOT NULL DEFAULT '';  -- last claimed with
ALTER TABLE roles ADD COLUMN daily TEXT NOT NULL DEFAULT '';     -- what it may spend a day, as JSON

-- What was spent, by whom (kind: role, label) and on which day of the store's clock, in UTC.
CREATE TABLE spending (
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    day     INTEGER NOT NULL,
    usd     REAL NOT NULL,
    tokens  REAL NOT NULL,
    turns   REAL NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (kind, name, day)
) WITHOUT ROWID;

-- A tree has a budget of its own, named by its root; it outlives the root while others belong to it.
CREATE TABLE trees (
    root    INTEGER PRIMARY KEY,
    name    TEXT NOT NULL,
    budget  TEXT NOT NULL,
    extra   TEXT NOT NULL,
    spent   TEXT NOT NULL,
    used_up INTEGER NOT NULL
);

CREATE TABLE tree_members (
    key  INTEGER NOT NULL,
    root INTEGER NOT NULL,
    PRIMARY KEY (key, root)
) WITHOUT ROWID;
CREATE INDEX tree_members_of_root ON tree_members (root);
