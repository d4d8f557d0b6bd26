-- Who alone may run a loop of `agentq up`, and until when. The number grows whenever it changes hands.

CREATE TABLE terms (
    name       text COLLATE "C" PRIMARY KEY,
    term       bigint NOT NULL,
    expires_at bigint NOT NULL,
    holder     text NOT NULL
);
