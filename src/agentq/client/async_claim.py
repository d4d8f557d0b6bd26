"""`AsyncClaim`: a claim whose calls are awaited, for handlers that are coroutines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from agentq.client.artifacts import Artifact
from agentq.client.cancellation import CancelToken
from agentq.client.claim import Claim
from agentq.client.content import Content
from agentq.contracts.artifacts import Stored
from agentq.core.task import Note, Task

P = ParamSpec("P")
R = TypeVar("R")


async def in_thread(
    threads: Executor, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """Call a function that may block, in one of these threads."""
    from asyncio import get_running_loop

    call = functools.partial(function, *args, **kwargs)
    return await get_running_loop().run_in_executor(threads, call)


class AsyncArtifact(Stored):
    """A named file of one attempt; reading is awaited."""

    __slots__ = ("_artifact", "_threads")

    def __init__(self, artifact: Artifact, threads: Executor) -> None:
        super().__init__(artifact.name, artifact.size, artifact.sha256, artifact.media_type)
        object.__setattr__(self, "_artifact", artifact)
        object.__setattr__(self, "_threads", threads)

    @property
    def task_id(self) -> str:
        return self._artifact.task_id

    @property
    def epoch(self) -> int:
        return self._artifact.epoch

    async def read(self) -> bytes:
        """Return the whole content, checked against its digest."""
        return await in_thread(self._threads, self._artifact.read)

    async def text(self) -> str:
        """Return the whole content as text; what is not UTF-8 is replaced."""
        return await in_thread(self._threads, self._artifact.text)

    _artifact: Artifact
    _threads: Executor


def _awaited(
    method: Callable[Concatenate[Claim, P], R],
) -> Callable[Concatenate[AsyncClaim, P], Coroutine[Any, Any, R]]:
    """The same method of a claim, run in a thread."""

    async def call(self: AsyncClaim, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(self.threads, method, self.claim, *args, **kwargs)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class AsyncClaim:
    """Custody of a task; see `Claim`. As an asynchronous context manager it renews its lease."""

    def __init__(self, claim: Claim, threads: Executor) -> None:
        self.claim = claim
        self.threads = threads

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

    context = _awaited(Claim.context)
    heartbeat = _awaited(Claim.heartbeat)
    progress = _awaited(Claim.progress)
    spend = _awaited(Claim.spend)
    comment = _awaited(Claim.comment)
    submit = _awaited(Claim.submit)
    complete = _awaited(Claim.complete)
    fail = _awaited(Claim.fail)
    block = _awaited(Claim.block)
    release = _awaited(Claim.release)

    async def put(self, name: str, content: Content) -> AsyncArtifact:
        """Leave a file as evidence of this attempt: text, bytes, a `Path`, or an open file."""
        return (await self.put_many([(name, content)]))[0]

    async def put_many(self, files: Sequence[tuple[str, Content]]) -> list[AsyncArtifact]:
        """Leave several, in one transaction."""
        stored = await in_thread(self.threads, self.claim.put_many, files)
        return [AsyncArtifact(each, self.threads) for each in stored]

    async def __aenter__(self) -> Self:
        await in_thread(self.threads, self.claim.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await in_thread(self.threads, self.claim.__exit__, kind, error, trace)
