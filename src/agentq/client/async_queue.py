"""`AsyncQueue`: the API of `Queue`, awaited. The store is called from threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from agentq.client.async_admin import AsyncAdmin
from agentq.client.async_claim import AsyncArtifact, AsyncClaim, awaited, in_thread, iterated
from agentq.client.content import Content
from agentq.client.durations import Duration, seconds_of, seconds_or_none
from agentq.client.queue import Queue
from agentq.client.reader import POLL_SECONDS
from agentq.client.serving import GRACE_SECONDS, ServedRole, Server
from agentq.client.task_fields import ClaimOptions, TaskRef
from agentq.contracts.service_values import LoopConnection
from agentq.core.errors import TimedOut
from agentq.core.states import TERMINAL, State
from agentq.core.task import Task
from agentq.core.triggers import LogEntry

if TYPE_CHECKING:
    from agentq.client.broker_results import TaskOutcome
    from agentq.client.client import Refusal
    from agentq.core.access import Principal
    from agentq.wiring import WiredInstallation

P = ParamSpec("P")
R = TypeVar("R")
#: A coroutine function that is given an `AsyncClaim`, or a function that is given a `Claim`.
AsyncHandler = Callable[[Any], "Coroutine[Any, Any, str | None] | str | None"]
F = TypeVar("F", bound=AsyncHandler)

#: Calls to the store at once; each takes a thread while it runs. Those that wait have threads of
#: their own, so that a report never queues behind them.
_THREADS, _WAITERS = 16, 64


def _awaited_submit(
    method: Callable[Concatenate[Queue, P], R],
) -> Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, R]]:
    """As `awaited`, but `connection` may be an asynchronous one: it is used on its own loop."""
    plain = awaited(method)

    async def call(self: AsyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> R:
        connection = kwargs.get("connection")
        if not inspect.iscoroutinefunction(getattr(connection, "execute", None)):
            return await plain(self, *args, **kwargs)

        def submit(bound: LoopConnection) -> R:
            kwargs["connection"] = bound
            return method(self._wrapped, *args, **kwargs)

        return await on_loop(connection, submit)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


async def on_loop(connection: object, submit: Callable[[LoopConnection], R]) -> R:
    """Run `submit` in a thread, with this async connection as its `connection` argument.

    `await on_loop(conn, lambda c: q.submit("worker", "Look.", connection=c))`. Statements on the
    connection run on the event loop of the caller, one by one. If the caller is cancelled, what was
    begun on its connection ends first: a connection is never left to two users.
    """
    bound = LoopConnection(connection, asyncio.get_running_loop())
    running = asyncio.ensure_future(asyncio.to_thread(submit, bound))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):  # once is enough
                await asyncio.wait([running])
        raise


class AsyncQueue:
    """A durable work queue for asyncio. It is opened by `async with`; see `Queue` for each method.

    A coroutine that is cancelled while it waits leaves its thread behind for a few seconds at most.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        installation: WiredInstallation | None = None,
        who: Principal | None = None,
    ) -> None:
        self._open: Callable[[], Queue] = functools.partial(
            Queue, url, installation=installation, who=who
        )
        self._opened: Queue | None = None
        self._threads = ThreadPoolExecutor(_THREADS, "agentq-async")
        self._waiters = ThreadPoolExecutor(_WAITERS, "agentq-async-wait")
        self._handlers: list[ServedRole] = []
        self._servers: list[Server] = []

    @classmethod
    def create(cls, url: str | None = None, *, who: Principal | None = None) -> Self:
        """Make the ledger first if it is not there, once `async with` opens it."""
        made = cls(url)
        made._open = functools.partial(Queue.create, url, who=who)
        return made

    async def __aenter__(self) -> Self:
        self._opened = await in_thread(self._threads, self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop serving and let go of the database. Closing twice is fine."""
        self.stop()
        if self._opened is not None:
            await in_thread(self._threads, self._opened.close)
        self._threads.shutdown(wait=False)
        self._waiters.shutdown(wait=False)

    @property
    def _wrapped(self) -> Queue:
        if self._opened is None:
            raise RuntimeError("An AsyncQueue is opened first: async with AsyncQueue(...) as queue")
        return self._opened

    async def _in_thread(self, call: Callable[[], R]) -> R:
        return await in_thread(self._threads, call)

    @property
    def who(self) -> Principal:
        """On whose behalf everything is asked: a person, or the attempt this process works for."""
        return self._wrapped.who

    @property
    def admin(self) -> AsyncAdmin:
        """What operators need: limits, circuits, costs, proofs, pruning."""
        return AsyncAdmin(self._wrapped.admin, self._threads)

    # -- as in `Queue`, awaited ------------------------------------------------------------------

    submit = _awaited_submit(Queue.submit)
    submit_many = _awaited_submit(Queue.submit_many)
    edit = awaited(Queue.edit)
    priority = awaited(Queue.priority)
    rerun = awaited(Queue.rerun)
    heartbeat = awaited(Queue.heartbeat)
    progress = awaited(Queue.progress)
    complete = awaited(Queue.complete)
    fail = awaited(Queue.fail)
    block = awaited(Queue.block)
    release = awaited(Queue.release)
    yield_ = awaited(Queue.yield_)
    approve = awaited(Queue.approve)
    reject = awaited(Queue.reject)
    answer = awaited(Queue.answer)
    cancel = awaited(Queue.cancel)
    signal = awaited(Queue.signal)
    requeue = awaited(Queue.requeue)
    comment = awaited(Queue.comment)
    diff = awaited(Queue.diff)
    apply = awaited(Queue.apply)
    continue_apply = awaited(Queue.continue_apply)
    abort_apply = awaited(Queue.abort_apply)
    tell = awaited(Queue.tell)
    task = awaited(Queue.task)
    context = awaited(Queue.context)
    result = awaited(Queue.result)
    explain = awaited(Queue.explain)
    overview = awaited(Queue.overview)
    workers = awaited(Queue.workers)
    history = awaited(Queue.history)
    events = awaited(Queue.events)

    async def put(
        self, task: TaskRef, name: str, content: Content, *, epoch: int | None = None
    ) -> AsyncArtifact:
        """Leave a file as evidence of an attempt: text, bytes, a `Path`, or an open file."""
        stored = await self._in_thread(lambda: self._wrapped.put(task, name, content, epoch=epoch))
        return AsyncArtifact(stored, self._threads)

    async def artifacts(self, task: TaskRef) -> list[AsyncArtifact]:
        """Return the evidence of all attempts at a task."""
        found = await self._in_thread(lambda: self._wrapped.artifacts(task))
        return [AsyncArtifact(each, self._threads) for each in found]

    # -- custody ---------------------------------------------------------------------------------

    async def claim(
        self, role: str, wait: Duration = 0, **options: Unpack[ClaimOptions]
    ) -> AsyncClaim | None:
        """Claim the most urgent ready task of a role; waits for one at most as long as `wait`."""
        claims = await self.claim_many(role, 1, wait=wait, **options)
        return claims[0] if claims else None

    async def claim_many(
        self, role: str, n: int = 1, *, wait: Duration = 0, **options: Unpack[ClaimOptions]
    ) -> list[AsyncClaim]:
        """Claim up to `n` ready tasks in one transaction; waits for the first of them."""

        def attempt(patience: float) -> list[AsyncClaim]:
            claims = self._wrapped.claim_many(role, n, wait=patience, **options)
            return [AsyncClaim(each, self._threads) for each in claims]

        deadline = time.monotonic() + seconds_of(wait, "wait")
        while True:
            left = max(deadline - time.monotonic(), 0)
            patience = min(left, POLL_SECONDS)
            threads = self._waiters if patience else self._threads
            claims = await in_thread(threads, attempt, patience)
            if claims or patience == left:
                return claims

    async def claim_task(self, task: TaskRef, **options: Unpack[ClaimOptions]) -> AsyncClaim:
        """Claim this very task; raises `Refused` with the reason if it cannot be claimed now."""
        claim = await self._in_thread(lambda: self._wrapped.claim_task(task, **options))
        return AsyncClaim(claim, self._threads)

    async def complete_many(self, done: Iterable[tuple[AsyncClaim, str]]) -> list[Refusal]:
        """Report many attempts complete in one transaction; which were refused, and why."""
        pairs = [(each.claim, summary) for each, summary in done]
        return await self._in_thread(lambda: self._wrapped.complete_many(pairs))

    async def complete_and_claim(
        self,
        done: Iterable[tuple[AsyncClaim, str]],
        role: str,
        n: int = 1,
        **options: Unpack[ClaimOptions],
    ) -> tuple[list[Refusal], list[AsyncClaim]]:
        """Report these complete and claim the next, in one transaction."""
        pairs = [(each.claim, summary) for each, summary in done]
        refused, claims = await self._in_thread(
            lambda: self._wrapped.complete_and_claim(pairs, role, n, **options)
        )
        return refused, [AsyncClaim(each, self._threads) for each in claims]

    # -- waiting and iterating -------------------------------------------------------------------

    # A text is an iterable of texts, too; here it is always the id of one task.
    @overload
    async def wait(  # type: ignore[overload-overlap]
        self,
        task: TaskRef,
        timeout: Duration | None = None,
        until: Collection[State | str] | State | str = TERMINAL,
    ) -> Task: ...
    @overload
    async def wait(
        self,
        task: Iterable[TaskRef],
        timeout: Duration | None = None,
        until: Collection[State | str] | State | str = TERMINAL,
    ) -> list[Task]: ...
    async def wait(
        self,
        task: TaskRef | Iterable[TaskRef],
        timeout: Duration | None = None,
        until: Collection[State | str] | State | str = TERMINAL,
    ) -> Task | list[Task]:
        """Sleep until a task, or each of several, is over or in one of the states `until`."""
        single = isinstance(task, str | Task)
        refs = [task] if isinstance(task, str | Task) else list(task)

        def wait_all(patience: float) -> list[Task]:
            return self._wrapped.wait(refs, patience, until)

        given = seconds_or_none(timeout, "timeout")
        deadline = None if given is None else time.monotonic() + given
        while True:
            left = POLL_SECONDS if deadline is None else max(deadline - time.monotonic(), 0)
            patience = min(left, POLL_SECONDS)
            try:
                found = await in_thread(self._waiters, wait_all, patience)
            except TimedOut:
                if deadline is None or patience < left:
                    continue
                raise
            return found[0] if single else found

    async def tasks(self, **wanted: Any) -> AsyncIterator[Task]:
        """Iterate over tasks, newest first; takes what `Queue.tasks` takes."""
        iterator = self._wrapped.tasks(**wanted)
        async for task in iterated(self._waiters, iterator):
            yield task

    async def follow(
        self, after: int | None = None, timeout: Duration | None = None
    ) -> AsyncIterator[LogEntry]:
        """Iterate over events as they are committed; ends by timeout."""
        client = self._wrapped._client  # noqa: SLF001 (one package)
        position = await self._in_thread(client.last_position) if after is None else after
        deadline = None if timeout is None else time.monotonic() + seconds_of(timeout, "timeout")
        while True:
            left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
            pause = min(left, POLL_SECONDS)
            batch = await in_thread(self._waiters, _first_batch, self._wrapped, position, pause)
            for entry in batch:
                position = entry.position
                yield entry
            if deadline is not None and time.monotonic() >= deadline:
                return

    async def results(
        self,
        coordinator: str = "coordinator",
        *,
        wait: Duration | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[TaskOutcome]:
        """Iterate over the outcomes for a coordinator as they come; see `Queue.results`."""
        patience = seconds_or_none(wait, "wait")
        quiet_since, left = time.monotonic(), limit
        while left is None or left > 0:
            pause = POLL_SECONDS
            if patience is not None:
                pause = min(pause, max(quiet_since + patience - time.monotonic(), 0))
            found = self._wrapped.results(coordinator, wait=pause, after=after, limit=left)
            async for outcome in iterated(self._waiters, found):
                yield outcome
                quiet_since = time.monotonic()
                after = outcome.position or after
                left = None if left is None else left - 1
            if patience is not None and time.monotonic() - quiet_since >= patience:
                return

    # -- functions as workers --------------------------------------------------------------------

    async def serve(
        self,
        role: str,
        function: AsyncHandler,
        *,
        slots: int = 1,
        lease: Duration | None = None,
        grace: Duration = GRACE_SECONDS,
        idle: Duration | None = None,
    ) -> None:
        """Let a function do the tasks of a role, up to `slots` at once, until `stop()`, SIGTERM or
        its own cancellation. A coroutine function is given an `AsyncClaim`, and is cancelled when
        its task is; a plain function is given a `Claim`, and runs in a thread."""
        await self._serve([ServedRole(role, function, slots, lease)], grace, idle)

    def handler(
        self, role: str, *, slots: int = 1, lease: Duration | None = None
    ) -> Callable[[F], F]:
        """Register a function for the tasks of a role; `run()` serves all that are registered."""

        def register(function: F) -> F:
            self._handlers.append(ServedRole(role, function, slots, lease))
            return function

        return register

    async def run(self, *, grace: Duration = GRACE_SECONDS, idle: Duration | None = None) -> None:
        """Serve every role that has a handler; see `serve`."""
        await self._serve(list(self._handlers), grace, idle)

    def stop(self) -> None:
        """End `serve` and `run` in good order; any thread may call it."""
        for server in tuple(self._servers):
            server.stop()

    async def _serve(self, roles: list[ServedRole], grace: Duration, idle: Duration | None) -> None:
        loop = asyncio.get_running_loop()
        server = Server(
            self._wrapped._client, roles, grace=seconds_of(grace, "grace"),  # noqa: SLF001
            idle=seconds_or_none(idle, "idle"),
            wrap=lambda claim: AsyncClaim(claim, self._threads), loop=loop,
        )  # fmt: skip
        self._servers.append(server)
        with contextlib.ExitStack() as stack:
            stack.callback(self._servers.remove, server)
            # Outside the main thread there are no signals to heed.
            with contextlib.suppress(ValueError, RuntimeError):
                loop.add_signal_handler(signal.SIGTERM, server.stop)
                stack.callback(loop.remove_signal_handler, signal.SIGTERM)
            running = loop.run_in_executor(self._waiters, lambda: server.run(signals=False))
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                server.stop()
                await running
                raise


def _first_batch(queue: Queue, after: int, timeout: float) -> list[LogEntry]:
    """Wait for the next event, and return it with those that are there already."""
    first = next(queue.follow(after, max(timeout, 0)), None)
    return [] if first is None else [first, *queue.events(first.position)]
