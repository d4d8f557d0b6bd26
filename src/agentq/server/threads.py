"""Threads for calls that block, beside an event loop that must not.

The thread that ended last is the first to be used again: its connection to the ledger and its
memory are warm, and a server with little to do uses few. An executor of the standard library makes
a lock and two futures for every call, which costs more than most answers do.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from agentq.core.errors import Unavailable

log = logging.getLogger("agentq.server")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Job(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    call: Callable[..., Any]
    arguments: tuple[Any, ...]


_Inbox = SimpleQueue[_Job | None]


class Threads:
    """At most `count` threads; what finds none free waits its turn."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._guard = threading.Lock()
        self._inboxes: list[_Inbox] = []
        self._idle: list[_Inbox] = []
        self._waiting: deque[_Job] = deque()
        self._stopping = False

    async def run(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """What the call returns or raises, once a thread has made it."""
        loop = asyncio.get_running_loop()
        job = _Job(loop, loop.create_future(), call, arguments)
        self._hand_over(job)
        result: T = await job.future
        return result

    def stop(self) -> None:
        """Let every thread end after what it does; nobody waits for them."""
        with self._guard:
            self._stopping = True
            inboxes = list(self._inboxes)
        for inbox in inboxes:
            inbox.put(None)

    def _hand_over(self, job: _Job) -> None:
        with self._guard:
            if self._stopping:
                raise Unavailable("The server has ended.", "Ask again when it is back.")
            if self._idle:
                inbox = self._idle.pop()
            elif len(self._inboxes) < self._count:
                inbox = SimpleQueue()
                self._inboxes.append(inbox)
                name = f"{self._name}-{len(self._inboxes)}"
                threading.Thread(target=self._work, args=(inbox,), name=name, daemon=True).start()
            else:
                self._waiting.append(job)
                return
        inbox.put(job)

    def _work(self, inbox: _Inbox) -> None:
        job = inbox.get()
        while job is not None:
            outcome = _carry_out(job)
            # Free again before the caller goes on: its next call finds this thread, not a new one.
            following = self._next(inbox)
            _report(job, *outcome)
            job = following or inbox.get()

    def _next(self, inbox: _Inbox) -> _Job | None:
        with self._guard:
            if self._waiting:
                return self._waiting.popleft()
            self._idle.append(inbox)
            return None


def _carry_out(job: _Job) -> tuple[Any, BaseException | None]:
    try:
        return job.call(*job.arguments), None
    except BaseException as error:  # noqa: BLE001 - it is raised where the call was asked for
        return None, error


def _report(job: _Job, result: Any, failure: BaseException | None) -> None:
    try:
        job.loop.call_soon_threadsafe(_settle, job.future, result, failure)
    except RuntimeError:
        log.debug("the event loop ended before its answer came")


def _settle(future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if future.done():
        return  # whoever asked has gone
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
