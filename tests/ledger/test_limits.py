"""Limits hold at every commit: role concurrency, review WIP, pauses, exclusive resources."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.contracts.doorbell import role_topic
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Amounts
from agentq.core.triggers import Report, Ruling
from tests.ledger.conftest import Desk


def refusal(desk: Desk, task_id: str) -> Refused:
    with pytest.raises(Refused) as caught:
        desk.start(task_id)
    return caught.value


def crowd(desk: Desk, count: int, **fields: Any) -> list[str]:
    names = [f"task-{number}" for number in range(count)]
    for name in names:
        desk.submit(name, **fields)
    return names


# -- how many at once --------------------------------------------------------------------------


def test_a_role_has_no_more_running_than_its_limit(desk: Desk) -> None:
    desk.ledger.set_limits("worker", RoleLimits(max_running=2))
    crowd(desk, 5)
    # However it is asked for,
    assert desk.claim(5) == ["task-0", "task-1"]
    assert desk.claim(5, holder="bob") == []
    error = refusal(desk, "task-2")
    assert error.code == "limit"
    assert "the limit is 2" in error.cause
    # the next starts only when one has ended.
    desk.report("task-0")
    assert desk.claim(5) == ["task-2"]


def test_limits_are_a_roles_own(desk: Desk) -> None:
    desk.ledger.set_limits("worker", RoleLimits(max_running=1))
    desk.submit("task-1")
    desk.submit("task-2", to="other")
    desk.submit("task-3", to="other")
    assert desk.claim(5) == ["task-1"]
    assert desk.claim(5, role="other") == ["task-2", "task-3"]


@pytest.mark.parametrize("how", ["failed", "released", "blocked", "lease ended"])
def test_whoever_leaves_makes_room(desk: Desk, how: str) -> None:
    desk.ledger.set_limits("worker", RoleLimits(max_running=1))
    crowd(desk, 2)
    held = desk.start("task-0")
    match how:
        case "failed":
            desk.ledger.fail(held.key, 1, "no")
        case "released":
            desk.ledger.release(held.key, 1)
        case "blocked":
            desk.ledger.block(held.key, 1, "?")
        case _:
            desk.clock.forward(61)
            desk.ledger.tick()
    assert desk.start("task-1").task.state is State.IN_PROGRESS


def test_lowering_a_limit_stops_nobody_and_starts_nobody(desk: Desk) -> None:
    crowd(desk, 4)
    desk.claim(3)
    desk.ledger.set_limits("worker", RoleLimits(max_running=2))
    assert desk.claim(1) == []
    desk.report("task-0")
    assert desk.claim(1) == []
    desk.report("task-1")
    assert desk.claim(1) == ["task-3"]


def test_a_limit_of_nothing_is_no_limit(desk: Desk) -> None:
    desk.ledger.set_limits("worker", RoleLimits(max_running=1))
    desk.ledger.set_limits("worker", RoleLimits())
    assert len(crowd(desk, 5)) == len(desk.claim(5))


@pytest.mark.parametrize("limits", [RoleLimits(max_running=-1), RoleLimits(max_review=-1)])
def test_a_negative_limit_is_refused(desk: Desk, limits: RoleLimits) -> None:
    with pytest.raises(Invalid):
        desk.ledger.set_limits("worker", limits)


def test_limits_survive_being_seen(desk: Desk) -> None:
    # A claim notes that the role is served; it must not note anything else.
    limits = RoleLimits(max_running=7, max_review=3)
    desk.ledger.set_limits("worker", limits)
    desk.claim(1)
    desk.clock.forward(3600)
    desk.claim(1)
    assert desk.ledger.views.limits()["worker"] == limits


# -- cancelled is not stopped ------------------------------------------------------------------


@pytest.mark.parametrize("ends_by", ["its word", "its lease"])
def test_a_cancelled_attempt_counts_until_it_has_stopped(desk: Desk, ends_by: str) -> None:
    # Given a full role, when the running task is cancelled,
    desk.ledger.set_limits("worker", RoleLimits(max_running=1))
    crowd(desk, 2, resources=("repo",))
    key = desk.start("task-0").key
    desk.ledger.cancel(key, "boss")
    # then its agent may still be at it: neither its place nor its resource is free,
    assert desk.claim(1) == []
    assert "limit" in desk.causes("task-1")
    assert "repo is held by task-0" in desk.causes("task-1")
    # until it says that it has stopped, or its lease is over.
    if ends_by == "its word":
        desk.ledger.stopped(key, 1)
    else:
        desk.clock.forward(61)
        desk.ledger.tick()
    assert desk.claim(1) == ["task-1"]


def test_cancelling_what_was_not_running_frees_nothing_and_blocks_nothing(desk: Desk) -> None:
    desk.ledger.set_limits("worker", RoleLimits(max_running=1))
    crowd(desk, 2)
    desk.ledger.cancel(desk.key("task-0"), "boss")
    assert desk.claim(1) == ["task-1"]


# -- reviews -----------------------------------------------------------------------------------


def test_work_in_review_holds_new_work_back(desk: Desk) -> None:
    # Given a role whose reviewer may have two reports at a time,
    desk.ledger.set_limits("worker", RoleLimits(max_review=2))
    crowd(desk, 4, review=True)
    for name in ("task-0", "task-1"):
        desk.start(name)
        desk.report(name)
    # when two wait for a verdict, then nothing new is started,
    assert desk.claim(5) == []
    assert "wait for review" in refusal(desk, "task-2").cause
    # until one of them is judged.
    desk.ledger.verdict(desk.key("task-0"), "boss", Ruling.ACCEPT)
    assert desk.claim(1) == ["task-2"]


def test_what_is_running_may_still_report_into_a_full_review(desk: Desk) -> None:
    desk.ledger.set_limits("worker", RoleLimits(max_review=1))
    crowd(desk, 2, review=True)
    desk.claim(2)
    for name in ("task-0", "task-1"):
        assert desk.report(name).state is State.REVIEW


# -- pauses ------------------------------------------------------------------------------------


def test_a_paused_role_starts_nothing_and_loses_nothing(desk: Desk) -> None:
    crowd(desk, 2)
    key = desk.start("task-0").key
    desk.ledger.set_limits("worker", RoleLimits(paused=True))
    assert desk.claim(5) == []
    assert "paused" in refusal(desk, "task-1").cause
    # What runs may finish, and what is submitted is accepted.
    assert desk.ledger.report(key, Report(1, "done")).state is State.COMPLETE
    desk.submit("task-2")
    desk.ledger.set_limits("worker", RoleLimits())
    assert desk.claim(5) == ["task-1", "task-2"]


@pytest.mark.parametrize("before", [RoleLimits(paused=True), RoleLimits(max_running=1)])
def test_whoever_waits_is_woken_when_a_limit_is_lifted(desk: Desk, before: RoleLimits) -> None:
    crowd(desk, 2)
    desk.ledger.set_limits("worker", before)
    desk.rung.clear()
    desk.ledger.set_limits("worker", RoleLimits())
    assert role_topic("worker") in desk.rung


# -- exclusive resources -----------------------------------------------------------------------


def test_one_resource_one_task(desk: Desk) -> None:
    crowd(desk, 3, resources=("repo",))
    # However many are asked for at once, one gets it.
    assert desk.claim(3) == ["task-0"]
    assert desk.claim(3) == []
    error = refusal(desk, "task-1")
    assert error.code == "resource_held"
    assert error.remedy
    desk.report("task-0")
    assert desk.claim(3) == ["task-1"]


def test_who_needs_a_held_resource_is_passed_over_not_waited_for(desk: Desk) -> None:
    desk.submit("holds", resources=("repo",))
    desk.claim(1)
    desk.submit("needs", resources=("repo",))
    desk.submit("free")
    assert desk.claim(1) == ["free"]


def test_all_of_the_resources_or_none(desk: Desk) -> None:
    # Given a task that holds the second of two resources,
    desk.submit("b", resources=("b",))
    desk.start("b")
    desk.submit("both", resources=("a", "b"))
    refusal(desk, "both")
    # then whoever needs both has not taken the first.
    desk.submit("a", resources=("a",))
    assert desk.claim(5) == ["a"]
    desk.report("a")
    desk.report("b")
    assert desk.claim(5) == ["both"]


@pytest.mark.parametrize("how", ["completed", "failed", "released", "blocked", "lease ended"])
def test_a_resource_is_free_when_custody_ends(desk: Desk, how: str) -> None:
    crowd(desk, 2, resources=("repo",))
    key = desk.start("task-0").key
    match how:
        case "completed":
            desk.report("task-0")
        case "failed":
            desk.ledger.fail(key, 1, "no")
        case "released":
            desk.ledger.release(key, 1)
        case "blocked":
            desk.ledger.block(key, 1, "?")
        case _:
            desk.clock.forward(61)
            desk.ledger.tick()
    assert desk.start("task-1").task.holder == "ann"


def test_a_resource_named_twice_is_needed_once(desk: Desk) -> None:
    desk.submit(resources=("repo", "repo"))
    assert desk.start().task.state is State.IN_PROGRESS


def test_resources_are_shared_by_all_roles(desk: Desk) -> None:
    desk.submit("a", to="writer", resources=("repo",))
    desk.submit("b", to="reader", resources=("repo",))
    assert desk.claim(1, role="writer") == ["a"]
    assert desk.claim(1, role="reader") == []


def test_an_expired_task_never_takes_its_resource(desk: Desk) -> None:
    desk.submit("old", resources=("repo",), ttl_seconds=60)
    desk.submit("new", resources=("repo",))
    desk.clock.forward(61)
    assert desk.claim(1) == ["new"]
    assert desk.state("old") is State.EXPIRED


# -- tasks that are named ----------------------------------------------------------------------


def named(desk: Desk, *ids: str) -> list[str]:
    _, held = desk.ledger.claim_named(ids, "worker", "ann")
    return [each.task.id for each in held]


def test_the_days_budget_holds_for_whoever_names_a_task(desk: Desk) -> None:
    # Given a role that may spend five dollars a day,
    desk.ledger.set_limits("worker", RoleLimits(daily=Amounts(usd=5)))
    assert desk.claim() == []
    desk.submit("small", budget=Amounts(usd=1))
    desk.submit("large", budget=Amounts(usd=9))
    desk.submit("open")
    # then what may spend more is not started, by whatever name it is asked for.
    assert named(desk, "large", "small") == ["small"]
    desk.spend("small", 0.5)
    assert named(desk, "large", "open") == ["open"]
    # Once the day's budget is spent nothing is.
    desk.spend("open", 4.5)
    desk.submit("more")
    assert named(desk, "more", "large") == []
    assert desk.claim(5) == []
    # A day later it is.
    desk.clock.forward(24 * 3600)
    desk.ledger.tick()
    assert named(desk, "more") == ["more"]


def test_so_many_are_claimed_at_once_and_no_more(desk: Desk) -> None:
    desk.submit()
    for count in (0, -1, 10_001):
        with pytest.raises(Invalid, match="1 to 10000"):
            desk.ledger.claim("worker", count, "ann")
        with pytest.raises(Invalid, match="1 to 10000"):
            desk.ledger.turn_over([], "worker", count, "ann")
    assert desk.ledger.turn_over([], "worker", 10_000, "ann")[1][0].task.id == "task-1"
