"""A PostgreSQL ledger as one end of a move. Rows travel by COPY, all in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain, islice
from types import TracebackType
from typing import Any, LiteralString, cast

import psycopg
from psycopg import errors, sql

from agentq.contracts.copying import Fence, Fingerprint, Head, Holding, Snapshot
from agentq.core.errors import Invalid, Unavailable
from agentq.stores.postgres.errors import cannot_connect, in_words, parse_url
from agentq.stores.postgres.timeouts import SCHEMA, Limits, hung_up_after, is_unwanted
from agentq.stores.statements import statements
from agentq.stores.transfer import base as copying
from agentq.stores.transfer.base import BATCH, FENCE_TABLE, Passing

#: Batches per COPY: a statement must end within the time that statements have.
_BATCHES_PER_COPY = 20
#: A server that does not carry out one step of a move in this time will not carry out the next.
_STEP_SECONDS = 300.0
_TRIES = 5
_PATH = sql.SQL("SET LOCAL search_path = {}")
#: More events than there can be.
_ALL = 1 << 62

_HOLDING = """
SELECT t.key, s.id, t.epoch, t.holder, t.state FROM tasks t JOIN specs s ON s.key = t.key
WHERE t.holder <> '' ORDER BY t.key LIMIT 1000
"""
_COLUMNS = """
SELECT c.relname::text, a.attname::text
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.oid = ANY (%s::regclass[]) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_HEAD = """
SELECT position, coalesce(pg_sequence_last_value('task_keys'::regclass), 0),
       coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox', 'sequence')::regclass), 0),
       lanes
FROM head
"""
#: Events with their places in the log, which all have once nobody writes any more.
_EVENTS = """
SELECT {} FROM (SELECT l.position, e.* FROM events e JOIN log l USING (key, version)) AS placed
"""
_INCOMING = """
CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS
SELECT 0::bigint AS position, * FROM events WHERE false
"""
_PLACED = """
WITH e AS (
    INSERT INTO events (key, version, at, kind, trigger, state, epoch, data)
    SELECT key, version, at, kind, trigger, state, epoch, data FROM incoming
)
INSERT INTO log (position, key, version) SELECT position, key, version FROM incoming
"""
_IDENTITIES = """
SELECT a.attrelid::regclass::text, a.attname::text FROM pg_attribute a
WHERE a.attrelid = ANY (%s::regclass[]) AND a.attidentity <> ''
"""
_FENCE_WORDS = """
CREATE OR REPLACE FUNCTION agentq_fence() RETURNS trigger LANGUAGE plpgsql AS {body}
"""
_FENCE_BODY = "BEGIN RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = {words}; END"


#: Those who change a fence take turns, though no table of it may be there yet.
_TURN = 0x61676E7471666E63


def _connect(conninfo: str) -> psycopg.Connection:
    # Nothing is prepared: behind a pooler the next transaction may run on another session.
    connection = psycopg.connect(conninfo, prepare_threshold=None)
    # Whoever has waited for their turn sees what the one before did, whatever the server's default.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


@contextmanager
def _within(connection: psycopg.Connection, seconds: float) -> Iterator[None]:
    """One step that ends in this time, if only because the connection does."""
    if connection.closed:
        yield  # psycopg says so
        return
    with hung_up_after(connection, seconds):
        yield


class _Transaction:
    """Like psycopg's, and neither its beginning nor its end is waited for without limit."""

    def __init__(self, connection: psycopg.Connection, seconds: float, path: str) -> None:
        self._connection = connection
        self._seconds = seconds
        self._path = path
        self._transaction = connection.transaction()

    def __enter__(self) -> None:
        with _within(self._connection, self._seconds):
            self._transaction.__enter__()
            if self._path:
                # No query: one would fix the isolation level.
                self._connection.execute(_PATH.format(sql.Identifier(self._path)))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        with _within(self._connection, self._seconds):
            return bool(self._transaction.__exit__(kind, error, trace))


