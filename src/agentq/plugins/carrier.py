"""Carries calls to one plugin, in a thread of its own, with a pause after failures.

The pause doubles with each failure in a row; after five the breaker counts as open, and until the
pause is over nothing is even tried. So a plugin that is broken costs a call now and then, and
whoever waits for it waits in the ledger, where nothing is lost.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agentq.plugins.process import PluginFailed, PluginProcess

T = TypeVar("T")

#: After so many failures in a row the breaker is open.
FAILURES_TO_OPEN = 5
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 1.0, 600.0
#: A plugin that has nothing to do for so long gives its process back.
IDLE_SECONDS = 60.0
#: How long it may take to see that its process was killed.
_END_SECONDS = 5.0
TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PluginCall(Generic[T]):
    """One call; `token` is the caller's own, and comes back with the result."""

    token: T
    method: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PluginResult(Generic[T]):
    """What came of a call. With an `error` it did not work; `final`: and never will."""

    token: T
    value: Any = None
    error: str = ""
    final: bool = False


@dataclass(slots=True)
class PluginHealth:
    """How a plugin has done so far in this process."""

    calls: int = 0
    failures: int = 0
    #: Failures since the last call that worked.
    in_a_row: int = 0
    last_error: str = ""
    #: Moments in milliseconds since the epoch, 0 for never.
    failed_at: int = 0
    worked_at: int = 0
    open_until: int = 0

    @property
    def is_open(self) -> bool:
        return self.in_a_row >= FAILURES_TO_OPEN


@dataclass(slots=True)
class Carrier(Generic[T]):
    """One plugin with one set of options. `offer` and `collect` are for one thread: its owner's."""

    process: PluginProcess
    #: Called by its thread when results are there.
    ring: Callable[[], None]
    timeout: float = TIMEOUT_SECONDS
    health: PluginHealth = field(default_factory=PluginHealth)
    _results: deque[PluginResult[T]] = field(default_factory=deque)
    _calls: Sequence[PluginCall[T]] = ()
    _wake: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None
    _retry_at: float = 0.0
    _closed: bool = False

    @property
    def is_busy(self) -> bool:
        return bool(self._calls)

    def pause(self) -> float:
        """In how many seconds it may be given calls; 0 if it may now."""
        return max(0.0, self._retry_at - time.monotonic())

    def offer(self, calls: Sequence[PluginCall[T]]) -> bool:
        """Give it calls, unless it has some or pauses. After one that fails the rest is left."""
        with self._wake:
            if self._closed or self._calls or not calls or self.pause():
                return False
            self._calls = tuple(calls)
            if self._thread is None:
                name = f"agentq-plugin-{self.process.name}"
                self._thread = threading.Thread(target=self._live, name=name, daemon=True)
                self._thread.start()
            self._wake.notify()
        return True

    def collect(self) -> list[PluginResult[T]]:
        """Return what came of calls since the last time."""
        found = []
        while self._results:
            found.append(self._results.popleft())
        return found

    def close(self) -> None:
        """End its process at once. What was under way is done again by whoever comes next."""
        with self._wake:
            self._closed = True
            self._wake.notify()
            thread = self._thread
        self.process.shut()
        if thread is not None:
            thread.join(_END_SECONDS)

    # -- its thread --------------------------------------------------------------------------------

    def _live(self) -> None:
        while True:
            with self._wake:
                if not self._calls and not self._closed:
                    self._wake.wait(IDLE_SECONDS)
                calls = self._calls
                if not calls:  # idle for long, or closed
                    self.process.close()
                    self._thread = None
                    return
            self._carry(calls)
            self._calls = ()
            self.ring()

    def _carry(self, calls: Sequence[PluginCall[T]]) -> None:
        for call in calls:
            if self._closed:
                return
            result = self._try(call)
            self._results.append(result)
            if result.error and not result.final:
                return

    def _try(self, call: PluginCall[T]) -> PluginResult[T]:
        health = self.health
        health.calls += 1
        try:
            value = self.process.call(call.method, call.arguments, self.timeout)
        except PluginFailed as failed:
            health.failures += 1
            health.last_error, health.failed_at = failed.cause, _now_ms()
            if not failed.final:
                health.in_a_row += 1
                seconds = min(_PAUSE_SECONDS * 2 ** (health.in_a_row - 1), _PAUSE_SECONDS_MAX)
                self._retry_at = time.monotonic() + seconds
                health.open_until = _now_ms() + int(seconds * 1000)
            return PluginResult(call.token, None, failed.cause or "it failed", failed.final)
        health.in_a_row, health.open_until, health.worked_at = 0, 0, _now_ms()
        return PluginResult(call.token, value)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
