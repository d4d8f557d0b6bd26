"""What a loop of `agentq up` is, and the thread that runs one.

A loop does one round and returns when it wants the next. Its runner sleeps until then or until the
doorbell rings, pauses while another process leads, backs off while a database, broker or disk is
away, and logs what was done. A loop that died of an unexpected error is started again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import select
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError, Unavailable

if TYPE_CHECKING:
    from agentq.contracts.doorbell import Doorbell, Waiter

log = logging.getLogger("agentq.daemon")

#: How long a loop that does not lead sleeps; it is woken when it does.
_STILL_SECONDS = 60.0
_BACKOFF_SECONDS = 0.2
_BACKOFF_SECONDS_MAX = 30.0
#: Pause before a loop that died is started again: doubled each time, unless it ran for a while.
_REVIVE_SECONDS, _REVIVE_SECONDS_MAX = 0.5, 30.0
_STEADY_SECONDS = 60.0
#: Seconds between two lines of the log on what a loop has done.
_LOG_SECONDS = 10.0


class Alarm:
    """Wakes one thread, from any other or from a signal handler, also if it sleeps only later."""

    def __init__(self) -> None:
        self.fd, self._ringer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def ring(self) -> None:
        if self._ringer >= 0:
            with contextlib.suppress(OSError):  # full: it has been rung already
                os.write(self._ringer, b"!")

    def ringer(self) -> int:
        """Return a file of the caller's own: writing to it wakes the thread."""
        return os.dup(self._ringer)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)

    def wait(self, seconds: float) -> None:
        poller = select.poll()  # a server in this process may have thousands of files open
        poller.register(self.fd, select.POLLIN)
        poller.poll(max(seconds, 0) * 1000)
        self.clear()

    def close(self) -> None:
        ringer, self._ringer = self._ringer, -1
        if ringer >= 0:
            os.close(ringer)
            os.close(self.fd)


