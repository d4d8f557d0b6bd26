"""The doorbell of a ledger that is reached over HTTP: a long poll for each waiter.

The server counts rings. A waiter begins with the count as it was when it started to listen, so that
what is rung between two polls is answered at once by the next.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable

import msgspec

from agentq.contracts.routes import PREFIX, WAKEUPS_PATH
from agentq.core.errors import AgentqError
from agentq.ledger.codec import decoder
from agentq.remote.calls import quote
from agentq.remote.transport import Broken, Pending, Transport

_POLL_SECONDS = 30.0
_AWAY_SECONDS = 0.5


class Rung(msgspec.Struct):
    """The topics that were rung, and where to go on."""

    cursor: str
    rung: list[str]


class RemoteDoorbell:
    """Listens for the rings of the installation behind a server. It rings for nobody: whatever is
    worth a ring happens over there."""

    def __init__(self, transport: Transport, token: Callable[[], str]) -> None:
        self._transport = transport
        self._token = token

    def ring(self, topics: Iterable[str]) -> None:
        return None

    def listen(self, topics: Iterable[str]) -> RemoteWaiter:
        return RemoteWaiter(self._transport, self._token, topics)

    def close(self) -> None:
        return None


class RemoteWaiter:
    """Waits on a request that the server answers when somebody rings."""

    def __init__(
        self, transport: Transport, token: Callable[[], str], topics: Iterable[str]
    ) -> None:
        self._transport = transport
        self._token = token
        self._query = "&".join(f"topic={quote(topic)}" for topic in sorted(set(topics)))
        self._cursor = ""
        self._pending: Pending | None = None
        self._rung: frozenset[str] = frozenset()
        #: Whether the last question broke off or was refused: to ask at once would only be a storm.
        self._unheard = False
        self._ask(0.0)
        self._answer(time.monotonic() + _POLL_SECONDS, -1)

    def rung(self) -> frozenset[str]:
        return self._rung

    def wait(self, timeout: float, wake_fd: int = -1) -> bool:
        deadline = time.monotonic() + max(timeout, 0)
        while True:
            if self._pending is None and (
                self._unheard or not self._ask(min(timeout, _POLL_SECONDS))
            ):
                # Nobody there, or nobody who listens: a slow poll, as wherever nothing is heard.
                self._unheard = False
                left = min(deadline - time.monotonic(), _AWAY_SECONDS)
                poller = select.poll()
                if wake_fd >= 0:
                    poller.register(wake_fd, select.POLLIN)
                if poller.poll(max(left, 0) * 1000) or time.monotonic() >= deadline:
                    return False
                continue
            found = self._answer(deadline, wake_fd)
            if found is not None:
                return found
            if time.monotonic() >= deadline:
                return False

    def _ask(self, seconds: float) -> bool:
        target = f"{PREFIX}{WAKEUPS_PATH}?{self._query}&since={quote(self._cursor)}"
        headers = {"authorization": f"Bearer {self._token()}"}
        try:
            self._pending = self._transport.begin("GET", f"{target}&seconds={seconds:g}", headers)
        except (Broken, AgentqError):
            return False
        return True

    def _answer(self, deadline: float, wake_fd: int) -> bool | None:
        """Whether somebody rang; False if the caller was woken otherwise or the time is up; None if
        the server has answered that nobody did, or went away."""
        if self._pending is None:
            return None
        poller = select.poll()
        poller.register(self._pending.fileno(), select.POLLIN)
        if wake_fd >= 0:
            poller.register(wake_fd, select.POLLIN)
        while True:
            ready = poller.poll(max(deadline - time.monotonic(), 0) * 1000)
            if not any(fd == self._pending.fileno() for fd, _ in ready):
                return False
            if self._pending.has_answer():
                break
        pending, self._pending = self._pending, None
        self._unheard = True
        try:
            reply = pending.reply()
            body = reply.read()
            if reply.status != 200:
                return None
        except Broken:
            return None
        self._unheard = False
        answer: Rung = decoder(Rung).decode(body)
        self._cursor = answer.cursor
        self._rung = frozenset(answer.rung)
        return True if self._rung else None

    def close(self) -> None:
        if self._pending is not None:
            self._pending.close()
            self._pending = None
