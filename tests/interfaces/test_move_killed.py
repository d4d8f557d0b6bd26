"""A move that is killed at each of its steps and run again: nothing is lost or doubled."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentq import Queue
from agentq.client.moving import STEPS
from agentq.core.errors import Unavailable
from tests.interfaces.conftest import clean_environment, run_here
from tests.interfaces.test_move import picture, work

pytestmark = pytest.mark.long


@pytest.fixture
def worked(home: Path) -> Path:
    with Queue() as queue:
        work(queue, home)
    return home


#: Moves in a process of its own that dies, without a word, after a step, or before it commits one.
DIES = """
import os, signal, sys
from dataclasses import replace
from agentq.client.moving import move
from agentq.settings import load_settings
from agentq.stores.transfer.postgres import PostgresCopy
from agentq.stores.transfer.sqlite import SqliteCopy
from agentq.wiring import open_installation

def step(done):
    if done == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)

for kind in (SqliteCopy, PostgresCopy):
    def close_under(self, fence, original=kind.close_under):
        original(self, fence)
        step(f"before {fence.state} commits")
    kind.close_under = close_under

old = load_settings()
new = replace(old, url=sys.argv[2], artifacts_root=sys.argv[3])
move(open_installation(old), new, step=step)
"""


def move_and_die(step: str, url: str, artifacts: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIES, step, url, str(artifacts)],
        env=clean_environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr


#: Steps after which only the new ledger counts.
DECIDED = ("moved", "open")
KILLS = (*STEPS, "before filled commits", "before moved commits")


class TestKilled:
    """There are never two ledgers that can be written, and every accepted task is in the one."""

    @pytest.fixture(params=["to postgres", "from postgres", "to sqlite"])
    def new(self, request: pytest.FixtureRequest, worked: Path, tmp_path: Path) -> str:
        there = f"sqlite:///{tmp_path}/new.db"
        if request.param == "to sqlite":
            return there
        server = str(request.getfixturevalue("fresh_postgres_url"))
        if request.param == "to postgres":
            return server
        run_here("move", "--to", server).ok()
        return there

    @pytest.mark.parametrize("step", KILLS)
    def test_running_it_again_completes_it(self, new: str, tmp_path: Path, step: str) -> None:
        before, files = picture(), tmp_path / "files"
        move_and_die(step, new, files)
        late = run_here("submit", "--to", "b", "--instructions", "x", "--id", "late")
        if step in DECIDED:
            late.refused(7, "was moved to")
        else:
            late.ok()
            before = picture()
        if step != "open":
            refuse_writes_of_a_copy(new)
        run_here("move", "--to", new, "--artifacts", str(files)).ok()
        assert picture() == before
        assert run_here("verify", "--json").ok().json()["ok"]
        assert run_here("result", "task-done").ok().out == "the result\n"
        run_here("submit", "--to", "b", "--instructions", "x").ok()

    @pytest.mark.parametrize("step", STEPS)
    def test_or_it_is_given_up(self, worked: Path, tmp_path: Path, step: str) -> None:
        before, new = picture(), f"sqlite:///{tmp_path}/new.db"
        move_and_die(step, new, worked / ".agentq")
        if step in DECIDED:
            run_here("move", "--undo").refused(4, "--yes")
            return
        assert run_here("move", "--undo", "--json").ok().json()["lifted"]["state"] == "begun"
        assert "nothing to undo" in run_here("move", "--undo").ok().out
        assert picture() == before
        if step != "begun":
            # What nobody remembers is not deleted unasked: another ledger may have this name.
            run_here("move", "--to", new).refused(5, "was filled from", "--undo --yes")
            run_here("--url", new, "move", "--undo").refused(4, "--yes")
            run_here("--url", new, "move", "--undo", "--yes").ok()
        run_here("move", "--to", new).ok()
        assert picture() == before

    def test_the_new_one_was_emptied(self, worked: Path, tmp_path: Path) -> None:
        before, new = picture(), f"sqlite:///{tmp_path}/new.db"
        move_and_die("moved", new, worked / ".agentq")
        run_here("--url", new, "move", "--undo", "--yes").ok()
        answer = run_here("move", "--to", new)
        answer.refused(5, "does not hold what was moved", "move --undo --yes")
        run_here("move", "--undo", "--yes").ok()
        run_here("move", "--to", new).ok()
        assert picture() == before

    @pytest.mark.parametrize("new", ["to sqlite", "to postgres"], indirect=True)
    def test_two_at_once(self, worked: Path, new: str) -> None:
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
        assert picture() == before == picture(new)
        assert run_here("verify", "--json").ok().json()["ok"]


def refuse_writes_of_a_copy(url: str) -> None:
    """Nobody writes to what may be replaced; an empty database is no ledger yet."""
    with Queue(url) as target:
        if target._client.tasks().tasks:
            with pytest.raises(Unavailable, match="filled from"):
                target.submit(to="b", instructions="too early")
