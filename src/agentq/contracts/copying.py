"""What a move writes into both databases, so that it can be run again after a kill -9.

No transaction spans two databases, so a mark in each says how far a move came:

    old    open ──> begun (open all the same) ───────────────────────> moved (closed)
    new    empty ────────────────────────────> filled (closed) ─────────────────────> open

The old ledger can be written until it is marked as moved, in one transaction that also checks that
its rows are still those of the copy. A process that dies before leaves a ledger that works, one
that dies after leaves a copy that is whole. Running the same move again completes either.

The token of a mark names the move and its run. A copy is replaced by a later run of the same move
only, and opened only for the run that filled it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

#: How the error of a writer begins once the ledger is elsewhere for good.
MOVED = "this ledger was moved to"


class Fence(NamedTuple):
    """The mark of a move in a ledger, and which ledger is at the other end."""

    state: Literal["begun", "moved", "filled"]
    peer: str
    #: "MOVE.RUN FILES": which run of which move, and where that run puts the files.
    token: str = ""

    @property
    def move(self) -> str:
        """The move that all runs of it have in common."""
        return self.token.partition(".")[0]

    @property
    def files(self) -> str:
        """Where files are once the move is over."""
        return self.token.partition(" ")[2]

    @property
    def message(self) -> str:
        """The error message that a writer gets."""
        if self.state == "moved":
            return f"{MOVED} {self.peer}: point agentq there"
        if self.state == "begun":
            return f"a move to {self.peer} was begun and not completed"
        return (
            f"this ledger was filled from {self.peer} and cannot be changed before that move"
            " is over"
        )


class LiveLease(NamedTuple):
    """The lease of an attempt, or that of an `agentq up` on its loops."""

    task_id: str
    holder: str
    until: int


class Head(NamedTuple):
    """What was handed out last. None of it is ever handed out again, even after pruning."""

    position: int
    key: int
    outbox_sequence: int
    lanes: frozenset[str]


class Fingerprint(NamedTuple):
    """Equal for the same rows in any order, and practically never for others."""

    rows: int
    digest: int
