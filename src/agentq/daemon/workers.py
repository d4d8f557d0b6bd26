"""The workers of this machine: child processes, restarted when they end, after growing pauses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentq.daemon.loop import log

_PARENT_DEATH = Path(__file__).with_name("parent_death.py")
_RESTART_SECONDS, _RESTART_SECONDS_MAX = 0.5, 60.0
#: A worker that ran for so long counts as healthy: its next failure is its first again.
_STEADY_SECONDS = 60.0
#: By which a worker is asked to claim no more, and to end when what it runs is done.
FINISH_SIGNAL = signal.SIGUSR1


#: In place of a role: the one worker of all agents that have profiles.
ALL_AGENTS = "--agents"


@dataclass
class WorkerProcess:
    """A worker process of a role, or the slot of one that ended."""

    #: As `agentq worker` takes it.
    role: str
    process: subprocess.Popen[bytes] | None = None
    #: Readable when it has ended; open while `process` is set.
    pidfd: int = -1
    started_at: float = 0.0
    ends: int = 0
    start_at: float = 0.0
    #: Whether it is not to be started again.
    is_retired: bool = False

    @property
    def name(self) -> str:
        """What the log calls it."""
        return self.role.removeprefix("--")


class Workers:
    """Starts one worker per role. All of it belongs to one thread, which stays to the end."""

    def __init__(
        self, roles: Sequence[str], *, grace: int, log_json: bool = False, output: int | None = None
    ) -> None:
        """`grace` is what agents get to finish; `output` is the file that workers write to."""
        self.children = [WorkerProcess(role) for role in roles]
        self._options = ["--grace", f"{grace}s", *(["--log-json"] if log_json else [])]
        self._output = output

    @property
    def running(self) -> list[WorkerProcess]:
        return [child for child in self.children if child.process is not None]

    def add(self, role: str) -> None:
        """Have a worker for this role from now on, after one that was retired has ended."""
        for child in self.children:
            if child.role == role:
                child.is_retired = False
                return
        self.children.append(WorkerProcess(role))

    def retire(self, role: str) -> None:
        """Let the worker of this role claim no more, finish what it has, and end."""
        for child in self.children:
            if child.role == role:
                child.is_retired = True
                if child.process is not None:
                    child.process.send_signal(FINISH_SIGNAL)

    def tend(self) -> float:
        """Start workers that do not run; return the seconds until the next one is due to start."""
        now = time.monotonic()
        pause = 3600.0
        for child in [*self.children]:
            self._reap(child)
            if child.process is None and child.is_retired:
                self.children.remove(child)
            elif child.process is None:
                left = child.start_at - now
                if left > 0:
                    pause = min(pause, left)
                else:
                    self._start(child)
        return pause

    def _start(self, child: WorkerProcess) -> None:
        parent_death = [sys.executable, "-I", "-S", str(_PARENT_DEATH), str(os.getpid())]
        worker = [sys.executable, "-m", "agentq", "worker", child.role, *self._options]
        child.started_at = time.monotonic()
        try:
            child.process = subprocess.Popen(
                [*parent_death, *worker],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                # Ctrl-C reaches this process only, which stops them in order.
                process_group=0,
            )
            child.pidfd = os.pidfd_open(child.process.pid)
        except OSError as error:
            log.error("worker %s: could not be started: %s", child.name, error)
            if child.process is not None:  # started, but its end cannot be watched
                child.process.kill()
                child.process.wait()
                child.process = None
            self._put_off(child)
            return
        log.info("worker %s: started, process %d", child.name, child.process.pid)

    def gone(self) -> bool:
        """Whether none of them runs any more."""
        for child in self.children:
            self._reap(child)
        return not self.running

    def _reap(self, child: WorkerProcess) -> None:
        status = None if child.process is None else child.process.poll()
        if status is None:
            return
        log.log(20 if status == 0 else 30, "worker %s: ended (%s)", child.name, _in_words(status))
        if time.monotonic() - child.started_at >= _STEADY_SECONDS:
            child.ends = 0
        child.process = None
        os.close(child.pidfd)
        self._put_off(child)

    @staticmethod
    def _put_off(child: WorkerProcess) -> None:
        pause = min(_RESTART_SECONDS * 2.0**child.ends, _RESTART_SECONDS_MAX)
        child.ends = min(child.ends + 1, 16)
        child.start_at = time.monotonic() + pause

    def send(self, number: signal.Signals) -> None:
        for child in self.running:
            assert child.process is not None
            child.process.send_signal(number)


def _in_words(status: int) -> str:
    """How a process ended. Not every signal has a name."""
    if status >= 0:
        return f"exit status {status}"
    known = {int(each): each.name for each in signal.Signals}
    return known.get(-status, f"signal {-status}")
