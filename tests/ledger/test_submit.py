"""Accepting work: one, many or a graph, all or none, and what was asked comes back unchanged."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given

from agentq.contracts.doorbell import EVENTS_TOPIC, lane_topic, role_topic
from agentq.core.digests import body_digest, spec_digest
from agentq.core.errors import AgentqError, Conflict, Invalid, Stale
from agentq.core.limits import BATCH_MAX
from agentq.core.states import State
from agentq.core.task import Priority, Spec, Usage
from agentq.core.values import replace
from agentq.ledger.codec import decode_spec, encode_spec
from agentq.ledger.ledger import Ledger
from agentq.protocol.spec_validation import check_spec
from tests.core.drawn import any_specs, sound_specs
from tests.ledger.conftest import NOW, LedgerEnv

# -- one ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("generated", [(), ("task-1",)], ids=["named", "generated"])
def test_a_task_is_accepted_and_claimable(env: LedgerEnv, generated: tuple[str, ...]) -> None:
    # Given a spec, whether its id was chosen or made up,
    spec = Spec("task-1", "worker", instructions="do it")
    # when it is submitted, then it is ready and in the ledger as it was sent.
    (submitted,) = env.ledger.submit([spec], generated)
    assert submitted.created
    assert (submitted.task.state, submitted.task.version) == (State.READY, 1)
    assert env.task() == submitted.task
    assert env.task().spec == spec
    assert env.task().submitted_at == NOW
    assert env.kinds() == ["submitted"]


@pytest.mark.parametrize("generated", [(), ("task-1",)], ids=["named", "generated"])
def test_whoever_waits_is_woken(env: LedgerEnv, generated: tuple[str, ...]) -> None:
    env.ledger.submit([Spec("task-1", "worker")], generated)
    assert set(env.rung) == {role_topic("worker"), EVENTS_TOPIC}
    env.rung.clear()
    env.ledger.open_lanes("delivery")
    env.ledger.submit([Spec("task-2", "worker")], {"task-2"})
    assert set(env.rung) == {role_topic("worker"), lane_topic("delivery"), EVENTS_TOPIC}


def test_a_task_that_waits_wakes_no_worker(env: LedgerEnv) -> None:
    env.submit(delay_seconds=60)
    assert role_topic("worker") not in env.rung


def test_a_role_nobody_serves_is_a_queue_like_any_other(env: LedgerEnv) -> None:
    env.submit(to="nobody-yet")
    assert env.claim(role="nobody-yet") == ["task-1"]


@given(sound_specs)
def test_a_spec_survives_storage(spec: Spec) -> None:
    stored = decode_spec(encode_spec(spec))
    assert stored == spec
    # And with it what an approval binds to and what idempotency compares.
    assert spec_digest(stored) == spec_digest(spec)
    assert body_digest(stored) == body_digest(spec)


@given(any_specs)
def test_whatever_is_accepted_can_be_read_back(spec: Spec) -> None:
    # A row that nobody can read would stop every claim and every list of its role.
    with suppress(AgentqError):
        check_spec(spec)
        assert decode_spec(encode_spec(spec)) == spec


# -- many --------------------------------------------------------------------------------------


def test_many_are_one_transaction_and_answered_in_order(env: LedgerEnv) -> None:
    specs = [Spec(f"task-{n}", "worker") for n in range(250)]
    done = env.ledger.submit(specs)
    assert [each.task.spec for each in done] == specs
    assert env.claim(1000) == [spec.id for spec in specs]


def test_nothing_is_submitted_by_nothing(ledger: Ledger) -> None:
    assert ledger.submit([]) == []


def test_a_batch_is_bounded(ledger: Ledger) -> None:
    with pytest.raises(Invalid, match=str(BATCH_MAX)):
        ledger.submit([Spec("task-1", "worker")] * (BATCH_MAX + 1))


@pytest.mark.parametrize(
    "bad",
    [
        Spec("no good", "worker"),
        Spec("task-9", "worker", ttl_seconds=-1),
        Spec("task-9", "worker", after=("task-404",)),
        Spec("task-9", "worker", after=("task-9",)),
        Spec("taken", "worker", title="another body"),
    ],
    ids=["id", "number", "dependency", "itself", "taken"],
)
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_one_bad_task_and_nothing_is_submitted(env: LedgerEnv, bad: Spec, first: bool) -> None:
    env.submit("taken")
    before = env.snapshot()
    good = [Spec(f"task-{n}", "worker") for n in range(3)]
    with pytest.raises(AgentqError) as refusal:
        env.ledger.submit([bad, *good] if first else [*good, bad])
    assert refusal.value.cause
    assert env.snapshot() == before


def test_the_same_spec_twice_in_a_batch_is_one_task(env: LedgerEnv) -> None:
    spec = Spec("task-1", "worker")
    first, second = env.ledger.submit([spec, replace(spec)])
    assert first.task == second.task
    assert env.kinds() == ["submitted"]


def test_one_id_for_two_bodies_in_a_batch_is_a_conflict(env: LedgerEnv) -> None:
    with pytest.raises(Conflict, match="twice in this batch"):
        env.ledger.submit([Spec("task-1", "worker"), Spec("task-1", "worker", title="other")])
    assert env.snapshot() == open_snapshot(env)


def open_snapshot(env: LedgerEnv) -> object:
    """What an empty ledger looks like."""
    tables = env.snapshot()
    assert isinstance(tables, dict)
    return {table: [] for table in tables}


# -- an id that is taken -----------------------------------------------------------------------


def test_the_same_id_and_body_is_the_same_task(env: LedgerEnv) -> None:
    # Given a submission whose answer was lost, when it is sent again,
    env.submit(title="Fix it")
    env.start()
    (again,) = env.ledger.submit([Spec("task-1", "worker", title="Fix it")])
    # then it is recognised, as it stands by now.
    assert not again.created
    assert again.task.state is State.IN_PROGRESS
    assert len(env.ledger.queries.events_after(0)) == 2


def test_a_generated_id_sent_again_is_recognised_too(env: LedgerEnv) -> None:
    spec = Spec("task-1", "worker", budget=Usage(usd=1), labels={"b": "1", "a": "2"})
    (first,) = env.ledger.submit([spec], {"task-1"})
    (again,) = env.ledger.submit([replace(spec)], {"task-1"})
    assert (first.created, again.created) == (True, False)
    assert again.task.id == "task-1"


def test_the_same_id_and_another_body_is_a_conflict(env: LedgerEnv) -> None:
    env.submit(title="Fix it")
    before = env.snapshot()
    with pytest.raises(Conflict, match="task-1") as refusal:
        env.submit(title="Break it")
    assert refusal.value.remedy
    assert env.snapshot() == before


def test_a_batch_of_old_and_new_says_which_is_which(env: LedgerEnv) -> None:
    env.submit("old")
    done = env.ledger.submit([Spec("new", "worker"), Spec("old", "worker")])
    assert [each.created for each in done] == [True, False]


# -- graphs ------------------------------------------------------------------------------------


def test_a_graph_may_be_given_in_any_order(env: LedgerEnv) -> None:
    env.submit_many(
        Spec("test", "worker", after=("build",)),
        Spec("deploy", "worker", after=("test", "build")),
        Spec("build", "worker"),
    )
    assert env.states("build", "test", "deploy") == [State.READY, State.PENDING, State.PENDING]


def test_a_cycle_is_refused_by_name_and_nothing_is_submitted(env: LedgerEnv) -> None:
    with pytest.raises(Invalid, match="a after b after a") as refusal:
        env.submit_many(Spec("a", "worker", after=("b",)), Spec("b", "worker", after=("a",)))
    assert refusal.value.code == "cycle"
    assert env.snapshot() == open_snapshot(env)


def test_an_unknown_dependency_is_named(env: LedgerEnv) -> None:
    with pytest.raises(Invalid, match=r"task-404, task-405") as refusal:
        env.submit(after=("task-405", "task-404"))
    assert refusal.value.code == "unknown_dependency"
    assert env.snapshot() == open_snapshot(env)


def test_priorities_are_claimed_in_their_order_then_first_come(env: LedgerEnv) -> None:
    for number, word in enumerate(["low", "normal", "urgent", "high", "normal", "urgent"]):
        env.submit(f"task-{number}-{word}", priority=Priority(word))
    assert env.claim(10) == [
        "task-2-urgent", "task-5-urgent", "task-3-high", "task-1-normal", "task-4-normal",
        "task-0-low",
    ]  # fmt: skip


# -- submitted by an attempt -------------------------------------------------------------------


def test_an_attempt_may_submit_while_it_holds_its_task(env: LedgerEnv) -> None:
    held = env.ledger.claim_task(env.submit("parent"), "ann")
    env.ledger.submit([Spec("child", "worker")], fence=(held.key, 1))
    assert env.state("child") is State.READY


@pytest.mark.parametrize("generated", [(), ("child",)], ids=["named", "generated"])
def test_a_fenced_out_attempt_submits_nothing(env: LedgerEnv, generated: tuple[str, ...]) -> None:
    # Given a worker that slept past its lease,
    held = env.ledger.claim_task(env.submit("parent"), "ann")
    env.clock.forward(61)
    env.ledger.tick()
    before = env.snapshot()
    # when it wakes and submits a child, then it is refused and nothing is there.
    with pytest.raises(Stale):
        env.ledger.submit([Spec("child", "worker")], generated, fence=(held.key, 1))
    assert env.snapshot() == before
