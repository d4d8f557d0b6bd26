"""Writing inside somebody else's transaction: a psycopg connection that the caller has opened.

Everything happens inside a savepoint, so that a submission which is refused leaves the caller's
transaction as it was. The connection is the caller's: its search_path and lock_timeout are set for
these statements only, its row factory and cursor class are not used, and nothing begins or ends its
transaction. Nothing is locked here but new rows.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, LiteralString, NamedTuple, TypeAlias

import psycopg
from psycopg import errors, pq, sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from agentq.contracts.service_values import LoopConnection
from agentq.contracts.store import RunAgain, T, Tx
from agentq.core.errors import AgentqError, Invalid, Refused, Unavailable
from agentq.stores.postgres.clock import ServerClock
from agentq.stores.postgres.errors import asks_to_run_again, in_words
from agentq.stores.postgres.pipeline import Call, Statement
from agentq.stores.postgres.save import notification
from agentq.stores.postgres.timeouts import Limits
from agentq.stores.postgres.transaction import PostgresTx

_RUNS = 20
_NOTHING = "Nothing was submitted."

Query: TypeAlias = bytes | sql.SQL | sql.Composed
Connection: TypeAlias = "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]"


class Identity(NamedTuple):
    """Which database a ledger is in, and where in it."""

    started: int
    database: int
    table: int
    schema: str
    search_path: str


class _Facts(NamedTuple):
    """How the caller's connection is set, and where it leads."""

    started: int
    database: int
    table: int | None
    name: str
    search_path: str
    lock_timeout: str
    lock_timeout_ms: int
    read_only: str
    now: int


class CallersTransactions:
    """Runs changes of one ledger in transactions that others have begun and will end."""

    def __init__(
        self,
        statements: Mapping[str, Statement],
        clock: Callable[[], int] | None,
        limits: Limits,
        where: str,
        identity: Callable[[], Identity],
    ) -> None:
        self._sql = statements
        self._clock = clock
        self._limits = limits
        self._where = where
        self._ask_identity = identity
        self._identity: Identity | None = None

    def write(self, change: Callable[[Tx], T], connection: object) -> T:
        wire = _wire(connection)
        _check_usable(wire.connection)
        try:
            facts = self._facts(wire)
            for _ in range(_RUNS):
                try:
                    return self._write_once(change, wire, facts)
                except RunAgain:
                    continue
        except psycopg.Error as error:
            raise self._in_words(error, wire.connection) from error
        except UnicodeEncodeError as error:
            raise Invalid(
                f"A text does not fit into the encoding of your connection: {error}. {_NOTHING}",
                "Connect with client_encoding=utf8.",
            ) from error
        raise Unavailable(f"The ledger kept changing under this request. {_NOTHING}", "Try again.")

    def _facts(self, wire: _Wire) -> _Facts:
        """Ask the connection where it leads. This begins its transaction, if nothing has."""
        identity = self._identity = self._identity or self._ask_identity()
        asked = [Call(self._sql["callers_facts"], {"schema": identity.schema})]
        facts = _Facts(*wire.exchange(asked)[0][0])
        if facts[:3] != identity[:3]:
            # The server of the ledger may be another one since this process last asked.
            identity = self._identity = self._ask_identity()
        if facts[:3] != identity[:3]:
            raise Invalid(
                f"The connection leads to the database {facts.name!r}, which is not the one of the"
                f" ledger {self._where}. {_NOTHING}",
                "Submit on a connection to the ledger's database; or, where your tables are in"
                " another one, commit first and submit then, with an idempotency_key.",
                code="other_database",
            )
        if facts.read_only == "on":
            raise Refused(
                f"The transaction of the connection is read-only. {_NOTHING}",
                "Begin one that may write.",
                code="read_only_transaction",
            )
        return facts

    def _write_once(self, change: Callable[[Tx], T], wire: _Wire, facts: _Facts) -> T:
        assert self._identity is not None
        wire.run(_set("SAVEPOINT agentq", self._identity.search_path, self._lock_timeout(facts)))
        tx = _CallersTx(wire, self._sql, self._clock, facts.now)
        try:
            result = change(tx)
            tx.flush()
        except BaseException as error:
            if not wire.connection.closed:
                wire.run(sql.SQL("ROLLBACK TO SAVEPOINT agentq; RELEASE SAVEPOINT agentq"))
            if isinstance(error, psycopg.Error) and asks_to_run_again(error):
                raise RunAgain from error
            raise
        wire.run(_set("RELEASE SAVEPOINT agentq", facts.search_path, facts.lock_timeout))
        return result

    def _lock_timeout(self, facts: _Facts) -> str:
        """The caller's, if that is shorter than ours: a transaction may wait for its twin."""
        ours = round(self._limits.lock * 1000)
        theirs = facts.lock_timeout_ms
        return str(min(ours, theirs) if theirs else ours)

    def _in_words(self, error: psycopg.Error, connection: Connection) -> AgentqError:
        said = " ".join((error.diag.message_primary or str(error)).split())
        if connection.closed:
            return Unavailable(
                f"Your connection broke: {said}. Its transaction is over. {_NOTHING}",
                "Connect again and run your transaction again.",
                code="server_away",
            )
        if isinstance(error, errors.LockNotAvailable):
            return Unavailable(
                "Another transaction has submitted the same id or idempotency key and is still"
                f" open; it was waited for until the lock timeout. {_NOTHING}",
                "Try again when that one has ended (pg_stat_activity shows it).",
                code="submission_under_way",
            )
        if isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected)):
            return Unavailable(
                f"The server could not fit your transaction in among others: {said}. {_NOTHING}",
                "Roll back and run your transaction again.",
                code="run_again",
            )
        # Tables in a schema that one may not use are not found; that they are there was seen.
        if isinstance(error, (errors.InsufficientPrivilege, errors.UndefinedTable)):
            schema = self._identity.schema if self._identity else "agentq"
            return Unavailable(
                f"The user of your connection lacks a right: {said}. {_NOTHING}",
                f"GRANT USAGE ON SCHEMA {schema} TO that user; GRANT SELECT, INSERT, UPDATE ON"
                f" {schema}.dedup, {schema}.outbox TO it; GRANT SELECT ON {schema}.specs,"
                f" {schema}.tasks TO it; GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO it.",
            )
        return in_words(error, self._where)


