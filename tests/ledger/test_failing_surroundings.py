"""Failures of the surroundings open circuits and use no attempt: of a provider, or of a role."""

from __future__ import annotations

import pytest

from agentq.contracts.doorbell import ROOM_TOPIC, role_topic
from agentq.core.circuits import PROBE_MS
from agentq.core.errors import Invalid, Refused, Stale
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Task
from agentq.ledger.circuits import Interruption
from tests.ledger.conftest import LedgerEnv

OVERLOADED = "529 overloaded_error"
MISSING = "the program claude is not installed"


def claim(env: LedgerEnv, count: int = 5, provider: str = "acme") -> list[str]:
    return [each.task.id for each in env.ledger.claim("worker", count, "ann", provider=provider)]


def interrupt(env: LedgerEnv, task_id: str, reason: str, provider: str = "") -> Task:
    key = env.key(task_id)
    said = Interruption(env.task(task_id).epoch, reason, provider)
    return env.ledger.interrupt(key, said, "ann")


def notified(env: LedgerEnv) -> list[str]:
    return [row[0] for row in env.sql("SELECT payload FROM outbox WHERE lane = 'notify'")]


@pytest.fixture
def busy(env: LedgerEnv) -> LedgerEnv:
    """Eight tasks, five of them under way."""
    env.ledger.open_lanes("notify")
    for number in range(8):
        env.submit(f"task-{number}")
    assert len(claim(env)) == 5
    return env


