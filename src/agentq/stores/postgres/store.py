"""PostgreSQL through psycopg 3: one ledger for many machines.

Rows are locked with FOR UPDATE, claims skip what others have locked, and events get their places in
the log after they have committed (see `number_events`). The server's clock is the clock.
A server that goes away is waited for; an unanswered COMMIT is looked up afterwards in the log, so
that a change is neither lost nor made twice.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

from agentq.contracts.store import EventRow, Reader, RunAgain, T, Tx
from agentq.core.errors import AgentqError, Invalid, Unavailable
from agentq.stores.migrate import check_version, no_ledger
from agentq.stores.postgres import maintenance as care
from agentq.stores.postgres.clock import ServerClock
from agentq.stores.postgres.errors import (
    DEMOTED,
    PASSING,
    POOLED,
    asks_to_run_again,
    in_words,
    parse_url,
)
from agentq.stores.postgres.pipeline import Call, Lost, PipelineConnection, Statement, Values
from agentq.stores.postgres.pool import Away, Pool
from agentq.stores.postgres.reader import NO_VALUES, PostgresReader
from agentq.stores.postgres.timeouts import ANY_PATH, Limits, is_unwanted
from agentq.stores.postgres.transaction import Assumed, PostgresTx
from agentq.stores.statements import statements

if TYPE_CHECKING:
    from agentq.stores.postgres.callers import CallersTransactions

#: How long a server that went away is waited for.
PATIENCE_SECONDS = 30.0
_RUNS = 20
_NUMBERED_AT_ONCE = 10_000


@cache
def _statements() -> dict[str, Statement]:
    return {name: Statement(name, sql) for name, sql in statements("postgres").items()}


class PostgresStore:
    """Keeps `contracts.store.Store` on one PostgreSQL database.

    `clock` replaces the server's clock where two stores must agree on the time, as in tests.
    `limits` says how long statements, locks and a silent server are waited for.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], int] | None = None,
        check_schema: bool = True,
        create: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
        limits: Limits | None = None,
    ) -> None:
        self._url = url
        self._limits = limits or Limits()
        _, self.where = parse_url(url)
        self._clock = clock
        self._patience = 0.0
        self._server_clock = ServerClock()
        self._sql = _statements()
        self._roles: dict[str, int] = {}
        self._assumed = Assumed()
        self._lanes: str | None = None
        #: Whether the address has led to a server that could be written.
        self._had_primary = False
        self._pool = Pool(url, self._limits, self._greet, self._sql["replan"])
        try:
            # Whoever has just typed an address wants to know at once that nobody is there.
            version = self.schema_version()
            self._patience = patience_seconds
            if check_schema and version == 0:
                if not create:
                    raise no_ledger(self.where)
                self.migrate()
            elif check_schema:
                check_version(version, "postgres", self.where)
        except BaseException:
            self._pool.close()
            raise

    def _greet(self, wire: PipelineConnection) -> None:
        """Check the settings of a new connection before it is used."""
        asked = [Call(self._sql["settings"], NO_VALUES)]
        durable, read_only, isolation, path, moment, statement_ms, lock_ms, *_ = wire.exchange(
            asked
        )[0][0]
        if durable == "off":
            raise Unavailable(
                f"The ledger {self.where} runs with synchronous_commit=off: what it acknowledges"
                " may be lost in a crash. agentq does not start on it.",
                "Set synchronous_commit=on for this database, user or server.",
                code="not_durable",
            )
        if read_only == "off":
            self._had_primary = True
        self._server_clock.note(moment)
        wire.silence = self._limits.silence(statement_ms)
        if not statement_ms or not lock_ms or path == ANY_PATH:
            # A pooler did not pass on what the session was told: then each transaction says it.
            wire.preface = Call(self._sql["limits"], self._limits.settings)
        wire.autocommits = read_only == "off" and isolation == "read committed"

    # -- running and running again ---------------------------------------------------------------

    def _insist(self, attempt: Callable[[], T]) -> T:
        """Retry until it works, is refused, or the time limit is reached."""
        started, pause_seconds = time.monotonic(), 0.02
        while True:
            try:
                return attempt()
            except POOLED:
                self._pool.stop_preparing()
                continue
            except PASSING as error:
                reason = in_words(error, self.where)
            except DEMOTED as error:
                # Another server is the primary now, or will be soon: new connections lead there.
                self._pool.forget_idle()
                reason = in_words(error, self.where)
                if not self._had_primary:
                    raise reason from error  # nobody has said that there is one
            except Lost as lost:
                self._pool.forget_idle()
                reason = self._lost_in_words(lost)
            except psycopg.Error as error:
                if asks_to_run_again(error):
                    raise RunAgain from error
                raise in_words(error, self.where) from error
            except (UnicodeEncodeError, struct.error) as error:
                raise Invalid(
                    f"A value does not fit into the ledger: {error}. Nothing was changed.",
                    "Send valid text, and whole numbers of at most 64 bits.",
                ) from error
            if time.monotonic() - started >= self._patience:
                raise reason
            time.sleep(random.uniform(0, pause_seconds))
            pause_seconds = min(pause_seconds * 2, 1.0)

    def _lost_in_words(self, lost: Lost) -> AgentqError:
        if isinstance(lost, Away):
            return lost.words
        message = " ".join(str(lost).split())
        return Unavailable(
            f"The connection to {self.where} broke: {message}. Nothing was acknowledged.",
            "Check that the server runs, then try again.",
            code="server_away",
        )

    def write(
        self, change: Callable[[Tx], T], *, durable: bool = True, connection: object = None
    ) -> T:
        if connection is not None:
            return self._callers.write(change, connection)
        assumed: Assumed | None = self._assumed
        for _ in range(_RUNS):
            try:
                return self._insist(lambda: self._write_once(change, assumed, durable=durable))  # noqa: B023
            except RunAgain:
                self._lanes = None
                assumed = None
        raise Unavailable(
            f"The ledger {self.where} kept changing under this request. Nothing was changed.",
            "Try again.",
        )

    def _write_once(
        self, change: Callable[[Tx], T], assumed: Assumed | None, *, durable: bool
    ) -> T:
        wire = self._pool.take()
        tx = PostgresTx(
            wire, self._sql, self._clock, self._lanes_text, self._server_clock, assumed,
            durable=durable,
        )  # fmt: skip
        try:
            result = change(tx)
            self._commit(tx)
        except BaseException as error:
            self._assumed.forget([row.key for row in tx.saved])
            self._roll_back(wire, begun=tx.begun)
            if isinstance(error, AgentqError) and tx.unlocked and not tx.committing:
                raise RunAgain from error  # refused by what may not be so any more
            raise
        finally:
            self._pool.give(wire)
        self._assumed.note(tx.saved)
        self._assumed.forget(tx.renewed)
        if tx.lanes_changed:
            self._lanes = None
        return result

    @cached_property
    def _callers(self) -> CallersTransactions:
        from agentq.stores.postgres.callers import CallersTransactions, Identity

        def identity() -> Identity:
            return Identity(*self._ask("identity")[0])

        return CallersTransactions(self._sql, self._clock, self._limits, self.where, identity)

    def _commit(self, tx: PostgresTx) -> None:
        try:
            tx.commit()
        except Lost:
            if not tx.committing or not self._has_committed(tx.proof):
                raise

    def _roll_back(self, wire: PipelineConnection, *, begun: bool) -> None:
        if begun and not wire.usable:
            try:
                wire.exchange([Call(self._sql["rollback"], NO_VALUES)])
            except (Lost, psycopg.Error):
                wire.close()

    def _has_committed(self, proof: EventRow | None) -> bool:
        """Whether a transaction whose COMMIT was not answered took effect.

        It held a lock on the task of its first event, so waiting for that lock is waiting until it
        is over; then its event is in the log or it is not. Without such an event there is nothing
        to look for, and all that such transactions do may be done again.
        """
        if proof is None:
            return False

        calls = [
            Call(self._sql["begin"], NO_VALUES),
            Call(self._sql["lock"], {"keys": [proof.key]}),
            Call(self._sql["was_saved"], proof._asdict()),
            Call(self._sql["rollback"], NO_VALUES),
        ]
        self._pool.forget_idle()
        try:
            return bool(self._insist(lambda: self._exchange(calls))[2])
        except Unavailable as away:
            raise Unavailable(
                f"The connection to {self.where} broke while a change was being committed, and the"
                f" server has not come back since: {away.cause} Whether the change was made is"
                " unknown.",
                "Look at the task when the server is back (`agentq status`), then decide.",
                code="unknown_outcome",
            ) from away

    def read(self, look: Callable[[Reader], T]) -> T:
        return self._insist(lambda: self._read_once(look))

    def _read_once(self, look: Callable[[Reader], T]) -> T:
        wire = self._pool.take()
        reader = PostgresReader(wire, self._sql, self._clock)
        try:
            result = look(reader)
            reader.end()
            return result
        except BaseException:
            self._roll_back(wire, begun=reader.begun)
            raise
        finally:
            self._pool.give(wire)

    def _ask(self, name: str, values: Values = NO_VALUES) -> list[Any]:
        """One statement that is its own transaction."""
        return self._insist(lambda: self._exchange([Call(self._sql[name], values)])[0])

    def _exchange(self, calls: Sequence[Call]) -> list[list[Any]]:
        wire = self._pool.take()
        try:
            return wire.exchange(calls)
        finally:
            self._pool.give(wire)

    def _lanes_text(self) -> str:
        if self._lanes is None:
            self._lanes = str(self._ask("lanes")[0][0])
        return self._lanes

    def number_events(self) -> int:
        position, waiting = self._ask("unnumbered")[0]
        if not waiting or not self._had_primary:
            return int(position)
        calls = [
            Call(self._sql["begin"], NO_VALUES),
            Call(self._sql["lock_head"], NO_VALUES),
            Call(self._sql["number_events"], {"count": _NUMBERED_AT_ONCE}),
            Call(self._sql["commit"], NO_VALUES),
        ]
        count = _NUMBERED_AT_ONCE
        while count == _NUMBERED_AT_ONCE:
            position, count = self._insist(partial(self._number, calls, int(position)))
        return int(position)

    def _number(self, calls: Sequence[Call], last: int) -> tuple[int, int]:
        """The last position after one batch, and its size. If its answer is lost it is done, or it
        is done again."""
        wire = self._pool.take()
        try:
            position, count = wire.exchange(calls)[2][0]
        except DEMOTED:
            # Another server is the primary by now. Until this process finds it, what has a place
            # can be read here, and whoever only looks is not kept waiting.
            self._roll_back(wire, begun=True)
            self._pool.forget_idle()
            position, count = last, 0
        except BaseException:
            self._roll_back(wire, begun=True)
            raise
        finally:
            self._pool.give(wire)
        return position, count

    def role_ids(self, names: Iterable[str]) -> dict[str, int]:
        wanted = set(names)
        if not wanted <= self._roles.keys():
            known = self.read(lambda reader: {row.name: row.id for row in reader.roles()})
            missing = sorted(wanted - known.keys())
            if missing:
                self._ask("insert_roles", {"names": missing})
                known = self.read(lambda reader: {row.name: row.id for row in reader.roles()})
            self._roles = known
        return {name: self._roles[name] for name in wanted}

    def now(self) -> int:
        if self._clock is not None:
            return self._clock()
        estimate = self._server_clock.estimate()
        if estimate is None:
            estimate = int(self._ask("moment")[0][0])
            self._server_clock.note(estimate)
        return estimate

    # -- care ------------------------------------------------------------------------------------

    def schema_version(self) -> int:
        def attempt() -> int:
            for name in ("newest_migration", "newest_in_public"):
                try:
                    return int(self._exchange([Call(self._sql[name], NO_VALUES)])[0][0][0])
                except errors.UndefinedTable:
                    continue
                except errors.InsufficientPrivilege:
                    if name != "newest_in_public":
                        raise
            return 0  # or what is there belongs to somebody else

        return self._insist(attempt)

    def migrate(self) -> list[str]:
        """Bring the schema up to date under a lock; the names of what was applied."""
        plain, _ = parse_url(self._url)
        conninfo, _ = parse_url(self._url, self._limits)

        def attempt() -> list[str]:
            try:
                return care.migrate(conninfo, self.where)
            except psycopg.OperationalError as error:
                if not is_unwanted(error):
                    raise
                return care.migrate(plain, self.where)  # through a pooler

        return self._insist(attempt)

    def facts(self) -> dict[str, str]:
        asked = [Call(self._sql[name], NO_VALUES) for name in care.ASKED]
        before = time.time_ns()
        answers = self._insist(lambda: self._exchange(asked))
        return care.facts(self.where, answers, (before, time.time_ns()))

    def backup(self, target: str) -> None:
        """Dump the whole database, consistent, while others go on writing."""
        from agentq.stores.postgres.backup import backup

        backup(parse_url(self._url)[0], self.where, target)

    def close(self) -> None:
        self._pool.close()
