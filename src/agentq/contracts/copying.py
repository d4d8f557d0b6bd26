"""What a move needs from a database: to be read whole, to be filled whole, and to be marked.

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

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

#: Earlier versions closed the old ledger first: they wrote `moving`, and `filling` for a copy that
#: was not compared yet. Both may still stand in a ledger.
FenceState = Literal["begun", "moved", "filled", "moving", "filling"]


class Fence(NamedTuple):
    """The mark of a move in a ledger, and which ledger is at the other end."""

    state: FenceState
    peer: str
    #: "MOVE.RUN FILES": which run of which move, and where that run puts the files.
    token: str = ""

    @property
    def move(self) -> str:
        """The move that all runs of it have in common."""
        return self.token.partition(" ")[0].partition(".")[0]

    @property
    def files(self) -> str:
        """Where files are once the move is over."""
        return self.token.partition(" ")[2]

    @property
    def is_copy(self) -> bool:
        """Whether the ledger holds what was copied from its peer, and counts for nobody yet."""
        return self.state in {"filled", "filling"}

    @property
    def words(self) -> str:
        """The error message that a writer gets."""
        if self.state == "moved":
            return f"{_MOVED} {self.peer}: point agentq there"
        if self.state == "begun":
            return f"a move to {self.peer} was begun and not completed"
        if self.state == "moving":
            return (
                f"this ledger is being moved to {self.peer} and cannot be changed"
                " (if that was interrupted, the same move run again completes it)"
            )
        return (
            f"this ledger was filled from {self.peer} and cannot be changed before that move"
            " is over"
        )


_MOVED = "this ledger was moved to"


def is_final(words: str) -> bool:
    """Whether a writer who was told this need not wait: the ledger is elsewhere for good."""
    return words.startswith(_MOVED)


class Holding(NamedTuple):
    """A lease that is alive: an attempt's, or with epoch 0 that of an `agentq up` on its loops."""

    task_id: str
    epoch: int
    holder: str
    until: int


class Head(NamedTuple):
    """What was handed out last. None of it is ever handed out again, even after pruning."""

    position: int
    key: int
    #: Of the outbox.
    sequence: int
    lanes: frozenset[str]


class Fingerprint(NamedTuple):
    """Equal for the same rows in any order, and practically never for others."""

    rows: int
    digest: int


class Snapshot(Protocol):
    """One committed state of a ledger, to be read from end to end."""

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Every table that is copied, and its columns by name."""

    def head(self) -> Head: ...
    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """All rows, in batches."""


class LedgerCopy(Protocol):
    """One end of a move. It has a connection of its own; used by one thread."""

    #: How to call the ledger in messages: without a password.
    where: str

    def fence(self) -> Fence | None: ...
    def held(self, now: int) -> list[Holding]:
        """The leases that are alive, those that end last first."""

    def last_used(self) -> Head:
        """What was handed out last, while work may go on."""

    def begin(self, fence: Fence) -> None:
        """Note down that a move begins; the ledger stays open.

        Replaces the mark of a move that did not get to its end; `Conflict` under any other.
        """

    def close_as_moved(self, begun: Fence, copied: dict[str, Fingerprint]) -> list[str]:
        """Answer every write with the new address from now on, if the copy is what is here.

        Else nothing is done, and the tables that differ are the answer. `Conflict` if another mark
        stands than `begun`.
        """

    def lift(self, fence: Fence) -> bool:
        """Remove exactly this mark, which opens the ledger; False if another one stands."""

    def check_fillable(self, fence: Fence) -> None:
        """Raise `Conflict` if anything is here but a copy that the same move left."""

    def fingerprints(self) -> dict[str, Fingerprint]:
        """Of all that is copied, by table."""

    def snapshot(self) -> AbstractContextManager[Snapshot]: ...
    def fill(self, source: Snapshot, fence: Fence) -> None:
        """Copy everything in one transaction, all or none, and leave the ledger closed.

        Checks first that it may be filled.
        """

    def clear(self, fence: Fence) -> bool:
        """Delete the copy that has exactly this mark; False if another one stands."""

    def close(self) -> None: ...
