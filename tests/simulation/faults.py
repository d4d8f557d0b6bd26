"""A store that fails the way real ones do, and says afterwards what it did.

Every fault here has a counterpart outside: a server that cannot be reached, a disk that fills up in
the middle of a transaction or at its commit, a transaction that the database asks to run again, and
the worst, an answer that is lost after the commit ("applied, but reported as timed out"). Failures
inside a transaction are made by SQLite itself (an aborted statement, a vetoed commit), so that the
real code rolls back, not a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from agentq.contracts.store import Reader, RunAgain, Tx
from agentq.core.errors import TimedOut, Unavailable
from agentq.stores.sqlite.store import SqliteStore

T = TypeVar("T")


class LostAnswer(TimedOut):
    """The call was applied and committed; whoever made it will never know."""


class Unreachable(Unavailable):
    """The call never arrived."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often each fault happens, per call to the store."""

    unreachable: float = 0.0
    statement: float = 0.0
    commit: float = 0.0
    run_again: float = 0.0
    lost_answer: float = 0.0
    between: float = 0.0

    @classmethod
    def draw(cls, rng: Random) -> FaultRates:
        """Some histories have one kind of fault, some all, some none: each finds other bugs."""
        some = (0.0, 0.01, 0.04)
        return cls(
            rng.choice(some), rng.choice(some), rng.choice(some), rng.choice((0.0, 0.05)),
            rng.choice((0.0, 0.05, 0.05, 0.15)), rng.choice((0.0, 0.2)),
        )  # fmt: skip


NO_FAULTS = FaultRates()


class FaultyStore:
    """Keeps the contract of a store and breaks it only as networks and disks do."""

    def __init__(self, store: SqliteStore, rng: Random, rates: FaultRates) -> None:
        self.inner = store
        self.now = store.now
        self.rates = rates
        self.last_fault = ""
        self._rng = rng

    def draw_between(self) -> bool:
        """Whether another process changes something just before this call."""
        rate = self.rates.between
        if not rate or self._rng.random() >= rate:
            return False
        self.last_fault = "between"
        return True

    def _draw(self) -> str:
        rates = self.rates
        if rates is NO_FAULTS:
            return ""
        number = self._rng.random()
        for name in ("unreachable", "statement", "commit", "run_again", "lost_answer"):
            number -= getattr(rates, name)
            if number < 0:
                self.last_fault = name
                return name
        return ""

    def write(
        self, change: Callable[[Tx], T], *, durable: bool = True, connection: object = None
    ) -> T:
        assert connection is None, "SQLite shares no transaction with anybody"
        fault = self._draw()
        if fault == "run_again":
            return self.inner.write(_twice(change), durable=durable)
        return self._with(fault, lambda: self.inner.write(change, durable=durable))

    def _with(self, fault: str, call: Callable[[], T]) -> T:
        if fault == "unreachable":
            raise _unreachable()
        if fault == "statement":
            return self._with_aborted_statement(call)
        if fault == "commit":
            connection = self.inner._writer
            connection.set_commit_hook(_veto)
            try:
                return call()
            finally:
                connection.set_commit_hook(None)
        answer = call()
        if fault == "lost_answer":
            raise LostAnswer("The connection broke before the answer came.", "Ask again.")
        return answer

    def _with_aborted_statement(self, call: Callable[[], T]) -> T:
        left = self._rng.randrange(1, 9)

        def goes_on(cursor: object, sql: str, bindings: object) -> bool:
            nonlocal left
            left -= 1
            return left != 0 or sql in ("ROLLBACK", "COMMIT")

        connection = self.inner._writer
        connection.set_exec_trace(goes_on)
        try:
            return call()
        finally:
            connection.set_exec_trace(None)

    def read(self, look: Callable[[Reader], T]) -> T:
        if self.rates is not NO_FAULTS and self._rng.random() < self.rates.unreachable / 2:
            self.last_fault = "unreachable"
            raise _unreachable()
        return self.inner.read(look)

    def role_ids(self, names: Iterable[str]) -> dict[str, int]:
        return self.inner.role_ids(names)

    def number_events(self) -> int:
        return self.inner.number_events()

    def schema_version(self) -> int:
        return self.inner.schema_version()

    def migrate(self) -> list[str]:
        return self.inner.migrate()

    def facts(self) -> dict[str, str]:
        return self.inner.facts()

    def backup(self, target: str) -> None:
        self.inner.backup(target)

    def close(self) -> None:
        self.inner.close()


def _veto() -> bool:
    return True


def _unreachable() -> Unreachable:
    return Unreachable("The database cannot be reached. Nothing was changed.", "Try again.")


def _twice(change: Callable[[Tx], T]) -> Callable[[Tx], T]:
    """The same change, run once in vain: the database rolls it back and asks for it again."""
    ran = False

    def again(tx: Tx) -> T:
        nonlocal ran
        result = change(tx)
        if not ran:
            ran = True
            raise RunAgain
        return result

    return again
