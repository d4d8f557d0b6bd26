"""A provider out of quota: nobody claims for it before its time, and everybody else goes on."""

from __future__ import annotations

import pytest

from agentq.contracts.doorbell import ROOM_TOPIC, role_topic
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.protocol.envelope import iso
from tests.ledger.conftest import Desk

HOUR = 3_600_000


def claim(desk: Desk, provider: str, count: int = 5, role: str = "worker") -> list[str]:
    held = desk.ledger.claim(role, count, "ann", provider=provider)
    return [each.task.id for each in held]


def open_for(desk: Desk, ms: int, provider: str = "acme", reason: str = "weekly limit") -> int:
    return desk.ledger.open_circuit(provider, desk.clock.now + ms, reason, "ann").open_until


@pytest.mark.parametrize("limits", [RoleLimits(), RoleLimits(max_running=9)])
def test_nothing_is_claimed_for_a_provider_while_its_circuit_is_open(
    desk: Desk, limits: RoleLimits
) -> None:
    desk.ledger.set_limits("worker", limits)
    desk.submit("task-1")
    open_for(desk, HOUR)
    assert claim(desk, "acme") == []
    # Its time over, it counts as closed; nobody has to say so.
    desk.clock.forward(3600)
    assert claim(desk, "acme") == ["task-1"]


def test_others_go_on(desk: Desk) -> None:
    desk.submit("task-1")
    desk.submit("task-2")
    open_for(desk, HOUR)
    assert claim(desk, "other", 1) == ["task-1"]
    assert claim(desk, "", 1) == ["task-2"]


def test_this_very_task_is_refused_with_the_time(desk: Desk) -> None:
    key = desk.submit("task-1")
    until = open_for(desk, HOUR)
    before = desk.snapshot()
    with pytest.raises(Refused) as caught:
        desk.ledger.claim_task(key, "ann", provider="acme")
    assert caught.value.code == "circuit_open"
    assert str(iso(until)) in caught.value.cause and "weekly limit" in caught.value.cause
    assert "circuits close acme" in caught.value.remedy
    assert desk.snapshot() == before
    assert desk.ledger.claim_task(key, "ann", provider="other").task.state is State.IN_PROGRESS


def test_it_is_extended_and_never_shortened(desk: Desk) -> None:
    long = open_for(desk, 2 * HOUR)
    assert open_for(desk, HOUR) == long
    assert open_for(desk, 3 * HOUR) == long + HOUR
    assert [row.open_until for row in desk.ledger.views.circuits()] == [long + HOUR]
    desk.clock.forward(3 * 3600)
    assert desk.ledger.views.circuits() == []


def test_closing_wakes_those_who_wait_for_that_provider(desk: Desk) -> None:
    desk.submit("task-1")
    desk.submit("task-2", to="elsewhere")
    assert claim(desk, "acme", 1) == ["task-1"]
    assert claim(desk, "other", 1, "elsewhere") == ["task-2"]
    open_for(desk, HOUR)
    desk.rung.clear()
    assert desk.ledger.close_circuit("acme", "boss")
    assert set(desk.rung) == {role_topic("worker"), ROOM_TOPIC}
    # A second time there is nothing to close, and nobody is woken.
    desk.rung.clear()
    assert not desk.ledger.close_circuit("acme", "boss")
    assert desk.rung == []


def test_explain_names_provider_time_and_remedy(desk: Desk) -> None:
    key = desk.submit("task-1")
    open_for(desk, HOUR)
    # Nobody has asked for the role yet, so nobody knows which provider serves it.
    assert "acme" not in desk.causes()
    assert claim(desk, "acme") == []
    explained = desk.ledger.views.explain(key)
    (cause, remedy), *_ = explained.causes
    assert "held back" in explained.headline
    assert "provider acme is out of quota until 2023-11-14T23:13:20.000Z (in 1h)" in cause
    assert "weekly limit" in cause
    assert "agentq circuits close acme" in remedy
    desk.ledger.close_circuit("acme", "boss")
    assert "acme" not in desk.causes()


def test_the_role_remembers_who_serves_it_without_a_write_per_claim(desk: Desk) -> None:
    def noted() -> str:
        return str(desk.sql("SELECT provider FROM roles WHERE name = 'worker'")[0][0])

    claim(desk, "")
    assert noted() == ""
    claim(desk, "acme")  # at once, since nothing is known
    assert noted() == "acme"
    claim(desk, "other")
    claim(desk, "")
    assert noted() == "acme"
    desk.clock.forward(31)
    claim(desk, "other")
    assert noted() == "other"


@pytest.mark.parametrize("provider", ["", "no spaces", "-x", "a" * 200])
def test_a_provider_has_a_name(desk: Desk, provider: str) -> None:
    with pytest.raises(Invalid):
        open_for(desk, HOUR, provider)
    with pytest.raises(Invalid):
        desk.ledger.close_circuit(provider, "boss")
    if provider:
        with pytest.raises(Invalid):
            claim(desk, provider)


@pytest.mark.parametrize("until", [0, -1, 10**18])
def test_no_circuit_is_open_for_ever(desk: Desk, until: int) -> None:
    with pytest.raises(Invalid, match="a year at most"):
        desk.ledger.open_circuit("acme", until, "", "ann")
    assert desk.ledger.views.circuits() == []


def test_a_moment_that_has_passed_opens_nothing(desk: Desk) -> None:
    desk.submit("task-1")
    open_for(desk, -1)
    assert desk.ledger.views.circuits() == []
    assert claim(desk, "acme") == ["task-1"]


def test_a_task_released_for_quota_waits_and_has_used_no_attempt(desk: Desk) -> None:
    # Given an attempt that met the provider's limit,
    held = desk.start("task-1") if desk.submit("task-1") else None
    assert held is not None
    resets_at = desk.clock.now + HOUR
    task = desk.ledger.release(held.key, 1, "quota", resets_at)
    # then the task waits for the reset,
    assert (task.state, task.memo.not_before) == (State.PENDING, resets_at)
    assert desk.claim() == []
    assert "may start in 1h" in desk.causes()
    desk.clock.forward(3600)
    desk.ledger.tick()
    # and nothing is held against it.
    assert desk.claim() == ["task-1"]
    memo = desk.task().memo
    assert (memo.failures, memo.crashes, memo.interruptions) == (0, 0, 1)
