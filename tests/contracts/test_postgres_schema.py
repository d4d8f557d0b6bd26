"""Where the tables of a PostgreSQL ledger are: in a schema of their own, beside those of others."""

from __future__ import annotations

import psycopg
import pytest

from agentq.core.errors import Unavailable
from agentq.core.states import State
from agentq.core.task import Spec
from agentq.core.triggers import Report
from agentq.ledger.ledger import Ledger
from agentq.stores.migrate import migrations
from agentq.stores.postgres.store import PostgresStore
from agentq.stores.statements import statements
from tests.contracts.postgres_only import run_sql
from tests.contracts.rows import add, everything, log, move

#: The last version whose ledgers stood in the schema public.
LAST_IN_PUBLIC = 4

#: What such a ledger held: one task done, one ready, one pruned (key 3, positions 4 and 5).
EARLIER_ROWS = """
INSERT INTO roles (name, max_running) VALUES ('worker', 3);
INSERT INTO specs (key, submitted_at, id, body) VALUES
    (1, 1000, 'done', '{"id":"done","to":"worker"}'),
    (2, 1001, 'waits', '{"id":"waits","to":"worker"}');
INSERT INTO tasks (key, wake_at, updated_at, last_event, role, version, epoch, priority, state,
                   flags, holder, memo) VALUES
    (1, 0, 2000, 6, 1, 3, 1, 2, 5, 1, '', '{"summary":"well"}'),
    (2, 0, 1001, 2, 1, 1, 0, 2, 1, 0, '', '');
INSERT INTO events (position, previous, key, at, version, epoch, state, kind, trigger, data) VALUES
    (1, 0, 1, 1000, 1, 0, 1, 'submitted', 'Submit', ''),
    (2, 0, 2, 1001, 1, 0, 1, 'submitted', 'Submit', ''),
    (3, 1, 1, 1500, 2, 1, 2, 'claimed', 'Claim', '{"by":"ann"}'),
    (6, 3, 1, 2000, 3, 1, 5, 'completed', 'Report', '{"summary":"well"}');
UPDATE head SET position = 6, lanes = 'delivery results';
SELECT setval('task_keys', 3);
INSERT INTO edges VALUES (1, 2);
INSERT INTO wants VALUES (2, 'gpu');
INSERT INTO dedup VALUES ('id:waits', 'waits', 'd', 0, 99);
INSERT INTO artifacts VALUES (1, 5, 2000, 1, 'a.md', 'x', 'text/plain');
INSERT INTO outbox (sequence, key, version, number, lane, payload)
    VALUES (1, 1, 3, 0, 'results', '{}');
SELECT setval(pg_get_serial_sequence('outbox', 'sequence'), 7);
INSERT INTO circuits VALUES ('acme', 5, 1, 'quota', 'ann');
INSERT INTO spending VALUES ('role', 'worker', 3, 0.5, 1, 1, 1);
INSERT INTO trees VALUES (1, 0, 'done', '{}', '', '');
INSERT INTO tree_members VALUES (1, 1), (2, 1);
INSERT INTO terms VALUES ('due', 4, 99, 'ann');
"""

OURS = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'agentq'"
PUBLIC = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'"


def build_earlier(url: str) -> None:
    """A ledger of the last version before this, as its own migrations made it."""
    with psycopg.connect(url) as connection:
        connection.execute(statements("postgres")["migration_table"].encode())
        for number, name, script in migrations("postgres")[:LAST_IN_PUBLIC]:
            connection.execute(script.encode())
            connection.execute(
                "INSERT INTO schema_migrations (version, name) VALUES (%s, %s)", (number, name)
            )
        connection.execute(EARLIER_ROWS.encode())


def migrated(url: str) -> list[str]:
    store = PostgresStore(url, check_schema=False)
    try:
        return store.migrate()
    finally:
        store.close()


