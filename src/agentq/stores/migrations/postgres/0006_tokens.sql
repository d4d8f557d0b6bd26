-- Tokens of people and programs that ask over the network. A secret is shown once and never stored:
-- whoever reads this table, or a backup of it, cannot ask in anybody's name.

CREATE TABLE tokens (
    id         text COLLATE "C" PRIMARY KEY,
    name       text NOT NULL,
    sha256     text COLLATE "C" NOT NULL,
    scopes     text NOT NULL,
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    expires_at bigint NOT NULL,
    revoked_at bigint NOT NULL,
    revoked_by text NOT NULL
);
CREATE UNIQUE INDEX token_of_digest ON tokens (sha256);
