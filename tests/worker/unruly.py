"""Agents that misbehave as processes, and a worker that is about to be killed.

Run as a program: `python unruly.py MODE`. Each process that must not survive says its pid on
standard output, one to a line, once it is as unruly as it will get.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

PROGRAM = str(Path(__file__).resolve())


def print_pid(pid: int) -> None:
    os.write(1, f"{pid}\n".encode())


def stay() -> None:
    """Until killed: quietly, and not for ever, should a test itself go wrong."""
    signal.alarm(60)
    while True:
        signal.pause()


def bear(life: Callable[[], None]) -> None:
    if os.fork() == 0:
        try:
            life()
        finally:
            os._exit(0)


def orphan() -> None:
    """A grandchild in a session of its own, whose parent is gone."""

    def parent() -> None:
        os.setsid()
        bear(resident)

    bear(parent)
    os.wait()


def resident() -> None:
    os.setsid()
    print_pid(os.getpid())
    stay()


def sibling() -> None:
    print_pid(os.getpid())
    stay()


def leave_orphans() -> None:
    """Two orphans, one child in its own session and one in ours; then exit with 3."""
    orphan()
    orphan()
    bear(resident)
    bear(sibling)
    # Whoever reads four pids may let us go on.
    sys.stdin.readline()
    os._exit(3)


def stay_with_orphans() -> None:
    orphan()
    orphan()
    print_pid(os.getpid())
    stay()


def stubborn() -> None:
    """A tree that ignores every polite signal."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    bear(resident)
    orphan()
    print_pid(os.getpid())
    stay()


def polite() -> None:
    """Cleans up on SIGTERM, itself and its child, and says so."""

    def clean_up(word: str) -> None:
        os.write(1, f"{word}\n".encode())
        os._exit(7)

    def after_the_child(*_: object) -> None:
        os.wait()
        clean_up("cleaned up")

    def child() -> None:
        signal.signal(signal.SIGTERM, lambda *_: clean_up("child cleaned up"))
        resident()

    bear(child)
    signal.signal(signal.SIGTERM, after_the_child)
    print_pid(os.getpid())
    stay()


def own_reaper_stopped() -> None:
    print_pid(os.getpid())
    while True:  # also after it was told to end
        os.kill(os.getppid(), signal.SIGSTOP)
        signal.sigtimedwait([], 0.001)


def worker() -> None:
    """Owns a supervisor and three agents; prints their pids, the reapers' and the supervisor's."""
    from agentq.worker.processes import Supervisor

    here = Path(PROGRAM).parent
    supervisor = Supervisor()
    agents = [
        supervisor.start([sys.executable, "-S", PROGRAM, mode], env={}, cwd=here)
        for mode in ("stay_with_orphans", "stubborn", "polite")
    ]
    for agent in agents:
        os.set_blocking(agent.stdout, True)
        with os.fdopen(os.dup(agent.stdout), "rb", buffering=0) as output:
            for _ in range(2 if agent is agents[2] else 3):
                print_pid(int(output.readline()))
        print_pid(agent._reaper)
    assert supervisor._process is not None
    print_pid(supervisor._process.pid)
    stay()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
