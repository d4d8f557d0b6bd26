"""What a loop of `agentq up` is, and the thread that runs one.

A loop knows how to do one round and when it wants the next. Its runner does the rest: it sleeps
until then or until the doorbell rings, holds still while the loop's term is somebody else's, backs
off alone when a database, broker or disk is away, and says now and then what was done. A loop that
dies of something nobody thought of is said to be dead, and can be started again.
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
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError, Unavailable

if TYPE_CHECKING:
    from agentq.contracts.doorbell import Doorbell, Waiter

log = logging.getLogger("agentq.daemon")

#: How long a loop without its term sleeps; it is woken when it gets it.
_STILL_SECONDS = 60.0
_BACKOFF_SECONDS = 0.2
_BACKOFF_SECONDS_MAX = 30.0
#: How long one that died stays dead: doubled each time, unless it had lived for a while.
_REVIVE_SECONDS, _REVIVE_SECONDS_MAX = 0.5, 30.0
_STEADY_SECONDS = 60.0
#: Seconds between two lines of the log on what a loop has done.
_LOG_SECONDS = 10.0


class Alarm:
    """Wakes one thread, from any other or from a signal handler. A ring before the sleep counts."""

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
        select.select([self.fd], [], [], max(seconds, 0))
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
        self.counts: dict[str, int] = {}
        self._logged: dict[str, int] = {}
        self._logged_at = -_LOG_SECONDS

    def add(self, word: str, count: int = 1) -> None:
        if count:
            self.counts[word] = self.counts.get(word, 0) + count

    def log_progress(self, *, now: bool = False) -> None:
        if self.counts == self._logged:
            return
        if not now and time.monotonic() - self._logged_at < _LOG_SECONDS:
            return
        new = {word: count - self._logged.get(word, 0) for word, count in self.counts.items()}
        summary = ", ".join(f"{count} {word}" for word, count in new.items() if count)
        self._logged, self._logged_at = dict(self.counts), time.monotonic()
        log.info("%s: %s", self.name, summary)


class Loop(ABC):
    """One kind of work that comes again and again. Used by one thread."""

    name: str
    #: The term it runs under, one process at a time of all that share the ledger; "" for none.
    term: str = ""
    #: Rings closer together than so many seconds ask for one round, not for one each.
    spacing: float = 0.0

    def __init__(self) -> None:
        self.tally = Tally(self.name)

    @abstractmethod
    def run_once(self) -> float:
        """Do one round; return in how many seconds to do the next if nothing wakes it."""

    def topics(self) -> frozenset[str]:
        """What it listens for on the doorbell."""
        return frozenset()

    def patience(self) -> float:
        """For how many seconds at most it may sleep while something that it needs is away."""
        return _BACKOFF_SECONDS_MAX

    def close(self) -> None:
        """Let go of what it alone has opened."""
        return


class Runner:
    """The thread of one loop."""

    def __init__(
        self,
        loop: Loop,
        doorbell: Doorbell,
        holds: Callable[[str], bool] = lambda term: True,
        *,
        alarm: Alarm | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` is called by its thread as the last thing it does: `alive` is False by then."""
        self.loop = loop
        self.alarm = alarm or Alarm()
        #: When its last round began, and how many there were.
        self.began_at = time.monotonic()
        self.rounds = 0
        self._busy = False
        self._doorbell = doorbell
        self._holds = holds
        self._ended = ended
        self._stopping = False
        #: Not `Thread.is_alive`: the thread still lives while it reports its end.
        self._alive = False
        self._deaths = 0
        self._started_at = self._revive_at = 0.0
        self._failures = 0
        #: What its last round ended with, if that was an error.
        self.error: AgentqError | None = None
        self._error = ""
        self._thread: threading.Thread | None = None
        self._waiter: Waiter | None = None
        self._topics: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.loop.name

    @property
    def alive(self) -> bool:
        return self._alive

    @property
    def busy_seconds(self) -> float:
        """How long its round has taken so far; 0 while it sleeps."""
        return time.monotonic() - self.began_at if self._busy else 0.0

    def start(self) -> None:
        # A daemon thread: whoever hangs in a call to a server that is away must not keep a process
        # from ending; everything here may be cut off at any point.
        thread = threading.Thread(target=self._run, name=f"agentq-{self.name}", daemon=True)
        self._alive, self._started_at = True, time.monotonic()
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no room for one more
            self._alive = False
            log.warning("%s: waits %.1f s: %s", self.name, self._put_off(), error)
        else:
            self._thread = thread

    def revive(self) -> float:
        """Start it again if it has died, later each time; in how many seconds to ask again."""
        if self._alive:
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
        self.alarm.ring()

    def stop(self) -> None:
        self._stopping = True
        self.alarm.ring()

    def join(self, seconds: float) -> bool:
        """Wait until it has ended; False if it has not after so many seconds."""
        if self._thread is None:
            return True
        self._thread.join(max(seconds, 0))
        if self._thread.is_alive():
            return False
        self.loop.tally.log_progress(now=True)
        self.loop.close()
        self.alarm.close()
        return True

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._live()
        except BaseException:
            pause = self._put_off()
            log.exception("%s: died, and is started again in %.1f s", self.name, pause)
        finally:
            self._alive = False  # before anybody is woken to look
            self._ended()

    def _live(self) -> None:
        try:
            while not self._stopping:
                if self.loop.term and not self._holds(self.loop.term):
                    self._hang_up()  # nobody would read what is rung
                    self.alarm.wait(_STILL_SECONDS)
                    continue
                self._listen()
                pause = self._round()
                if self._error or self.loop.topics() == self._topics:
                    self._sleep(pause)
                # Else it has learnt what to listen for: what was rung until now, nobody has heard.
        finally:
            self._hang_up()

    def _listen(self) -> None:
        topics = self.loop.topics()
        if topics != self._topics:
            self._hang_up()
            if topics:
                # Before the round: what comes after it has looked is heard.
                self._waiter, self._topics = self._doorbell.listen(topics), topics

    def _hang_up(self) -> None:
        waiter, self._waiter, self._topics = self._waiter, None, frozenset()
        if waiter is not None:
            waiter.close()

    def _round(self) -> float:
        self.rounds += 1
        self.began_at, self._busy = time.monotonic(), True
        try:
            pause = self.loop.run_once()
        except Unavailable as error:
            return self._back_off(logging.WARNING, error)
        except AgentqError as error:
            return self._back_off(logging.ERROR, error)
        finally:
            self._busy = False
        if self._error:
            log.info("%s: goes on", self.name)
        self._failures, self._error, self.error = 0, "", None
        self.loop.tally.log_progress()
        return pause

    def _back_off(self, level: int, error: AgentqError) -> float:
        """Log a repeated error once, and wait longer after each failure, with jitter."""
        self.error = error
        if str(error) != self._error:
            self._error = str(error)
            log.log(level, "%s: waits: %s", self.name, error)
        most = min(_BACKOFF_SECONDS * 2.0**self._failures, _BACKOFF_SECONDS_MAX)
        self._failures = min(self._failures + 1, 16)
        return min(random.uniform(most / 2, most), self.loop.patience())

    def _sleep(self, pause: float) -> None:
        began = time.monotonic()
        if self._error or self._waiter is None:
            self.alarm.wait(pause)
        elif self._waiter.wait(pause, self.alarm.fd) and self.loop.spacing:
            left = self.loop.spacing - (time.monotonic() - began)
            if left > 0 and not self._stopping:
                self.alarm.wait(left)
        self.alarm.clear()
