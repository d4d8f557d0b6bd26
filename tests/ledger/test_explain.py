"""`explain` answers why a task is not running: for every cause, in words, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.errors import NotFound
from agentq.core.limits import RoleLimits
from agentq.core.task import Amounts, Priority, Spec
from tests.ledger.conftest import Desk


def _limited(desk: Desk, limits: RoleLimits, **fields: Any) -> None:
    desk.submit("first", **fields)
    desk.submit()
    desk.start("first")
    if fields:
        desk.report("first")
    desk.ledger.set_limits("worker", limits)


def _blocked_by_budget(desk: Desk) -> None:
    desk.submit(budget=Amounts(usd=1))
    desk.start()
    desk.spend("task-1", 2)


def _resource_held(desk: Desk) -> None:
    desk.submit("first", resources=("repo",))
    desk.start("first")
    desk.submit(resources=("repo",))


def _backing_off(desk: Desk) -> None:
    desk.submit()
    desk.start()
    desk.ledger.fail(desk.key("task-1"), 1, "network down")


def _irreversible_and_vanished(desk: Desk) -> None:
    desk.submit(irreversible=True)
    desk.approve("task-1")
    desk.start()
    desk.clock.forward(61)
    desk.ledger.tick()


def _in_review(desk: Desk) -> None:
    desk.submit(review=True)
    desk.start()
    desk.report()


def _unserved(desk: Desk) -> None:
    desk.submit()
    desk.claim(role="worker")
    desk.ledger.release(desk.key("task-1"), 1)
    desk.clock.forward(600)


def _ended(desk: Desk, how: str) -> None:
    desk.submit(ttl_seconds=60)
    match how:
        case "failed":
            desk.fail("task-1", "the disk is full")
        case "expired":
            desk.clock.forward(60)
            desk.ledger.tick()
        case "complete":
            desk.complete("task-1")
        case "stopping":
            desk.start()
            desk.ledger.cancel(desk.key("task-1"), "boss", "changed my mind")


def _after_a_parent(desk: Desk) -> None:
    desk.submit("parent")
    desk.start("parent")
    desk.submit(after=("parent",))


#: A way to each cause, and the words that must name it.
CAUSES: dict[str, tuple[Callable[[Desk], object], list[str]]] = {
    "a dependency": (_after_a_parent, ["is pending", "dependency parent is in_progress"]),
    "an approval": (
        lambda desk: desk.submit(requires_approval=True),
        ["needs an approval by somebody other than coordinator"],
    ),
    "an approval in time": (
        lambda desk: desk.submit(requires_approval=True, approval_timeout_seconds=600),
        ["needs an approval", "in 10m"],
    ),
    "a delay": (lambda desk: desk.submit(delay_seconds=90), ["delayed", "in 1m30s"]),
    "a backoff": (_backing_off, ["backing off after a failure", "in 5s"]),
    "a time that came unnoticed": (
        lambda desk: (desk.submit(delay_seconds=5), desk.clock.forward(6)),
        ["its time has come and no process has ticked yet"],
    ),
    "its time to live": (lambda desk: desk.submit(ttl_seconds=120), ["expires in 2m"]),
    "no worker ever": (lambda desk: desk.submit(), ["no worker has ever asked for role worker"]),
    "no worker any more": (_unserved, ["no worker has asked for role worker in the last 10m"]),
    "a limit": (
        lambda desk: _limited(desk, RoleLimits(max_running=1)),
        ["held back", "1 of its tasks are running and the limit is 1"],
    ),
    "reviews": (
        lambda desk: _limited(desk, RoleLimits(max_review=1), review=True),
        ["held back", "1 of its tasks wait for review and the limit is 1"],
    ),
    "a pause": (lambda desk: _limited(desk, RoleLimits(paused=True)), ["the role is paused"]),
    "a resource": (_resource_held, ["held back", "resource repo is held by first"]),
    "others before it": (
        lambda desk: (desk.submit(), desk.submit("urgent", priority=Priority.URGENT)),
        ["1 tasks of its role are ahead of it"],
    ),
    "it runs": (
        lambda desk: (desk.submit(), desk.start()),
        ["is in_progress", "attempt 1 runs with ann", "ends in 1m"],
    ),
    "a verdict": (_in_review, ["ann has reported; a verdict of somebody else is missing"]),
    "a question": (
        lambda desk: (desk.submit(), desk.start(), desk.ledger.block(1, 1, "which branch?")),
        ["is blocked", "which branch?"],
    ),
    "a budget": (_blocked_by_budget, ["is blocked", "2 of 1 usd are spent"]),
    "an unknown outcome": (_irreversible_and_vanished, ["its outcome is unknown"]),
    "it failed": (lambda desk: _ended(desk, "failed"), ["is failed", "the disk is full"]),
    "it expired": (lambda desk: _ended(desk, "expired"), ["is expired", "its time to live of 60"]),
    "it is done": (lambda desk: _ended(desk, "complete"), ["is complete", "it is done"]),
    "it is being stopped": (
        lambda desk: _ended(desk, "stopping"),
        ["is cancelled", "changed my mind", "has not said yet that it stopped"],
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_is_named(desk: Desk, cause: str) -> None:
    prepare, words = CAUSES[cause]
    prepare(desk)
    told = desk.causes()
    for word in words:
        assert word in told


@pytest.mark.parametrize("cause", CAUSES)
def test_what_holds_it_back_comes_with_what_to_do(desk: Desk, cause: str) -> None:
    CAUSES[cause][0](desk)
    explanation = desk.ledger.views.explain(desk.key("task-1"))
    assert explanation.task == desk.task()
    assert explanation.headline.startswith(f"task-1 is {desk.state()}")
    if desk.state() in ("pending", "blocked", "review", "failed", "expired"):
        assert any(remedy for _, remedy in explanation.causes)


def test_several_causes_are_all_named(desk: Desk) -> None:
    desk.submit("parent")
    desk.submit(after=("parent",), requires_approval=True, delay_seconds=60, ttl_seconds=600)
    told = desk.causes()
    for word in ("dependency parent", "approval", "delayed", "expires in 10m"):
        assert word in told


def served(desk: Desk) -> None:
    desk.claim(role="worker")


@pytest.mark.parametrize("ttl_seconds", [0, 600], ids=["for ever", "for a while"])
def test_a_task_that_could_start_now_is_said_to(desk: Desk, ttl_seconds: int) -> None:
    # A time to live is worth knowing, but it holds nothing back.
    served(desk)
    desk.submit(ttl_seconds=ttl_seconds)
    explanation = desk.ledger.views.explain(desk.key("task-1"))
    assert explanation.headline == "task-1 is ready and can be claimed now."
    assert bool(explanation.causes) is bool(ttl_seconds)


def test_the_line_is_counted_however_long_it_is(desk: Desk) -> None:
    served(desk)
    specs = [Spec(f"task-{number}", "worker") for number in range(1500)]
    desk.ledger.submit(specs, {spec.id for spec in specs})
    assert "1200 tasks of its role are ahead of it" in desk.causes("task-1200")


def test_a_task_that_was_cleaned_away_is_not_found(desk: Desk) -> None:
    key = desk.submit()
    desk.complete("task-1")
    desk.ledger.prune(desk.clock.now + 1, lambda _: None)
    with pytest.raises(NotFound):
        desk.ledger.views.explain(key)


def test_what_a_reopened_task_waits_for_is_told_anew(desk: Desk) -> None:
    desk.submit("parent")
    desk.submit(after=("parent",))
    desk.fail("parent")
    assert "its dependency parent is failed" in desk.causes()
    desk.ledger.requeue(desk.key("parent"), "boss")
    desk.ledger.requeue(desk.key("task-1"), "boss")
    assert "dependency parent is ready" in desk.causes()


def test_changes_requested_are_no_obstacle(desk: Desk) -> None:
    served(desk)
    _in_review(desk)
    desk.ledger.verdict(desk.key("task-1"), "boss", t.Ruling.CHANGES, "add tests")
    assert "can be claimed now" in desk.causes()
