-- Who alone may run a loop of `agentq up`, and until when. The number grows whenever it changes hands.

CREATE TABLE terms (
    name       TEXT PRIMARY KEY,
    term       INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    holder     TEXT NOT NULL
) WITHOUT ROWID;
