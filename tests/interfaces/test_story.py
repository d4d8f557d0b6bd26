"""The golden path, told by the commands of a person with a repository and no agent installed.

`init`, `submit`, an attempt whose check fails, a second that goes on in its tree, a person who
wants a change, a third attempt, `approve`, `diff`, `apply`: the branch has what every attempt
wrote, in the history that was asked for. Then two tasks that contradict each other.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentq.settings import FILE_NAME, read_file
from tests.interfaces.conftest import Answer, run_in, run_program
from tests.ways import REMOTE, served

pytestmark = [pytest.mark.both_ways, pytest.mark.long, pytest.mark.timeout(600)]

TASK, ROLE = "task-lines", "implementation-worker"
#: What the stand-in for an agent does in each attempt, and for each of two unlike tasks.
SCRIPT = """\
tasks:
  - prompt: "politely"
    steps:
      - write: {path: greeting.txt, text: "Good morning.\\n"}
      - result: "A polite greeting."
  - prompt: "briefly"
    steps:
      - write: {path: greeting.txt, text: "Hi.\\n"}
      - result: "A brief greeting."
  - attempt: 1
    steps:
      - write: {path: first.txt, text: "by attempt 1\\n"}
      - result: "Half of it."
  - attempt: 2
    steps:
      - write: {path: checked.txt, text: "by attempt 2\\n"}
      - result: "All of it."
  - attempt: 3
    steps:
      - write: {path: heading.txt, text: "by attempt 3\\n"}
      - result: "All of it, with a heading."
"""
WRITTEN = {
    "first.txt": "by attempt 1\n",
    "checked.txt": "by attempt 2\n",
    "heading.txt": "by attempt 3\n",
}


@dataclass
class Shop:
    """A repository, the person who works in it, and what the person has typed."""

    folder: Path
    #: What lets the person in at a server, and what lets a worker in.
    token: str = ""
    work_token: str = ""

    def agentq(self, *words: str) -> Answer:
        return run_in(self.folder, *words, env=self._variables(self.token))

    @staticmethod
    def _variables(token: str) -> dict[str, str]:
        return {"USER": "kim", "AGENTQ_TOKEN": token} if token else {"USER": "kim"}

    def git(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words], cwd=cwd or self.folder, check=True, capture_output=True, text=True
        )
        return done.stdout

    def files(self) -> dict[str, str]:
        """What the branch has, beside what was there at the beginning."""
        names = self.git("ls-tree", "-r", "--name-only", "HEAD").split()
        new = [name for name in names if name not in (".gitignore", "README")]
        return {name: self.git("show", f"HEAD:{name}") for name in new}

    def state(self, task: str) -> str:
        found = self.agentq("status", task, "--json").ok().json()["state"]
        assert isinstance(found, str)
        return found

    def work(self, attempts: int = 1) -> None:
        words = ("worker", ROLE, "--tasks", str(attempts))
        run_program(*words, cwd=self.folder, env=self._variables(self.work_token)).ok()


@pytest.fixture
def shop(tmp_path: Path, way: str) -> Iterator[Shop]:
    """A repository with one commit in which `agentq init` was said; through a server, the person
    has only its address."""
    folder = tmp_path / "shop"
    folder.mkdir()
    shop = Shop(folder)
    shop.git("init", "-q", "-b", "main")
    shop.git("config", "user.name", "kim")
    shop.git("config", "user.email", "kim@example.org")
    (folder / "README").write_text("A shop.\n")
    shop.git("add", "README")
    shop.git("commit", "-qm", "A shop")
    shop.agentq("init", "--agent", "fake", "--yes").ok()
    shop.git("add", ".gitignore")
    shop.git("commit", "-qm", "agentq keeps its files here")
    _play(folder / FILE_NAME, tmp_path / "script.yaml")
    if way != REMOTE:
        yield shop
        return
    there = tmp_path / "there"
    there.mkdir()
    run_in(there, "init").ok()
    with served(read_file(there / FILE_NAME), "kim") as elsewhere:
        _point_to(folder / FILE_NAME, elsewhere.url)
        shop.token, shop.work_token = elsewhere.token, elsewhere.work_token
        yield shop


def _point_to(settings: Path, url: str) -> None:
    """Leave the roles in the settings, and let everything else be the server's."""
    text = settings.read_text()
    roles = text[text.index("[roles.") :]
    settings.write_text(f'[ledger]\nurl = "{url}"\n\n{roles}')