class PostgresCopy:
    """Keeps `contracts.copying.LedgerCopy` on one PostgreSQL database."""

    def __init__(
        self, url: str, limits: Limits | None = None, step_seconds: float = _STEP_SECONDS
    ) -> None:
        self._url, self._limits, self._step_seconds = url, limits or Limits(), step_seconds
        self.where = parse_url(url)[1]
        self._tables = copying.copied_tables("postgres")
        #: Where the tables are, if a session cannot be told once and for all.
        self._path = ""
        self._connection = self._connected()

    def _connected(self) -> psycopg.Connection:
        try:
            return _connect(parse_url(self._url, self._limits)[0])
        except psycopg.OperationalError as error:
            if not is_unwanted(error):
                raise cannot_connect(error, self.where) from error
            self._path = SCHEMA  # through a pooler: each transaction says it
            return _connect(parse_url(self._url)[0])

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection]:
        with self._in_words(), self._plain_transaction():
            yield self._connection

    def _plain_transaction(self) -> _Transaction:
        if self._connection.closed:  # what has to be put back is put back, if the server is back
            self._connection = self._connected()
        return _Transaction(self._connection, self._step_seconds, self._path)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except (errors.DataError, UnicodeEncodeError) as error:
            raise Invalid(
                f"A row does not fit into {self.where}: {' '.join(str(error).split())}."
                " Nothing was copied.",
                "PostgreSQL keeps no NUL characters; `agentq verify` names what is odd.",
            ) from error
        except psycopg.OperationalError as error:
            if not self._connection.closed:
                raise in_words(error, self.where) from error
            message = " ".join(str(error).split())
            raise Unavailable(
                f"The connection to {self.where} broke: {message}.",
                "Check that the server runs, then move again.",
            ) from error
        except psycopg.Error as error:
            raise in_words(error, self.where) from error

    def _rows(self, query: LiteralString | sql.Composed, *values: Any) -> list[tuple[Any, ...]]:
        with _within(self._connection, self._step_seconds):
            named = values[0] if values and isinstance(values[0], dict) else None
            cursor = self._connection.execute(query, named or values or None)
            return cursor.fetchall() if cursor.description else []

    # -- the fence -------------------------------------------------------------------------------

    def fence(self) -> Fence | None:
        found = None
        # It may be lifted between two looks.
        with self._in_words(), suppress(errors.UndefinedTable), self._plain_transaction():
            found = self._fence()
        return found

    def _fence(self) -> Fence | None:
        if not self._rows("SELECT to_regclass(%s)", FENCE_TABLE)[0][0]:
            return None
        rows = self._rows("SELECT * FROM agentq_fence")
        return Fence(*rows[0]) if rows else None

    def _fence_in_turn(self) -> Fence | None:
        """The fence, which nobody else changes in this transaction."""
        self._rows("SELECT pg_advisory_xact_lock(%s)", _TURN)
        return self._fence()

    def set_fence(self, fence: Fence) -> list[Holding]:
        with self._in_words():
            for _ in range(_TRIES - 1):
                with suppress(errors.DeadlockDetected):
                    return self._set_fence(fence)
            return self._set_fence(fence)

    def _set_fence(self, fence: Fence) -> list[Holding]:
        held: list[Holding] = []
        with self._plain_transaction():
            copying.check_closable(self.where, self._fence_in_turn(), fence)
            # Whoever writes ends first, and others wait; then every event gets its place.
            self._drop_fence()
            self._rows("LOCK TABLE events IN SHARE MODE")
            numbering = statements("postgres")
            self._rows(numbering["lock_head"])
            self._rows(numbering["number_events"], {"count": _ALL})
            self._raise_fence(fence)
            held = self._held()
            if held:
                raise psycopg.Rollback
        return held

    def _held(self) -> list[Holding]:
        return [Holding(*row) for row in self._rows(_HOLDING)]

    def change_fence(self, found: Fence, wanted: Fence) -> bool:
        with self._transaction():
            if self._fence_in_turn() != found or self._held():
                return False
            # The triggers stay where they are, so there is no moment without them.
            self._write_words(wanted)
            self._rows("UPDATE agentq_fence SET (state, peer, token) = (%s, %s, %s)", *wanted)
        return True

    def _write_words(self, fence: Fence) -> None:
        body = sql.SQL(_FENCE_BODY).format(words=sql.Literal(fence.words)).as_string()
        self._rows(sql.SQL(_FENCE_WORDS).format(body=sql.Literal(body)))

    def _raise_fence(self, fence: Fence) -> None:
        self._drop_fence()
        self._write_words(fence)
        for table in copying.all_tables("postgres"):
            trigger = sql.SQL(
                "CREATE TRIGGER agentq_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {}"
                " FOR EACH STATEMENT EXECUTE FUNCTION agentq_fence()"
            )
            self._rows(trigger.format(sql.Identifier(table)))
        self._rows("CREATE TABLE agentq_fence (state text, peer text, token text)")
        self._rows("INSERT INTO agentq_fence VALUES (%s, %s, %s)", *fence)

    def _drop_fence(self) -> None:
        self._rows("DROP FUNCTION IF EXISTS agentq_fence() CASCADE")
        self._rows("DROP TABLE IF EXISTS agentq_fence")

    def lift_fence(self, fence: Fence) -> bool:
        with self._transaction():
            if self._fence_in_turn() != fence:
                return False
            self._drop_fence()
        return True

    # -- reading ---------------------------------------------------------------------------------

    def check_fillable(self, fence: Fence) -> None:
        with self._transaction():
            self._check_fillable(fence)

    def _check_fillable(self, fence: Fence) -> None:
        copying.check_fillable(self.where, self._contents(), self._fence(), fence)

    def _contents(self) -> dict[str, int]:
        count = sql.SQL("SELECT count(*) FROM {}")
        counts = {
            table: int(self._rows(count.format(sql.Identifier(table)))[0][0])
            for table in self._tables
        }
        counts["head"] = int(self._rows("SELECT position FROM head")[0][0])  # pruned, but not new
        return {table: count for table, count in counts.items() if count}

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with self._transaction() as connection:
            self._rows("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield _PostgresSnapshot(connection, self._tables, self._step_seconds)

    def fingerprints(self) -> dict[str, Fingerprint]:
        with self.snapshot() as snapshot:
            return copying.fingerprints(snapshot)

    # -- filling ---------------------------------------------------------------------------------

    def fill(self, source: Snapshot, fence: Fence) -> dict[str, Fingerprint]:
        written: dict[str, Fingerprint] = {}
        with self._transaction() as connection:
            self._fence_in_turn()
            # Nobody begins to write here between the look and the fence.
            self._rows("LOCK TABLE head IN SHARE ROW EXCLUSIVE MODE")
            self._check_fillable(fence)
            columns_of = source.tables()
            here = _PostgresSnapshot(connection, self._tables, self._step_seconds).tables()
            copying.check_same_tables(columns_of, here, self.where)
            self._empty()
            for table, columns in columns_of.items():
                written[table] = self._pour(table, sorted(columns), source)
            self._set_head(source.head())
            for table in self._tables:  # the plans of the first hour shall know what is there
                self._rows(sql.SQL("ANALYZE {}").format(sql.Identifier(table)))
            self._raise_fence(fence)
        return written

    def _pour(self, table: str, names: Sequence[str], source: Snapshot) -> Fingerprint:
        passing = Passing()
        batches = passing.through(source.rows(table, names))
        if table == "events":
            self._rows(_INCOMING)
        into = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier("incoming" if table == "events" else table),
            sql.SQL(", ").join(map(sql.Identifier, names)),
        )
        for first in batches:
            with (
                _within(self._connection, self._step_seconds),
                self._connection.cursor() as cursor,
                cursor.copy(into) as copy,
            ):
                for batch in chain([first], islice(batches, _BATCHES_PER_COPY - 1)):
                    for row in batch:
                        copy.write_row(row)
        if table == "events":
            self._rows(_PLACED)
        return passing.fingerprint

    def _set_head(self, head: Head) -> None:
        ((here,),) = self._rows("SELECT lanes FROM head")
        lanes = " ".join(sorted(head.lanes | set(here.split())))
        self._rows("UPDATE head SET position = %s, lanes = %s", head.position, lanes)
        if head.key:
            self._rows("SELECT setval('task_keys', %s)", head.key)
        for table, column in self._rows(_IDENTITIES, self._tables):
            highest = sql.SQL("SELECT coalesce(max({}), 0) FROM {}").format(
                sql.Identifier(column), sql.Identifier(table)
            )
            last = int(self._rows(highest)[0][0])
            if table == "outbox":
                last = max(last, head.sequence)
            if last:
                self._rows("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", table, column, last)

    def _empty(self) -> None:
        self._drop_fence()
        for table in (*self._tables, "log", "unnumbered"):
            self._rows(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
        self._rows("UPDATE head SET position = 0")

    def clear(self, fence: Fence) -> bool:
        with self._transaction():
            if not copying.is_copy(self._fence_in_turn(), fence):
                return False
            self._empty()
        return True


class _PostgresSnapshot:
    def __init__(
        self, connection: psycopg.Connection, tables: Sequence[str], step_seconds: float
    ) -> None:
        self._connection = connection
        self._tables = list(tables)
        self._step_seconds = step_seconds

    def _within(self) -> AbstractContextManager[None]:
        return _within(self._connection, self._step_seconds)

    def tables(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {table: [] for table in self._tables}
        with self._within():
            columns = self._connection.execute(_COLUMNS, [self._tables]).fetchall()
        for table, column in columns:
            found[table].append(column)
        found["events"].append("position")
        return {table: tuple(columns) for table, columns in found.items()}

    def head(self) -> Head:
        with self._within():
            row = self._connection.execute(_HEAD).fetchone()
        assert row is not None
        position, key, sequence, lanes = cast("tuple[int, int, int, str]", row)
        return Head(position, key, sequence, frozenset(lanes.split()))

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        query = sql.SQL("SELECT {} FROM {}").format(names, sql.Identifier(table))
        if table == "events":
            query = sql.SQL(_EVENTS).format(names)
        cursor = self._connection.cursor(name="agentq_copy")
        try:
            with self._within():
                cursor.execute(query)
            while True:
                with self._within():
                    batch = cursor.fetchmany(BATCH)
                if not batch:
                    return
                yield batch
        finally:
            with self._within():
                cursor.close()
