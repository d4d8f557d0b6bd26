"""A task whose worker is killed goes on where it stopped, with its conversation and its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.core.reserved_names import CHANGES_PATCH
from agentq.core.states import State
from tests.eventually import eventually
from tests.real_agents.script import Hang, ReadFile, RunCommand, Say, WriteFile
from tests.real_agents.site import ATTEMPT_SECONDS, AgentSite
from tests.real_agents.stand_in import StandIn
from tests.worker.repositories import Repo, new_repo

INSTRUCTIONS = "Write down the first half, then the second."
FIRST_HALF = "We hold these truths to be self-evident.\n"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return new_repo(tmp_path / "project")


def test_the_second_attempt_continues_the_conversation_and_the_work(
    site: AgentSite, repo: Repo
) -> None:
    silence = Hang()
    with StandIn([WriteFile("first.txt", FIRST_HALF), silence]) as model:
        site.settle(model, site.cli.may_run, workspace="git", repo=str(repo.path))
        task = site.submit(INSTRUCTIONS)
        with site.worker(model) as worker:
            # Given an agent that has written a file and waits for its model
            eventually(silence.reached.is_set, ATTEMPT_SECONDS, "the second request")
            # When its worker is killed
            worker.kill()
        before = len(model.conversation)
        model.play(RunCommand("tr a-z A-Z < first.txt > second.txt"), ReadFile("second.txt"),
                   Say("Both halves."))  # fmt: skip
        with site.worker(model):
            done = site.await_state(task, State.COMPLETE, State.FAILED)
        # Then another worker goes on with the same conversation: the model is sent what it did,
        assert done.state is State.COMPLETE and done.epoch == 2, site.endings(task)
        resumed, *_, last = model.conversation[before:]
        assert resumed.mentions(INSTRUCTIONS) and resumed.mentions("first.txt")
        assert resumed.mentions(FIRST_HALF.strip())
        # and in the same tree: the file that it wrote before is still there.
        assert last.mentions(FIRST_HALF.strip().upper())
        assert site.queue.result(task).text() == "Both halves."
    patch = site.artifact(task, CHANGES_PATCH)
    assert f"+{FIRST_HALF.strip()}" in patch and f"+{FIRST_HALF.strip().upper()}" in patch
