"""`agentq stats overhead` and `quality`: the numbers of the log, for people and for programs."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from agentq import Queue
from agentq.cli import measures
from agentq.cli.session import Session
from agentq.cli.stats import overhead, quality
from agentq.client import reader
from agentq.contracts.service_values import Bottleneck, Overhead, PhaseTotal, Quality, RoleQuality
from agentq.core.errors import Invalid, NotFound
from agentq.core.phases import Phase
from agentq.core.task import Usage

pytestmark = pytest.mark.both_ways(quick=True)


def show(*words: str, command: click.Command = overhead) -> str:
    done = CliRunner().invoke(command, list(words), obj=Session())
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    assert show() == ""
    queue.submit("worker", "x", id="task-1", labels={"run": "7"})
    queue.submit("worker", "x", id="task-2", after=["task-1"])
    for task_id in ("task-1", "task-2"):
        queue.claim_task(task_id).complete("done")
    plain = json.loads(show("--json"))
    assert list(plain) == [
        "tasks", "attempts", "running", "work_seconds", "wall_seconds", "critical_path_seconds",
        "critical_path", "overhead_seconds", "parallel_gain_seconds", "overhead_share", "flagged",
        "bottleneck", "phases", "cut",
    ]  # fmt: skip
    assert plain["tasks"] == 2 and plain["critical_path"][-1] == "task-2"
    assert list(plain["phases"]) == [str(phase) for phase in Phase]
    assert list(plain["phases"]["working"]) == ["seconds", "share", "usd", "tokens"]
    assert json.loads(show("task-1", "--json"))["tasks"] == 1
    assert json.loads(show("--role", "nobody", "--json"))["tasks"] == 0
    assert json.loads(show("--since", "1h", "--json"))["tasks"] == 2
    # By label, as many as are measured at once.
    assert json.loads(show("--label", "run=7", "--role", "worker", "--json"))["tasks"] == 1
    monkeypatch.setattr(reader, "MEASURED_MAX", 0)
    assert json.loads(show("--label", "run=7", "--json"))["cut"] is True


def test_for_people(queue: Queue) -> None:
    queue.submit("worker", "x", id="task-1")
    queue.submit("worker", "x", id="task-2", after=["task-1"])
    for task_id in ("task-1", "task-2"):
        queue.claim_task(task_id).complete("done")
    fields, table = show().split("\n\n")
    names = ["tasks", "work", "wall", "critical path", "overhead", "parallel gain", "bottleneck"]
    assert [line[:13].strip() for line in fields.splitlines()] in (names, names[:-1])
    assert "2 (2 attempts)" in fields and "task-2" in fields
    assert table.split()[:5] == ["PHASE", "TIME", "SHARE", "USD", "TOKENS"]


def test_a_run_and_a_tree(queue: Queue) -> None:
    queue.submit("lead", "x", id="run-1", type="run")
    queue.submit("worker", "x", id="step-1", parent="run-1")
    assert json.loads(show("--run", "run-1", "--json"))["tasks"] == 2
    assert json.loads(show("run-1", "--json"))["tasks"] == 2
    assert queue.admin.run_overhead("run-1").tasks == 2
    with pytest.raises(Invalid, match="step-1 is no run"):
        queue.admin.run_overhead("step-1")
    assert queue.admin.overhead(["run-1"]).tasks == 1
    assert queue.admin.recent_overhead("1h", "worker").tasks == 1


@pytest.mark.parametrize(
    "words",
    [("task-1", "--role", "worker"), ("--run", "a", "--since", "1h"), ("task-1", "--run", "a")],
)
def test_named_or_described(queue: Queue, words: tuple[str, ...]) -> None:
    both = CliRunner().invoke(overhead, list(words), obj=Session())
    assert both.exit_code == 2 and "not both" in both.output


def test_nobody_by_that_name(queue: Queue) -> None:
    done = CliRunner().invoke(overhead, ["nobody"], obj=Session())
    assert isinstance(done.exception, NotFound)


def test_what_is_too_much_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    phases = (
        PhaseTotal(Phase.WORKING, 7_200_000, Usage(usd=2.5, tokens=100)),
        PhaseTotal(Phase.WAITING_FOR_SLOT, 3_600_000),
        PhaseTotal(Phase.RETRYING, 0, Usage(usd=1, estimated_usd=1)),
        PhaseTotal(Phase.BLOCKED, 0),
    )
    named = Bottleneck(Phase.WAITING_FOR_SLOT, "worker", 3_600_000, "waiting; raise it")
    path = tuple("abcdefg")
    found = Overhead(7, 8, 1, 7_200_000, 5_400_000, 3_600_000, path, phases, named, cut=True)
    measures.show_overhead(found)
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "tasks          7 (8 attempts, 1 still running)",
        "work           2h",
        "wall           1h30m",
        "critical path  1h  a → b → c → d → e → f → …",
        "overhead       30m  100.0% of the gain: too much, more than 30%",
        "parallel gain  30m",
        "bottleneck     waiting; raise it",
        "",
        "PHASE                TIME  SHARE    USD  TOKENS",
        "working                2h  66.7%   2.50     100",
        "waiting for slot       1h  33.3%",
        "retrying          0.000 s   0.0%  ~1.00",
    ]
    assert "the newest of them" in printed.err
    in_vain = Overhead(2, 2, 0, 2000, 3000, 1000, ())
    measures.show_overhead(in_vain)
    printed = capsys.readouterr()
    assert "2.000 s: too much, all that could be gained" in printed.out
    assert "none: one after the other" in printed.out and "no time has passed" in printed.err


def test_how_work_was_judged(queue: Queue) -> None:
    assert show(command=quality) == ""
    queue.submit("worker", "x", id="task-1", review=True)
    queue.claim_task("task-1").complete("done")
    queue.reject("task-1", by="bob", reason="more tests", changes=True)
    queue.claim_task("task-1").complete("done")
    queue.approve("task-1", by="bob")
    plain = json.loads(show("--json", command=quality))
    assert plain == {
        "roles": {
            "worker": {
                "tasks": 1, "verdicts": 2, "accepted": 1, "changes": 1, "rejected": 0,
                "mean_rounds": 2, "mean_score": None, "median_score": None, "min_score": None,
                "newest_scores": [],
            }
        },
        "cut": False,
    }  # fmt: skip
    assert json.loads(show("--role", "nobody", "--json", command=quality))["roles"] == {}
    assert json.loads(show("--since", "1h", "--json", command=quality)) == plain
    assert queue.admin.quality("1h", "worker").roles[0].accepted == 1


def test_scores_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    scored = RoleQuality("builder", 3, 4, 2, 1, 1, 1.5, 80.0, 82.5, 60, (90, 60))
    measures.show_quality(Quality((scored, RoleQuality("writer", 1, 1, 0, 0, 1)), cut=True))
    printed = capsys.readouterr()
    assert [" ".join(line.split()) for line in printed.out.splitlines()] == [
        "ROLE TASKS ACCEPTED CHANGES REJECTED ROUNDS MEAN MEDIAN LOWEST NEWEST SCORES",
        "builder 3 2 1 1 1.5 80 82.5 60 90 60",
        "writer 1 1",
    ]
    assert "the newest of them" in printed.err
