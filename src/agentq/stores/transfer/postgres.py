"""A PostgreSQL ledger as one end of a move. Rows travel by COPY, all in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors, sql

from agentq.contracts.copying import Fence, Head, Snapshot
from agentq.core.errors import Invalid, Refused, Unavailable
from agentq.stores.postgres.errors import cannot_connect, in_words, parse_url
from agentq.stores.postgres.timeouts import SCHEMA, Limits, hung_up_after, is_unwanted
from agentq.stores.statements import statements
from agentq.stores.transfer.base import (
    BATCH,
    Batches,
    DatabaseCopy,
    all_tables,
    copied_tables,
    quoted,
)

#: A server that does not carry out one step of a move in this time will not carry out the next.
_STEP_SECONDS = 300.0
#: More events than there can be.
_ALL = 1 << 62

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
_PLACE = ["position", "key", "version"]
_EVENTS = "(SELECT l.position, e.* FROM events e JOIN log l USING (key, version)) AS placed"
#: Those who change a mark take turns, though no table of it may be there yet.
_TURN = 0x61676E7471666E63
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class PostgresCopy(DatabaseCopy):
    """One PostgreSQL database."""

    dialect = "postgres"

    def __init__(
        self, url: str, limits: Limits | None = None, step_seconds: float = _STEP_SECONDS
    ) -> None:
        self._url, self._limits, self._step_seconds = url, limits or Limits(), step_seconds
        self.where = parse_url(url)[1]
        self._tables = copied_tables("postgres")
        #: Where the tables are, if a session cannot be told once and for all.
        self._path = ""
        self._connection = self._connected()

    def _connected(self) -> psycopg.Connection:
        # Nothing is prepared: behind a pooler the next transaction may run on another session.
        try:
            conninfo = parse_url(self._url, self._limits)[0]
            return psycopg.connect(conninfo, prepare_threshold=None, autocommit=True)
        except psycopg.OperationalError as error:
            if not is_unwanted(error):
                raise cannot_connect(error, self.where) from error
            self._path = SCHEMA  # through a pooler: each transaction says it
            conninfo = parse_url(self._url)[0]
            return psycopg.connect(conninfo, prepare_threshold=None, autocommit=True)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[None]:
        with self._in_words():
            if self._connection.closed:  # what has to be put back is put back, once it is there
                self._connection = self._connected()
            self._ask("BEGIN ISOLATION LEVEL READ COMMITTED" if writes else _READING)
            try:
                if self._path:
                    self._ask(f"SET LOCAL search_path = {self._path}")
                if writes:
                    self._ask("SELECT pg_advisory_xact_lock(%s)", _TURN)
                yield
            except BaseException:
                with suppress(psycopg.Error):  # what went wrong before is what is raised
                    self._ask("ROLLBACK")
                raise
            self._ask("COMMIT")

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

    @contextmanager
    def _within_limit(self) -> Iterator[None]:
        """One step that ends in time, if only because the connection does."""
        if self._connection.closed:
            yield  # psycopg says so
            return
        with hung_up_after(self._connection, self._step_seconds):
            yield

    def _ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._within_limit():
            cursor = self._connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def _has_table(self, name: str) -> bool:
        return self._ask("SELECT to_regclass(%s)", name)[0][0] is not None

    def fence(self) -> Fence | None:
        try:
            return super().fence()
        except Unavailable as error:
            if isinstance(error.__cause__, errors.UndefinedTable):
                return None  # lifted between two looks
            raise

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with super().snapshot() as snapshot:
            if self._ask("SELECT 1 FROM unnumbered LIMIT 1"):
                raise Refused(
                    f"Somebody writes to {self.where} while it is copied. Nothing was moved.",
                    "Stop everything that submits, works or runs `agentq up` here, then move"
                    " again.",
                    code="not_quiet",
                )
            yield snapshot

    def _number_events(self) -> None:
        numbering = statements("postgres")
        self._ask(numbering["lock_head"])
        with self._within_limit():
            self._connection.execute(numbering["number_events"], {"count": _ALL})

    def _lock(self) -> None:
        self._ask(f"LOCK TABLE {quoted(all_tables('postgres'))} IN EXCLUSIVE MODE")

    def _add_triggers(self, words: str) -> None:
        refuse = sql.SQL("BEGIN RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = {}; END")
        body = sql.Literal(refuse.format(sql.Literal(words)).as_string())
        function = sql.SQL("CREATE FUNCTION agentq_fence() RETURNS trigger LANGUAGE plpgsql AS {}")
        self._ask(function.format(body).as_string())
        for table in all_tables("postgres"):
            self._ask(
                f"CREATE TRIGGER agentq_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE"
                f" ON {table} FOR EACH STATEMENT EXECUTE FUNCTION agentq_fence()"
            )

    def _drop_triggers(self) -> None:
        self._ask("DROP FUNCTION IF EXISTS agentq_fence() CASCADE")

    def tables(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {table: [] for table in self._tables}
        for table, column in self._ask(_COLUMNS, self._tables):
            found[table].append(column)
        found["events"].append("position")
        return {table: tuple(columns) for table, columns in found.items()}

    def head(self) -> Head:
        ((position, key, sequence, lanes),) = self._ask(_HEAD)
        return Head(position, key, sequence, frozenset(lanes.split()))

    def rows(self, table: str, columns: Sequence[str]) -> Batches:
        placed = _EVENTS if table == "events" else table
        cursor = self._connection.cursor(name="agentq_copy")
        try:
            with self._within_limit():
                cursor.execute(f"SELECT {quoted(columns)} FROM {placed}".encode())  # noqa: S608
            while True:
                with self._within_limit():
                    batch = cursor.fetchmany(BATCH)
                if not batch:
                    return
                yield batch
        finally:
            with self._within_limit():
                cursor.close()

    def _pour(self, table: str, names: list[str], batches: Batches) -> None:
        into = {table: names}
        if table == "events":
            into = {table: [name for name in names if name != "position"], "log": _PLACE}
        for batch in batches:
            for name, columns in into.items():
                places, marks = [names.index(each) for each in columns], ["%s"] * len(columns)
                insert = f"INSERT INTO {name} ({quoted(columns)}) VALUES ({', '.join(marks)})"  # noqa: S608
                with self._within_limit(), self._connection.cursor() as cursor:
                    cursor.executemany(
                        insert.encode(), [[row[place] for place in places] for row in batch]
                    )

    def _after_filling(self, head: Head) -> None:
        lanes = " ".join(sorted(head.lanes))
        self._ask("UPDATE head SET position = %s, lanes = %s", head.position, lanes)
        ((last_role,),) = self._ask("SELECT coalesce(max(id), 0) FROM roles")
        self._set_sequence("task_keys", head.key)
        self._set_sequence("roles_id_seq", last_role)
        self._set_sequence("outbox_sequence_seq", head.sequence)
        for table in self._tables:  # the plans of the first hour shall know what is there
            self._ask(f"ANALYZE {table}")

    def _set_sequence(self, name: str, last: int) -> None:
        self._ask("SELECT setval(%s, %s, %s)", name, max(last, 1), last > 0)
