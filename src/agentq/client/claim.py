"""A claim: one attempt at one task, and everything its holder may say."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from agentq.contracts.artifacts import Stored
from agentq.contracts.service_values import AttemptLease
from agentq.core.errors import NotFound, Stale
from agentq.core.task import NO_USAGE, Note, Task, Usage
from agentq.core.triggers import FailureKind

if TYPE_CHECKING:
    from agentq.client.queue import Queue


#: What a file may be made of.
Content = str | bytes | os.PathLike[str] | BinaryIO
Result = str | bytes | os.PathLike[str] | Stored | None


class Claim:
    """Custody of a task. As a context manager it renews its lease by itself.

    >>> with claim:                                      # doctest: +SKIP
    ...     claim.progress(40, "reading")
    ...     claim.put("risks.md", "none found")
    ...     claim.complete(summary="reviewed")

    If the block raises, the attempt fails with that error (interrupts release it instead, which
    uses no attempt). A block that ends without reporting is a failure too: "done" must be said.
    """

    def __init__(self, queue: Queue, task: Task, lease_ms: int) -> None:
        self._queue = queue
        self.task = task
        self.epoch = task.epoch
        self.lease_ms = lease_ms
        self._lost = False
        self._lost_doorbell: threading.Event | None = None
        self._reported = False
        #: Called once, from the thread that renews leases, when the claim is lost.
        self.on_lost: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<Claim {self.id} attempt {self.epoch} by {self.task.holder}>"

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def notes(self) -> tuple[Note, ...]:
        """What earlier attempts, reviewers and people left for this one."""
        return self.task.details.notes

    @property
    def lost(self) -> bool:
        """Whether the ledger has said that this attempt holds the task no longer."""
        return self._lost

    def lose(self) -> None:
        """The ledger says that another attempt, or nobody, holds the task now."""
        if self._lost:
            return
        self._lost = True
        if self._lost_doorbell is not None:
            self._lost_doorbell.set()
        if self.on_lost is not None:
            self.on_lost()

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Sleep until the claim is lost (cancelled, taken over); False after the timeout."""
        if self._lost_doorbell is None:
            self._lost_doorbell = threading.Event()
        if self._lost:
            return True
        return self._lost_doorbell.wait(timeout)

    def _still_held(self) -> None:
        if self.lost:
            raise Stale(
                f"Attempt {self.epoch} no longer holds {self.id}: its lease ended or the task was"
                " cancelled. Nothing was recorded.",
                "Stop working on it.",
            )

    # -- what the work needs ---------------------------------------------------------------------

    def context(self) -> str:
        """The full text of the task: its context file, else its instructions."""
        return self._queue.context(self.task)

    def heartbeat(self) -> None:
        """Renew the lease now; raises `Stale` if it is lost."""
        self._still_held()
        lease = AttemptLease(self.id, self.epoch, self.lease_ms)
        if not self._queue.service.renew(self._queue.who, [lease]):
            self.lose()
            self._still_held()

    def progress(self, percent: int, note: str = "") -> None:
        self._still_held()
        self._queue.service.progress(self._queue.who, self.id, self.epoch, percent, note)

    def put(self, name: str, content: Content) -> Stored:
        """Leave a file as evidence of this attempt: text, bytes, a path, or an open file."""
        return self.put_many([(name, content)])[0]

    def put_many(self, files: Sequence[tuple[str, Content]]) -> list[Stored]:
        """Leave several, in one transaction."""
        self._still_held()
        sources = [(name, as_source(content)) for name, content in files]
        return self._queue.service.put_artifacts(self._queue.who, self.id, self.epoch, sources)

    def spend(self, **usage: float) -> Task:
        """Record a cost: usd, tokens, turns, seconds. The task is blocked if that was too much."""
        self._still_held()
        cost = Usage(**usage)  # type: ignore[arg-type]
        return self._queue.service.spend(self._queue.who, self.id, self.epoch, cost)

    def comment(self, text: str) -> None:
        self._still_held()
        who = self._queue.who.called(self.task.holder)
        self._queue.service.comment(who, self.id, text, self.epoch)

    def submit(self, **fields: Any) -> Task:
        """Submit a task as a child of this one; refused if this attempt is fenced out."""
        self._still_held()
        fields.setdefault("from", self.task.to)
        return self._queue.submit_under(self.id, self.epoch, fields)

    # -- how it ends -----------------------------------------------------------------------------

    def complete(
        self,
        summary: str = "",
        result: Result = None,
        cost: Usage = NO_USAGE,
        *,
        verified: bool = False,
    ) -> Task:
        """Report success. `result` is a text, the path of a file, or what `put` has stored: it
        becomes the result file. `verified`: the check that a gated claim promised has passed."""
        source = result
        if source is not None and not isinstance(source, Stored):
            source = result_source(source)
        task = self._queue.service.complete(
            self._queue.who, self.id, self.epoch, summary, source, cost, verified=verified
        )
        self._end()
        return task

    def fail(
        self, reason: str, kind: FailureKind | str = FailureKind.TRANSIENT, cost: Usage = NO_USAGE
    ) -> Task:
        who = self._queue.who
        task = self._queue.service.fail(who, self.id, self.epoch, reason, FailureKind(kind), cost)
        self._end()
        return task

    def block(self, reason: str) -> Task:
        """Stop and ask somebody up the chain."""
        self._still_held()
        task = self._queue.service.block(self._queue.who, self.id, self.epoch, reason)
        self._end()
        return task

    def release(self, reason: str = "", not_before: int = 0) -> Task:
        """Give it back without using an attempt."""
        self._still_held()
        who = self._queue.who
        task = self._queue.service.release(who, self.id, self.epoch, reason, not_before)
        self._end()
        return task

    def settled(self) -> None:
        """Somebody else has reported this attempt (the agent itself): there is nothing to add."""
        self._end()

    def _end(self) -> None:
        self._reported = True
        self._queue.heartbeats.let_go(self)

    # -- as a context manager --------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._queue.heartbeats.hold(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._queue.heartbeats.let_go(self)
        if self.lost or isinstance(error, Stale):
            self._say_stopped()
        if self._reported or isinstance(error, Stale):
            return
        if error is None:
            self._still_held()
            self.fail("the work ended without reporting: neither complete() nor fail() was called")
        elif self.lost:
            return
        elif isinstance(error, Exception):
            self.fail(f"{type(error).__name__}: {error}")
        else:
            self.release(f"interrupted by {type(error).__name__}")

    def _say_stopped(self) -> None:
        """Of a cancelled task: its agent is gone, so what it held exclusively is free now."""
        with contextlib.suppress(NotFound):  # it was pruned since
            self._queue.service.stopped(self._queue.who, self.id, self.epoch)


def as_source(content: Content) -> bytes | Path | BinaryIO:
    """Content to store: text, bytes and open files as they are, a path as the file it names."""
    if isinstance(content, (str, bytes, os.PathLike)):
        return _plain_source(content)
    return content


def _plain_source(content: str | bytes | os.PathLike[str]) -> bytes | Path:
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode("utf-8", "surrogateescape")
    return Path(content)


def result_source(result: str | bytes | os.PathLike[str]) -> bytes | Path:
    """A result is a text or a path. A one-line text that names an existing file is that file."""
    if isinstance(result, str) and 0 < len(result) < 4096 and "\n" not in result:
        path = Path(result)
        try:
            if path.is_file():
                return path
        except (OSError, ValueError):
            return _plain_source(result)
    return _plain_source(result)
