-- What was decided and what was refused: who, how anybody knows that, and from where. Only ever added
-- to; a row goes when it is older than settings keep it. `times` is how many alike it stands for.

CREATE TABLE audit (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    times   INTEGER NOT NULL,
    who     TEXT NOT NULL,
    kind    TEXT NOT NULL,
    how     TEXT NOT NULL,
    origin  TEXT NOT NULL,
    action  TEXT NOT NULL,
    subject TEXT NOT NULL,
    outcome TEXT NOT NULL,
    code    TEXT NOT NULL,
    detail  TEXT NOT NULL
);
CREATE INDEX audit_of_subject ON audit (subject, number) WHERE subject <> '';
CREATE INDEX audit_by_time ON audit (at);