class Tally:
    """Counts what a loop did, and logs it: at once, then in sums."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self._logged: Counter[str] = Counter()
        self._logged_at = -_LOG_SECONDS

    def add(self, word: str, count: int = 1) -> None:
        if count:
            self.counts[word] += count

    def log_progress(self, *, now: bool = False) -> None:
        new = self.counts - self._logged
        if not new or (not now and time.monotonic() - self._logged_at < _LOG_SECONDS):
            return
        self._logged, self._logged_at = self.counts.copy(), time.monotonic()
        summary = ", ".join(f"{count} {word}" for word, count in new.items())
        log.info("%s: %s", self.name, summary)


class Loop(ABC):
    """One kind of recurring work. Used by one thread."""

    name: str
    #: The leader lease it runs under, in one process of all that share the ledger; "" for none.
    term: str = ""
    #: Rings within so many seconds ask for one round together.
    spacing: float = 0.0
    #: What it listens for on the doorbell.
    topics: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.tally = Tally(self.name)
        #: Wakes its thread.
        self.alarm = Alarm()

    @abstractmethod
    def run_once(self) -> float:
        """Do one round; return in how many seconds to do the next if nothing wakes it."""

    def wants_term(self) -> bool:
        """Whether this process can do what the loop is for; else another one shall lead it."""
        return True

    def patience(self) -> float:
        """How many seconds it may sleep at most after a failure."""
        return _BACKOFF_SECONDS_MAX

    def close(self) -> None:
        """Close what it alone has opened."""
        return


class Runner:
    """The thread of one loop."""

    def __init__(
        self,
        loop: Loop,
        doorbell: Doorbell,
        holds: Callable[[str], bool] = lambda term: True,
        *,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` is called by its thread as the last thing it does: `alive` is False by then."""
        self.loop = loop
        self.name = loop.name
        #: How many rounds were begun, and when the present one was; 0 while it sleeps.
        self.rounds = 0
        self._busy_since = 0.0
        self._doorbell = doorbell
        self._holds = holds
        self._ended = ended
        self._stopping = False
        #: Not `Thread.is_alive`: the thread still lives while it reports its end.
        self.alive = False
        self._deaths = 0
        self._started_at = self._revive_at = 0.0
        self._failures = 0
        #: What its last round ended with, if that was an error.
        self.error: AgentqError | None = None
        self._thread: threading.Thread | None = None
        self._waiter: Waiter | None = None
        self._topics: frozenset[str] = frozenset()

    @property
    def busy_seconds(self) -> float:
        """How long its round has taken so far; 0 while it sleeps."""
        since = self._busy_since
        return time.monotonic() - since if since else 0.0

    def start(self) -> None:
        # A daemon thread: one that hangs in a call to a server that is away must not keep the
        # process from ending.
        thread = threading.Thread(target=self._run, name=f"agentq-{self.name}", daemon=True)
        self.alive, self._started_at = True, time.monotonic()
        try:
            thread.start()
        except RuntimeError as error:  # the machine allows no more threads
            self.alive = False
            log.warning("%s: waits %.1f s: %s", self.name, self._put_off(), error)
        else:
            self._thread = thread

    def revive(self) -> float:
        """Start it again if it has died, later each time; in how many seconds to ask again."""
        if self.alive:
            return 3600.0
        left = self._revive_at - time.monotonic()
        if left <= 0:
            self.start()
        return max(left, 0.0)

    def _put_off(self) -> float:
        """Return in how many seconds the loop may be started again."""
        now = time.monotonic()
        if now - self._started_at >= _STEADY_SECONDS:
            self._deaths = 0
        pause = min(_REVIVE_SECONDS * 2.0**self._deaths, _REVIVE_SECONDS_MAX)
        self._deaths = min(self._deaths + 1, 16)
        self._revive_at = now + pause
        return pause

    def nudge(self) -> None:
        """Do a round soon, whatever was planned."""
        self.loop.alarm.ring()

    def stop(self) -> None:
        self._stopping = True
        self.loop.alarm.ring()

    def join(self, seconds: float) -> bool:
        """Wait until it has ended; False if it has not after so many seconds."""
        if self._thread is None:
            return True
        self._thread.join(max(seconds, 0))
        if self._thread.is_alive():
            return False
        self.loop.tally.log_progress(now=True)
        self.loop.close()
        self.loop.alarm.close()
        return True

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._live()
        except BaseException:
            pause = self._put_off()
            log.exception("%s: died, and is started again in %.1f s", self.name, pause)
        finally:
            self.alive = False  # before anybody is woken to look
            self._ended()

    def _live(self) -> None:
        try:
            while not self._stopping:
                if self.loop.term and not self._holds(self.loop.term):
                    self._hang_up()
                    self.loop.alarm.wait(_STILL_SECONDS)
                    continue
                self._listen()
                pause = self._round()
                if self.error or self.loop.topics == self._topics:
                    self._sleep(pause)
                # Else it has new topics, which nobody has listened to until now: look again.
        finally:
            self._hang_up()

    def _listen(self) -> None:
        topics = self.loop.topics
        if topics != self._topics:
            self._hang_up()
            if topics:
                # Before the round, so that nothing is missed after it has looked.
                self._waiter, self._topics = self._doorbell.listen(topics), topics

    def _hang_up(self) -> None:
        waiter, self._waiter, self._topics = self._waiter, None, frozenset()
        if waiter is not None:
            waiter.close()

    def _round(self) -> float:
        self.rounds += 1
        self._busy_since = time.monotonic()
        try:
            pause = self.loop.run_once()
        except AgentqError as error:
            return self._back_off(error)
        finally:
            self._busy_since = 0.0
        if self.error:
            log.info("%s: goes on", self.name)
        self._failures, self.error = 0, None
        self.loop.tally.log_progress()
        return pause

    def _back_off(self, error: AgentqError) -> float:
        """Log a repeated error once, and wait longer after each failure, with jitter."""
        level = logging.WARNING if isinstance(error, Unavailable) else logging.ERROR
        if self.error is None or str(error) != str(self.error):
            log.log(level, "%s: waits: %s", self.name, error)
        self.error = error
        most = min(_BACKOFF_SECONDS * 2.0**self._failures, _BACKOFF_SECONDS_MAX)
        self._failures = min(self._failures + 1, 16)
        return min(random.uniform(most / 2, most), self.loop.patience())

    def _sleep(self, pause: float) -> None:
        began = time.monotonic()
        if self.error or self._waiter is None:
            self.loop.alarm.wait(pause)
        elif self._waiter.wait(pause, self.loop.alarm.fd) and self.loop.spacing:
            left = self.loop.spacing - (time.monotonic() - began)
            if left > 0 and not self._stopping:
                self.loop.alarm.wait(left)
        self.loop.alarm.clear()
