-- Resources that several tasks may hold at once, and rates: how often tasks of a role, or those that
-- need a resource, may start.

-- Only those with limits of their own; any other has one place.
CREATE TABLE resources (
    name     text COLLATE "C" PRIMARY KEY,
    level    bigint NOT NULL,   -- what was in its bucket at `level_at`
    level_at bigint NOT NULL,
    next_at  bigint NOT NULL,   -- when there will be a token; 0 if there is one
    max_held integer NOT NULL,
    rate     text NOT NULL      -- as JSON; nothing for any number
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Whoever holds a resource has one of its places, by number.
ALTER TABLE holds ADD COLUMN place integer NOT NULL DEFAULT 0;
ALTER TABLE holds DROP CONSTRAINT holds_pkey;
ALTER TABLE holds ADD PRIMARY KEY (resource, place);

ALTER TABLE roles ADD COLUMN rate text NOT NULL DEFAULT '';
ALTER TABLE roles ADD COLUMN level bigint NOT NULL DEFAULT 0;
ALTER TABLE roles ADD COLUMN level_at bigint NOT NULL DEFAULT 0;
ALTER TABLE roles ADD COLUMN next_at bigint NOT NULL DEFAULT 0;
