-- Resources that several tasks may hold at once, and rates: how often tasks of a role, or those that
-- need a resource, may start.

-- Only those with limits of their own; any other has one place.
CREATE TABLE resources (
    name     TEXT PRIMARY KEY,
    max_held INTEGER NOT NULL,
    rate     TEXT NOT NULL,     -- as JSON; nothing for any number
    level    INTEGER NOT NULL,  -- what was in its bucket at `level_at`
    level_at INTEGER NOT NULL,
    next_at  INTEGER NOT NULL   -- when there will be a token; 0 if there is one
) WITHOUT ROWID;

-- Whoever holds a resource has one of its places, by number.
ALTER TABLE holds RENAME TO earlier_holds;
CREATE TABLE holds (
    resource TEXT NOT NULL,
    place    INTEGER NOT NULL,
    key      INTEGER NOT NULL,
    PRIMARY KEY (resource, place)
) WITHOUT ROWID;
INSERT INTO holds (resource, place, key) SELECT resource, 0, key FROM earlier_holds;
DROP TABLE earlier_holds;
CREATE INDEX holds_of_task ON holds (key);

ALTER TABLE roles ADD COLUMN rate TEXT NOT NULL DEFAULT '';
ALTER TABLE roles ADD COLUMN level INTEGER NOT NULL DEFAULT 0;
ALTER TABLE roles ADD COLUMN level_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE roles ADD COLUMN next_at INTEGER NOT NULL DEFAULT 0;
