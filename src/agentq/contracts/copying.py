"""What `agentq move` reads of a ledger, and the mark that it leaves in the old one.

No transaction spans two databases. The copy is made in one transaction of the new ledger. While
that is open the old one is marked, in a transaction that checks that its rows are still those of
the copy; from then on it refuses every write. Then the copy is committed.

A process that dies before the mark leaves both ledgers as they were. One that dies between the two
commits leaves the old one closed and the new one empty: the same move run again copies it again.
There are never two that can be written.
"""

from __future__ import annotations

from typing import NamedTuple


class MovedTo(NamedTuple):
    """The mark in a ledger that was moved: which one counts now, and where its files are."""

    peer: str
    files: str

    @property
    def message(self) -> str:
        """The error message that a writer gets."""
        return f"this ledger was moved to {self.peer}: point agentq there"


class LiveLease(NamedTuple):
    """The lease of an attempt, or that of an `agentq up` on its loops."""

    task_id: str
    holder: str
    until: int


class Head(NamedTuple):
    """What was handed out last, which is never handed out again, even after pruning; and what the
    ledger is."""

    position: int
    key: int
    outbox_sequence: int
    lanes: frozenset[str]
    ledger_id: str
