-- Circuits of providers, budgets of a role per day, and budgets of a task with all that follow it.

-- Out of quota until then; the row of a circuit that has closed by itself may stay.
CREATE TABLE circuits (
    provider   text COLLATE "C" PRIMARY KEY,
    open_until bigint NOT NULL,
    opened_at  bigint NOT NULL,
    reason     text NOT NULL,
    opened_by  text NOT NULL
);

ALTER TABLE roles ADD COLUMN provider text COLLATE "C" NOT NULL DEFAULT '';  -- last claimed with
ALTER TABLE roles ADD COLUMN daily text NOT NULL DEFAULT '';  -- what it may spend a day, as JSON

-- What was spent, by whom (kind: role, label) and on which day of the store's clock, in UTC.
CREATE TABLE spending (
    kind    text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    day     bigint NOT NULL,
    usd     double precision NOT NULL,
    tokens  double precision NOT NULL,
    turns   double precision NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (kind, name, day)
);

-- A tree has a budget of its own, named by its root; it outlives the root while others belong to it.
CREATE TABLE trees (
    root    bigint PRIMARY KEY,
    used_up smallint NOT NULL,
    name    text NOT NULL,
    budget  text NOT NULL,
    extra   text NOT NULL,
    spent   text NOT NULL
);

CREATE TABLE tree_members (
    key  bigint NOT NULL,
    root bigint NOT NULL,
    PRIMARY KEY (key, root)
);
CREATE INDEX tree_members_of_root ON tree_members (root);
