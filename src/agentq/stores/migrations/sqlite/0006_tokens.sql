-- Tokens of people and programs that ask over the network. A secret is shown once and never stored:
-- whoever reads this table, or a backup of it, cannot ask in anybody's name.

CREATE TABLE tokens (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    revoked_at INTEGER NOT NULL,
    revoked_by TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX token_of_digest ON tokens (sha256);
