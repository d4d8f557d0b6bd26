-- A log that cannot be bent: each event carries a digest over what it says and over the digest of its
-- task's event before; a task's row has the last. Events of earlier versions have none.

ALTER TABLE events ADD COLUMN digest text NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN digest text NOT NULL DEFAULT '';

-- What is decided about no task: limits, circuits, tokens, lanes, what was deleted, seals. Chained by
-- digests as well, and never deleted. The number is that of the event before and one.
CREATE TABLE system_events (
    number   bigint PRIMARY KEY,
    at       bigint NOT NULL,
    kind     text COLLATE "C" NOT NULL,
    subject  text COLLATE "C" NOT NULL,
    position bigint NOT NULL,  -- up to where a seal seals the log; else 0
    data     text NOT NULL,
    digest   text NOT NULL
);
CREATE INDEX system_seals ON system_events (position) WHERE kind = 'seal';

-- From here on there are digests. `data` is how many events were deleted before.
INSERT INTO system_events (number, at, kind, subject, position, data, digest)
SELECT 1, 0, 'chained', ledger_id, position + (SELECT count(*) FROM unnumbered),
       (position + (SELECT count(*) FROM unnumbered) - (SELECT count(*) FROM events))::text, ''
FROM head;
