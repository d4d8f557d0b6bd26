"""`MemoryQueue`: the real ledger on SQLite in memory, under a clock that only the test moves.

There is no second implementation to keep alike: states, retries, leases and timers are decided by
the same code as in production. Only the clock, the chance in backoffs and the place are others.
"""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from agentq.client.durations import Duration, seconds_of
from agentq.client.queue import Queue
from agentq.settings import Settings
from agentq.wiring import WiredInstallation

if TYPE_CHECKING:
    from agentq.core.access import Principal

#: When a test begins, unless it says otherwise.
START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Milliseconds since 1970 that stand still until somebody moves them."""

    def __init__(self, start: datetime = START) -> None:
        self._now = round(start.timestamp() * 1000)
        self._lock = threading.Lock()

    def __call__(self) -> int:
        return self._now

    def move_to(self, moment: int) -> None:
        """Move forward to this moment; the clock never goes back."""
        with self._lock:
            self._now = max(self._now, moment)


class MemoryQueue(Queue):
    """A `Queue` for tests: nothing is kept, and time passes by `advance` alone.

    Waiting (`wait`, `claim(wait=…)`, `serve(idle=…)`) still takes real time: it sleeps until a
    commit. `serve(role, function, idle=0)` does what is ready and returns.
    """

    def __init__(self, *, start: datetime = START, who: Principal | None = None) -> None:
        self.clock = VirtualClock(start)
        # Files of a queue that is not kept are not kept either, and meet those of no other queue.
        self._folder = TemporaryDirectory(prefix="agentq-test-", ignore_cleanup_errors=True)
        settings = Settings("sqlite://:memory:", f"{self._folder.name}/files", "agentq.testing")
        chance = random.Random(0).random
        installation = WiredInstallation(settings, chance, create=True, clock=self.clock)
        super().__init__(installation=installation, who=who)

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def advance(self, duration: Duration) -> int:
        """Let time pass and apply every timer that falls due on the way, each at its moment; how
        many tasks changed.

        Claims that are held in a `with` renew their leases meanwhile, as a live worker does; other
        leases end, as a dead worker's do.
        """
        client, clock = self._client, self.clock
        target = clock() + round(seconds_of(duration) * 1000)
        changed = client.tick()
        while clock() < target:
            moments = [target]
            shortest_lease = client.heartbeats.renew_held()
            if shortest_lease:
                moments.append(clock() + max(shortest_lease // 3, 1))
            wake_at = client.next_wake()
            if wake_at:
                moments.append(max(wake_at, clock() + 1))
            clock.move_to(min(moments))
            changed += client.tick()
        return changed

    @property
    def time(self) -> datetime:
        """The moment it is now for the queue."""
        return datetime.fromtimestamp(self.clock() / 1000, UTC)
