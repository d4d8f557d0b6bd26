"""`agentq stats overhead`: the numbers of the log, for people and for programs."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from agentq import Queue
from agentq.cli.session import Session
from agentq.cli.stats import overhead

pytestmark = pytest.mark.both_ways(quick=True)


def show(*words: str) -> str:
    done = CliRunner().invoke(overhead, list(words), obj=Session())
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command(queue: Queue) -> None:
    assert show() == ""
    queue.submit("worker", "x", id="task-1", labels={"run": "7"})
    queue.submit("worker", "x", id="task-2", after=["task-1"])
    for task_id in ("task-1", "task-2"):
        queue.claim_task(task_id).complete("done")
    plain = json.loads(show("--json"))
    assert list(plain) == [
        "tasks", "attempts", "running", "work_seconds", "wall_seconds", "critical_path_seconds",
        "critical_path", "overhead_seconds", "parallel_gain_seconds", "overhead_share",
    ]  # fmt: skip
    assert plain["tasks"] == 2 and plain["critical_path"][-1] == "task-2"
    assert json.loads(show("task-1", "--json"))["tasks"] == 1
    assert json.loads(show("--label", "run=7", "--role", "worker", "--json"))["tasks"] == 1
    assert json.loads(show("--since", "1h", "--json"))["tasks"] == 2
    table = show().splitlines()
    names = ["tasks", "work", "wall", "critical path", "overhead", "parallel gain"]
    assert [line[:13].strip() for line in table] == names
    assert "2 (2 attempts)" in table[0] and "task-2" in table[3]
    both = CliRunner().invoke(overhead, ["task-1", "--role", "worker"], obj=Session())
    assert both.exit_code == 2 and "not both" in both.output
