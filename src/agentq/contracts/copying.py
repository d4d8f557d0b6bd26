"""What a move needs from a database: to be read whole, filled whole, and closed to writers.

A move touches two databases and no transaction spans both, so each side can be fenced: it answers
every write with the reason, whoever writes, from processes that never heard of the move too. The
old side is fenced before anything is copied, the new one until the copy has been proved. Whatever
dies in between, at most one of the two can be written, and the move can be run again.

    old    open ──> moving ──────────────────────> moved
    new    empty ────────────> filling ──> filled ────────> open

Every fence carries the token of the run that raised it, and a run changes or lifts only its own: it
learns at its next step that somebody gave the move up, or began it anew, and puts back what is its.
The step from moving to moved decides. Before it, undoing loses nothing; after it, going on does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

from agentq.contracts.store import IN_PROGRESS

FenceState = Literal["moving", "moved", "filling", "filled"]


class Fence(NamedTuple):
    """Why a ledger cannot be written, and which ledger is at the other end of the move."""

    state: FenceState
    peer: str
    #: Which run of which move raised it; after a space, where that run puts the files.
    token: str = ""

    @property
    def files(self) -> str:
        """Where files are once the move is over; "" if an older agentq raised it."""
        return self.token.partition(" ")[2]

    @property
    def words(self) -> str:
        """What a writer is told."""
        if self.state == "moved":
            return f"{_MOVED} {self.peer}: point agentq there"
        if self.state == "moving":
            return (
                f"this ledger is being moved to {self.peer} and cannot be changed"
                " (if that was interrupted, the same move run again completes it)"
            )
        said = "is being filled" if self.state == "filling" else "was filled"
        return f"this ledger {said} from {self.peer} and cannot be changed before that move is over"


_MOVED = "this ledger was moved to"


def is_final(said: str) -> bool:
    """Whether a writer who was told this need not wait: the ledger is elsewhere for good."""
    return said.startswith(_MOVED)


class Holding(NamedTuple):
    """An attempt that is under way."""

    key: int
    task_id: str
    epoch: int
    holder: str
    state: int

    @property
    def in_progress(self) -> bool:
        """Whether its holder works on it; else it was cancelled, and its holder has not let go."""
        return self.state == IN_PROGRESS


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
    def set_fence(self, fence: Fence) -> list[Holding]:
        """Answer every write with these words from now on.

        Unless attempts are under way: then nothing is changed, and some of them are the answer. A
        `moving` fence towards the same peer is replaced, as its run may be dead; `Conflict` under
        any other.
        """

    def change_fence(self, found: Fence, wanted: Fence) -> bool:
        """Replace exactly this fence, in one transaction; the ledger is closed all the while.

        False if another one stands, or none, or if somebody holds a task; then nothing is changed.
        """

    def lift_fence(self, fence: Fence) -> bool:
        """Open the ledger, if exactly this fence stands."""

    def check_fillable(self, fence: Fence) -> None:
        """Raise `Conflict` if anything is here but what an unfinished run of this move left."""

    def fingerprints(self) -> dict[str, Fingerprint]:
        """Of all that is copied, by table."""

    def snapshot(self) -> AbstractContextManager[Snapshot]: ...
    def fill(self, source: Snapshot, fence: Fence) -> dict[str, Fingerprint]:
        """Copy everything in one transaction, all or none, and leave the ledger fenced.

        Checks first that it may be filled. Returns what was written, as it came from the source.
        """

    def clear(self, fence: Fence) -> bool:
        """Take back what was filled, with its fence, if exactly this one stands."""

    def close(self) -> None: ...
