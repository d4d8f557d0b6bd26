"""A run of twelve steps, with `agentq up` killed after each of them; on a server after some.

One step fails once, a reviewer asks for changes once, an approval escalates and times out. What the
agents wrote down themselves must agree with the log: no step ran more often than it says.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from agentq.core.triggers import ClaimTask, LogEntry, Tick, Verdict
from agentq.settings import Settings
from agentq.workflows.runs import Runs
from tests.daemon.ups import Ups, runs, several_ups
from tests.eventually import eventually

pytestmark = pytest.mark.long

STEPS = 12
_AGENT = """\
import json, os, pathlib, sys
task, epoch = os.environ["AGENTQ_TASK_ID"], int(os.environ["AGENTQ_EPOCH"])
with open(sys.argv[1], "a") as file:
    file.write(json.dumps([task, epoch]) + "\\n")
if task.endswith(".s9") and epoch == 1:
    sys.exit("a transient failure")
folder = pathlib.Path(".agentq-task")
if "review" in task:
    verdict = "changes" if task.endswith("review-1") else "accept"
    said = {"verdict": verdict, "score": 80, "notes": "what is missing"}
else:
    said = {"step": task.rpartition(".")[2]}
(folder / "result.json").write_text(json.dumps(said))
(folder / "result.md").write_text(f"{task} by attempt {epoch}")
"""


@pytest.fixture
def settings(ledger_url: str, tmp_path: Path) -> Settings:
    (tmp_path / "agent.py").write_text(_AGENT)
    command = json.dumps([sys.executable, str(tmp_path / "agent.py"), str(tmp_path / "ran.jsonl")])
    roles = "".join(
        f'[roles.{role}]\ncommand = {command}\nlease = "3s"\n' for role in ("worker", "critic")
    )
    (tmp_path / "agentq.toml").write_text(
        f'[ledger]\nurl = "{ledger_url}"\n[artifacts]\nroot = "files"\n{roles}'
    )
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "twelve.md").write_text(_workflow())
    return Settings(ledger_url, str(tmp_path / "files"), str(tmp_path / "agentq.toml"))


def _workflow() -> str:
    more = {
        5: "reviewer: critic",
        11: "approval: {escalate: [{after: 1s, to: lead}], timeout: 3s, on_timeout: approve}",
    }
    steps = []
    for number in range(1, STEPS + 1):
        after = f"after: s{number - 1}, " if number > 1 else ""
        extra = f", {more[number]}" if number in more else ""
        steps.append(
            f"  - {{id: s{number}, role: worker, {after}instructions: Step {number}.{extra}}}"
        )
    return "---\nsteps:\n" + "\n".join(steps) + "\n---\n"


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[Ups]:
    with several_ups(tmp_path) as made:
        yield made


@pytest.fixture
def steps_at_once(ledger_url: str) -> int:
    """How many steps come between two kills: what runs do is the same on each database."""
    return 1 if ledger_url.startswith("sqlite") else 3


def test_killed_after_every_step_it_runs_each_as_often_as_the_log_says(
    queue: Queue, ups: Ups, tmp_path: Path, steps_at_once: int
) -> None:
    def completed() -> int:
        names = [f"run-1.s{number}" for number in range(1, STEPS + 1)]
        found = queue._client.service.tasks_by_id(queue._client.who, names)
        return sum(task.state is State.COMPLETE for task in found.values())

    Runs(queue._client).start("twelve", run_id="run-1")
    kills = 0
    while queue.task("run-1").state is not State.COMPLETE:
        awaited = completed() + steps_at_once
        up = ups.start("--no-http", "--term", "1s")
        eventually(partial(_goes_on, queue, completed, awaited), 180, "the next step")
        assert queue.task("run-1").state is not State.FAILED, queue.task("run-1").reason
        workers = [pid for role in ("worker", "critic") for pid in up.worker_pids(role)]
        up.kill()
        kills += 1
        eventually(partial(_are_gone, workers), 60, "the end of its workers")
    # Several steps may end before the kill, but not all of them.
    assert kills >= STEPS // steps_at_once // 2
    _check_agents(queue, tmp_path)
    _check_gates(queue)
    for _, problems in queue._client.service.verify(queue._client.who):
        assert problems == []


def _are_gone(pids: list[int]) -> bool:
    return not any(map(runs, pids))


def _goes_on(queue: Queue, completed: Callable[[], int], awaited: int) -> bool:
    return completed() >= awaited or queue.task("run-1").is_terminal


def _check_agents(queue: Queue, folder: Path) -> None:
    """Every agent that ran is an attempt of the log, and ran once; all that reported did run."""
    lines = (folder / "ran.jsonl").read_text().splitlines()
    ran = Counter((task, epoch) for task, epoch in map(json.loads, lines))
    assert max(ran.values()) == 1, "no attempt has two agents"
    claimed, reported = set(), set()
    for task in queue.tasks():
        if task.spec.type == "run":
            continue
        history = queue.history(task)
        claimed |= {
            (task.id, each.event.epoch) for each in history if type(each.event.trigger) is ClaimTask
        }
        reported |= {(task.id, epoch) for epoch in _reported(history)}
    assert set(ran) <= claimed
    assert reported <= set(ran)
    steps = {f"run-1.s{number}" for number in range(1, STEPS + 1)}
    assert {task for task, _ in reported} >= steps


def _reported(history: list[LogEntry]) -> set[int]:
    kinds = ("reported", "completed", "retrying")
    return {
        each.event.epoch
        for each in history
        if each.event.kind in kinds and not isinstance(each.event.trigger, Verdict)
    }


def _check_gates(queue: Queue) -> None:
    failed = [each.event.kind for each in queue.history("run-1.s9")]
    assert failed.count("retrying") == 1
    reviewed = [each.event for each in queue.history("run-1.s5")]
    rulings = [str(each.trigger.ruling) for each in reviewed if isinstance(each.trigger, Verdict)]
    assert rulings == ["changes", "accept"]
    approval = [each.event for each in queue.history("run-1.s11")]
    steps = [each.kind for each in approval if isinstance(each.trigger, Tick)]
    assert [kind for kind in steps if kind in ("escalated", "approval_timed_out")] == [
        "escalated", "approval_timed_out",
    ]  # fmt: skip
    assert queue.task("run-1.s11").details.approved_by == "approval-policy"
