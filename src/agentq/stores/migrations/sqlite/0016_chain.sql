-- A log that cannot be bent: each event carries a digest over what it says and over the digest of its
-- task's event before; a task's row has the last. Events of earlier versions have none.

ALTER TABLE events ADD COLUMN digest TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN digest TEXT NOT NULL DEFAULT '';

-- What is decided about no task: limits, circuits, tokens, lanes, what was deleted, seals. Chained by
-- digests as well, and never deleted. The number is that of the event before and one.
CREATE TABLE system_events (
    number   INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    subject  TEXT NOT NULL,
    position INTEGER NOT NULL,  -- up to where a seal seals the log; else 0
    data     TEXT NOT NULL,
    digest   TEXT NOT NULL
);
CREATE INDEX system_seals ON system_events (position) WHERE kind = 'seal';

-- From here on there are digests. `data` is how many events were deleted before.
INSERT INTO system_events (number, at, kind, subject, position, data, digest)
SELECT 1, 0, 'chained', ledger_id, last, last - (SELECT count(*) FROM events), ''
FROM (SELECT ledger_id, max(floor, coalesce((SELECT max(position) FROM events), 0)) AS last
      FROM head);
