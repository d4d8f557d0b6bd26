"""A PostgreSQL ledger as one end of a move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql

from agentq.contracts.copying import Head
from agentq.core.errors import AgentqError, Invalid, Refused, Unavailable
from agentq.stores.postgres.errors import cannot_connect, in_words, parse_url
from agentq.stores.postgres.timeouts import ANY_PATH, SCHEMA, hung_up_after
from agentq.stores.transfer.base import (
    BATCH,
    Batches,
    LedgerCopy,
    all_tables,
    copied_tables,
    quoted,
)

#: A server that does not carry out one step of a move in this time will not carry out the next.
_STEP_SECONDS = 300.0
#: Where the tables are and how long to wait for a lock, unless the address says so; and that the
#: transaction may wait for the other database. Behind a pooler the next one may run elsewhere.
_SETTINGS = f"""
SELECT set_config('search_path',
           coalesce(nullif(current_setting('search_path'), '{ANY_PATH}'), '{SCHEMA}'), true),
       set_config('lock_timeout',
           coalesce(nullif(current_setting('lock_timeout'), '0'), '25s'), true),
       set_config('idle_in_transaction_session_timeout', '0', true)
"""
#: An older ledger, whose move is undone, has fewer than this version knows.
_TABLES = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NOT NULL"
_COLUMNS = """
SELECT c.relname::text, array_agg(a.attname::text)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.oid = ANY (%s::regclass[]) AND a.attnum > 0 AND NOT a.attisdropped GROUP BY 1 ORDER BY 1
"""
_HEAD = """
SELECT position, coalesce(pg_sequence_last_value('task_keys'::regclass), 0),
       coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox', 'sequence')::regclass), 0),
       lanes, ledger_id
FROM head
"""
#: Events with their positions in the log, which all have once nobody writes any more.
_EVENTS = "(SELECT l.position, e.* FROM events e JOIN log l USING (key, version)) AS placed"
_LOG_COLUMNS = ["position", "key", "version"]


class PostgresCopy(LedgerCopy):
    """One PostgreSQL database."""

    dialect = "postgres"
    head_sql = _HEAD

    def __init__(self, url: str, step_seconds: float = _STEP_SECONDS) -> None:
        conninfo, self.where = parse_url(url)
        self._step_seconds = step_seconds
        try:
            # Nothing is prepared: a pooler may give the next transaction another session.
            self._connection = psycopg.connect(conninfo, prepare_threshold=None, autocommit=True)
        except psycopg.OperationalError as error:
            raise cannot_connect(error, self.where) from error

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self, *, exclusive: bool = False) -> Iterator[None]:
        mode = "READ COMMITTED" if exclusive else "REPEATABLE READ, READ ONLY"
        self.query(f"BEGIN ISOLATION LEVEL {mode}")
        try:
            self.query(_SETTINGS)
            if exclusive:
                there = [name for (name,) in self.query(_TABLES, all_tables("postgres"))]
                self.query(f"LOCK TABLE {quoted(there)} IN EXCLUSIVE MODE")
            yield
            self.query("COMMIT")
        except BaseException:
            with suppress(AgentqError):  # what went wrong before is what is raised
                self.query("ROLLBACK")
            raise

    @contextmanager
    def _one_step(self) -> Iterator[None]:
        """Ends in time, if only because the connection does; errors become those of agentq."""
        try:
            with hung_up_after(self._connection, self._step_seconds):
                yield
        except (psycopg.DataError, UnicodeEncodeError) as error:
            raise Invalid(
                f"A row does not fit into {self.where}: {' '.join(str(error).split())}."
                " Nothing was copied.",
                "PostgreSQL keeps no NUL characters; `agentq verify` names what is odd.",
            ) from error
        except psycopg.Error as error:
            if not self._connection.closed:
                raise in_words(error, self.where) from error
            raise Unavailable(
                f"The connection to {self.where} broke: {' '.join(str(error).split())}.",
                "Check that the server runs, then move again.",
            ) from error

    def query(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._one_step():
            cursor = self._connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def has_table(self, name: str) -> bool:
        return self.query("SELECT to_regclass(%s)", name)[0][0] is not None

    def add_triggers(self, message: str) -> None:
        refuse = sql.SQL("BEGIN RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = {}; END")
        body = sql.Literal(refuse.format(sql.Literal(message)).as_string())
        function = sql.SQL("CREATE FUNCTION agentq_fence() RETURNS trigger LANGUAGE plpgsql AS {}")
        self.query(function.format(body).as_string())
        for table in all_tables("postgres"):
            self.query(
                f"CREATE TRIGGER agentq_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE"
                f" ON {table} FOR EACH STATEMENT EXECUTE FUNCTION agentq_fence()"
            )

    def drop_triggers(self) -> None:
        self.query("DROP FUNCTION IF EXISTS agentq_fence() CASCADE")

    def tables(self) -> dict[str, list[str]]:
        found = dict(self.query(_COLUMNS, copied_tables("postgres")))
        found["events"].append("position")
        return {table: sorted(columns) for table, columns in found.items()}

    def rows(self, table: str, columns: list[str]) -> Batches:
        if table == "events" and self.query("SELECT 1 FROM unnumbered LIMIT 1"):
            raise Refused(
                f"Somebody writes to {self.where} while it is copied. Nothing was moved.",
                "Stop everything that submits, works or runs `agentq up` here, then move again.",
                code="not_quiet",
            )
        origin = _EVENTS if table == "events" else table
        self.query(f"DECLARE copied CURSOR FOR SELECT {quoted(columns)} FROM {origin}")  # noqa: S608
        while batch := self.query(f"FETCH {BATCH} FROM copied"):
            yield batch
        self.query("CLOSE copied")

    def insert(self, table: str, columns: list[str], batches: Batches) -> None:
        into = {table: columns}
        if table == "events":
            into = {table: [name for name in columns if name != "position"], "log": _LOG_COLUMNS}
        for batch in batches:
            for name, names in into.items():
                places, marks = [columns.index(each) for each in names], ["%s"] * len(names)
                insert = f"INSERT INTO {name} ({quoted(names)}) VALUES ({', '.join(marks)})"  # noqa: S608
                rows = [[row[place] for place in places] for row in batch]
                with self._one_step(), self._connection.cursor() as cursor:
                    cursor.executemany(insert.encode(), rows)

    def after_filling(self, head: Head) -> None:
        lanes = " ".join(sorted(head.lanes))
        self.query(
            "UPDATE head SET position = %s, lanes = %s, ledger_id = %s",
            head.position, lanes, head.ledger_id,
        )  # fmt: skip
        ((last_role,),) = self.query("SELECT coalesce(max(id), 0) FROM roles")
        ((last_audit,),) = self.query("SELECT coalesce(max(number), 0) FROM audit")
        ((last_hook,),) = self.query("SELECT coalesce(max(number), 0) FROM hook_deliveries")
        last_used = {
            "task_keys": head.key,
            "roles_id_seq": last_role,
            "outbox_sequence_seq": head.outbox_sequence,
            "audit_number_seq": last_audit,
            "hook_deliveries_number_seq": last_hook,
        }
        for sequence, last in last_used.items():
            self.query("SELECT setval(%s, %s, %s)", sequence, max(last, 1), last > 0)
        for table in copied_tables("postgres"):  # the plans of the first hour know what is there
            self.query(f"ANALYZE {table}")