class TestProvider:
    def test_an_outage_uses_no_attempt_and_is_counted_once(self, busy: LedgerEnv) -> None:
        for number in range(5):
            task = interrupt(busy, f"task-{number}", OVERLOADED, "acme")
            assert (task.state, task.details.interruptions) == (State.PENDING, 1)
            assert (task.details.failures, task.details.crashes) == (0, 0)
        (row,) = busy.ledger.queries.circuits()
        assert (row.failures, row.open_until) == (1, busy.clock.now + 10_000)
        assert claim(busy) == []
        # People are told once.
        assert ["provider acme does not serve" in text for text in notified(busy)] == [True]

    @pytest.mark.parametrize("limits", [RoleLimits(), RoleLimits(max_running=9)])
    def test_one_probe_at_a_time(self, busy: LedgerEnv, limits: RoleLimits) -> None:
        busy.ledger.set_limits("worker", limits)
        interrupt(busy, "task-0", OVERLOADED, "acme")
        busy.clock.forward(10)
        assert claim(busy) == ["task-5"]
        assert claim(busy) == []
        (row,) = busy.ledger.queries.circuits()
        assert row.probing and "one task is out as a probe" in busy.causes("task-7")
        assert claim(busy, 1, provider="other") == ["task-6"]
        # It fails as well: twice as long. Then the next is out, and is served.
        interrupt(busy, "task-5", OVERLOADED, "acme")
        (row,) = busy.ledger.queries.circuits()
        assert (row.failures, row.open_until) == (2, busy.clock.now + 20_000)
        assert len(notified(busy)) == 1

    def test_a_probe_that_is_served_lets_all_in(self, busy: LedgerEnv) -> None:
        interrupt(busy, "task-0", OVERLOADED, "acme")
        assert not busy.ledger.circuits.reset("acme"), "it began before"
        busy.clock.forward(10)
        assert claim(busy, 3) == ["task-5"]
        busy.rung.clear()
        assert busy.ledger.circuits.reset("acme")
        assert set(busy.rung) == {role_topic("worker"), ROOM_TOPIC}
        assert not busy.ledger.circuits.reset("acme")
        assert busy.ledger.queries.circuits() == []
        busy.ledger.tick()
        assert claim(busy) == ["task-0", "task-6", "task-7"]
        # The next outage begins from the start.
        interrupt(busy, "task-6", OVERLOADED, "acme")
        assert busy.ledger.queries.circuits()[0].failures == 1

    def test_of_a_lost_probe_nobody_waits_for_ever(self, busy: LedgerEnv) -> None:
        interrupt(busy, "task-0", OVERLOADED, "acme")
        busy.clock.forward(10)
        assert claim(busy) == ["task-5"]
        busy.clock.forward(PROBE_MS // 1000)
        assert len(claim(busy)) == 1

    def test_without_a_ready_task_no_probe_is_used_up(self, env: LedgerEnv) -> None:
        env.submit("task-1")
        assert claim(env) == ["task-1"]
        interrupt(env, "task-1", OVERLOADED, "acme")
        env.clock.forward(9)
        assert claim(env) == []
        env.clock.forward(1)
        assert claim(env) == [], "it has not been made ready yet"
        env.ledger.tick()
        assert claim(env) == ["task-1"]

    def test_one_that_no_provider_can_bear_does_not_hold_up_the_others(
        self, env: LedgerEnv
    ) -> None:
        """A prompt that makes the provider fail each time: others are probes before it is again."""
        env.submit("poison")
        env.submit("good")
        assert claim(env, 1) == ["poison"]
        interrupt(env, "poison", "500", "acme")
        env.clock.forward(10)
        env.ledger.tick()
        assert claim(env, 1) == ["poison"]
        interrupt(env, "poison", "500", "acme")
        assert env.task("poison").details.not_before == env.clock.now + 20_000
        env.ledger.close_circuit("acme", "boss")
        assert claim(env, 1) == ["good"]

    def test_this_very_task_is_refused_or_the_probe(self, busy: LedgerEnv) -> None:
        interrupt(busy, "task-0", OVERLOADED, "acme")
        key = busy.key("task-6")
        with pytest.raises(Refused, match="provider acme has failed once and is asked again"):
            busy.ledger.claim_task(key, "ann", provider="acme")
        busy.clock.forward(10)
        assert busy.ledger.claim_task(key, "ann", provider="acme").task.epoch == 1
        with pytest.raises(Refused, match="one task is out as a probe"):
            busy.ledger.claim_task(busy.key("task-7"), "ann", provider="acme")

    def test_named_tasks_are_probes_too(self, busy: LedgerEnv) -> None:
        interrupt(busy, "task-0", OVERLOADED, "acme")
        ids = ["task-6", "task-7"]
        ledger = busy.ledger

        def named() -> list[str]:
            held = ledger.complete_and_claim([], "worker", 2, "ann", provider="acme", ids=ids)[1]
            return [each.task.id for each in held]

        assert named() == []
        busy.clock.forward(10)
        assert named() == ["task-6"]
        assert named() == []

    def test_quota_and_people_outrank_it(self, busy: LedgerEnv) -> None:
        until = busy.clock.now + 3_600_000
        busy.ledger.open_circuit("acme", until, "weekly limit", "ann")
        interrupt(busy, "task-0", OVERLOADED, "acme")
        (row,) = busy.ledger.queries.circuits()
        assert (row.open_until, row.failures, row.reason) == (until, 0, "weekly limit")
        # A person who closes one that waits for its probe closes it.
        busy.ledger.close_circuit("acme", "boss")
        interrupt(busy, "task-1", OVERLOADED, "acme")
        busy.clock.forward(10)
        assert busy.ledger.close_circuit("acme", "boss")
        assert len(claim(busy)) > 1

    def test_explain_says_how_often_it_failed(self, busy: LedgerEnv) -> None:
        interrupt(busy, "task-0", OVERLOADED, "acme")
        assert "provider acme has failed once and is asked again after" in busy.causes("task-7")
        busy.clock.forward(10)
        assert claim(busy) == ["task-5"]
        interrupt(busy, "task-5", OVERLOADED, "acme")
        assert "has failed 2 times in a row" in busy.causes("task-7")
        assert OVERLOADED in busy.causes("task-7")


class TestRole:
    def test_it_needs_a_person(self, busy: LedgerEnv) -> None:
        task = interrupt(busy, "task-0", MISSING)
        assert (task.state, task.details.interruptions, task.details.failures) == (
            State.READY, 1, 0,
        )  # fmt: skip
        # However long: time alone mends nothing.
        busy.clock.forward(7 * 24 * 3600)
        busy.ledger.tick()
        assert claim(busy) == claim(busy, provider="") == []
        assert [MISSING in text for text in notified(busy)] == [True]
        assert MISSING in busy.causes("task-7") and "has needed a person for 1w" in busy.causes(
            "task-7"
        )
        assert busy.ledger.queries.role_circuits()["worker"].reason == MISSING

    def test_the_others_that_were_under_way_say_nothing_new(self, busy: LedgerEnv) -> None:
        for number in range(5):
            interrupt(busy, f"task-{number}", MISSING)
        assert len(notified(busy)) == 1
        interrupt_again = Interruption(1, "another reason")
        with pytest.raises(Stale):
            busy.ledger.interrupt(busy.key("task-0"), interrupt_again, "ann")
        assert busy.ledger.queries.role_circuits()["worker"].reason == MISSING

    def test_another_reason_replaces_the_first(self, busy: LedgerEnv) -> None:
        interrupt(busy, "task-0", MISSING)
        opened = busy.ledger.queries.role_circuits()["worker"].opened_at
        busy.clock.forward(5)
        assert busy.ledger.circuits.open_role("worker", "no login", "bob")
        circuit = busy.ledger.queries.role_circuits()["worker"]
        assert (circuit.reason, circuit.opened_at, circuit.opened_by) == ("no login", opened, "bob")

    def test_closing_wakes_its_workers(self, busy: LedgerEnv) -> None:
        interrupt(busy, "task-0", MISSING)
        busy.rung.clear()
        assert busy.ledger.circuits.close_role("worker")
        assert set(busy.rung) == {role_topic("worker"), ROOM_TOPIC}
        assert not busy.ledger.circuits.close_role("worker")
        assert len(claim(busy)) == 4
        assert busy.ledger.queries.role_circuits() == {}

    def test_this_very_task_and_named_ones_are_refused(self, busy: LedgerEnv) -> None:
        interrupt(busy, "task-0", MISSING)
        with pytest.raises(Refused, match="role worker needs a person: the program claude") as it:
            busy.ledger.claim_task(busy.key("task-7"), "ann")
        assert it.value.code == "circuit_open" and "circuits close --role worker" in it.value.remedy
        held = busy.ledger.complete_and_claim([], "worker", 1, "ann", ids=["task-7"])[1]
        assert held == []

    def test_limits_set_meanwhile_do_not_close_it(self, busy: LedgerEnv) -> None:
        interrupt(busy, "task-0", MISSING)
        busy.ledger.set_limits("worker", RoleLimits(max_running=100))
        busy.clock.forward(60)
        assert claim(busy) == []
        assert busy.ledger.queries.role_circuits()["worker"].reason == MISSING

    def test_other_roles_go_on(self, busy: LedgerEnv) -> None:
        interrupt(busy, "task-0", MISSING)
        busy.submit("elsewhere-1", to="elsewhere")
        assert len(busy.ledger.claim("elsewhere", 1, "ann", provider="acme")) == 1


@pytest.mark.parametrize("provider", ["", "acme"])
def test_an_irreversible_task_is_blocked_as_always(env: LedgerEnv, provider: str) -> None:
    env.ledger.open_lanes("notify")
    env.submit("task-1", irreversible=True)
    env.approve("task-1")
    assert claim(env) == ["task-1"]
    task = interrupt(env, "task-1", MISSING, provider)
    assert (task.state, task.details.reason_kind) == (State.BLOCKED, "unknown_outcome")
    assert any("circuit_open" in text for text in notified(env))


@pytest.mark.parametrize(("reason", "provider"), [("x" * 4001, ""), ("\x00", ""), ("no", "a b")])
def test_what_the_log_cannot_keep_opens_nothing(env: LedgerEnv, reason: str, provider: str) -> None:
    env.submit("task-1")
    claim(env)
    before = env.snapshot()
    with pytest.raises(Invalid):
        interrupt(env, "task-1", reason, provider)
    assert env.snapshot() == before


def test_a_provider_that_never_failed_has_nothing_to_forget(env: LedgerEnv) -> None:
    assert not env.ledger.circuits.reset("acme")
