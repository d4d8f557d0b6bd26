"""A claim: one attempt at one task, and everything its holder may say."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from agentq.client.artifacts import Artifact
from agentq.client.cancellation import CancelToken
from agentq.client.content import Content, as_json, as_source, result_source
from agentq.client.durations import Duration, seconds_of
from agentq.client.task_fields import TaskOptions
from agentq.contracts.artifacts import Stored
from agentq.contracts.service_values import AttemptLease
from agentq.core.errors import NotFound, Stale
from agentq.core.task import NO_USAGE, Note, Task, ToldMessage, Usage
from agentq.core.triggers import FailureKind

if TYPE_CHECKING:
    from agentq.client.client import Client


class Claim:
    """Custody of a task. As a context manager it renews its lease by itself.

    >>> with claim:                                      # doctest: +SKIP
    ...     claim.progress(40, "reading")
    ...     claim.put("risks.md", "none found")
    ...     claim.complete(summary="reviewed")

    If the block raises, the attempt fails with that error (interrupts release it instead, which
    uses no attempt). A block that ends without reporting is a failure too: "done" must be said.
    """

    def __init__(self, client: Client, task: Task, lease_ms: int) -> None:
        self._client = client
        self.task = task
        self.epoch = task.epoch
        self.lease_ms = lease_ms
        self._token = CancelToken(task)
        self._reported = False
        #: When it was taken, by the monotonic clock of this process.
        self.began = time.monotonic()
        #: The newest message that this attempt was given.
        self._read = max((each.number for each in task.details.messages), default=0)
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
        return self._token.cancelled

    @property
    def cancel_token(self) -> CancelToken:
        """Set within a moment when the task is cancelled, while the claim is used in a `with`."""
        self._client.heartbeats.listen_for(self.task.holder)
        return self._token

    @property
    def reported(self) -> bool:
        """Whether the attempt has ended by a report."""
        return self._reported

    def lose(self) -> None:
        """Set the cancel token: the ledger says that another attempt, or nobody, holds the task."""
        if self.lost:
            return
        self._token.set()
        if self.on_lost is not None:
            self.on_lost()

    # -- what the work needs ---------------------------------------------------------------------

    def context(self) -> str:
        """The full text of the task: its context file, else its instructions."""
        return self._client.context(self.task)

    def heartbeat(self) -> None:
        """Renew the lease now; raises `Stale` if it is lost."""
        self._token.check()
        lease = AttemptLease(self.id, self.epoch, self.lease_ms)
        if not self._client.service.renew(self._client.who, [lease]):
            self.lose()
            self._token.check()

    def progress(self, percent: int, note: str = "") -> None:
        self._token.check()
        self._client.service.progress(self._client.who, self.id, self.epoch, percent, note)

    def put(self, name: str, content: Content) -> Artifact:
        """Leave a file as evidence of this attempt: text, bytes, a `Path`, or an open file."""
        return self.put_many([(name, content)])[0]

    def put_many(self, files: Sequence[tuple[str, Content]]) -> list[Artifact]:
        """Leave several, in one transaction."""
        self._token.check()
        sources = [(name, as_source(content)) for name, content in files]
        client = self._client
        stored = client.service.put_artifacts(client.who, self.id, self.epoch, sources)
        return [Artifact.of(each, self.id, self.epoch, client) for each in stored]

    def spend(
        self,
        *,
        usd: float = 0.0,
        tokens: int = 0,
        turns: int = 0,
        seconds: float = 0.0,
        estimated_usd: float = 0.0,
        unless_used_up: bool = False,
    ) -> Task:
        """Record a cost: usd, tokens, turns, seconds. The task is blocked if that was too much, and
        this attempt can leave nothing more; `unless_used_up` raises `Refused` instead, so that it
        can: report with the cost then. `estimated_usd` is the part of `usd` that is an estimate."""
        self._token.check()
        cost = Usage(usd, tokens, turns, seconds, estimated_usd)
        client = self._client
        return client.service.spend(
            client.who, self.id, self.epoch, cost, unless_used_up=unless_used_up
        )

    def comment(self, text: str, *, denied: int = 0, replaces: bool = False) -> None:
        """Leave a note. A worker says with `denied` how many tool calls were not allowed, and with
        `replaces` that the text also has what its last note on denials said."""
        self._token.check()
        who = self._client.who.called(self.task.holder)
        self._client.service.comment(who, self.id, text, self.epoch, denied, replaces)

    def messages(self) -> list[ToldMessage]:
        """Take what people have told this attempt since it was claimed or last asked: each message
        once. Whoever tells it something hears that it takes messages while it runs; what came
        before is in `task.details.messages`."""
        self._token.check()
        client = self._client
        task = client.service.take_messages(client.who, self.id, self.epoch)
        new = [each for each in task.details.messages if each.number > self._read]
        self._read = max((each.number for each in new), default=self._read)
        return new

    def submit(
        self,
        to: str | None = None,
        instructions: str | None = None,
        **fields: Unpack[TaskOptions],
    ) -> Task:
        """Submit a task as a child of this one; refused if this attempt is fenced out."""
        self._token.check()
        given = {"from": self.task.to, "to": to, "instructions": instructions, **fields}
        return self._client.submit_under(self.id, self.epoch, given)

    # -- how it ends -----------------------------------------------------------------------------

    def complete(
        self,
        summary: str = "",
        result: str | bytes | Stored | None = None,
        cost: Usage = NO_USAGE,
        *,
        result_file: str | os.PathLike[str] | None = None,
        verified: bool = False,
        data: object = None,
        leave_children: bool = False,
    ) -> Task:
        """Report success. `result` is the text of the result file, or an artifact that `put` has
        stored; `result_file` is the path of a file. `data` is a structured result: what JSON can
        hold. `verified`: the check that a gated claim promised has passed. `leave_children`: the
        open children are meant to go on without this task."""
        client, source = self._client, result_source(result, result_file)
        task = client.service.complete(
            client.who, self.id, self.epoch, summary, source, cost, verified=verified,
            data=as_json(data), leave_children=leave_children,
        )  # fmt: skip
        self.settled()
        return task

    def yield_(self, wait: str = "all", note: str = "", *, signals: Sequence[str] = ()) -> Task:
        """Leave until `all` of this attempt's children are over, or `any`, and until these signals
        have come. Another attempt goes on then; the note is for it."""
        self._token.check()
        client = self._client
        task = client.service.yield_attempt(
            client.who, self.id, self.epoch, wait, note, list(signals)
        )
        self.settled()
        return task

    def fail(
        self, reason: str, kind: FailureKind | str = FailureKind.TRANSIENT, cost: Usage = NO_USAGE
    ) -> Task:
        who = self._client.who
        task = self._client.service.fail(who, self.id, self.epoch, reason, FailureKind(kind), cost)
        self.settled()
        return task

    def block(self, reason: str) -> Task:
        """Stop and ask somebody up the chain."""
        self._token.check()
        task = self._client.service.block(self._client.who, self.id, self.epoch, reason)
        self.settled()
        return task

    def release(
        self, reason: str = "", not_before: int = 0, *, delay: Duration | None = None
    ) -> Task:
        """Give it back without using an attempt. Nobody claims it before `delay` has passed, or
        before the moment `not_before` of the ledger's clock, in milliseconds."""
        self._token.check()
        client = self._client
        if delay is not None:
            not_before = client.now() + round(seconds_of(delay, "delay") * 1000)
        task = client.service.release(client.who, self.id, self.epoch, reason, not_before)
        self.settled()
        return task

    def interrupt(self, reason: str, provider: str = "") -> Task:
        """Give it back without using an attempt, and open a circuit: of the provider, which did not
        serve, or of the task's role, which cannot work here and needs a person."""
        self._token.check()
        client = self._client
        task = client.service.interrupt(client.who, self.id, self.epoch, reason, provider)
        self.settled()
        return task

    def settled(self) -> None:
        """Note that this attempt was reported, here or by the agent itself."""
        self._reported = True
        self._client.heartbeats.let_go(self)

    # -- as a context manager --------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._client.heartbeats.hold(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.heartbeats.let_go(self)
        if self.lost or isinstance(error, Stale):
            self._say_stopped()
        if self._reported or isinstance(error, Stale):
            return
        if error is None:
            self._token.check()
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
            self._client.service.stopped(self._client.who, self.id, self.epoch)
