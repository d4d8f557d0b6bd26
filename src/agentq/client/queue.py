"""`Queue`: the SDK. One API over a ledger, wherever it lives."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from agentq.client.admin import Admin
from agentq.client.artifacts import Artifact, Result
from agentq.client.branch_work import BranchWork
from agentq.client.claim import Claim
from agentq.client.client import Client, Refusal
from agentq.client.content import Content, as_json, as_source, result_source
from agentq.client.durations import Duration, seconds_of, seconds_or_none
from agentq.client.references import id_of, states_of
from agentq.client.serving import GRACE_SECONDS, ServedRole, Server
from agentq.client.task_fields import (
    ClaimOptions,
    TaskChanges,
    TaskFields,
    TaskOptions,
    TaskRef,
)
from agentq.core.states import TERMINAL, State
from agentq.core.task import NO_USAGE, Priority, Spec, Task, Usage
from agentq.core.triggers import FailureKind, LogEntry, Resolution
from agentq.remote.opening import open_any
from agentq.settings import load_settings
from agentq.wiring import WiredInstallation

if TYPE_CHECKING:
    from agentq.client.broker_results import TaskOutcome
    from agentq.contracts.overview_values import Overview, WorkerInfo
    from agentq.contracts.service_values import Explanation
    from agentq.core.access import Principal

F = TypeVar("F", bound="Callable[[Claim], str | None]")


class Queue(BranchWork):
    """A durable work queue.

    `Queue()` finds the nearest `agentq.toml` upward or `AGENTQ_URL`; `Queue("sqlite:///work.db")`
    and `Queue("postgresql://…")` name a ledger that is there. `Queue.create(…)` makes one first if
    it is not. Safe to use from several threads.

    >>> q = Queue.create("sqlite://:memory:")
    >>> task = q.submit(to="review-worker", instructions="Look for risks.")
    >>> with q.claim("review-worker") as claim:
    ...     _ = claim.complete(summary="none found")
    >>> q.wait(task).state.value, q.result(task).text()
    ('complete', 'none found')
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        installation: WiredInstallation | None = None,
        who: Principal | None = None,
    ) -> None:
        self._client = Client(installation or open_any(load_settings(url)), who)
        self._handlers: list[ServedRole] = []
        self._servers: list[Server] = []

    @classmethod
    def create(cls, url: str | None = None, *, who: Principal | None = None) -> Self:
        """Open a ledger, and make it first if it is not there; doing it again is safe.

        `sqlite://:memory:` gives one that ends with the program, for tests and examples.
        """
        return cls(installation=open_any(load_settings(url), create=True), who=who)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop renewing leases and let go of the database. Closing twice is fine."""
        self.stop()
        self._client.close()

    @property
    def who(self) -> Principal:
        """On whose behalf everything is asked: a person, or the attempt this process works for."""
        return self._client.who

    @property
    def admin(self) -> Admin:
        """What operators need: limits, circuits, costs, proofs, pruning."""
        return Admin(self._client)

    # -- asking for work -------------------------------------------------------------------------

    def submit(
        self,
        to: str | None = None,
        instructions: str | None = None,
        *,
        connection: object = None,
        **fields: Unpack[TaskOptions],
    ) -> Task:
        """Submit one task; returns once it is durable. The same id or idempotency key with the same
        body gives the task that is there.

        With `connection`, a psycopg 3 connection to the ledger's PostgreSQL database, the task is
        part of the transaction that is open there: it is claimable once that commits, and never
        was if it rolls back. Until then it is answered as pending.
        """
        given: dict[str, Any] = {"to": to, "instructions": instructions, **fields}
        return self._client.submit(**given, connection=connection)

    def submit_many(
        self,
        tasks: Iterable[TaskFields | Mapping[str, Any] | Spec],
        *,
        connection: object = None,
    ) -> list[Task]:
        """Submit tasks in one transaction: all are accepted or none. They may name each other,
        in any order. `connection` as in `submit`."""
        return self._client.submit_many(tasks, connection=connection)

    def edit(
        self, task: TaskRef, by: str, *, if_version: int = 0, **fields: Unpack[TaskChanges]
    ) -> Task:
        """Change what a waiting task asks for: its text, title, priority or role.

        An approval is taken back, as it was for what the task said before; the id and the
        idempotency key go on to stand for what was submitted. `Refused` once somebody has begun.
        """
        return self._client.edit(id_of(task), by, if_version=if_version, **fields)

    def priority(self, task: TaskRef, by: str, priority: Priority | str) -> Task:
        """Change how urgent a waiting task is."""
        return self._client.priority(id_of(task), by, priority)

    def rerun(self, task: TaskRef, **fields: Unpack[TaskChanges]) -> Task:
        """Submit what a finished task asked for once more, as a new task, with these fields in
        place of its own. Its label `rerun_of` names the old one."""
        return self._client.rerun(id_of(task), **fields)

    # -- custody ---------------------------------------------------------------------------------

    def claim(
        self,
        role: str,
        wait: Duration = 0,
        *,
        gated: bool = False,
        **options: Unpack[ClaimOptions],
    ) -> Claim | None:
        """Claim the most urgent ready task of a role; waits for one at most as long as `wait` says.

        `provider` is whose quota doing it will use: none is given while its circuit is open. One
        that is `gated` completes only with `complete(verified=True)`: whoever claims it so checks
        the work of somebody else, who cannot report past that check.
        """
        return self._client.claim(role, wait, gated=gated, **options)

    def claim_many(
        self, role: str, n: int = 1, *, wait: Duration = 0, **options: Unpack[ClaimOptions]
    ) -> list[Claim]:
        """Claim up to `n` ready tasks in one transaction; waits for the first of them."""
        return self._client.claim_many(role, n, wait=wait, **options)

    def claim_task(self, task: TaskRef, **options: Unpack[ClaimOptions]) -> Claim:
        """Claim this very task; raises `Refused` with the reason if it cannot be claimed now."""
        return self._client.claim_task(id_of(task), **options)

    def complete_many(self, done: Iterable[tuple[Claim, str]]) -> list[Refusal]:
        """Report many attempts complete, each with its summary, in one transaction; returns which
        were refused, and why."""
        return self._client.complete_many(done)

    def complete_and_claim(
        self,
        done: Iterable[tuple[Claim, str]],
        role: str,
        n: int = 1,
        **options: Unpack[ClaimOptions],
    ) -> tuple[list[Refusal], list[Claim]]:
        """Report these complete and claim the next, in one transaction: half the commits of a
        worker that never runs out of work. Returns what was refused, and the new claims."""
        return self._client.complete_and_claim(done, role, n, **options)

    # -- functions as workers --------------------------------------------------------------------

    def serve(
        self,
        role: str,
        function: Callable[[Claim], str | None],
        *,
        slots: int = 1,
        lease: Duration | None = None,
        grace: Duration = GRACE_SECONDS,
        idle: Duration | None = None,
    ) -> None:
        """Let a function do the tasks of a role, up to `slots` at once, until `stop()`, SIGTERM or
        Ctrl-C; with `idle` also when nothing has come for so long.

        The function is given the `Claim`. A text it returns becomes the result; it raises `Retry`,
        `Block`, `Leave` or `Fail` to end otherwise. When it is to stop, what runs has `grace` to
        finish; then it is given back.
        """
        self._serve([ServedRole(role, function, slots, lease)], grace, idle)

    def handler(
        self, role: str, *, slots: int = 1, lease: Duration | None = None
    ) -> Callable[[F], F]:
        """Register a function for the tasks of a role; `run()` serves all that are registered."""

        def register(function: F) -> F:
            self._handlers.append(ServedRole(role, function, slots, lease))
            return function

        return register

    def run(self, *, grace: Duration = GRACE_SECONDS, idle: Duration | None = None) -> None:
        """Serve every role that has a handler; see `serve`."""
        self._serve(list(self._handlers), grace, idle)

    def stop(self) -> None:
        """End `serve` and `run` of this queue in good order; any thread may call it."""
        for server in tuple(self._servers):
            server.stop()

    def _serve(self, roles: list[ServedRole], grace: Duration, idle: Duration | None) -> None:
        server = Server(
            self._client,
            roles,
            grace=seconds_of(grace, "grace"),
            idle=seconds_or_none(idle, "idle"),
        )
        self._servers.append(server)
        try:
            server.run()
        finally:
            self._servers.remove(server)

    # -- attempts by the id of their task --------------------------------------------------------

    # For a process that has no `Claim`. The epoch may be left out while there was one attempt only.

    def heartbeat(
        self, task: TaskRef, epoch: int | None = None, *, lease: Duration | None = None
    ) -> Task:
        """Renew the lease of an attempt; raises `Stale` if it is lost."""
        return self._client.heartbeat(id_of(task), epoch, lease=lease)

    def progress(
        self, task: TaskRef, percent: int, note: str = "", *, epoch: int | None = None
    ) -> Task:
        """Record how far an attempt is."""
        return self._client.progress(id_of(task), percent, note, epoch=epoch)

    def put(
        self, task: TaskRef, name: str, content: Content, *, epoch: int | None = None
    ) -> Artifact:
        """Leave a file as evidence of an attempt: text, bytes, a `Path`, or an open file."""
        return self._client.put_artifact(id_of(task), name, as_source(content), epoch=epoch)

    def complete(
        self,
        task: TaskRef,
        summary: str = "",
        result: str | bytes | None = None,
        *,
        result_file: str | os.PathLike[str] | None = None,
        epoch: int | None = None,
        cost: Usage = NO_USAGE,
        data: object = None,
        leave_children: bool = False,
    ) -> Task:
        """Report an attempt complete. `result` is the text of the result file; `result_file` is the
        path of one; `data` is a structured result. `leave_children`: its open children go on."""
        source = result_source(result, result_file)
        return self._client.complete(
            id_of(task), summary, source, epoch=epoch, cost=cost, data=as_json(data),
            leave_children=leave_children,
        )  # fmt: skip

    def yield_(
        self,
        task: TaskRef,
        wait: str = "all",
        note: str = "",
        *,
        signals: Sequence[str] = (),
        epoch: int | None = None,
    ) -> Task:
        """Leave an attempt until `all` of its children are over, or `any`, and these signals have
        come; the next attempt goes on."""
        return self._client.yield_attempt(id_of(task), wait, note, signals, epoch=epoch)

    def fail(
        self,
        task: TaskRef,
        reason: str,
        *,
        kind: FailureKind | str = FailureKind.TRANSIENT,
        epoch: int | None = None,
    ) -> Task:
        """Report an attempt failed. What follows depends on the kind."""
        return self._client.fail(id_of(task), reason, kind=kind, epoch=epoch)

    def block(self, task: TaskRef, reason: str, *, epoch: int | None = None) -> Task:
        """Stop an attempt and ask somebody up the chain."""
        return self._client.block(id_of(task), reason, epoch=epoch)

    def release(self, task: TaskRef, reason: str = "", *, epoch: int | None = None) -> Task:
        """Give a task back without using an attempt."""
        return self._client.release(id_of(task), reason, epoch=epoch)

    # -- people ----------------------------------------------------------------------------------

    # `by` names a person where nobody has shown a token; an attempt speaks as itself. With
    # `if_version` it is decided only if the task is still as it was in that version.

    def approve(self, task: TaskRef, by: str, digest: str = "", *, if_version: int = 0) -> Task:
        """Let a task start; or, if it waits for review, accept its report."""
        return self._client.approve(id_of(task), by, digest, if_version=if_version)

    def reject(
        self, task: TaskRef, by: str, reason: str = "", *, changes: bool = False,
        if_version: int = 0,
    ) -> Task:  # fmt: skip
        """Refuse to let a task start; or, of a report, ask for changes or reject it for good."""
        return self._client.reject(id_of(task), by, reason, changes=changes, if_version=if_version)

    def answer(
        self, task: TaskRef, by: str, text: str = "", *,
        resolution: Resolution | str = Resolution.RETRY, extra_usd: float = 0.0,
    ) -> Task:  # fmt: skip
        """Answer a blocked task: try again (default), `done`, or `give_up`."""
        return self._client.answer(
            id_of(task), by, text, resolution=resolution, extra_usd=extra_usd
        )

    def cancel(self, task: TaskRef, by: str, reason: str = "", *, tree: bool = False) -> Task:
        """Withdraw a task, and with `tree` all its open children and theirs. Whoever works on one
        is told at once."""
        return self._client.cancel(id_of(task), by, reason, tree=tree)

    def signal(self, task: TaskRef, by: str, name: str, data: object = None) -> Task:
        """Send a signal to a task, with data if there is more to say. It is kept until the task
        waits for one of this name."""
        return self._client.signal(id_of(task), by, name, as_json(data))

    def requeue(self, task: TaskRef, by: str, reason: str = "") -> Task:
        """Open a task again that failed or expired."""
        return self._client.requeue(id_of(task), by, reason)

    def comment(self, task: TaskRef, by: str, text: str, *, epoch: int = 0) -> Task:
        """Leave a note in a task's log. With an `epoch` the holder of that attempt speaks."""
        return self._client.comment(id_of(task), by, text, epoch=epoch)

    def tell(self, task: TaskRef, by: str, message: str) -> Task:
        """Send a message to the agent of a task: to the one that runs, where its tool takes
        messages, and into the next attempt's prompt."""
        return self._client.tell(id_of(task), by, message)

    # -- looking ---------------------------------------------------------------------------------

    def task(self, task: TaskRef) -> Task:
        """Return the task as it stands now; the unambiguous beginning of an id is enough."""
        return self._client.task(id_of(task))

    def tasks(
        self,
        *,
        state: State | str | Iterable[State | str] = (),
        role: str = "",
        sender: str = "",
        type: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[Task]:
        """Iterate over tasks, newest first; pages are fetched as the iteration reaches them."""
        from agentq.contracts.service_values import Wanted

        wanted = Wanted(states_of(state), role, sender, type, tuple((labels or {}).items()))
        return self._client.every_task(wanted)

    # A text is an iterable of texts, too; here it is always the id of one task.
    @overload
    def wait(  # type: ignore[overload-overlap]
        self,
        task: TaskRef,
        timeout: Duration | None = None,
        until: Collection[State | str] | State | str = TERMINAL,
    ) -> Task: ...
    @overload
    def wait(
        self,
        task: Iterable[TaskRef],
        timeout: Duration | None = None,
        until: Collection[State | str] | State | str = TERMINAL,
    ) -> list[Task]: ...
    def wait(
        self,
        task: TaskRef | Iterable[TaskRef],
        timeout: Duration | None = None,
        until: Collection[State | str] | State | str = TERMINAL,
    ) -> Task | list[Task]:
        """Sleep until a task, or each of several, is over or in one of the states `until`; raises
        `TimedOut`. Several come back as a list, in the order they were given."""
        patience = seconds_or_none(timeout, "timeout")
        states = frozenset(states_of(until))
        if isinstance(task, str | Task):
            return self._client.wait(id_of(task), patience, states)
        return self._client.wait_all([id_of(each) for each in task], patience, states)

    def context(self, task: TaskRef) -> str:
        """Return the full text of a task: its context file, else its instructions."""
        return self._client.context(self.task(task))  # it may have been edited since

    def result(self, task: TaskRef) -> Result:
        """Return what a completed task gave: its result file, checked, else its summary."""
        return self._client.result(id_of(task))

    def artifacts(self, task: TaskRef) -> list[Artifact]:
        """Return the evidence of all attempts at a task; reading it checks the digest."""
        return self._client.artifacts_of(id_of(task))

    def overview(self) -> Overview:
        """Return how the installation stands: roles, what runs, what waits for people, what was
        spent today. It reads as much, however many tasks there are."""
        return self._client.overview()

    def workers(self) -> list[WorkerInfo]:
        """Return who claims tasks here or holds some, and what each is doing."""
        return self._client.workers()

    def explain(self, task: TaskRef) -> Explanation:
        """Tell why a task is not running, or what it is doing, with remedies."""
        return self._client.explain(id_of(task))

    def history(self, task: TaskRef) -> list[LogEntry]:
        """Return everything that happened to one task, in order."""
        return self._client.history(id_of(task))

    def events(self, after: int = 0, limit: int = 500) -> list[LogEntry]:
        """Return committed events of all tasks after a position of the log, in commit order."""
        return self._client.events(after, limit)

    def follow(
        self, after: int | None = None, timeout: Duration | None = None
    ) -> Iterator[LogEntry]:
        """Iterate over events as they are committed, from the position `after` on (default: from
        now); ends by timeout."""
        return self._client.follow(after, seconds_or_none(timeout, "timeout"))

    def results(
        self,
        coordinator: str = "coordinator",
        *,
        wait: Duration | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> Iterator[TaskOutcome]:
        """Iterate over the outcomes of tasks whose `reply_to` is `results.<coordinator>`, as they
        come. With a broker each is taken from its queue when the next is asked for; else the log is
        read."""
        from agentq.client.results import results

        patience = seconds_or_none(wait, "wait")
        return results(self._client, coordinator, wait=patience, after=after, limit=limit)
