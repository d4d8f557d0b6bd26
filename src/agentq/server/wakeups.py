"""Wake-ups for many waiting requests from one listener of the doorbell.

One thread listens for every ring of the installation. A request that waits opens a `Bell` for its
topics before it looks, so that no ring falls between, and sleeps on the event loop: a thousand idle
long polls cost a thousand small objects and no thread.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from agentq.contracts.doorbell import ALL_TOPICS, Doorbell

_WAIT_SECONDS = 30.0
#: Topics whose last ring is remembered.
_TOPICS_MAX = 50_000


class Bell:
    """What one request waits on, within `with`."""

    def __init__(self, wakeups: Wakeups, topics: Iterable[str]) -> None:
        self._wakeups = wakeups
        self.topics = frozenset(topics)
        self.rung = asyncio.Event()

    def __enter__(self) -> Self:
        self._wakeups.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wakeups.remove(self)

    async def wait(self, seconds: float) -> bool:
        """Sleep until a ring; False when the time is up. A ring before the sleep counts."""
        try:
            await asyncio.wait_for(self.rung.wait(), max(seconds, 0))
        except TimeoutError:
            return False
        self.rung.clear()
        return True


class Wakeups:
    """Passes rings on to the bells of one event loop."""

    def __init__(self, doorbell: Doorbell) -> None:
        self._doorbell = doorbell
        self._bells: dict[str, set[Bell]] = {}
        #: Which ring a topic was last rung in, by number; of this process only.
        self._last: dict[str, int] = {}
        self._count = 0
        self._forgotten = 0
        self._process = secrets.token_hex(4)
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listening = threading.Event()
        self._wake_fd = self._ring_fd = -1

    def start(self) -> None:
        """Belong to the running event loop."""
        self._loop = asyncio.get_running_loop()

    async def listen(self) -> None:
        """Listen from now on. Not before somebody waits: whoever listens costs every commit of the
        installation a little."""
        if self._thread is None and not self._stopping:
            self._wake_fd, self._ring_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._thread = threading.Thread(target=self._hear, name="agentq-wakeups", daemon=True)
            self._thread.start()
        if not self._listening.is_set():
            await asyncio.to_thread(self._listening.wait, _WAIT_SECONDS)

    async def stop(self) -> None:
        self._stopping = True
        if self._thread is None:
            return
        os.write(self._ring_fd, b"!")
        await asyncio.to_thread(self._thread.join)
        os.close(self._wake_fd)
        os.close(self._ring_fd)
        self._thread = None

    def bell(self, topics: Iterable[str]) -> Bell:
        return Bell(self, topics)

    def ring_all(self) -> None:
        """Wake everybody, as at the end of the server."""
        self._pass_on(frozenset({ALL_TOPICS}))

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call it on the event loop, from any thread; not at all once that has ended."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def add(self, bell: Bell) -> None:
        for topic in bell.topics:
            self._bells.setdefault(topic, set()).add(bell)

    def remove(self, bell: Bell) -> None:
        for topic in bell.topics:
            others = self._bells.get(topic)
            if others is not None:
                others.discard(bell)
                if not others:
                    del self._bells[topic]

    def _hear(self) -> None:
        waiter = self._doorbell.listen((ALL_TOPICS,))
        self._listening.set()
        try:
            while not self._stopping:
                if waiter.wait(_WAIT_SECONDS, self._wake_fd) and self._loop is not None:
                    self._loop.call_soon_threadsafe(self._pass_on, waiter.rung())
        finally:
            waiter.close()

    @property
    def cursor(self) -> str:
        """Where the rings are now."""
        return f"{self._process}.{self._count}"

    def rung_since(self, cursor: str, topics: frozenset[str]) -> list[str]:
        """Which of these topics were rung since then; all where that is not known any more."""
        process, _, number = cursor.partition(".")
        if process != self._process or not number.isdigit() or int(number) < self._forgotten:
            return [ALL_TOPICS]
        last = max(self._last.get(ALL_TOPICS, 0), 0)
        if last > int(number):
            return [ALL_TOPICS]
        if ALL_TOPICS in topics:
            return sorted(topic for topic, rung in self._last.items() if rung > int(number))
        return sorted(topic for topic in topics if self._last.get(topic, 0) > int(number))

    def _note(self, topics: frozenset[str]) -> None:
        self._count += 1
        if len(self._last) + len(topics) > _TOPICS_MAX:
            self._last.clear()
            self._forgotten = self._count
        self._last.update(dict.fromkeys(topics, self._count))

    def _pass_on(self, topics: frozenset[str]) -> None:
        self._note(topics)
        wanted = list(self._bells) if ALL_TOPICS in topics else [*topics, ALL_TOPICS]
        for topic in wanted:
            for bell in self._bells.get(topic, ()):
                bell.rung.set()
