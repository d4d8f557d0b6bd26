"""What an attempt hands in: nobody but the worker speaks in the worker's name, and nothing that is
left out is left out silently."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentq.client.claim import Claim
from agentq.contracts.agent import AttemptOutcome
from agentq.core.errors import Unavailable
from agentq.core.states import State
from agentq.core.task import Task
from tests.worker.fleet import ROLE, Fleet, script

pytestmark = pytest.mark.both_ways(in_turn="cases")

DROP = "drop = os.environ['AGENTQ_ARTIFACTS'] + '/'"


def work(fleet: Fleet, *lines: str, expect: str = "", **fields: Any) -> tuple[Task, AttemptOutcome]:
    task = fleet.queue.submit(to=ROLE, instructions="hand in", max_attempts=1, expect=expect)
    outcome = fleet.work(command=script(DROP, *lines, "print('done')"), **fields).outcome
    return fleet.queue.task(task.id), outcome


def stored(fleet: Fleet, task: Task) -> dict[str, bytes]:
    found = {}
    for row in fleet.queue.artifacts(task.id):
        with row.open() as file:
            found[row.name] = file.read()
    return found


FORGED = (
    "agentq/verdict.json", "agentq/session.txt", "agentq/any/thing", "output.log", "output-2.log",
    "Verify.log/x", "OUTPUT.LOG", "verify.log", "changes.patch", "commits.txt",
)  # fmt: skip


def test_a_reserved_name_in_the_folder_is_not_taken(fleet: Fleet) -> None:
    task, outcome = work(
        fleet,
        f"for name in {FORGED!r}:",
        "    os.makedirs(os.path.dirname(drop + name), exist_ok=True)",
        "    open(drop + name, 'w').write('forged')",
        "open(drop + 'honest.md', 'w').write('mine')",
        verify="echo checked",
    )
    assert outcome is AttemptOutcome.COMPLETED and task.state is State.COMPLETE
    files = stored(fleet, task)
    assert b"forged" not in files.values() and files["honest.md"] == b"mine"
    # What stands under the worker's names is what the worker saw.
    assert files["output.log"].strip() == b"done" and files["verify.log"].strip() == b"checked"
    for name in FORGED:
        assert f"{name} (only the worker uses this name)" in task.summary


def test_a_reserved_name_by_the_command_or_the_sdk_is_refused(fleet: Fleet) -> None:
    put = [sys.executable, "-m", "agentq", "artifacts", "put", "forged", "--name", FORGED[0]]
    task, outcome = work(
        fleet,
        "import subprocess, agentq",
        "open('forged', 'w').write('forged')",
        f"told = subprocess.run({put!r}, capture_output=True, text=True)",
        "assert told.returncode == 4 and 'name of the worker' in told.stderr, told",
        "with agentq.Queue() as queue:",
        f"    for name in {FORGED!r}:",
        "        try: queue.put(os.environ['AGENTQ_TASK_ID'], name, 'forged')",
        "        except agentq.Refused as refused: assert refused.code == 'reserved_name'",
        "        else: sys.exit(f'{name} was taken')",
    )
    assert outcome is AttemptOutcome.COMPLETED, task.reason
    assert b"forged" not in stored(fleet, task).values()


@pytest.mark.long
def test_a_record_of_the_worker_is_no_evidence_that_a_task_expects(fleet: Fleet) -> None:
    task, outcome = work(fleet, expect="verdict")
    assert outcome is AttemptOutcome.BAD_OUTPUT
    assert "missing: verdict" in task.reason


def test_evidence_over_a_limit_fails_the_hand_in(fleet: Fleet) -> None:
    """It says by which limit of the role. The last words of an agent are no result in place of one
    that is too large."""
    task, outcome = work(
        fleet,
        "for n in range(7): open(f'{drop}{n}.md', 'w').write('x' * (100 if n else 101))",
        "open(os.environ['AGENTQ_RESULT'], 'w').write('x' * 51)",
        evidence_files=5,
        evidence_bytes=100,
        result_bytes=50,
    )
    assert outcome is AttemptOutcome.BAD_OUTPUT and task.state is State.FAILED
    assert "7 files were left, more than 5 (evidence_files)" in task.reason
    assert "0.md has 101 bytes, more than 100 (evidence_bytes)" in task.reason
    assert "the result file has 51 bytes, more than 50 (result_bytes)" in task.reason
    assert {"1.md", "4.md"} <= set(stored(fleet, task))


@pytest.mark.long
def test_a_limit_of_zero_is_none(fleet: Fleet) -> None:
    task, outcome = work(
        fleet,
        "for n in range(201): open(f'{drop}{n}.md', 'w').write('x')",
        evidence_files=0,
        evidence_bytes=0,
        result_bytes=0,
    )
    assert outcome is AttemptOutcome.COMPLETED
    assert len(stored(fleet, task)) >= 201


@pytest.mark.long
def test_an_attempt_that_failed_anyway_keeps_its_own_reason(fleet: Fleet) -> None:
    task, outcome = work(
        fleet, "open(drop + 'large', 'w').write('x' * 9)", "sys.exit(1)", evidence_bytes=1
    )
    assert outcome is AttemptOutcome.TRANSIENT
    assert "exit code 1" in task.reason and "large has 9 bytes" in task.reason


def test_what_cannot_be_taken_is_named(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("not yours")
    task, outcome = work(
        fleet,
        "open(os.fsencode(drop) + b'.hidden \\xff\\x1b[31m', 'w').write('x')",
        "os.symlink('/', drop + 'everything')",
        f"os.symlink({str(tmp_path / 'secret.txt')!r}, os.environ['AGENTQ_RESULT'])",
        "for n in range(14): os.mkfifo(f'{drop}{n:02}')",
    )
    assert outcome is AttemptOutcome.COMPLETED
    assert task.summary.startswith("done") and task.summary.endswith("and 7 more.")
    assert r".hidden \udcff\x1b[31m (An artifact's name is" in task.summary
    assert "00 (it is not a plain file)" in task.summary
    assert fleet.queue.result(task.id).text().strip() == "done"
    assert b"not yours" not in stored(fleet, task).values()


@pytest.mark.long
def test_a_folder_that_became_a_link(fleet: Fleet, tmp_path: Path) -> None:
    """The worker may read what a sandboxed agent may not: it must not be sent there."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret.txt").write_text("not yours")
    task, _ = work(fleet, "os.rmdir(drop[:-1])", f"os.symlink({str(elsewhere)!r}, drop[:-1])")
    assert "secret.txt" not in stored(fleet, task)
    assert "artifacts (the folder was replaced by a link)" in task.summary


