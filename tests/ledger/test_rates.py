"""Rates, and resources with several places: decided in the claim's own transaction."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from agentq.contracts.doorbell import ROOM_TOPIC, role_topic
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.rates import NO_RATE, Rate
from agentq.core.task import Usage
from agentq.core.triggers import Report
from agentq.core.values import replace
from agentq.stores.sqlite.transaction import SqliteTx
from tests.ledger.conftest import LedgerEnv

TEN_A_MINUTE = RoleLimits(rate=Rate(10, 60, burst=2))


def crowd(env: LedgerEnv, count: int, **fields: Any) -> list[str]:
    names = [f"task-{number}" for number in range(count)]
    for name in names:
        env.submit(name, **fields)
    return names


def refusal(env: LedgerEnv, task_id: str) -> Refused:
    with pytest.raises(Refused) as caught:
        env.start(task_id)
    return caught.value


class TestRateOfRole:
    def test_a_claim_takes_as_many_as_there_are_tokens(self, env: LedgerEnv) -> None:
        env.ledger.set_limits("worker", TEN_A_MINUTE)
        crowd(env, 6)
        assert env.claim(5) == ["task-0", "task-1"]
        assert env.claim(5) == []
        env.clock.forward(5.999)
        assert env.claim(5) == []
        env.clock.forward(0.001)
        assert env.claim(5) == ["task-2"]
        env.clock.forward(3600)
        assert env.claim(5) == ["task-3", "task-4"], "a bucket holds no more than its burst"

    def test_one_task_by_name_and_the_next_after_an_end_obey_too(self, env: LedgerEnv) -> None:
        env.ledger.set_limits("worker", TEN_A_MINUTE)
        crowd(env, 5)
        held = env.start("task-3")
        ended = [(held.key, Report(1, "done"))]
        _, more = env.ledger.complete_and_claim(ended, "worker", 3, "ann")
        assert [each.task.id for each in more] == ["task-0"]
        error = refusal(env, "task-1")
        assert error.code == "limit"
        assert "rate limit 10/1m, at most 2 at once of role worker: next at 2023-" in error.cause
        assert env.ledger.complete_and_claim([], "worker", 3, "ann", ids=["task-1"]) == ([], [])
        env.clock.forward(6)
        _, more = env.ledger.complete_and_claim([], "worker", 3, "ann", ids=["task-2", "task-1"])
        assert [each.task.id for each in more] == ["task-2"]

    def test_what_is_not_taken_costs_no_token(self, env: LedgerEnv) -> None:
        env.ledger.set_limits("worker", TEN_A_MINUTE)
        assert env.claim(5) == []
        env.submit("task-x", ttl_seconds=1)
        env.clock.forward(1)
        assert env.claim(5) == []
        crowd(env, 3)
        assert env.claim(5) == ["task-0", "task-1"]

    def test_explain_and_the_next_moment(self, env: LedgerEnv) -> None:
        env.ledger.set_limits("worker", TEN_A_MINUTE)
        crowd(env, 3)
        env.claim(2)
        leases = env.ledger.queries.next_wake()
        assert leases == env.clock.now + 6_000, "whoever waits wakes when the next may start"
        assert "rate limit 10/1m, at most 2 at once of role worker" in env.causes("task-2")
        assert "(in 6s)" in env.causes("task-2")
        env.clock.forward(6)
        assert env.ledger.queries.next_wake() > env.clock.now + 6_000, "and does not turn in place"
        assert "rate limit" not in env.causes("task-2")

    def test_other_limits_hold_beside_it(self, env: LedgerEnv) -> None:
        limits = replace(TEN_A_MINUTE, max_running=1, daily=Usage(usd=1))
        env.ledger.set_limits("worker", limits)
        crowd(env, 3)
        assert env.claim(5) == ["task-0"]
        env.report("task-0")
        assert env.claim(5) == ["task-1"]
        assert env.ledger.queries.limits()["worker"] == limits

    def test_a_clock_that_was_set_back(self, env: LedgerEnv) -> None:
        env.ledger.set_limits("worker", TEN_A_MINUTE)
        crowd(env, 6)
        env.claim(2)
        env.clock.forward(-3600)
        assert env.claim(5) == []
        env.clock.forward(6)
        assert env.claim(5) == ["task-2"], "nobody waits for the hour to pass again"

    def test_set_anew_it_keeps_what_is_there(self, env: LedgerEnv) -> None:
        env.ledger.set_limits("worker", TEN_A_MINUTE)
        crowd(env, 9)
        env.claim(2)
        env.ledger.set_limits("worker", replace(TEN_A_MINUTE, max_review=3))
        assert env.claim(5) == []
        env.ledger.set_limits("worker", RoleLimits(rate=Rate(1, 3600, burst=5)))
        assert env.claim(5) == [], "a person who wants more takes the rate away"
        env.ledger.set_limits("worker", RoleLimits())
        assert len(env.claim(5)) == 5
        assert env.sql("SELECT rate, level, next_at FROM roles WHERE name = 'worker'") == [
            ("", 0, 0)
        ]

    def test_what_is_no_rate_changes_nothing(self, env: LedgerEnv) -> None:
        env.ledger.set_limits("worker", TEN_A_MINUTE)
        for rate in (Rate(0, 5), Rate(5), Rate(1, 60, -2)):
            with pytest.raises(Invalid):
                env.ledger.set_limits("worker", RoleLimits(rate=rate))
        assert env.ledger.queries.limits()["worker"] == TEN_A_MINUTE


class TestResources:
    def test_so_many_hold_it_at_once(self, env: LedgerEnv) -> None:
        env.ledger.set_key_limits("gpu", KeyLimits(2))
        crowd(env, 4, resources=("gpu",))
        assert env.claim(3) == ["task-0", "task-1"]
        error = refusal(env, "task-2")
        assert error.code == "resource_held"
        assert "held by task-0, task-1, and at most 2 may hold it" in error.cause
        assert "resource gpu is held by task-0, task-1" in env.causes("task-2")
        env.rung.clear()
        env.report("task-0")
        assert {role_topic("worker"), ROOM_TOPIC} <= set(env.rung)
        assert env.claim(3) == ["task-2"]
        (place, _), _ = env.store.read(lambda reader: reader.resources(["gpu"]))[0].holders
        assert place == 0, "the place that was left"

    def test_somebody_else_may_be_faster(self, env: LedgerEnv) -> None:
        """Where a store says that the place was taken between the look and the hold."""
        crowd(env, 1, resources=("gpu",))
        with patch.object(SqliteTx, "hold_resources", return_value=False):
            assert refusal(env, "task-0").code == "resource_held"
        assert env.claim(1) == ["task-0"]

    def test_who_was_cancelled_and_has_not_stopped_still_counts(self, env: LedgerEnv) -> None:
        env.ledger.set_key_limits("gpu", KeyLimits(2))
        crowd(env, 3, resources=("gpu",))
        env.claim(2)
        env.ledger.cancel(env.key("task-0"), "boss")
        assert env.claim(1) == []
        env.ledger.stopped(env.key("task-0"), 1)
        assert env.claim(1) == ["task-2"]

    def test_fewer_places_than_are_held_stop_claims_until_enough_have_ended(
        self, env: LedgerEnv
    ) -> None:
        env.ledger.set_key_limits("gpu", KeyLimits(3))
        crowd(env, 5, resources=("gpu",))
        env.claim(3)
        env.ledger.set_key_limits("gpu", KeyLimits(1))
        for name in ("task-0", "task-1"):
            env.report(name)
            assert env.claim(3) == []
        env.report("task-2")
        assert env.claim(3) == ["task-3"]

    def test_more_places_wake_whoever_waits(self, env: LedgerEnv) -> None:
        crowd(env, 2, resources=("gpu",))
        assert env.claim(2) == ["task-0"]
        env.rung.clear()
        env.ledger.set_key_limits("gpu", KeyLimits(2))
        assert {role_topic("worker"), ROOM_TOPIC} <= set(env.rung)
        assert env.claim(2) == ["task-1"]
        env.rung.clear()
        env.ledger.set_key_limits("gpu", KeyLimits(2))
        assert env.rung == [], "they were so already"

    def test_a_rate_of_a_resource(self, env: LedgerEnv) -> None:
        env.ledger.set_key_limits("api", KeyLimits(9, Rate(2, 3600)))
        crowd(env, 4, resources=("api", "api"))
        env.submit("task-free")
        assert env.claim(9) == ["task-0", "task-1", "task-free"]
        assert env.claim(9) == []
        error = refusal(env, "task-2")
        assert error.code == "limit" and "rate limit 2/1h of resource api" in error.cause
        assert "rate limit 2/1h of resource api: next at 2023-" in env.causes("task-2")
        (key,) = env.ledger.queries.key_limits().values()
        assert (key.holders, key.free) == (("task-0", "task-1"), 0)
        assert key.next_at == env.clock.now + 1_800_000
        env.clock.forward(1_800)
        assert env.claim(9) == ["task-2"]

    def test_the_moment_of_a_resource_is_waited_for(self, env: LedgerEnv) -> None:
        env.ledger.set_key_limits("api", KeyLimits(9, Rate(1, 20)))
        crowd(env, 2, resources=("api",))
        env.claim(1)
        assert env.ledger.queries.next_wake() == env.clock.now + 20_000

    def test_under_a_clock_that_was_set_back(self, env: LedgerEnv) -> None:
        env.ledger.set_key_limits("api", KeyLimits(9, Rate(1, 20)))
        crowd(env, 3, resources=("api",))
        env.claim(1)
        env.clock.forward(-3600)
        assert env.claim(1) == []
        env.clock.forward(20)
        assert env.claim(2) == ["task-1"]

    @pytest.mark.parametrize(
        ("key", "limits"),
        [
            ("", KeyLimits(2)),
            ("two\nlines", KeyLimits(2)),
            ("gpu", KeyLimits(0)),
            ("gpu", KeyLimits(1_000_001)),
            ("gpu", KeyLimits(True)),
            ("gpu", KeyLimits(2, Rate(0, 1))),
        ],
    )
    def test_what_cannot_be_set_changes_nothing(
        self, env: LedgerEnv, key: str, limits: KeyLimits
    ) -> None:
        with pytest.raises(Invalid):
            env.ledger.set_key_limits(key, limits)
        assert env.ledger.queries.key_limits() == {}


def test_roles_and_tasks_without_limits_ask_for_no_more(
    env: LedgerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever uses none of this pays nothing for it."""
    env.ledger.set_key_limits("gpu", KeyLimits(2, Rate(1, 60)))
    crowd(env, 3)
    env.claim(1)
    asked: list[str] = []
    real = type(env.store._tx)._all

    def note(self: object, name: str, *rest: object) -> object:
        asked.append(name)
        return real(self, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(type(env.store._tx), "_all", note)
    assert env.claim(1) == ["task-1"]
    assert asked == ["role", "pick"]
    assert env.ledger.queries.limits()["worker"].rate == NO_RATE
