"""A provider out of quota: nobody claims for it before its time, and everybody else goes on."""

from __future__ import annotations

import pytest

from agentq.contracts.doorbell import ROOM_TOPIC, role_topic
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.protocol.envelope import iso
from tests.ledger.conftest import LedgerEnv

HOUR = 3_600_000


def claim(env: LedgerEnv, provider: str, count: int = 5, role: str = "worker") -> list[str]:
    held = env.ledger.claim(role, count, "ann", provider=provider)
    return [each.task.id for each in held]


def open_for(env: LedgerEnv, ms: int, provider: str = "acme", reason: str = "weekly limit") -> int:
    return env.ledger.open_circuit(provider, env.clock.now + ms, reason, "ann").open_until


@pytest.mark.parametrize("limits", [RoleLimits(), RoleLimits(max_running=9)])
def test_nothing_is_claimed_for_a_provider_while_its_circuit_is_open(
    env: LedgerEnv, limits: RoleLimits
) -> None:
    env.ledger.set_limits("worker", limits)
    env.submit("task-1")
    open_for(env, HOUR)
    assert claim(env, "acme") == []
    # Its time over, it counts as closed; nobody has to say so.
    env.clock.forward(3600)
    assert claim(env, "acme") == ["task-1"]


def test_others_go_on(env: LedgerEnv) -> None:
    env.submit("task-1")
    env.submit("task-2")
    open_for(env, HOUR)
    assert claim(env, "other", 1) == ["task-1"]
    assert claim(env, "", 1) == ["task-2"]


def test_this_very_task_is_refused_with_the_time(env: LedgerEnv) -> None:
    key = env.submit("task-1")
    until = open_for(env, HOUR)
    before = env.snapshot()
    with pytest.raises(Refused) as caught:
        env.ledger.claim_task(key, "ann", provider="acme")
    assert caught.value.code == "circuit_open"
    assert str(iso(until)) in caught.value.cause and "weekly limit" in caught.value.cause
    assert "circuits close acme" in caught.value.remedy
    assert env.snapshot() == before
    assert env.ledger.claim_task(key, "ann", provider="other").task.state is State.IN_PROGRESS


def test_it_is_extended_and_never_shortened(env: LedgerEnv) -> None:
    long = open_for(env, 2 * HOUR)
    assert open_for(env, HOUR) == long
    assert open_for(env, 3 * HOUR) == long + HOUR
    assert [row.open_until for row in env.ledger.queries.circuits()] == [long + HOUR]
    env.clock.forward(3 * 3600)
    assert env.ledger.queries.circuits() == []


def test_closing_wakes_those_who_wait_for_that_provider(env: LedgerEnv) -> None:
    env.submit("task-1")
    env.submit("task-2", to="elsewhere")
    assert claim(env, "acme", 1) == ["task-1"]
    assert claim(env, "other", 1, "elsewhere") == ["task-2"]
    open_for(env, HOUR)
    env.rung.clear()
    assert env.ledger.close_circuit("acme", "boss")
    assert set(env.rung) == {role_topic("worker"), ROOM_TOPIC}
    # A second time there is nothing to close, and nobody is woken.
    env.rung.clear()
    assert not env.ledger.close_circuit("acme", "boss")
    assert env.rung == []


def test_explain_names_provider_time_and_remedy(env: LedgerEnv) -> None:
    key = env.submit("task-1")
    open_for(env, HOUR)
    # Nobody has asked for the role yet, so nobody knows which provider serves it.
    assert "acme" not in env.causes()
    assert claim(env, "acme") == []
    explained = env.ledger.queries.explain(key)
    (cause, remedy), *_ = explained.causes
    assert "held back" in explained.headline
    assert "provider acme is out of quota until 2023-11-14T23:13:20.000Z (in 1h)" in cause
    assert "weekly limit" in cause
    assert "agentq circuits close acme" in remedy
    env.ledger.close_circuit("acme", "boss")
    assert "acme" not in env.causes()


def test_the_role_remembers_who_serves_it_without_a_write_per_claim(env: LedgerEnv) -> None:
    def noted() -> str:
        return str(env.sql("SELECT provider FROM roles WHERE name = 'worker'")[0][0])

    claim(env, "")
    assert noted() == ""
    claim(env, "acme")  # at once, since nothing is known
    assert noted() == "acme"
    claim(env, "other")
    claim(env, "")
    assert noted() == "acme"
    env.clock.forward(31)
    claim(env, "other")
    assert noted() == "other"


@pytest.mark.parametrize("provider", ["", "no spaces", "-x", "a" * 200])
def test_a_provider_has_a_name(env: LedgerEnv, provider: str) -> None:
    with pytest.raises(Invalid):
        open_for(env, HOUR, provider)
    with pytest.raises(Invalid):
        env.ledger.close_circuit(provider, "boss")
    if provider:
        with pytest.raises(Invalid):
            claim(env, provider)


@pytest.mark.parametrize("until", [0, -1, 10**18])
def test_no_circuit_is_open_for_ever(env: LedgerEnv, until: int) -> None:
    with pytest.raises(Invalid, match="a year at most"):
        env.ledger.open_circuit("acme", until, "", "ann")
    assert env.ledger.queries.circuits() == []


def test_a_moment_that_has_passed_opens_nothing(env: LedgerEnv) -> None:
    env.submit("task-1")
    open_for(env, -1)
    assert env.ledger.queries.circuits() == []
    assert claim(env, "acme") == ["task-1"]


def test_a_task_released_for_quota_waits_and_has_used_no_attempt(env: LedgerEnv) -> None:
    # Given an attempt that met the provider's limit,
    held = env.start("task-1") if env.submit("task-1") else None
    assert held is not None
    resets_at = env.clock.now + HOUR
    task = env.ledger.release(held.key, 1, "quota", resets_at)
    # then the task waits for the reset,
    assert (task.state, task.details.not_before) == (State.PENDING, resets_at)
    assert env.claim() == []
    assert "may start in 1h" in env.causes()
    env.clock.forward(3600)
    env.ledger.tick()
    # and nothing is held against it.
    assert env.claim() == ["task-1"]
    details = env.task().details
    assert (details.failures, details.crashes, details.interruptions) == (0, 0, 1)
