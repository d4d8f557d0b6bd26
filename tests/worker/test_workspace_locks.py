"""The lock of a workspace lasts as long as any process of an attempt, whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from agentq.worker.processes import Supervisor
from agentq.worker.workspace_locks import WorkspaceLock
from tests.eventually import eventually
from tests.worker.watching import PLAIN, lines


def acquire(root: Path) -> WorkspaceLock | None:
    return WorkspaceLock.acquire(root, "task-1")


def is_free(root: Path) -> bool:
    lock = acquire(root)
    if lock is not None:
        lock.close()
    return lock is not None


def test_one_at_a_time(tmp_path: Path) -> None:
    lock = acquire(tmp_path)
    assert lock is not None
    assert acquire(tmp_path) is None
    assert WorkspaceLock.acquire(tmp_path, "task-2") is not None
    lock.close()
    lock.close()
    assert lock.file == -1 and is_free(tmp_path)


def test_a_lock_that_is_removed_with_its_workspace(tmp_path: Path) -> None:
    lock = acquire(tmp_path)
    assert lock is not None
    lock.remove(tmp_path, "task-1")
    assert list((tmp_path / ".locks").iterdir()) == []
    assert is_free(tmp_path)


def test_a_link_in_the_place_of_the_lock(tmp_path: Path) -> None:
    """Whoever put it there decides nothing but that the path cannot be had."""
    (tmp_path / ".locks").mkdir()
    (tmp_path / ".locks" / "task-1").symlink_to(tmp_path / "elsewhere")
    assert acquire(tmp_path) is None
    assert not (tmp_path / "elsewhere").exists()


def test_it_is_held_until_the_tree_is_gone(tmp_path: Path) -> None:
    lock = acquire(tmp_path)
    assert lock is not None
    with Supervisor() as supervisor:
        argv = ["sh", "-c", "setsid sleep 600 & echo; ls -l /proc/$$/fd; exec sleep 600"]
        child = supervisor.start(argv, env=PLAIN, cwd=tmp_path, lock=lock.file)
        with closing(child):
            # The agent itself never has the file
            assert "task-1" not in " ".join(lines(child.stdout, 4))
            lock.close()
            assert not is_free(tmp_path)
            child.kill()
            assert child.wait_gone(10)
    eventually(lambda: is_free(tmp_path))


def test_it_is_held_when_the_reaper_is_killed(tmp_path: Path) -> None:
    """Then the supervisor has it, until it has ended what was left."""
    lock = acquire(tmp_path)
    assert lock is not None
    with Supervisor() as supervisor:
        child = supervisor.start(["cat"], env=PLAIN, cwd=tmp_path, keep_stdin=True, lock=lock.file)
        with closing(child):
            lock.close()
            os.kill(child._reaper, signal.SIGSTOP)
            assert not is_free(tmp_path)
            os.kill(child._reaper, signal.SIGKILL)
            assert child.wait_gone(10)
            eventually(lambda: is_free(tmp_path))


_WORKER = """\
import os, sys
from pathlib import Path
from agentq.worker.processes import Supervisor
from agentq.worker.workspace_locks import WorkspaceLock
lock = WorkspaceLock.acquire(Path(sys.argv[1]), "task-1")
script = "trap '' TERM; echo $$ > started; while :; do sleep 0.05; done"
child = Supervisor().start(["sh", "-c", script], env={"PATH": os.environ["PATH"]},
                           cwd=Path(sys.argv[1]), lock=lock.file)
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_it_outlives_a_killed_worker(tmp_path: Path) -> None:
    """An agent that ignores SIGTERM lives on for its grace; only then the path is free."""
    words = [sys.executable, "-c", _WORKER, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        agent = int(worker.stdout.readline())
        eventually((tmp_path / "started").exists)
        worker.kill()
        worker.wait()
        alive_meanwhile = os.access(f"/proc/{agent}", os.F_OK) and not is_free(tmp_path)
        eventually(lambda: is_free(tmp_path))
        assert alive_meanwhile
        assert not os.access(f"/proc/{agent}", os.F_OK)