class _CallersTx(PostgresTx):
    """The verbs of a transaction on a connection where nothing is begun, timed or committed."""

    def __init__(
        self,
        wire: _Wire,
        statements: Mapping[str, Statement],
        clock: Callable[[], int] | None,
        now: int,
    ) -> None:
        # No event is written here, so which lanes are open does not matter: none.
        super().__init__(wire, statements, clock, str, ServerClock(), None)
        self.begun, self.moment = True, now

    def _ask_all(self, asked: Sequence[Call]) -> list[list[Any]]:
        return self._wire.exchange([*self._writing(), *asked])[-len(asked) :]

    def flush(self) -> None:
        """Send what `save` was given. The ring is heard by others when the caller has committed."""
        calls = self._writing()
        topics = notification(self._topics)
        if topics:
            calls.append(Call(self._sql["notify"], {"topics": topics}))
        self._wire.exchange(calls)


def _set(command: LiteralString, search_path: str, lock_timeout: str) -> sql.Composed:
    """A command of savepoints with two settings of this transaction, in one round trip."""
    return sql.SQL(
        "{}; SELECT set_config('search_path', {}, true), set_config('lock_timeout', {}, true)"
    ).format(sql.SQL(command), sql.Literal(search_path), sql.Literal(lock_timeout))


# -- the connection --------------------------------------------------------------------------------


class _Wire(ABC):
    """A caller's connection, spoken to like one of ours."""

    autocommits = False

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def exchange(self, calls: Sequence[Call], after: Sequence[Call] = ()) -> list[list[Any]]:
        assert not after, "nothing can be sent after a commit that is the caller's"
        return [
            list(
                map(make_row, self.run(statement.sql, [_array(values[n]) for n in statement.names]))
            )
            for statement, values, make_row in calls
        ]

    @abstractmethod
    def run(self, query: Query, values: Sequence[object] = ()) -> list[Any]:
        """Run one statement, or several that have no values; the rows of one that gives any."""


class _SyncWire(_Wire):
    connection: psycopg.Connection[Any]

    def run(self, query: Query, values: Sequence[object] = ()) -> list[Any]:
        # Not the connection's own cursor: that may be of any class.
        with psycopg.RawCursor(self.connection, row_factory=tuple_row) as cursor:
            cursor.execute(query, values or None, prepare=None if values else False)
            return cursor.fetchall() if cursor.description else []


class _AsyncWire(_Wire):
    """The same from a thread beside the event loop that the connection lives on."""

    connection: psycopg.AsyncConnection[Any]

    def __init__(self, connection: psycopg.AsyncConnection[Any], loop: Any) -> None:
        super().__init__(connection)
        self._loop = loop

    def run(self, query: Query, values: Sequence[object] = ()) -> list[Any]:
        return asyncio.run_coroutine_threadsafe(self._run(query, values), self._loop).result()

    async def _run(self, query: Query, values: Sequence[object]) -> list[Any]:
        async with psycopg.AsyncRawCursor(self.connection, row_factory=tuple_row) as cursor:
            await cursor.execute(query, values or None, prepare=None if values else False)
            return await cursor.fetchall() if cursor.description else []


def _array(value: object) -> object:
    """Psycopg takes a list for an array, and a tuple for a record."""
    return list(value) if isinstance(value, tuple) else value


def _wire(connection: object) -> _Wire:
    if isinstance(connection, psycopg.Connection):
        return _SyncWire(connection)
    if isinstance(connection, LoopConnection):
        if isinstance(connection.connection, psycopg.AsyncConnection):
            return _AsyncWire(connection.connection, connection.loop)
        connection = connection.connection
    if isinstance(connection, psycopg.AsyncConnection):
        raise Invalid(
            f"An AsyncConnection is waited for with `await`, and this call is not. {_NOTHING}",
            "Submit with an AsyncQueue.",
        )
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise Invalid(
        f"`connection` is a psycopg 3 Connection or AsyncConnection, got {kind}. {_NOTHING}",
        "Of an SQLAlchemy session over psycopg 3 it is"
        " session.connection().connection.driver_connection.",
    )


def _check_usable(connection: Connection) -> None:
    """Refuse a connection on which no transaction of the caller can carry the submission."""
    if connection.closed:
        raise Invalid(
            f"The connection is closed. {_NOTHING}", "Submit before it is closed, or on another."
        )
    status = connection.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise Invalid(
            "The transaction of the connection has failed already: nothing of it can be committed."
            f" {_NOTHING}",
            "Roll it back, and run it again.",
            code="failed_transaction",
        )
    if connection.autocommit and status == TransactionStatus.IDLE:
        raise Invalid(
            "The connection is in autocommit mode and no transaction is open, so there is none that"
            f" the task could be part of. {_NOTHING}",
            "Submit inside `with connection.transaction():`; or leave `connection` out.",
            code="no_transaction",
        )
    pipelined = connection.pgconn.pipeline_status != pq.PipelineStatus.OFF
    if pipelined or status not in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
        raise Invalid(
            "The connection is busy (in a pipeline, a COPY, or streaming rows). " + _NOTHING,
            "Submit before or after that.",
            code="busy_connection",
        )
