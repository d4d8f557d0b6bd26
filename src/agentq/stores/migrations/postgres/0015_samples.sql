-- What the log comes to in numbers, by role and time: counted once, and kept when tasks are deleted.

CREATE TABLE samples (
    span_ms bigint NOT NULL,   -- how long; 0 for all there ever was
    at      bigint NOT NULL,   -- when it begins
    role    text COLLATE "C" NOT NULL,   -- nothing in the row that says how far the log was counted
    body    text   NOT NULL,   -- as JSON
    PRIMARY KEY (span_ms, at, role)
);
