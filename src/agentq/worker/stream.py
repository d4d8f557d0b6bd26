"""Runs an agent process: reads its output, watches its time limits, ends it when it must.

One loop in one thread per attempt, asleep in the kernel while the agent is quiet. It waits for
output (for the listener and the log), the end of the process, `stop` (cancelled, fenced out, the
worker shuts down), and the clocks: the time limit, silence, the agent's own "done".
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from agentq.contracts.agent import AgentEvent, AttemptOutcome, Done, Exit, Listener
from agentq.core.task import ToldMessage
from agentq.core.values import replace
from agentq.worker.loop_detection import LoopDetector
from agentq.worker.output import Recorder
from agentq.worker.processes import AgentProcess

READ_BYTES = 1 << 16
#: Between being asked and SIGTERM, where the tool has its own way of being asked.
ASK_SECONDS = 5.0
#: After the process is gone, its pipes may still be held by what the reaper is about to end.
DRAIN_SECONDS = 6.0


@dataclass
class Clocks:
    """Limits of one run, in seconds; 0 is no limit."""

    timeout: float = 0.0
    silence: float = 0.0
    grace: float = 10.0
    repeats: int = 0
    #: What is left of a budget of time.
    budget: float = 0.0


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an agent must end, and whether it is asked first."""

    outcome: AttemptOutcome
    reason: str
    at_once: bool = False


@dataclass
class Ran:
    """How a run ended."""

    exit: Exit
    stopped: Stop | None
    done: bool
    seconds: float


