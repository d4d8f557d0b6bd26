-- How each schedule stands. What it asks for is in its file, which is read anew each time: here is
-- when it occurs next, what was decided last, and what people have said about it.

CREATE TABLE schedules (
    name       TEXT PRIMARY KEY,
    rule       TEXT NOT NULL,     -- when it occurs; another rule, another first occurrence
    digest     TEXT NOT NULL,     -- of the file that this was read from
    since_at   INTEGER NOT NULL,  -- when this rule was first seen
    next_at    INTEGER NOT NULL,  -- the first occurrence that is not decided; 0 if there is none
    wake_at    INTEGER NOT NULL,  -- when to look at it; 0 if paused, broken or over
    last_at    INTEGER NOT NULL,  -- the last occurrence that was decided
    asked_at   INTEGER NOT NULL,  -- when somebody last asked to run it now
    ran_at     INTEGER NOT NULL,  -- the last such request that was carried out
    paused     INTEGER NOT NULL,
    problem    TEXT NOT NULL,     -- what is wrong with its file
    fired      INTEGER NOT NULL,
    skipped    INTEGER NOT NULL,
    open_tasks TEXT NOT NULL,     -- tasks of earlier occurrences that may not be over
    note       TEXT NOT NULL      -- why the last one was skipped
) WITHOUT ROWID;
CREATE INDEX schedules_waking ON schedules (wake_at) WHERE wake_at > 0;
