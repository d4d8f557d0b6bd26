-- What the log comes to in numbers, by role and time: counted once, and kept when tasks are deleted.

CREATE TABLE samples (
    span_ms INTEGER NOT NULL,   -- how long; 0 for all there ever was
    at      INTEGER NOT NULL,   -- when it begins
    role    TEXT    NOT NULL,   -- nothing in the row that says how far the log was counted
    body    TEXT    NOT NULL,   -- as JSON
    PRIMARY KEY (span_ms, at, role)
) WITHOUT ROWID;