class Stream:
    """Runs one conversation with one process. `stop` may be called from any thread."""

    def __init__(
        self,
        child: AgentProcess,
        listener: Listener,
        recorder: Recorder,
        clocks: Clocks,
        on_event: Callable[[AgentEvent], None],
        shows_life: Callable[[], bool],
        *,
        stays: bool,
    ) -> None:
        self._child = child
        self._listener = listener
        self._recorder = recorder
        self._clocks = clocks
        self._on_event = on_event
        #: Called before silence is taken for a stall: there are other signs of life than output.
        self._shows_life = shows_life
        #: A warm process outlives the conversation, which ends with its "done".
        self._stays = stays
        self._loops = LoopDetector(clocks.repeats) if clocks.repeats else None
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lock = threading.Lock()
        self._stop: Stop | None = None
        self._told: list[ToldMessage] = []
        self._stages: list[tuple[float, Callable[[], None]]] = []
        self._done_at = 0.0
        self._alive_at = time.monotonic()
        self._pushing = -1

    def stop(self, stop: Stop) -> None:
        """End the agent. The first reason counts; one that says "at once" hurries any other."""
        with self._lock:
            if self._stop is None:
                self._stop = stop
            elif stop.at_once:
                self._stop = replace(self._stop, at_once=True)
            self._ring()

    def tell(self, told: ToldMessage) -> None:
        """Give the agent a message, from any thread; it goes nowhere if the agent takes none."""
        with self._lock:
            self._told.append(told)
            self._ring()

    def _ring(self) -> None:
        if self._waker >= 0:
            with contextlib.suppress(BlockingIOError):  # full: it is awake already
                os.write(self._waker, b"!")

    @property
    def is_done(self) -> bool:
        """Whether the agent has said that it is done."""
        return bool(self._done_at)

    def run(self) -> Ran:
        started = time.monotonic()
        try:
            ended = self._read_output(started)
        finally:
            with self._lock:
                os.close(self._wake)
                os.close(self._waker)
                self._wake = self._waker = -1
        return Ran(ended, self._stop, bool(self._done_at), time.monotonic() - started)

    # -- the loop ----------------------------------------------------------------------------------

    def _read_output(self, started: float) -> Exit:
        child = self._child
        poll = select.poll()
        streams = {child.stdout: False, child.stderr: True}
        for fd in (*streams, child.status_fd, self._wake):
            poll.register(fd, select.POLLIN)
        ended: Exit | None = None
        give_up = 0.0
        while True:
            now = time.monotonic()
            self._check_clocks(started, now, ended)
            if self._stays and self._done_at and not self._stop:
                return Exit()
            if ended is not None and (not streams or now >= give_up):
                self._take(self._recorder.flush(is_error=False))
                self._take(self._recorder.flush(is_error=True), is_error=True)
                return ended
            self._push_input(poll)
            for fd, _ in poll.poll(self._pause(started, now, ended, give_up)):
                if fd in streams:
                    if not self._read(fd, is_error=streams[fd]):
                        poll.unregister(fd)
                        del streams[fd]
                elif fd == self._wake:
                    os.read(self._wake, 64)
                    self._send_told()
                elif fd == child.status_fd:
                    ended = child.poll()
                    if ended is not None:
                        poll.unregister(child.status_fd)
                        give_up = time.monotonic() + DRAIN_SECONDS
                elif fd == self._pushing:
                    child.flush()

    def _read(self, fd: int, *, is_error: bool) -> bool:
        """False at the end of the stream."""
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self._alive_at = time.monotonic()
        self._take(self._recorder.feed(data, is_error=is_error), is_error=is_error)
        return True

    def _take(self, lines: Iterable[bytes], *, is_error: bool = False) -> None:
        for line in lines:
            if self._loops is not None and self._loops.line(line):
                times = f"{self._clocks.repeats} times"
                why = f"it goes round in circles: the same output again and again, {times}"
                self.stop(Stop(AttemptOutcome.STALLED, why))
                self._loops = None
            events = tuple(self._listener.line(line, is_error=is_error))
            # First: a tool that names its cost with its "done" is done when the cost is counted.
            if not self._done_at and any(isinstance(event, Done) for event in events):
                self._done_at = time.monotonic()
            for event in events:
                self._on_event(event)

    def _send_told(self) -> None:
        """Write what people told it meanwhile, while it works and takes messages."""
        with self._lock:
            told, self._told = self._told, []
        for each in told:
            message = self._listener.message(each)
            if message is not None and not self._done_at and self._stop is None:
                self._child.send(message)

    def _push_input(self, poll: select.poll) -> None:
        """Watch the agent's standard input while there is something it has not taken yet."""
        child = self._child
        wanted = child.stdin if child.unsent else -1
        if wanted != self._pushing:
            if self._pushing >= 0:
                poll.unregister(self._pushing)
            if wanted >= 0:
                poll.register(wanted, select.POLLOUT)
            self._pushing = wanted

    # -- the clocks --------------------------------------------------------------------------------

    def _limits(self, started: float) -> Iterator[tuple[float, Stop]]:
        """When each time limit is reached, and the reason to stop the agent then."""
        clocks = self._clocks
        if clocks.timeout:
            why = f"it ran for {clocks.timeout:g} s, the time limit"
            yield started + clocks.timeout, Stop(AttemptOutcome.TIMEOUT, why)
        if clocks.budget:
            why = f"its budget of time, {clocks.budget:g} s, is used up"
            yield started + clocks.budget, Stop(AttemptOutcome.BUDGET, why)
        if clocks.silence and not self._done_at:
            why = f"no output and no progress for {clocks.silence:g} s"
            yield self._alive_at + clocks.silence, Stop(AttemptOutcome.STALLED, why)

    def _check_clocks(self, started: float, now: float, ended: Exit | None) -> None:
        if ended is not None:
            return
        if self._stop is None:
            due = next((stop for at, stop in self._limits(started) if now >= at), None)
            if due is not None and due.outcome is AttemptOutcome.STALLED and self._shows_life():
                self._alive_at = now
            elif due is not None:
                self.stop(due)
        if self._stop is not None:
            self._escalate(now)
        elif self._done_at and not self._stays and now - self._done_at >= self._clocks.grace:
            # Its work is done; only the process hangs on.
            self._child.kill()

    def _escalate(self, now: float) -> None:
        """Ask, then SIGTERM, then SIGKILL; from SIGTERM on the whole tree."""
        stop = self._stop
        assert stop is not None
        if stop.at_once:
            if self._stages != [(0.0, self._child.kill)]:
                self._stages = [(0.0, self._child.kill)]
                self._child.kill()
            return
        if not self._stages:
            request = self._listener.interrupt()
            asked = now
            if request is not None and self._child.stdin >= 0:
                self._child.send(request)
                asked += ASK_SECONDS
            self._stages = [(asked, self._child.terminate),
                            (asked + self._clocks.grace, self._child.kill)]  # fmt: skip
        if now >= self._stages[0][0]:
            self._stages[0][1]()
            if len(self._stages) > 1:
                del self._stages[0]

    def _pause(self, started: float, now: float, ended: Exit | None, give_up: float) -> float:
        """Milliseconds until a clock must be checked; -1 if none must."""
        if ended is not None:
            moments = [give_up]
        elif self._stop is not None:
            moments = [max(self._stages[0][0], now + 0.5) if self._stages else now]
        else:
            moments = [at for at, _ in self._limits(started)]
            if self._done_at:
                moments.append(self._done_at + self._clocks.grace)
        if not moments:
            return -1
        return max(0.0, (min(moments) - now) * 1000) + 1
