"""The token of an attempt: good for that attempt and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

from agentq.client.tokens import is_good, token_for
from agentq.contracts.agent import AttemptOutcome
from agentq.core.states import State
from tests.worker.fleet import ROLE, Fleet, script


def test_a_token_is_good_for_one_attempt(tmp_path: Path) -> None:
    root = str(tmp_path / "files")
    token = token_for(root, "task-1", 1)
    assert is_good(root, "task-1", 1, token)
    assert not is_good(root, "task-1", 2, token)
    assert not is_good(root, "task-2", 1, token)
    assert not is_good(str(tmp_path / "others"), "task-1", 1, token)
    assert (tmp_path / "files" / ".token-key").stat().st_mode & 0o077 == 0


def test_an_agent_reports_its_own_attempt_and_no_other(fleet: Fleet) -> None:
    other = fleet.queue.submit(to="somebody-else", instructions="not yours")
    held = fleet.queue.claim("somebody-else")
    assert held is not None
    task = fleet.queue.submit(to=ROLE, instructions="report yourself")
    agentq = f"[{sys.executable!r}, '-m', 'agentq'"
    verdict = fleet.work(
        command=script(
            "import subprocess",
            f"bad = subprocess.run({agentq}, 'complete', {other.id!r}, '--summary', 'mine now'])",
            f"good = subprocess.run({agentq}, 'complete', '--summary', 'by itself'])",
            "print(bad.returncode, good.returncode)",
        )
    )
    assert verdict.outcome is AttemptOutcome.COMPLETED
    assert fleet.queue.task(other.id).state is State.IN_PROGRESS
    done = fleet.queue.task(task.id)
    assert done.state is State.COMPLETE and done.summary == "by itself"
    held.release()


def test_an_agent_does_not_report_past_the_check(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="pass the check", max_attempts=1)
    agentq = f"[{sys.executable!r}, '-m', 'agentq'"
    verdict = fleet.work(
        verify="false",
        command=script(
            "import subprocess",
            f"said = subprocess.run({agentq}, 'complete', '--summary', 'trust me'])",
            "print('it said', said.returncode)",
        ),
    )
    assert verdict.outcome is AttemptOutcome.BAD_OUTPUT
    assert fleet.queue.task(task.id).state is State.FAILED


def test_an_agent_starts_no_worker_and_no_loops(fleet: Fleet) -> None:
    """Either would act with more rights than an attempt has."""
    fleet.queue.submit(to="somebody-else", instructions="not yours")
    task = fleet.queue.submit(to=ROLE, instructions="help yourself")
    agentq = f"[{sys.executable!r}, '-m', 'agentq'"
    fleet.work(
        command=script(
            "import subprocess",
            "words = [['worker', 'somebody-else', '--tasks', '1', '--', 'true'], ['up']]",
            f"ran = [subprocess.run({agentq}, *each], timeout=30).returncode for each in words]",
            "print(ran)",
        )
    )
    assert fleet.queue.result(task.id).text().strip() == "[4, 4]"
