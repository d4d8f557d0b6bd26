"""Circuits, budgets of a day and of a tree, and what was spent: by command and by SDK alike."""

from __future__ import annotations

import threading
import time

import pytest

from agentq import Queue
from agentq.core.errors import Refused
from agentq.core.task import Usage
from tests.interfaces.conftest import Submit, run_here

pytestmark = pytest.mark.both_ways


def test_circuits_are_listed_opened_and_closed(queue: Queue, submit: Submit) -> None:
    assert "no circuit is open" in run_here("circuits").ok().err
    assert run_here("circuits", "--json").ok().json() == {"circuits": []}
    opened = run_here("circuits", "open", "acme", "--for", "2h", "--reason", "weekly limit")
    assert "closed to claims for 2h" in opened.ok().out
    (row,) = run_here("circuits", "--json").ok().json()["circuits"]
    assert (row["provider"], row["reason"], row["opened_by"]) == ("acme", "weekly limit", "alice")
    assert row["open_until"] > row["opened_at"]
    shown = run_here("circuits").ok().out
    assert "acme" in shown and "weekly limit" in shown
    # The SDK sees the same, and gets nothing for that provider.
    task_id = submit()
    assert [each.provider for each in queue.admin.circuits()] == ["acme"]
    assert queue.claim("worker", provider="acme") is None
    with pytest.raises(Refused, match="out of quota until"):
        queue.claim_task(task_id, provider="acme")
    explained = run_here("explain", task_id).ok().out
    assert "provider acme is out of quota" in explained
    assert "agentq circuits close acme" in explained
    # A shorter one changes nothing; closing lets claims begin again.
    again = run_here("circuits", "open", "acme", "--for", "1h", "--json").ok().json()
    assert again["open_until"] == row["open_until"]
    assert run_here("circuits", "close", "acme", "--json").ok().json()["closed"] is True
    assert "was not open" in run_here("circuits", "close", "acme").ok().out
    claim = queue.claim("worker", provider="acme")
    assert claim is not None and claim.id == task_id


@pytest.mark.parametrize(
    "words",
    [
        ("open", "acme"),
        ("open", "acme", "--for", "soon"),
        ("open", "acme", "--for", "3000d"),
        ("open", "no spaces", "--for", "1h"),
        ("close",),
        ("close", "-x"),
        ("shut", "acme"),
    ],
)
def test_bad_words_open_nothing(queue: Queue, words: tuple[str, ...]) -> None:
    run_here("circuits", *words).refused(2)
    assert queue.admin.circuits() == []


def test_a_patient_claim_wakes_when_the_circuit_is_over(queue: Queue, submit: Submit) -> None:
    task_id = submit()
    queue._client.open_circuit("acme", queue.admin.now() + 300, "quota")
    started = time.monotonic()
    claim = queue.claim("worker", wait=30, provider="acme")
    assert claim is not None and claim.id == task_id
    # Not at the next poll, some seconds later.
    assert 0.25 < time.monotonic() - started < 3


def test_a_patient_claim_wakes_when_the_circuit_is_closed(queue: Queue, submit: Submit) -> None:
    task_id = submit()
    queue._client.open_circuit("acme", queue.admin.now() + 3_600_000, "quota")
    assert queue.claim("worker", provider="acme") is None
    got: list[str] = []

    def wait() -> None:
        claim = queue.claim("worker", wait=30, provider="acme")
        got.append(claim.id if claim else "")

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert queue.admin.close_circuit("acme")
    waiting.join(20)
    assert got == [task_id]


