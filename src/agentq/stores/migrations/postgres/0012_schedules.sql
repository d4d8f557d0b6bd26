-- How each schedule stands. What it asks for is in its file, which is read anew each time: here is
-- when it occurs next, what was decided last, and what people have said about it.

CREATE TABLE schedules (
    name       text COLLATE "C" PRIMARY KEY,
    since_at   bigint NOT NULL,  -- when this rule was first seen
    next_at    bigint NOT NULL,  -- the first occurrence that is not decided; 0 if there is none
    wake_at    bigint NOT NULL,  -- when to look at it; 0 if paused, broken or over
    last_at    bigint NOT NULL,  -- the last occurrence that was decided
    asked_at   bigint NOT NULL,  -- when somebody last asked to run it now
    ran_at     bigint NOT NULL,  -- the last such request that was carried out
    fired      bigint NOT NULL,
    skipped    bigint NOT NULL,
    paused     bigint NOT NULL,
    rule       text NOT NULL,    -- when it occurs; another rule, another first occurrence
    digest     text NOT NULL,    -- of the file that this was read from
    problem    text NOT NULL,    -- what is wrong with its file
    open_tasks text NOT NULL,    -- tasks of earlier occurrences that may not be over
    note       text NOT NULL     -- why the last one was skipped
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX schedules_waking ON schedules (wake_at) WHERE wake_at > 0;