@pytest.mark.long
def test_a_result_that_cannot_be_stored_is_not_complete_without_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_many = Claim.put_many

    def full(claim: Claim, files: Sequence[tuple[str, Any]]) -> list[Any]:
        if any(name == "result.md" for name, _ in files):
            raise Unavailable("The disk is full.", "Make room.")
        return list(put_many(claim, files))

    monkeypatch.setattr(Claim, "put_many", full)
    task, outcome = work(fleet, "open(os.environ['AGENTQ_RESULT'], 'w').write('# The work')")
    assert outcome is AttemptOutcome.TRANSIENT
    assert task.state is State.FAILED and "The disk is full" in task.reason


@pytest.mark.long
def test_an_agent_that_is_stopped_leaves_what_it_has(fleet: Fleet) -> None:
    task, outcome = work(
        fleet, "open(drop + 'so-far.md', 'w').write('half')", "time.sleep(600)", timeout=1
    )
    assert outcome is AttemptOutcome.TIMEOUT
    assert stored(fleet, task)["so-far.md"] == b"half"


def test_what_is_done_when_its_cost_comes_is_done(fleet: Fleet) -> None:
    """More of it: tests/worker/test_rehearsals.py."""
    task = fleet.queue.submit(to=ROLE, instructions="spend", budget_usd=0.5)
    file = fleet.folder / "script.yaml"
    file.write_text("steps: [{spend: {usd: 0.9}}, {result: ok}]")
    words = ("-m", "agentq", "fake-agent", "--dialect", "claude", "--script", str(file))
    verdict = fleet.work(agent="claude", command=(sys.executable, *words))
    assert verdict.outcome is AttemptOutcome.COMPLETED
    done = fleet.queue.task(task.id)
    assert done.state is State.COMPLETE and done.details.spent.usd == 0.9
    assert stored(fleet, done)["result.md"] == b"ok"
