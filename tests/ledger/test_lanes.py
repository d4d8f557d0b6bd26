"""Lanes of one domain: each carrier has its own copy of an effect, and none delays another."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.core.effects import LANES, is_lane, lanes_of
from agentq.core.errors import Invalid
from agentq.core.states import State
from agentq.core.task import RUN_ROLE
from agentq.ledger.outbox import Outbox
from tests.ledger.conftest import LedgerEnv


def kinds(env: LedgerEnv, lane: str) -> list[str]:
    return [each["kind"] for each in env.effects(lane)]


def counts(env: LedgerEnv) -> dict[str, int]:
    return env.ledger.queries.stats().outbox


@pytest.fixture
def outbox(env: LedgerEnv) -> Outbox:
    return Outbox(env.store)


@pytest.mark.parametrize("lane", [*LANES, "notify:ops", "git:a.b-c_1"])
def test_lanes_may_have_a_name(lane: str) -> None:
    assert is_lane(lane)


@pytest.mark.parametrize("lane", ["", "pigeon", "notify:", "notify:two words", "notify:a:b", ":a"])
def test_other_words_are_no_lanes(lane: str) -> None:
    assert not is_lane(lane)


def test_lanes_are_found_by_their_domain() -> None:
    lanes = frozenset({"notify", "notify:b", "notify:a", "git"})
    assert lanes_of("notify", lanes) == ("notify", "notify:a", "notify:b")
    assert lanes_of("kanban", lanes) == ()


def test_each_carrier_has_a_copy_of_its_own(env: LedgerEnv, outbox: Outbox) -> None:
    assert outbox.carry("notify", ["ops", "lead"])
    env.submit("waits", requires_approval=True)  # when it is born,
    env.submit()
    env.fail("task-1", "broken")  # and later
    assert kinds(env, "notify:ops") == kinds(env, "notify:lead") == [
        "approval_wanted", "dead_letter"
    ]  # fmt: skip
    assert {"lane:notify:ops", "lane:notify:lead"} <= set(env.rung)
    # Settling one leaves the other.
    outbox.settle(outbox.batch("notify:ops", 10))
    assert counts(env) == {"notify:lead": 2}


def test_a_carrier_that_has_gone_leaves_nothing_behind(env: LedgerEnv, outbox: Outbox) -> None:
    outbox.carry("notify", ["ops", "lead"])
    env.ledger.open_lanes("delivery")
    env.submit(requires_approval=True)
    assert outbox.carry("notify", ["lead"])
    assert not outbox.carry("notify", ["lead"])  # nothing new
    assert counts(env) == {"notify:lead": 1}
    assert env.store.read(lambda reader: reader.lanes()) >= {"notify:lead", "delivery"}
    assert outbox.carry("notify", [])
    assert counts(env) == {}
    with pytest.raises(Invalid, match="cannot be the name of a lane"):
        outbox.carry("notify", ["two words"])


def test_what_is_held_comes_at_its_moment(env: LedgerEnv, outbox: Outbox) -> None:
    outbox.carry("notify", ["ops"])
    env.submit(requires_approval=True)
    (effect,) = outbox.batch("notify:ops", 10)
    outbox.settle([], [effect], env.clock() + 3_600_000)
    env.clock.forward(3599)
    assert outbox.batch("notify:ops", 10) == []
    env.clock.forward(1)
    (again,) = outbox.batch("notify:ops", 10)
    assert (again.id, again.tries) == (effect.id, 1)


def test_people_hear_of_circuits_that_no_attempt_has_opened(env: LedgerEnv, outbox: Outbox) -> None:
    outbox.carry("notify", ["ops"])
    assert env.ledger.circuits.open_role("worker", "no program", "ann")
    assert not env.ledger.circuits.open_role("worker", "no program", "ann")  # no news
    env.ledger.open_circuit("acme", env.clock() + 60_000, "quota", "ann")
    env.ledger.open_circuit("acme", env.clock() + 90_000, "quota", "ann")  # only longer
    role, provider = outbox.batch("notify:ops", 10)
    assert role.id != provider.id
    assert (role.task.id, role.task.to, role.task.state) == ("", "worker", State.PENDING)
    assert role.data["text"] == "role worker needs a person: no program"
    assert (provider.task.to, provider.data["kind"]) == ("", "circuit_open")
    assert "provider acme is out of quota" in provider.data["text"]
    assert "lane:notify:ops" in env.rung
    outbox.settle([role, provider])
    assert counts(env) == {}
    # Where nobody listens, nothing is stored.
    outbox.carry("notify", [])
    env.ledger.circuits.open_role("other", "no login", "ann")
    assert counts(env) == {}


def test_the_end_of_a_run_is_told_as_such(env: LedgerEnv) -> None:
    env.ledger.open_lanes("notify", "git")
    env.submit("run-1", to=RUN_ROLE)
    env.complete("run-1")
    env.submit("run-2", to=RUN_ROLE)
    env.fail("run-2", "a step failed")
    env.submit("run-3", to=RUN_ROLE)
    env.ledger.cancel(env.key("run-3"), "boss")
    assert kinds(env, "notify") == ["run_ended", "run_failed"]
    assert env.effects("git") == []  # its steps have done the work


def test_the_card_of_a_task_follows_its_states(env: LedgerEnv) -> None:
    env.ledger.open_lanes("kanban")
    env.submit("task-1", labels={"card": "board:7"})
    env.submit("task-2")  # was made from no card
    env.complete("task-1", "task-2")

    def moves() -> list[Any]:
        return [(each["card"], each["state"]) for each in env.effects("kanban")]

    assert moves() == [
        ("board:7", "ready"), ("board:7", "in_progress"), ("board:7", "complete")
    ]  # fmt: skip


def test_complete_work_is_offered(env: LedgerEnv) -> None:
    env.ledger.open_lanes("git")
    env.submit()
    env.complete("task-1")
    assert [(each["effect"], each["epoch"]) for each in env.effects("git")] == [("OfferWork", 1)]
