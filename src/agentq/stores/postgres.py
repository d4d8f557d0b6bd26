"""PostgreSQL through psycopg 3: one ledger for many machines.

Rows are locked with FOR UPDATE, claims skip what others have locked, and positions in the log are
handed out under a lock that is taken last (see `postgres_rows`). The server's clock is the clock.
A server that goes away is waited for; an unanswered COMMIT is looked up afterwards in the log, so
that a change is neither lost nor made twice.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import psycopg
from psycopg import errors

from agentq.contracts.doorbell import ROLES_TOPIC
from agentq.contracts.store import EventRow, NewRow, Reader, RunAgain, T, Tx
from agentq.core.errors import AgentqError, Invalid, Unavailable
from agentq.stores import postgres_care as care
from agentq.stores.migrate import check_version, no_ledger
from agentq.stores.postgres_limits import Limits
from agentq.stores.postgres_pool import Away, Pool
from agentq.stores.postgres_reader import NO_VALUES, PostgresReader
from agentq.stores.postgres_rows import PostgresTx, payload, submission
from agentq.stores.postgres_wire import Call, Lost, Statement, Values, Wire
from agentq.stores.postgres_words import DEMOTED, PASSING, POOLED, in_words, parse_url
from agentq.stores.statements import statements
from agentq.stores.submission import spelled_out

#: How long a server that went away is waited for.
PATIENCE_SECONDS = 30.0
_RUNS = 20
#: An estimate of the server's clock is used for this long.
_FRESH_MS = 4000


@cache
def _statements() -> dict[str, Statement]:
    return {name: Statement(name, sql) for name, sql in statements("postgres").items()}


def _common(lanes: frozenset[str], topics: Iterable[str]) -> dict[str, object]:
    return {"known_lanes": " ".join(sorted(lanes)), "topics": payload(topics)}


class ServerClock:
    """The server's clock, estimated between questions; never ahead of it, behind by a round trip.

    Good enough to date a submission. Leases and timers are measured inside transactions, by the
    server itself.
    """

    def __init__(self) -> None:
        self._offset = 0
        self._noted = -_FRESH_MS

    #: Where there is CLOCK_BOOTTIME: unlike the other it goes on while the machine sleeps.
    _clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def _local_ms(self) -> int:
        return time.clock_gettime_ns(self._clock) // 1_000_000

    def note(self, moment: int) -> None:
        """The server said this just now."""
        local = self._local_ms()
        offset = moment - local
        if offset > self._offset or local - self._noted >= _FRESH_MS:
            self._offset, self._noted = offset, local

    def estimate(self) -> int | None:
        """None if too long ago."""
        local = self._local_ms()
        return None if local - self._noted >= _FRESH_MS else local + self._offset


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

    def _greet(self, wire: Wire) -> None:
        """What a new connection must show before it is used."""
        asked = [Call(self._sql["settings"], NO_VALUES)]
        durable, read_only, moment, statement_ms, lock_ms, *_ = wire.exchange(asked)[0][0]
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
        if not statement_ms or not lock_ms:
            # A pooler did not pass on what the session was told: then each transaction says it.
            wire.preface = Call(self._sql["limits"], self._limits.settings)

    # -- running and running again ---------------------------------------------------------------

    def _insist(self, attempt: Callable[[], T]) -> T:
        """Try until it works, is refused, or patience ends."""
        started, nap = time.monotonic(), 0.02
        while True:
            try:
                return attempt()
            except POOLED:
                self._pool.stop_preparing()
                continue
            except errors.NotNullViolation as error:
                if error.diag.column_name not in ("position", "last_event"):
                    raise in_words(error, self.where) from error
                self._lanes = None
                raise RunAgain from error  # lanes were opened or closed meanwhile
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
                raise in_words(error, self.where) from error
            except (UnicodeEncodeError, struct.error) as error:
                raise Invalid(
                    f"A value does not fit into the ledger: {error}. Nothing was changed.",
                    "Send valid text, and whole numbers of at most 64 bits.",
                ) from error
            if time.monotonic() - started >= self._patience:
                raise reason
            time.sleep(random.uniform(0, nap))
            nap = min(nap * 2, 1.0)

    def _lost_in_words(self, lost: Lost) -> AgentqError:
        if isinstance(lost, Away):
            return lost.words
        said = " ".join(str(lost).split())
        return Unavailable(
            f"The connection to {self.where} broke: {said}. Nothing was acknowledged.",
            "Check that the server runs, then try again.",
            code="server_away",
        )

    def write(self, change: Callable[[Tx], T]) -> T:
        for _ in range(_RUNS):
            try:
                return self._insist(lambda: self._write_once(change))
            except RunAgain:
                self._lanes = None
        raise Unavailable(
            f"The ledger {self.where} kept changing under this request. Nothing was changed.",
            "Try again.",
        )

    def _write_once(self, change: Callable[[Tx], T]) -> T:
        wire = self._pool.take()
        tx = PostgresTx(wire, self._sql, self._clock, self._lanes_text)
        try:
            result = change(tx)
            self._commit(tx)
        except BaseException:
            self._roll_back(wire, tx)
            raise
        finally:
            self._pool.give(wire)
        if tx.lanes_changed:
            self._lanes = None
        return result

    def _commit(self, tx: PostgresTx) -> None:
        try:
            tx.commit()
        except Lost:
            if not tx.committing or not self._has_committed(tx.proof):
                raise

    def _roll_back(self, wire: Wire, tx: PostgresReader) -> None:
        if tx.begun and not wire.usable:
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
            self._roll_back(wire, reader)
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

    # -- submitting ------------------------------------------------------------------------------

    def submit(
        self,
        rows: Sequence[NewRow],
        effects: Mapping[str, Sequence[tuple[str, str]]],
        lanes: frozenset[str],
        topics: Iterable[str],
    ) -> set[str]:
        # Asking again after a lost answer is harmless: the ids are found taken, by ourselves.
        values = _common(lanes, topics) | {"count": len(rows)} | submission(rows, effects)
        done = self._submit("submit_with_effects" if effects else "submit_many", values)
        return {row.id for row in rows} if done else set()

    def submit_alike(
        self,
        row: NewRow,
        words: Sequence[tuple[str, str]],
        lanes: frozenset[str],
        topics: Iterable[str],
        effects: Sequence[tuple[str, Sequence[str]]] = (),
    ) -> bool:
        if effects and len(words) > 1:
            return bool(self.submit(*spelled_out(row, words, effects), lanes, topics))
        values = _common(lanes, topics) | row._asdict()
        if len(words) == 1:
            values["id"], values["body"] = words[0]
            name = "submit_one"
            if effects:
                name = "submit_one_saying"
                values["lanes"] = [lane for lane, _ in effects]
                values["payloads"] = [said[0] for _, said in effects]
            inserted, moment, _ = self._ask(name, values)[0]
            self._server_clock.note(moment)
            return bool(inserted)
        ids, bodies = zip(*words, strict=True)
        return self._submit(
            "submit_alike", values | {"count": len(words), "ids": ids, "bodies": bodies}
        )

    def _submit(self, name: str, values: Values) -> bool:
        """False if an id was taken: then nothing was inserted."""
        call = [Call(self._sql[name], values)]

        def attempt() -> list[Any] | None:
            try:
                return self._exchange(call)[0]
            except errors.UniqueViolation as taken:
                if taken.diag.constraint_name != "specs_id_key":
                    raise
                return None

        answer = self._insist(attempt)
        if answer is None:
            return False
        self._server_clock.note(answer[0][0])
        return True

    def _lanes_text(self) -> str:
        if self._lanes is None:
            self._lanes = str(self._ask("lanes")[0][0])
        return self._lanes

    def known_lanes(self) -> frozenset[str]:
        return frozenset(self._lanes_text().split())

    def role_ids(self, names: Iterable[str]) -> dict[str, int]:
        wanted = set(names)
        if not wanted <= self._roles.keys():
            known = self.read(lambda reader: {row.name: row.id for row in reader.roles()})
            missing = sorted(wanted - known.keys())
            if missing:
                self._ask("insert_roles", {"names": missing, "topics": ROLES_TOPIC})
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
        asked = [Call(self._sql["newest_migration"], NO_VALUES)]

        def attempt() -> int:
            try:
                return int(self._exchange(asked)[0][0][0])
            except errors.UndefinedTable:
                return 0

        return self._insist(attempt)

    def migrate(self) -> list[str]:
        """Bring the schema up to date under a lock; the names of what was applied."""
        return self._insist(lambda: care.migrate(parse_url(self._url)[0], self.where))

    def facts(self) -> dict[str, str]:
        asked = [Call(self._sql[name], NO_VALUES) for name in care.ASKED]
        before = time.time_ns()
        answers = self._insist(lambda: self._exchange(asked))
        return care.facts(self.where, answers, (before, time.time_ns()))

    def backup(self, target: str) -> None:
        """Dump the whole database, consistent, while others go on writing."""
        from agentq.stores.postgres_backup import backup

        backup(parse_url(self._url)[0], self.where, target)

    def close(self) -> None:
        self._pool.close()
