"""A PostgreSQL ledger as one end of a move. Rows travel by COPY, all in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, LiteralString, cast

import psycopg
from psycopg import errors, sql

from agentq.contracts.copying import Fence, Fingerprint, Head, Holding, Snapshot
from agentq.core.errors import Conflict, Invalid, Unavailable
from agentq.stores import copying
from agentq.stores.copying import BATCH, FENCE_TABLE, Passing
from agentq.stores.postgres_limits import Limits, hung_up_after, is_unwanted
from agentq.stores.postgres_words import cannot_connect, in_words, parse_url

#: Batches per COPY: a statement must end within the time that statements have.
_BATCHES_PER_COPY = 20
#: A server that does not carry out one step of a move in this time will not carry out the next.
_STEP_SECONDS = 300.0
_TRIES = 5

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
_IDENTITIES = """
SELECT a.attrelid::regclass::text, a.attname::text FROM pg_attribute a
WHERE a.attrelid = ANY (%s::regclass[]) AND a.attidentity <> ''
"""
_FENCE_WORDS = """
CREATE FUNCTION agentq_fence() RETURNS trigger LANGUAGE plpgsql AS {body}
"""
_FENCE_BODY = "BEGIN RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = {words}; END"


def _connect(conninfo: str) -> psycopg.Connection:
    # Nothing is prepared: behind a pooler the next transaction may run on another session.
    return psycopg.connect(conninfo, prepare_threshold=None)


class PostgresCopy:
    """Keeps `contracts.copying.LedgerCopy` on one PostgreSQL database."""

    def __init__(self, url: str, limits: Limits | None = None) -> None:
        conninfo, self.where = parse_url(url, limits or Limits())
        self._tables = copying.copied_tables("postgres")
        try:
            self._connection = _connect(conninfo)
        except psycopg.OperationalError as error:
            if not is_unwanted(error):
                raise cannot_connect(error, self.where) from error
            self._connection = _connect(parse_url(url)[0])  # through a pooler

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection]:
        try:
            with self._connection.transaction():
                yield self._connection
        except (errors.DataError, UnicodeEncodeError) as error:
            raise Invalid(
                f"A row does not fit into {self.where}: {' '.join(str(error).split())}."
                " Nothing was copied.",
                "PostgreSQL keeps no NUL characters; `agentq verify` names what is odd.",
            ) from error
        except psycopg.OperationalError as error:
            if not self._connection.closed:
                raise in_words(error, self.where) from error
            said = " ".join(str(error).split())
            raise Unavailable(
                f"The connection to {self.where} broke: {said}. Nothing was copied.",
                "Check that the server runs, then move again.",
            ) from error
        except psycopg.Error as error:
            raise in_words(error, self.where) from error

    def _rows(self, query: LiteralString | sql.Composed, *values: object) -> list[tuple[Any, ...]]:
        with hung_up_after(self._connection, _STEP_SECONDS):
            cursor = self._connection.execute(query, values or None)
            return cursor.fetchall() if cursor.description else []

    # -- the fence -------------------------------------------------------------------------------

    def fence(self) -> Fence | None:
        with self._transaction():
            return self._fence()

    def _fence(self) -> Fence | None:
        if not self._rows("SELECT to_regclass(%s)", FENCE_TABLE)[0][0]:
            return None
        rows = self._rows("SELECT state, peer FROM agentq_fence")
        return Fence(*rows[0]) if rows else None

    def set_fence(self, fence: Fence) -> list[Holding]:
        for tries in range(1, _TRIES + 1):
            try:
                with self._connection.transaction():
                    # Each trigger waits for those who write: after the last one nobody does.
                    self._raise_fence(fence)
                    held = [Holding(*row) for row in self._rows(_HOLDING)]
                    if held:
                        raise psycopg.Rollback
                return held
            except errors.DeadlockDetected as error:
                if tries == _TRIES:
                    raise in_words(error, self.where) from error
            except psycopg.Error as error:
                raise in_words(error, self.where) from error
        return []

    def _raise_fence(self, fence: Fence) -> None:
        self._drop_fence()
        body = sql.SQL(_FENCE_BODY).format(words=sql.Literal(fence.words)).as_string()
        self._rows(sql.SQL(_FENCE_WORDS).format(body=sql.Literal(body)))
        for table in copying.all_tables("postgres"):
            trigger = sql.SQL(
                "CREATE TRIGGER agentq_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {}"
                " FOR EACH STATEMENT EXECUTE FUNCTION agentq_fence()"
            )
            self._rows(trigger.format(sql.Identifier(table)))
        self._rows("CREATE TABLE agentq_fence (state text, peer text)")
        self._rows("INSERT INTO agentq_fence VALUES (%s, %s)", *fence)

    def _drop_fence(self) -> None:
        self._rows("DROP FUNCTION IF EXISTS agentq_fence() CASCADE")
        self._rows("DROP TABLE IF EXISTS agentq_fence")

    def lift_fence(self) -> None:
        with self._transaction():
            self._drop_fence()

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
            yield _PostgresSnapshot(connection, self._tables)

    def fingerprints(self) -> dict[str, Fingerprint]:
        with self.snapshot() as snapshot:
            return copying.fingerprints(snapshot)

    # -- filling ---------------------------------------------------------------------------------

    def fill(self, source: Snapshot, fence: Fence) -> dict[str, Fingerprint]:
        written: dict[str, Fingerprint] = {}
        with self._transaction() as connection:
            # Nobody begins to write here between the look and the fence.
            self._rows("LOCK TABLE head IN SHARE ROW EXCLUSIVE MODE")
            self._check_fillable(fence)
            columns_of = source.tables()
            here = _PostgresSnapshot(connection, self._tables).tables()
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
        into = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, names))
        )
        for first in batches:
            with (
                hung_up_after(self._connection, _STEP_SECONDS),
                self._connection.cursor() as cursor,
                cursor.copy(into) as copy,
            ):
                for batch in chain([first], islice(batches, _BATCHES_PER_COPY - 1)):
                    for row in batch:
                        copy.write_row(row)
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
        for table in self._tables:
            self._rows(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
        self._rows("UPDATE head SET position = 0")

    def clear(self) -> None:
        with self._transaction():
            found = self._fence()
            if found is None or found.state != "filling":
                raise Conflict(f"The ledger {self.where} is in use. Nothing was deleted.")
            self._empty()


class _PostgresSnapshot:
    def __init__(self, connection: psycopg.Connection, tables: Sequence[str]) -> None:
        self._connection = connection
        self._tables = list(tables)

    def tables(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {table: [] for table in self._tables}
        for table, column in self._connection.execute(_COLUMNS, [self._tables]):
            found[table].append(column)
        return {table: tuple(columns) for table, columns in found.items()}

    def head(self) -> Head:
        row = self._connection.execute(_HEAD).fetchone()
        assert row is not None
        position, key, sequence, lanes = cast("tuple[int, int, int, str]", row)
        return Head(position, key, sequence, frozenset(lanes.split()))

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        query = sql.SQL("SELECT {} FROM {}").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(table)
        )
        with self._connection.cursor(name="agentq_copy") as cursor:
            cursor.execute(query)
            while True:
                with hung_up_after(self._connection, _STEP_SECONDS):
                    batch = cursor.fetchmany(BATCH)
                if not batch:
                    return
                yield batch
