"""A move that is killed at each of its steps and run again: nothing is lost or doubled."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentq import Queue
from agentq.client.moving import STEPS
from tests.interfaces.conftest import clean_environment, run_here
from tests.interfaces.test_move import SUBMIT, check_arrived, picture, work

pytestmark = pytest.mark.long


#: Moves in a process of its own that dies, without a word, after a step, or before it commits one.
DIES = """
import os, signal, sys
from agentq.core.values import replace
from agentq.client.moving import move
from agentq.settings import load_settings
from agentq.stores.transfer.base import LedgerCopy
from agentq.wiring import open_installation

def step(done):
    if done == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)

def mark(self, moved_to, original=LedgerCopy.mark):
    original(self, moved_to)
    step("before the mark commits")
LedgerCopy.mark = mark

old = load_settings()
new = replace(old, url=sys.argv[2], artifacts_root=sys.argv[3])
move(open_installation(old), new, step=step)
"""
#: Steps after which only the new ledger counts.
DECIDED = ("moved", "open")


@pytest.fixture(params=["to postgres", "from postgres", "to sqlite"])
def new(request: pytest.FixtureRequest, home: Path, tmp_path: Path) -> str:
    with Queue() as queue:
        work(queue, home)
    there = f"sqlite:///{tmp_path}/new.db"
    if request.param == "to sqlite":
        return there
    server = str(request.getfixturevalue("fresh_postgres_url"))
    if request.param == "to postgres":
        return server
    run_here("move", "--to", server).ok()
    return there


#: Every step on the way to a server, and in turn on one of the others.
KILLED = [
    (way, step)
    for turn, step in enumerate([*STEPS, "before the mark commits"])
    for way in ("to postgres", ("from postgres", "to sqlite")[turn % 2])
]


@pytest.mark.parametrize(("new", "step"), KILLED, indirect=["new"])
def test_running_it_again_completes_it(new: str, tmp_path: Path, step: str) -> None:
    """There are never two ledgers that can be written, and every accepted task is in the one."""
    files = str(tmp_path / "files")
    done = subprocess.run(
        [sys.executable, "-c", DIES, step, new, files],
        env=clean_environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    late = run_here(*SUBMIT, "--id", "late")
    if step in DECIDED:
        late.refused(7, "was moved to")
        run_here("move", "--undo").refused(4, "--yes")
    else:
        late.ok()
        assert "nothing to undo" in run_here("move", "--undo").ok().out
    with Queue(new) as target:
        assert bool(list(target.tasks())) == (step == "open")
    before = picture()
    run_here("move", "--to", new, "--artifacts", files).ok()
    check_arrived(before)


@pytest.mark.parametrize("new", ["to sqlite", "to postgres"], indirect=True)
def test_two_at_once(new: str) -> None:
    before = picture()
    words = [sys.executable, "-m", "agentq", "move", "--to", new]
    runs = [
        subprocess.Popen(
            words, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    said = [run.communicate(timeout=60)[1].decode() for run in runs]
    assert {run.returncode for run in runs} <= {0, 5, 7}, said
    assert not any("Traceback" in words for words in said)
    if 0 not in {run.returncode for run in runs}:  # each stood in the other's way
        run_here("move", "--to", new).ok()
    assert picture(new) == before
    check_arrived(before)