class TestALedgerOfAnEarlierVersion:
    def test_is_named_and_left_alone_until_it_is_migrated(self, fresh_postgres_url: str) -> None:
        build_earlier(fresh_postgres_url)
        for create in (False, True):
            with pytest.raises(Unavailable, match="agentq db migrate") as refused:
                PostgresStore(fresh_postgres_url, create=create)
            assert refused.value.code == "older_schema"
        store = PostgresStore(fresh_postgres_url, check_schema=False)
        assert store.schema_version() == LAST_IN_PUBLIC
        store.close()
        assert run_sql(fresh_postgres_url, OURS) == []

    def test_moves_with_its_log_positions_and_sequences(self, fresh_postgres_url: str) -> None:
        build_earlier(fresh_postgres_url)
        names = [name for number, name, _ in migrations("postgres") if number > LAST_IN_PUBLIC]
        assert migrated(fresh_postgres_url) == names
        assert migrated(fresh_postgres_url) == []
        assert run_sql(fresh_postgres_url, PUBLIC) == []
        store = PostgresStore(fresh_postgres_url)
        # The log is what it was, with the gap that a pruned task left;
        assert [
            (entry.position, entry.task_id, entry.event.version, entry.event.kind)
            for entry in log(store)
        ] == [
            (1, "done", 1, "submitted"),
            (2, "waits", 1, "submitted"),
            (3, "done", 2, "claimed"),
            (6, "done", 3, "completed"),
        ]
        assert store.number_events() == 6
        history = store.read(lambda reader: reader.history(1))
        assert [entry.position for entry in history] == [1, 3, 6]
        assert store.read(lambda reader: reader.orphan_rows(9)) == []
        # so is everything else;
        assert store.read(lambda reader: reader.lanes()) == {"delivery", "results"}
        assert store.read(lambda reader: reader.edges_of([1])) == [(1, 2)]
        assert store.read(lambda reader: reader.effects("results", 9))[0].effect_id == "1.3.0"
        assert store.read(lambda reader: reader.leader_leases())[0].term == 4
        assert len(store.read(everything)) > 9
        # and numbers go on where they ended.
        assert add(store, "new")["new"] == 4
        move(store, [4], 5)
        assert [(e.position, e.task_id) for e in log(store)[4:]] == [(7, "new"), (8, "new")]
        assert store.role_ids(["worker", "other"]) == {"worker": 1, "other": 2}
        ledger = Ledger(store, lambda: 0.5)
        (held,) = ledger.claim("worker", 1, "ann")
        assert held.task.id == "waits"
        assert ledger.apply(held.key, Report(1, "done")).state is State.COMPLETE
        ledger.submit([Spec("later", "worker", after=("waits",))])
        sequences = [row.sequence for row in store.read(lambda r: r.effects("delivery", 9))]
        assert sequences and min(sequences) > 7
        store.close()

    def test_leaves_tables_of_others_where_they_are(self, fresh_postgres_url: str) -> None:
        """Also those that have a name which this version gives to one of its own."""
        build_earlier(fresh_postgres_url)
        run_sql(
            fresh_postgres_url,
            "CREATE TABLE log AS SELECT 'mine' AS whose; CREATE TABLE users (id integer);"
            " CREATE TABLE unnumbered AS SELECT 'mine' AS whose",
        )
        migrated(fresh_postgres_url)
        assert sorted(run_sql(fresh_postgres_url, PUBLIC)) == [
            ("log",),
            ("unnumbered",),
            ("users",),
        ]
        assert run_sql(fresh_postgres_url, "SELECT whose FROM public.log") == [("mine",)]
        store = PostgresStore(fresh_postgres_url)
        assert len(log(store)) == 4
        store.close()

    def test_is_moved_wholly_or_not_at_all(self, fresh_postgres_url: str) -> None:
        build_earlier(fresh_postgres_url)
        before = sorted(run_sql(fresh_postgres_url, PUBLIC))
        run_sql(fresh_postgres_url, "CREATE SCHEMA agentq CREATE TABLE log (somebodys integer)")
        with pytest.raises(Unavailable, match="something else"):
            migrated(fresh_postgres_url)
        assert sorted(run_sql(fresh_postgres_url, PUBLIC)) == before
        assert run_sql(fresh_postgres_url, OURS) == [("log",)]

    def test_stays_where_the_address_says(self, fresh_postgres_url: str) -> None:
        """Whoever names the schema in the address has the tables there, before and after."""
        build_earlier(fresh_postgres_url)
        url = f"{fresh_postgres_url}&options=-c%20search_path%3Dpublic"
        assert migrated(url)
        store = PostgresStore(url)
        assert len(log(store)) == 4
        store.close()
        assert run_sql(fresh_postgres_url, OURS) == []

    def test_is_nobodys_business_whose_ledger_is_elsewhere(self, fresh_postgres_url: str) -> None:
        build_earlier(fresh_postgres_url)
        before = sorted(run_sql(fresh_postgres_url, PUBLIC))
        run_sql(fresh_postgres_url, "CREATE SCHEMA elsewhere")
        url = f"{fresh_postgres_url}&options=-c%20search_path%3Delsewhere"
        store = PostgresStore(url, create=True)
        assert add(store, "a") == {"a": 1}
        store.close()
        assert sorted(run_sql(fresh_postgres_url, PUBLIC)) == before
        assert run_sql(fresh_postgres_url, OURS) == []
        assert migrated(fresh_postgres_url), "and is migrated when it is asked for itself"


class TestBesideOthers:
    @pytest.mark.parametrize(
        "theirs",
        [
            "CREATE TABLE schema_migrations (version varchar PRIMARY KEY)",
            "CREATE TABLE schema_migrations (version bigint PRIMARY KEY, dirty boolean)",
            "CREATE TABLE schema_migrations AS SELECT 1 AS version, '0001_users' AS name",
            "CREATE VIEW schema_migrations AS SELECT 1 AS version, '0001_users' AS name",
        ],
    )
    def test_a_record_of_migrations_that_is_somebody_elses(
        self, fresh_postgres_url: str, theirs: str
    ) -> None:
        """Many tools keep one of that name."""
        run_sql(fresh_postgres_url, theirs)
        run_sql(fresh_postgres_url, "CREATE TABLE tasks (mine integer)")
        before = run_sql(fresh_postgres_url, "SELECT * FROM public.schema_migrations")
        store = PostgresStore(fresh_postgres_url, create=True)
        assert add(store, "a") == {"a": 1}
        assert store.migrate() == []
        store.close()
        assert run_sql(fresh_postgres_url, "SELECT * FROM public.schema_migrations") == before
        assert run_sql(fresh_postgres_url, "SELECT count(*) FROM public.tasks") == [(0,)]

    def test_one_that_this_user_may_not_read(self, fresh_postgres_url: str) -> None:
        run_sql(
            fresh_postgres_url,
            "CREATE TABLE schema_migrations (version integer, name text);"
            " DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN",
        )
        database = fresh_postgres_url.split("@/")[1].split("?", maxsplit=1)[0]
        run_sql(fresh_postgres_url, f"GRANT CREATE ON DATABASE {database} TO plain")
        url = fresh_postgres_url.replace("//postgres@", "//plain@")
        try:
            store = PostgresStore(url, create=True)
            assert add(store, "a") == {"a": 1}
            store.close()
        finally:
            run_sql(fresh_postgres_url, "DROP OWNED BY plain; DROP ROLE plain")
