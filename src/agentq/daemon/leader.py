"""Leader election: which loops this process may run, and until when.

The leader leases of all loops ("terms") are renewed together, in one transaction, three times per
term. Between that `holds` answers from memory by this machine's clock, counted from before the
request was sent, so never for longer than the database does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agentq.contracts.doorbell import TERMS_TOPIC
from agentq.contracts.service_values import LEADER_LEASE_MS_MAX, LEADER_LEASE_MS_MIN
from agentq.core.access import SYSTEM
from agentq.core.errors import Invalid
from agentq.daemon.loop import Loop, log

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.contracts.service_values import LeaderLease

TERM_SECONDS = 10.0
#: By how much two clocks may differ in speed.
_DRIFT = 0.05
#: Added to the end of another process's term, so that its row is surely out of date.
_AFTER_SECONDS = 0.01

#: CLOCK_BOOTTIME goes on while the machine sleeps.
_CLOCK = time.CLOCK_BOOTTIME


def check_term(seconds: float) -> float:
    """Refuse a length that the ledger does not grant."""
    if not LEADER_LEASE_MS_MIN <= seconds * 1000 <= LEADER_LEASE_MS_MAX:
        least, most = LEADER_LEASE_MS_MIN / 1000, LEADER_LEASE_MS_MAX // 3_600_000
        raise Invalid(
            f"A term (--term) lasts {least:g} seconds to {most} hour, got {seconds:g} seconds.",
            "Say how long nobody may run the loops after a process was killed, as in --term 10s.",
        )
    return seconds


class Leader(Loop):
    """Renews the terms of this process and takes those that have ended."""

    name = "terms"
    topics = frozenset({TERMS_TOPIC})

    def __init__(
        self,
        service: Service,
        names: Sequence[str],
        holder: str,
        seconds: float = TERM_SECONDS,
        gained: Callable[[str], None] = lambda name: None,
        wanted: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """`wanted` says whether this process can do what a term is for."""
        super().__init__()
        self.holder = holder
        self._service = service
        self._names = sorted(set(names))
        self._seconds = check_term(seconds)
        self._gained = gained
        self._wanted = wanted
        self._until: dict[str, float] = {}
        self._numbers: dict[str, int] = {}

    def holds(self, name: str) -> bool:
        """Whether the term is ours at this moment. Asks nobody."""
        return time.clock_gettime(_CLOCK) < self._until.get(name, 0.0)

    @property
    def held(self) -> dict[str, int]:
        """The terms that are ours at this moment, and their numbers."""
        return {name: self._numbers[name] for name in self._names if self.holds(name)}

    def run_once(self) -> float:
        names = [name for name in self._names if self._wanted(name)]
        if not names:
            return 3600.0 if not self._names else self._seconds / 3
        asked_at = time.clock_gettime(_CLOCK)
        length_ms = int(self._seconds * 1000)
        standing = self._service.hold_leader_leases(SYSTEM, names, self.holder, length_ms)
        pause = self._seconds / 3
        for term in standing.values():
            if term.holder == self.holder:
                self._note_ours(term, asked_at)
                continue
            if self._until.pop(term.name, None) is not None:
                log.info("%s: runs at %s now, term %d", term.name, term.holder, term.number)
                self.tally.add("lost")
            # Its holder may have died just after it renewed.
            pause = min(pause, term.left_ms / 1000 + _AFTER_SECONDS)
        return pause

    def _note_ours(self, term: LeaderLease, asked_at: float) -> None:
        self._until[term.name] = asked_at + self._seconds * (1 - _DRIFT)
        if self._numbers.get(term.name) != term.number:
            self._numbers[term.name] = term.number
            log.info("%s: runs here now, term %d", term.name, term.number)
            self.tally.add("taken")
            self._gained(term.name)

    def give_up(self) -> None:
        """Release all terms, so that others can take them at once."""
        self._until.clear()
        if self._names:
            self._service.give_up_leader_leases(SYSTEM, self._names, self.holder)
