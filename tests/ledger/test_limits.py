"""Limits hold at every commit: role concurrency, review WIP, pauses, exclusive resources."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.contracts.doorbell import role_topic
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Usage
from agentq.core.triggers import Report, Ruling
from tests.ledger.conftest import LedgerEnv


def refusal(env: LedgerEnv, task_id: str) -> Refused:
    with pytest.raises(Refused) as caught:
        env.start(task_id)
    return caught.value


def crowd(env: LedgerEnv, count: int, **fields: Any) -> list[str]:
    names = [f"task-{number}" for number in range(count)]
    for name in names:
        env.submit(name, **fields)
    return names


# -- how many at once --------------------------------------------------------------------------


def test_a_role_has_no_more_running_than_its_limit(env: LedgerEnv) -> None:
    env.ledger.set_limits("worker", RoleLimits(max_running=2))
    crowd(env, 5)
    # However it is asked for,
    assert env.claim(5) == ["task-0", "task-1"]
    assert env.claim(5, holder="bob") == []
    error = refusal(env, "task-2")
    assert error.code == "limit"
    assert "the limit is 2" in error.cause
    # the next starts only when one has ended.
    env.report("task-0")
    assert env.claim(5) == ["task-2"]


def test_limits_are_a_roles_own(env: LedgerEnv) -> None:
    env.ledger.set_limits("worker", RoleLimits(max_running=1))
    env.submit("task-1")
    env.submit("task-2", to="other")
    env.submit("task-3", to="other")
    assert env.claim(5) == ["task-1"]
    assert env.claim(5, role="other") == ["task-2", "task-3"]


@pytest.mark.parametrize("how", ["failed", "released", "blocked", "lease ended"])
def test_whoever_leaves_makes_room(env: LedgerEnv, how: str) -> None:
    env.ledger.set_limits("worker", RoleLimits(max_running=1))
    crowd(env, 2)
    held = env.start("task-0")
    match how:
        case "failed":
            env.ledger.fail(held.key, 1, "no")
        case "released":
            env.ledger.release(held.key, 1)
        case "blocked":
            env.ledger.block(held.key, 1, "?")
        case _:
            env.clock.forward(61)
            env.ledger.tick()
    assert env.start("task-1").task.state is State.IN_PROGRESS


def test_lowering_a_limit_stops_nobody_and_starts_nobody(env: LedgerEnv) -> None:
    crowd(env, 4)
    env.claim(3)
    env.ledger.set_limits("worker", RoleLimits(max_running=2))
    assert env.claim(1) == []
    env.report("task-0")
    assert env.claim(1) == []
    env.report("task-1")
    assert env.claim(1) == ["task-3"]


def test_a_limit_of_nothing_is_no_limit(env: LedgerEnv) -> None:
    env.ledger.set_limits("worker", RoleLimits(max_running=1))
    env.ledger.set_limits("worker", RoleLimits())
    assert len(crowd(env, 5)) == len(env.claim(5))


@pytest.mark.parametrize("limits", [RoleLimits(max_running=-1), RoleLimits(max_review=-1)])
def test_a_negative_limit_is_refused(env: LedgerEnv, limits: RoleLimits) -> None:
    with pytest.raises(Invalid):
        env.ledger.set_limits("worker", limits)


def test_limits_survive_being_seen(env: LedgerEnv) -> None:
    # A claim notes that the role is served; it must not note anything else.
    limits = RoleLimits(max_running=7, max_review=3)
    env.ledger.set_limits("worker", limits)
    env.claim(1)
    env.clock.forward(3600)
    env.claim(1)
    assert env.ledger.queries.limits()["worker"] == limits


# -- cancelled is not stopped ------------------------------------------------------------------


@pytest.mark.parametrize("ends_by", ["its word", "its lease"])
def test_a_cancelled_attempt_counts_until_it_has_stopped(env: LedgerEnv, ends_by: str) -> None:
    # Given a full role, when the running task is cancelled,
    env.ledger.set_limits("worker", RoleLimits(max_running=1))
    crowd(env, 2, resources=("repo",))
    key = env.start("task-0").key
    env.ledger.cancel(key, "boss")
    # then its agent may still be at it: neither its place nor its resource is free,
    assert env.claim(1) == []
    assert "limit" in env.causes("task-1")
    assert "repo is held by task-0" in env.causes("task-1")
    # until it says that it has stopped, or its lease is over.
    if ends_by == "its word":
        env.ledger.stopped(key, 1)
    else:
        env.clock.forward(61)
        env.ledger.tick()
    assert env.claim(1) == ["task-1"]


def test_cancelling_what_was_not_running_frees_nothing_and_blocks_nothing(env: LedgerEnv) -> None:
    env.ledger.set_limits("worker", RoleLimits(max_running=1))
    crowd(env, 2)
    env.ledger.cancel(env.key("task-0"), "boss")
    assert env.claim(1) == ["task-1"]


# -- reviews -----------------------------------------------------------------------------------


def test_work_in_review_holds_new_work_back(env: LedgerEnv) -> None:
    # Given a role whose reviewer may have two reports at a time,
    env.ledger.set_limits("worker", RoleLimits(max_review=2))
    crowd(env, 4, review=True)
    for name in ("task-0", "task-1"):
        env.start(name)
        env.report(name)
    # when two wait for a verdict, then nothing new is started,
    assert env.claim(5) == []
    assert "wait for review" in refusal(env, "task-2").cause
    # until one of them is judged.
    env.ledger.verdict(env.key("task-0"), "boss", Ruling.ACCEPT)
    assert env.claim(1) == ["task-2"]


def test_what_is_running_may_still_report_into_a_full_review(env: LedgerEnv) -> None:
    env.ledger.set_limits("worker", RoleLimits(max_review=1))
    crowd(env, 2, review=True)
    env.claim(2)
    for name in ("task-0", "task-1"):
        assert env.report(name).state is State.REVIEW


# -- pauses ------------------------------------------------------------------------------------


def test_a_paused_role_starts_nothing_and_loses_nothing(env: LedgerEnv) -> None:
    crowd(env, 2)
    key = env.start("task-0").key
    env.ledger.set_limits("worker", RoleLimits(paused=True))
    assert env.claim(5) == []
    assert "paused" in refusal(env, "task-1").cause
    # What runs may finish, and what is submitted is accepted.
    assert env.ledger.report(key, Report(1, "done")).state is State.COMPLETE
    env.submit("task-2")
    env.ledger.set_limits("worker", RoleLimits())
    assert env.claim(5) == ["task-1", "task-2"]


@pytest.mark.parametrize("before", [RoleLimits(paused=True), RoleLimits(max_running=1)])
def test_whoever_waits_is_woken_when_a_limit_is_lifted(env: LedgerEnv, before: RoleLimits) -> None:
    crowd(env, 2)
    env.ledger.set_limits("worker", before)
    env.rung.clear()
    env.ledger.set_limits("worker", RoleLimits())
    assert role_topic("worker") in env.rung


# -- exclusive resources -----------------------------------------------------------------------


def test_one_resource_one_task(env: LedgerEnv) -> None:
    crowd(env, 3, resources=("repo",))
    # However many are asked for at once, one gets it.
    assert env.claim(3) == ["task-0"]
    assert env.claim(3) == []
    error = refusal(env, "task-1")
    assert error.code == "resource_held"
    assert error.remedy
    env.report("task-0")
    assert env.claim(3) == ["task-1"]


def test_who_needs_a_held_resource_is_passed_over_not_waited_for(env: LedgerEnv) -> None:
    env.submit("holds", resources=("repo",))
    env.claim(1)
    env.submit("needs", resources=("repo",))
    env.submit("free")
    assert env.claim(1) == ["free"]


def test_all_of_the_resources_or_none(env: LedgerEnv) -> None:
    # Given a task that holds the second of two resources,
    env.submit("b", resources=("b",))
    env.start("b")
    env.submit("both", resources=("a", "b"))
    refusal(env, "both")
    # then whoever needs both has not taken the first.
    env.submit("a", resources=("a",))
    assert env.claim(5) == ["a"]
    env.report("a")
    env.report("b")
    assert env.claim(5) == ["both"]


@pytest.mark.parametrize("how", ["completed", "failed", "released", "blocked", "lease ended"])
def test_a_resource_is_free_when_custody_ends(env: LedgerEnv, how: str) -> None:
    crowd(env, 2, resources=("repo",))
    key = env.start("task-0").key
    match how:
        case "completed":
            env.report("task-0")
        case "failed":
            env.ledger.fail(key, 1, "no")
        case "released":
            env.ledger.release(key, 1)
        case "blocked":
            env.ledger.block(key, 1, "?")
        case _:
            env.clock.forward(61)
            env.ledger.tick()
    assert env.start("task-1").task.holder == "ann"


def test_a_resource_named_twice_is_needed_once(env: LedgerEnv) -> None:
    env.submit(resources=("repo", "repo"))
    assert env.start().task.state is State.IN_PROGRESS


def test_resources_are_shared_by_all_roles(env: LedgerEnv) -> None:
    env.submit("a", to="writer", resources=("repo",))
    env.submit("b", to="reader", resources=("repo",))
    assert env.claim(1, role="writer") == ["a"]
    assert env.claim(1, role="reader") == []


def test_an_expired_task_never_takes_its_resource(env: LedgerEnv) -> None:
    env.submit("old", resources=("repo",), ttl_seconds=60)
    env.submit("new", resources=("repo",))
    env.clock.forward(61)
    assert env.claim(1) == ["new"]
    assert env.state("old") is State.EXPIRED


# -- tasks that are named ----------------------------------------------------------------------


def named(env: LedgerEnv, *ids: str) -> list[str]:
    _, held = env.ledger.complete_and_claim([], "worker", 0, "ann", ids=ids)
    return [each.task.id for each in held]


def test_the_days_budget_holds_for_whoever_names_a_task(env: LedgerEnv) -> None:
    # Given a role that may spend five dollars a day,
    env.ledger.set_limits("worker", RoleLimits(daily=Usage(usd=5)))
    assert env.claim() == []
    env.submit("small", budget=Usage(usd=1))
    env.submit("large", budget=Usage(usd=9))
    env.submit("open")
    # then what may spend more is not started, by whatever name it is asked for.
    assert named(env, "large", "small") == ["small"]
    env.spend("small", 0.5)
    assert named(env, "large", "open") == ["open"]
    # Once the day's budget is spent nothing is.
    env.spend("open", 4.5)
    env.submit("more")
    assert named(env, "more", "large") == []
    assert env.claim(5) == []
    # A day later it is.
    env.clock.forward(24 * 3600)
    env.ledger.tick()
    assert named(env, "more") == ["more"]


def test_so_many_are_claimed_at_once_and_no_more(env: LedgerEnv) -> None:
    env.submit()
    for count in (0, -1, 10_001):
        with pytest.raises(Invalid, match="1 to 10000"):
            env.ledger.claim("worker", count, "ann")
        with pytest.raises(Invalid, match="1 to 10000"):
            env.ledger.complete_and_claim([], "worker", count, "ann")
    assert env.ledger.complete_and_claim([], "worker", 10_000, "ann")[1][0].task.id == "task-1"