def _play(settings: Path, script: Path) -> None:
    """Let the agent that `init` has proposed play a script of ours, and be checked for more."""
    script.write_text(SCRIPT)
    text = settings.read_text()
    example = '"--example", "change"'
    assert text.count(example) == 1
    text = text.replace(example, f'"--script", {json.dumps(str(script))}')
    verify = 'verify = "grep -rq Written fake-agent"'
    assert text.count(verify) == 1
    settings.write_text(text.replace(verify, 'verify = "test -e checked.txt -o -e greeting.txt"'))


def test_from_a_sentence_to_a_merged_change(shop: Shop) -> None:
    tell(shop, "squash")


@pytest.mark.beside("the history is made here, whoever keeps the ledger")
@pytest.mark.parametrize("how", ["merge", "cherry-pick"])
def test_the_history_is_the_one_that_was_asked_for(shop: Shop, how: str) -> None:
    tell(shop, how)


def tell(shop: Shop, how: str) -> None:
    """The whole way of one task, into the branch by this option of `apply`."""
    before = shop.git("rev-parse", "HEAD").strip()
    shop.agentq("submit", "--id", TASK, "--review", "Make the import skip empty lines").ok()

    shop.work()
    assert shop.state(TASK) in ("pending", "ready"), "its check failed, and it is tried again"
    shop.work()
    assert shop.state(TASK) == "review", "the second attempt had what the first one wrote"

    shop.agentq("reject", TASK, "--changes", "--reason", "It needs a heading.").ok()
    shop.work()
    assert shop.state(TASK) == "review"
    shop.agentq("approve", TASK).ok()
    assert shop.state(TASK) == "complete"

    assert shop.agentq("diff", TASK, "--name-only").ok().out.split() == sorted(WRITTEN)
    assert shop.files() == {}, "nothing has touched the branch so far"
    applied = shop.agentq("apply", TASK, f"--{how}", "--json").ok().json()["applied"]

    assert [each["commit"] for each in applied] == [shop.git("rev-parse", "HEAD").strip()]
    assert shop.files() == WRITTEN
    assert shop.git("status", "--porcelain", "--untracked-files=no") == ""
    check_history(shop, before, how)
    assert shop.agentq("apply", TASK).ok().out.count("was applied before") == 1
    shop.agentq("verify").ok()


def check_history(shop: Shop, before: str, how: str) -> None:
    """One commit, a merge that keeps the attempts' commits, or those commits once more."""
    lines = shop.git("rev-list", "--parents", f"{before}..HEAD").splitlines()
    parents = [line.split()[1:] for line in lines]
    if how == "squash":
        assert parents == [[before]]
    elif how == "merge":
        assert len(parents[0]) == 2 and parents[0][0] == before
        assert len(parents) > 2, "a merge, and what it merges"
    else:
        assert len(parents) > 1 and all(len(each) == 1 for each in parents)
    message = shop.git("log", "-1", "--format=%B")
    assert "Make the import" not in message, "what was asked for stays out of the history"


def test_two_tasks_that_contradict_each_other(shop: Shop) -> None:
    for name, words in (("task-polite", "Greet politely"), ("task-brief", "Greet briefly")):
        shop.agentq("submit", "--id", name, words).ok()
    shop.work(2)
    shop.agentq("apply", "task-polite").ok()
    before = shop.git("rev-parse", "HEAD")

    conflict = shop.agentq("apply", "task-brief").refused(4, "greeting.txt", "--continue")
    assert shop.git("rev-parse", "HEAD") == before, "a conflict changes nothing here"
    assert shop.files() == {"greeting.txt": "Good morning.\n"}

    scratch = worktree_named_in(conflict)
    (scratch / "greeting.txt").write_text("Good morning, in brief.\n")
    shop.git("add", "greeting.txt", cwd=scratch)
    shop.agentq("apply", "--continue").ok()
    assert shop.files() == {"greeting.txt": "Good morning, in brief.\n"}
    assert not scratch.exists(), "what it was solved in is cleaned up"


def worktree_named_in(answer: Answer) -> Path:
    """The folder in which the conflict is to be solved, as the answer names it."""
    words = (answer.err + answer.out).replace("`", " ").replace(",", " ").split()
    folders = [Path(word.rstrip(".:;")) for word in words if word.startswith("/")]
    return next(folder for folder in folders if (folder / "greeting.txt").exists())