def test_a_roles_budget_of_a_day(queue: Queue, submit: Submit) -> None:
    set_ = run_here("limits", "worker", "--daily-usd", "5", "--daily-time", "8h", "--json").ok()
    assert set_.json()["roles"]["worker"]["daily"] == {"usd": 5.0, "seconds": 28800.0}
    assert "5 usd, 28800 seconds" in run_here("limits").ok().out
    # What is not named stays.
    run_here("limits", "worker", "--running", "7").ok()
    assert queue.admin.limits()["worker"].daily == Usage(usd=5, seconds=28800)
    first, second = submit("--label", "team=core"), submit()
    claim = queue.claim("worker")
    assert claim is not None and claim.id == first
    claim.spend(usd=5.0, tokens=1200)
    assert queue.claim("worker") is None
    explained = run_here("explain", second).ok().out
    assert "budget of role worker" in explained and "5 of 5 usd are spent" in explained
    # Costs land on role, label and day.
    by_role = run_here("stats", "--cost", "--json").ok().json()
    spent = {"usd": 5.0, "tokens": 1200}
    assert by_role == {"by": "role", "costs": {"worker": spent}, "total": spent}
    by_label = run_here("stats", "--cost", "--by", "label", "--json").ok().json()
    assert by_label == {"by": "label", "costs": {"team=core": spent}}
    (day,) = run_here("stats", "--cost", "--by", "day", "--json").ok().json()["costs"]
    assert len(day) == len("2026-01-31")
    assert "5.00" in run_here("stats", "--cost").ok().out
    run_here("limits", "worker", "--daily-usd", "0").ok()
    assert queue.claim("worker") is not None


def test_a_trees_budget(queue: Queue, submit: Submit) -> None:
    root = queue.submit(to="lead", instructions="plan", tree_budget_usd=1.5)
    assert queue._client.as_json(root)["tree_budget"] == {"usd": 1.5}
    claim = queue.claim("lead")
    assert claim is not None
    child = claim.submit(to="worker", instructions="part")
    claim.complete("planned", cost=Usage(usd=1.5), leave_children=True)
    assert queue.claim("worker") is None
    explained = run_here("explain", child.id).ok().out
    assert f"1.5 of 1.5 usd are spent by {root.id} and its descendants" in explained
    assert f"agentq limits --tree {root.id} --extra-usd N" in explained
    raised = run_here("limits", "--tree", root.id, "--extra-usd", "1", "--json").ok()
    assert raised.json() == {"task_id": root.id, "extra": {"usd": 1.0}}
    assert queue.claim("worker") is not None
    run_here("limits", "--tree", child.id, "--extra-usd", "1").refused(4, "no budget for a tree")
    assert not [problem for _, found in queue.admin.verify() for problem in found]


def test_bad_words_change_no_budget(submit: Submit) -> None:
    submit()
    before = run_here("limits", "--json").ok().json()
    run_here("limits", "--daily-usd", "5").refused(2, "which role")
    run_here("limits", "worker", "--daily-usd", "-1").refused(2)
    run_here("limits", "worker", "--extra-usd", "1").refused(2, "--tree")
    run_here("limits", "--tree", "task-").refused(2, "By how much")
    assert run_here("limits", "--json").ok().json() == before
    run_here("stats", "--by", "role").refused(2, "--cost")
    run_here("stats", "--cost", "--by", "moon").refused(2)


def test_a_task_file_may_bring_a_trees_budget(home: object, queue: Queue) -> None:
    from pathlib import Path

    Path("task-a.md").write_text("---\nto: worker\ntree_budget_usd: 2\n---\nDo it.\n")
    Path("task-b.md").write_text("---\nto: worker\ntree_budget: {tokens: 9}\n---\nDo it.\n")
    twice = "---\nto: worker\ntree_budget_usd: 2\ntree_budget: {usd: 2}\n---\nDo it.\n"
    Path("task-c.md").write_text(twice)
    for name in ("a", "b"):
        run_here("submit", "--file", f"task-{name}.md").ok()
    run_here("submit", "--file", "task-c.md").refused(2, "tree_budget.usd say the same twice")
    assert queue.task("task-a").spec.tree_budget == Usage(usd=2)
    assert queue.task("task-b").spec.tree_budget == Usage(tokens=9)
