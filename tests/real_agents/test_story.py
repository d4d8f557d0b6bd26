"""The golden path with a real agent CLI: from `agentq init` to a change in the branch.

The same story as tests/interfaces/test_story.py tells with the stand-in for an agent: a check that
fails once, an attempt that goes on in the same tree, a person who wants a change.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real_agents.script import Say, Step, WriteFile
from tests.real_agents.site import ATTEMPT_SECONDS, AgentSite
from tests.real_agents.stand_in import StandIn
from tests.worker.repositories import Repo, new_repo

TASK, ROLE = "task-lines", "implementation-worker"
WISH = "It needs a heading."
WRITTEN = {"first.txt": "one\n", "checked.txt": "two\n", "heading.txt": "three\n"}


@dataclass
class Person:
    """Somebody with a repository, an agent CLI, and a model that does what it is told."""

    site: AgentSite
    repo: Repo
    model: StandIn

    def agentq(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "agentq", *words], cwd=self.repo.path, capture_output=True,
            env=self.site.environment(self.model), text=True, timeout=ATTEMPT_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"agentq {' '.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout

    def state(self) -> str:
        return str(json.loads(self.agentq("status", TASK, "--json"))["state"])

    def let_work(self, *steps: Step) -> None:
        """One attempt, in which the model takes these steps."""
        self.model.play(*steps)
        self.agentq("worker", ROLE, "--tasks", "1")

    def init(self) -> None:
        """Set up what `agentq init` proposes, and let the CLI find its model."""
        self.agentq("init", "--agent", self.site.cli.name, "--yes")
        file, head = self.repo.path / "agentq.toml", f"[roles.{ROLE}]\n"
        text = file.read_text()
        assert head in text and 'verify = "make test"' in text
        names = json.dumps(sorted(self.site.cli.environment(self.model.url)))
        more = f'environment = {names}\nprovider = "{self.site.cli.provider}"\n'
        file.write_text(text.replace(head, head + more))


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = new_repo(tmp_path / "project")
    made.git("config", "user.name", "kim")
    made.git("config", "user.email", "kim@example.org")
    made.commit("Makefile", "test:\n\ttest -e checked.txt\n")
    return made


def test_from_a_sentence_to_a_merged_change(site: AgentSite, repo: Repo) -> None:
    with StandIn([Say("Nothing was asked yet.")]) as model:
        site.settle(model, ())
        kim = Person(site, repo, model)
        kim.init()
        before = repo.git("rev-parse", "HEAD")
        kim.agentq("submit", "--id", TASK, "--review", "Make the import skip empty lines")

        kim.let_work(WriteFile("first.txt", WRITTEN["first.txt"]), Say("Half of it."))
        assert kim.state() in ("pending", "ready"), "its check failed, and it is tried again"
        kim.let_work(WriteFile("checked.txt", WRITTEN["checked.txt"]), Say("All of it."))
        assert kim.state() == "review", "the second attempt had what the first one wrote"

        kim.agentq("reject", TASK, "--changes", "--reason", WISH)
        asked = len(model.conversation)
        kim.let_work(WriteFile("heading.txt", WRITTEN["heading.txt"]), Say("With a heading."))
        assert model.conversation[asked].mentions(WISH), "the agent is told what is wanted"
        kim.agentq("approve", TASK)

        assert kim.agentq("diff", TASK, "--name-only").split() == sorted(WRITTEN)
        mine = repo.git("status", "--porcelain", "--untracked-files=no")
        assert mine == "M .gitignore", "what init wrote there is not committed yet"
        kim.agentq("apply", TASK)
        for name, content in WRITTEN.items():
            assert (repo.path / name).read_text() == content
        assert repo.git("rev-list", "--parents", f"{before}..HEAD").split()[1:] == [before]
        assert repo.git("status", "--porcelain", "--untracked-files=no") == mine
        assert "Make the import" not in repo.git("log", "-1", "--format=%B")
