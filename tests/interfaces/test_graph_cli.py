"""Tasks that wait for each other: yield, signal, reviewers, structured results, whole trees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interfaces.conftest import Submit, run_here

pytestmark = pytest.mark.both_ways


@pytest.fixture
def lead(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> str:
    """A task that this process is an attempt at."""
    task = submit("--id", "task-lead", to="lead")
    run_here("claim", "--as", "lead").ok()
    monkeypatch.setenv("AGENTQ_TASK_ID", task)
    monkeypatch.setenv("AGENTQ_EPOCH", "1")
    return task


def finish(role: str, *words: str) -> None:
    claimed = run_here("claim", "--as", role, "--json").ok().json()
    run_here("complete", claimed["task_id"], "--epoch", str(claimed["epoch"]), *words).ok()


def test_an_attempt_leaves_and_goes_on_when_its_children_are_over(lead: str) -> None:
    for name in ("task-a", "task-b"):
        run_here("submit", "--to", "maker", "--id", name, "--instructions", "do").ok()
    said = run_here("yield", "--note", "then merge them").ok()
    assert "waits for children task-a, task-b" in said.out + said.err
    shown = run_here("status", lead).ok().out
    assert "open: task-a, task-b (waits for all of them)" in shown
    assert "it has yielded to its child task-a" in run_here("explain", lead).ok().out
    finish("maker", "--summary", "one")
    assert run_here("status", lead, "--json").ok().json()["state"] == "pending"
    finish("maker", "--summary", "two")
    told = run_here("claim", "--as", "lead", "--json").ok().json()
    assert told["ended_children"] == {"task-a": "complete", "task-b": "complete"}
    assert [(note["kind"], note["text"]) for note in told["notes"]] == [
        ("yield", "then merge them")
    ]
    assert told["epoch"] == 2 and told["failures"] == 0


def test_any_child_is_enough_if_that_is_asked_for(lead: str) -> None:
    for name in ("task-a", "task-b"):
        run_here("submit", "--to", "maker", "--id", name, "--instructions", "do").ok()
    assert run_here("yield", "--any", "--json").ok().json()["state"] == "pending"
    assert "waits for any of them" in run_here("status", lead).ok().out
    finish("maker")
    assert run_here("status", lead, "--json").ok().json()["state"] == "ready"


def test_there_must_be_something_to_yield_for(lead: str) -> None:
    run_here("yield").refused(4, "nothing to yield for", "agentq submit")
    run_here("yield", "--signal", "bad name").refused(2, "bad name")
    assert run_here("status", lead, "--json").ok().json()["state"] == "in_progress"


def test_a_signal_lets_it_go_on_and_brings_data(lead: str, home: Path) -> None:
    assert "signal deployed" in run_here("yield", "--signal", "deployed", "--json").ok().out
    assert f"agentq signal {lead} deployed" in run_here("explain", lead).ok().out
    (home / "build.json").write_text('{"build": 7}')
    said = run_here("signal", lead, "deployed", "--data", "@build.json").ok()
    assert "it had waited for it" in said.out + said.err
    claimed = run_here("claim", "--as", "lead", "--json").ok().json()
    assert claimed["notes"][-1]["text"] == 'deployed: {"build":7}'


def test_a_signal_that_comes_first_is_kept(submit: Submit) -> None:
    task = submit("--wait-for", "go", "--wait-for", "steady", to="w")
    plain = run_here("status", task, "--json").ok().json()
    assert plain["waiting_for"] == ["signal go", "signal steady"]
    run_here("signal", task, "go").ok()
    said = run_here("signal", task, "later").ok()
    assert "kept until it waits for it" in said.out + said.err
    assert "later" in run_here("status", task).ok().out
    assert run_here("signal", task, "steady", "--json").ok().json()["state"] == "ready"
    run_here("signal", task, "more", "--data", "[1").refused(2, "no JSON")
    run_here("signal", task, "more", "--data", "@nowhere.json").refused(3, "nowhere.json")
    run_here("signal", task, "bad name").refused(2)


def test_a_report_over_open_children_is_refused_unless_they_are_left(lead: str) -> None:
    run_here("submit", "--to", "maker", "--id", "task-a", "--instructions", "do").ok()
    run_here("complete", "--summary", "x").refused(4, "task-a", "agentq yield", "--leave-children")
    run_here("complete", "--summary", "x", "--leave-children").ok()
    assert run_here("status", "task-a", "--json").ok().json()["state"] == "ready"


def test_a_structured_result_is_kept_with_the_report(lead: str, home: Path) -> None:
    run_here("complete", "--data", "7").refused(2, "an object or a list")
    run_here("complete", "--data", "{").refused(2, "no JSON")
    (home / "r.json").write_text('{"files": ["a.py"]}')
    plain = run_here("complete", "--data", "@r.json", "--json").ok().json()
    assert plain["data"] == {"files": ["a.py"]}
    assert '{"files": ["a.py"]}' in run_here("status", lead).ok().out


def test_a_tree_is_cancelled_at_once(lead: str) -> None:
    run_here("submit", "--to", "maker", "--id", "task-a", "--instructions", "do").ok()
    run_here("cancel", lead, "--tree", "--reason", "not wanted").ok()
    states = {
        name: run_here("status", name, "--json").ok().json()["state"] for name in (lead, "task-a")
    }
    assert states == {lead: "cancelled", "task-a": "cancelled"}


def test_a_reviewer_judges_the_report(submit: Submit) -> None:
    task = submit("--reviewer", "critic", "--min-score", "80", "--max-rounds", "2", to="w")
    finish("w", "--summary", "done")
    shown = run_here("status", task).ok().out
    review = f"{task}.review-1"
    assert f"by {review}" in shown and "accepted by critic with 80 of 100" in shown
    why = run_here("explain", task).ok().out
    assert f"its review {review} is not over" in why and f"agentq explain {review}" in why
    assert f"reviews    {task}" in run_here("status", review).ok().out
    claimed = run_here("claim", "--as", "critic", "--json").ok().json()
    assert claimed["reviews"] == task and claimed["inputs"]["epoch"] == 1
    run_here("complete", review, "--summary", "fine").refused(4, "structured result", "verdict")
    low = json.dumps({"verdict": "accept", "score": 60, "notes": "no tests"})
    run_here("complete", review, "--data", low).ok()
    again = run_here("claim", "--as", "w", "--json").ok().json()
    assert "no tests" in again["notes"][-1]["text"] and again["score"] == 60
    run_here("complete", task, "--epoch", "2").ok()
    finish("critic", "--data", json.dumps({"verdict": "accept", "score": 91}))
    shown = run_here("status", task).ok().out
    assert "complete" in shown and "score 91" in shown


def test_what_submit_takes_of_gates_and_policies(submit: Submit) -> None:
    task = submit(
        "--verify", "make test", "--requires-approval", "--approval-timeout", "8h",
        "--on-timeout", "reject", "--escalate", "1h:lead", "--escalate", "4h:head",
        "--input", "branch=main", "--input", "n:=3", to="w",
    )  # fmt: skip
    plain = run_here("status", task, "--json").ok().json()
    assert plain["gates"] == {"verify": "make test"}
    assert plain["inputs"] == {"branch": "main", "n": 3}
    steps = plain["approval"]["escalate"]
    assert [(each["after_seconds"], each["to"]) for each in steps] == [
        (3600, "lead"), (14400, "head"),
    ]  # fmt: skip
    why = run_here("explain", task).ok().out
    assert "lead is asked in 1h" in why and "it is rejected in 8h" in why
    for wrong in (
        ("--escalate", "lead"), ("--input", "main"), ("--input", "n:=x"), ("--min-score", "101"),
        ("--reviewer", "w"),
    ):  # fmt: skip
        run_here("submit", "--to", "w", "--instructions", "x", *wrong).refused(2)
