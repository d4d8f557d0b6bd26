"""`AsyncClaim`: a claim whose calls are awaited, for handlers that are coroutines."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from agentq.client.artifacts import Artifact
from agentq.client.cancellation import CancelToken
from agentq.client.claim import Claim
from agentq.client.content import Content
from agentq.contracts.artifacts import Stored
from agentq.core.task import Note, Task

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


async def in_thread(
    threads: Executor, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """Call a function that may block, in one of these threads."""
    from asyncio import get_running_loop

    call = functools.partial(function, *args, **kwargs)
    return await get_running_loop().run_in_executor(threads, call)


async def iterated(threads: Executor, iterator: Iterator[R]) -> AsyncIterator[R]:
    """Iterate over something whose next may block."""
    over = object()
    while (item := await in_thread(threads, next, iterator, over)) is not over:
        yield item  # type: ignore[misc]


class Threaded(Protocol[T_co]):
    """Something whose methods are called in threads, and awaited."""

    @property
    def _threads(self) -> Executor: ...
    @property
    def _wrapped(self) -> T_co: ...


def awaited(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[Threaded[T], P], Coroutine[Any, Any, R]]:
    """The same method of what is wrapped, run in a thread."""

    async def call(self: Threaded[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(self._threads, method, self._wrapped, *args, **kwargs)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class AsyncArtifact(Stored):
    """A named file of one attempt; reading is awaited."""

    __slots__ = ("_threads", "_wrapped")
    _threads: Executor
    _wrapped: Artifact

    def __init__(self, artifact: Artifact, threads: Executor) -> None:
        super().__init__(artifact.name, artifact.size, artifact.sha256, artifact.media_type)
        object.__setattr__(self, "_wrapped", artifact)
        object.__setattr__(self, "_threads", threads)

    @property
    def task_id(self) -> str:
        return self._wrapped.task_id

    @property
    def epoch(self) -> int:
        return self._wrapped.epoch

    read = awaited(Artifact.read)
    text = awaited(Artifact.text)


class AsyncClaim:
    """Custody of a task; see `Claim`. As an asynchronous context manager it renews its lease."""

    def __init__(self, claim: Claim, threads: Executor) -> None:
        self.claim = self._wrapped = claim
        self._threads = threads

    def __repr__(self) -> str:
        return f"<Async{repr(self.claim)[1:]}"

    @property
    def task(self) -> Task:
        return self.claim.task

    @property
    def id(self) -> str:
        return self.claim.id

    @property
    def epoch(self) -> int:
        return self.claim.epoch

    @property
    def notes(self) -> tuple[Note, ...]:
        return self.claim.notes

    @property
    def lost(self) -> bool:
        return self.claim.lost

    @property
    def reported(self) -> bool:
        return self.claim.reported

    @property
    def cancel_token(self) -> CancelToken:
        """Set when the task is cancelled. A handler that is a coroutine is cancelled then, too."""
        return self.claim.cancel_token

    context = awaited(Claim.context)
    heartbeat = awaited(Claim.heartbeat)
    progress = awaited(Claim.progress)
    spend = awaited(Claim.spend)
    comment = awaited(Claim.comment)
    messages = awaited(Claim.messages)
    submit = awaited(Claim.submit)
    complete = awaited(Claim.complete)
    fail = awaited(Claim.fail)
    block = awaited(Claim.block)
    release = awaited(Claim.release)
    yield_ = awaited(Claim.yield_)

    async def put(self, name: str, content: Content) -> AsyncArtifact:
        """Leave a file as evidence of this attempt: text, bytes, a `Path`, or an open file."""
        return (await self.put_many([(name, content)]))[0]

    async def put_many(self, files: Sequence[tuple[str, Content]]) -> list[AsyncArtifact]:
        """Leave several, in one transaction."""
        stored = await in_thread(self._threads, self.claim.put_many, files)
        return [AsyncArtifact(each, self._threads) for each in stored]

    async def __aenter__(self) -> Self:
        await in_thread(self._threads, self.claim.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await in_thread(self._threads, self.claim.__exit__, kind, error, trace)
