"""A real agent CLI edits files and runs commands in a worktree, and all of it is found there."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.core.reserved_names import CHANGES_PATCH
from agentq.core.states import State
from tests.real_agents.script import ReadFile, RunCommand, Say, Step, WriteFile
from tests.real_agents.site import AgentSite
from tests.real_agents.stand_in import StandIn
from tests.worker.repositories import Repo, new_repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return new_repo(tmp_path / "project")


def test_files_and_commands_in_a_worktree(site: AgentSite, repo: Repo) -> None:
    steps: list[Step] = [
        WriteFile("greeting.txt", "Good morning.\n"),
        RunCommand("tr a-z A-Z < greeting.txt > shouted.txt"),
        ReadFile("shouted.txt"),
        Say("It is written, and shouted."),
    ]
    with StandIn(steps) as model:
        site.settle(model, site.cli.may_run, workspace="git", repo=str(repo.path))
        task = site.submit("Write a greeting, and shout it.")
        with site.worker(model):
            done = site.await_state(task, State.COMPLETE, State.FAILED)
        assert done.state is State.COMPLETE, done.details
        assert site.queue.result(task).text() == "It is written, and shouted."
        # Each tool call came back to the model, the last one with what the others had done.
        assert len(model.conversation) == len(steps)
        assert model.conversation[-1].mentions("GOOD MORNING.")
    # And what it changed is among the evidence, while the repository is as it was.
    patch = site.artifact(task, CHANGES_PATCH)
    assert "+Good morning." in patch and "+GOOD MORNING." in patch
    assert repo.git("status", "--porcelain") == ""
