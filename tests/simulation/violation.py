"""The promises of the design that a simulated history is held against, by number.

A violation names the promise that was broken, so that a planted bug can be asked not only whether
it was found but whether it was found for the right reason.
"""

from __future__ import annotations

LOST = "1 no accepted task is lost"
ONCE = "2 at most one accepted completion"
FENCE = "3 a fenced-out worker writes nothing"
REPLAY = "4 the log gives the stored state"
CANCEL = "5 after a cancel no attempt starts"
IRREVERSIBLE = "6 irreversible tasks start once per approval"
LEASE = "7 leases: the living keep them, the dead lose them"
EFFECTS = "8 every committed effect leaves, and no other"
DEDUP = "9 same key and body, same task"
ARTIFACTS = "10 artifact records are written once"
TIMERS = "11 timers of the store's clock: never early, never lost"
GRAPH = "12 dependencies are resolved in the same commit"
LIMITS = "13 limits hold at every commit"
INPUT = "14 what is refused changes nothing, and only the wrong is refused"
RULES = "15 only legal transitions, counters as documented"
LOG = "16 the log is in commit order, without gaps"
SURROUNDINGS = "18 failures of the surroundings use no attempt; one probe looks whether they end"
FAMILY = "19 parents and children: nobody is left waiting, nothing completes over open ones"
SIGNALS = "20 a signal lets one wait go on, and is never lost"
REVIEWS = "21 a verdict is of another role, about the attempt that it judged, and counts once"
POLICY = "22 approval policies: in order, never early, each step once, in nobody's name"
TERMS = "23 a loop has one leader at a time, and never the same term twice"
OCCURRENCES = "24 a schedule's occurrences: never early, each once, none forgotten"
HOLDS = "25 what is held starts once it is dispatched, and not before"
DRAIN = "17 once faults stop, everything ends or waits for a person"


class Violation(AssertionError):
    """A promise was broken. `invariant` is one of the sentences above."""

    def __init__(self, invariant: str, detail: str) -> None:
        self.invariant = invariant
        self.detail = detail
        super().__init__(f"[{invariant}] {detail}")

    def __reduce__(self) -> tuple[object, ...]:
        # Violations come home from worker processes.
        return (Violation, (self.invariant, self.detail))
