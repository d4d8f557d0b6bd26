"""`kill -9` in the middle of an `apply`: repeating it brings it to its end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentq.core.errors import Refused
from agentq.repository.picking import TaskWork
from tests.repository.checkouts import agent_work, applying, picture, request
from tests.worker.repositories import Repo, environment, new_repo

pytestmark = pytest.mark.long

#: Kills itself at the n-th call of one of the steps that change something.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from agentq.repository import landing
from agentq.repository.applying import Applying, ApplyRequest
from agentq.repository.picking import TaskWork

folder, home, base, commit, step = sys.argv[1:]

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def before(owner, name):
    setattr(owner, name, kill)

def after(owner, name):
    original = getattr(owner, name)
    def call(*args):
        original(*args)
        kill()
    setattr(owner, name, call)

when, _, name = step.partition(" ")
owner = landing._HeadMove if name in ("prepare", "__call__") else landing
if name != "half":
    {"before": before, "after": after}[when](owner, name)
else:
    # The first files are written, the last one in part, and the rest is not.
    def half(checkout):
        tree = Path(folder)
        (tree / "new-1.txt").write_text("by the agent")
        (tree / "code" / "main.py").unlink()
        (tree / "readme.txt").write_text("by")
        kill()
    landing._install_index = half
    landing.read_tree = None
    from agentq.repository.git import Git
    do = Git.do
    Git.do = lambda self, place, *words, **more: (
        None if words[0] == "read-tree" else do(self, place, *words, **more))
one = Applying(Path(folder), dict(os.environ))
one.apply(TaskWork("task-1", 1, base, commit, commit),
          ApplyRequest("squash", "Do it\\n", Path(folder).parent / "scratch"))
"""

STEPS = (
    "before _copied_index", "after _copied_index", "before _write_journal", "after _write_journal",
    "before prepare", "after prepare", "before half", "before _install_index",
    "after _install_index", "before __call__", "after __call__",
)  # fmt: skip


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return new_repo(tmp_path)


@pytest.fixture
def work(repo: Repo) -> TaskWork:
    def change(agent: Repo) -> None:
        for name in ("new-1.txt", "readme.txt", "deep/new-2.txt"):
            agent.write(name, "by the agent\n")
        (agent.path / "code" / "main.py").unlink()

    work = agent_work(repo, change)
    repo.commit("mine.txt")
    repo.write("mine.txt", "edited\n")
    repo.write("staged.txt")
    repo.git("add", "staged.txt")
    repo.write("untracked.txt")
    return work


def killed(repo: Repo, work: TaskWork, step: str) -> None:
    words = (str(repo.path), str(repo.home), work.base, work.commit, step)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], env=environment(repo.home), capture_output=True,
        check=False, timeout=60, cwd=Path.cwd(),
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.parametrize("step", STEPS)
def test_repeating_brings_it_to_its_end(repo: Repo, work: TaskWork, step: str) -> None:
    old = repo.git("rev-parse", "HEAD")
    killed(repo, work, step)
    journal = (one := applying(repo)).recovered()
    if journal is None:
        assert repo.git("rev-parse", "HEAD") == old
        one.apply(work, request(repo))
    one.settle()
    assert repo.git("rev-parse", "HEAD^") == old
    assert repo.git("status", "--porcelain").splitlines() == [
        "M mine.txt", "A  staged.txt", "?? untracked.txt"
    ]  # fmt: skip
    assert (repo.path / "readme.txt").read_text() == "by the agent\n"
    assert not (repo.path / "code").exists()
    assert (repo.path / "mine.txt").read_text() == "edited\n"
    assert applying(repo).recovered() is None
    assert {each.name for each in (repo.path / ".git").glob("*.lock")} == {"agentq-apply.lock"}


def test_what_was_edited_since_is_not_overwritten(repo: Repo, work: TaskWork) -> None:
    killed(repo, work, "before half")
    repo.write("readme.txt", "what I wrote since\n")
    before = picture(repo)
    with pytest.raises(Refused, match=r"readme\.txt"):
        applying(repo).recovered()
    assert picture(repo) == before
    (repo.path / "readme.txt").rename(repo.path / "aside.txt")
    assert applying(repo).recovered() is not None
    assert (repo.path / "readme.txt").read_text() == "by the agent\n"
    assert (repo.path / "aside.txt").read_text() == "what I wrote since\n"
