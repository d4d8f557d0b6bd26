"""Effects leave by the outbox: with their commit or not at all, at least once, by stable ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agentq.contracts.store import Tx
from agentq.core import triggers as t
from agentq.core.effects import LANES
from agentq.core.errors import Invalid, Refused
from agentq.core.states import State
from agentq.core.task import Spec, Usage
from tests.contracts.rows import waiting_effects
from tests.ledger.conftest import LedgerEnv
from tests.ledger_verbs import VerbLedger


@pytest.fixture
def open_lanes(ledger: VerbLedger) -> None:
    ledger.open_lanes(*LANES)


def counts(env: LedgerEnv) -> dict[str, int]:
    return env.ledger.queries.stats().outbox


# -- what is stored ----------------------------------------------------------------------------


@pytest.mark.usefixtures("open_lanes")
@pytest.mark.parametrize("generated", [(), ("task-1",)], ids=["named", "generated"])
def test_a_ready_task_is_announced(env: LedgerEnv, generated: tuple[str, ...]) -> None:
    env.ledger.submit([Spec("task-1", "worker")], generated)
    assert env.effects("delivery") == [
        {"effect": "Announce", "task_id": "task-1", "role": "worker"}
    ]


@pytest.mark.usefixtures("open_lanes")
def test_the_outcome_goes_back_to_whoever_asked_and_the_result_is_published(env: LedgerEnv) -> None:
    env.submit(reply_to="results.boss")
    env.start()
    env.report(summary="all green", result="result.md", result_sha256="f" * 64)
    assert env.effects("reply") == [
        {
            "effect": "Reply", "task_id": "task-1", "reply_to": "results.boss",
            "status": "completed", "summary": "all green",
        }
    ]  # fmt: skip
    assert env.effects("results") == [
        {
            "effect": "PublishResult", "task_id": "task-1", "epoch": 1, "name": "result.md",
            "sha256": "f" * 64,
        }
    ]  # fmt: skip


@pytest.mark.usefixtures("open_lanes")
def test_a_holder_is_told_to_stop(env: LedgerEnv) -> None:
    env.submit()
    env.start()
    env.ledger.cancel(env.key("task-1"), "boss")
    assert env.effects("delivery")[-1] == {
        "effect": "StopHolder", "task_id": "task-1", "holder": "ann", "epoch": 1
    }  # fmt: skip


@pytest.mark.usefixtures("open_lanes")
def test_people_are_told_what_waits_for_them(env: LedgerEnv) -> None:
    env.submit("approve", requires_approval=True, title="Deploy")
    held = env.ledger.claim_task(env.submit("ask"), "ann")
    env.ledger.block(held.key, 1, "which branch?")
    env.submit("dead")
    env.fail("dead", "broken")
    assert [(each["kind"], each["text"]) for each in env.effects("notify")] == [
        ("approval_wanted", "Deploy"), ("blocked", "which branch?"), ("dead_letter", "broken")
    ]  # fmt: skip


def test_a_closed_lane_stores_nothing(env: LedgerEnv) -> None:
    # Only results are carried out from the start.
    env.submit(reply_to="results.boss")
    env.complete("task-1")
    assert counts(env) == {}
    env.ledger.open_lanes("delivery")
    env.submit("task-2")
    env.ledger.close_lanes("delivery")
    env.submit("task-3")
    assert [effect["task_id"] for effect in env.effects("delivery")] == ["task-2"]


def test_an_unknown_lane_is_refused(ledger: VerbLedger) -> None:
    with pytest.raises(Invalid, match="carrier-pigeon"):
        ledger.open_lanes("carrier-pigeon")


def test_a_lane_opened_while_a_task_is_being_submitted_misses_nothing(
    env: LedgerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a submitter that is about to begin, when a lane is opened just before it does,
    write = env.store.write

    def and_first_a_lane_is_opened(change: Callable[[Tx], Any], *, durable: bool = True) -> Any:
        monkeypatch.undo()
        env.ledger.open_lanes("delivery")
        return write(change, durable=durable)

    monkeypatch.setattr(env.store, "write", and_first_a_lane_is_opened)
    env.ledger.submit([Spec("task-1", "worker")], {"task-1"})
    # then the task, which commits after that, is announced.
    assert len(env.effects("delivery")) == 1


# -- only with the commit ----------------------------------------------------------------------


class PowerCut(Exception):
    """Whatever may happen before a commit."""


@pytest.mark.usefixtures("open_lanes")
def test_nothing_leaves_from_a_transaction_that_was_rolled_back(env: LedgerEnv) -> None:
    # Given a change that was decided and saved,
    key = env.submit(reply_to="results.boss")
    env.start()
    before = env.snapshot()

    def change(tx: Tx) -> None:
        work = env.ledger._work(tx)
        work.load([key])
        work.apply(key, t.Report(1, "done", "result.md", "f" * 64))
        work.finish()
        assert waiting_effects(tx)["reply"] == 1
        raise PowerCut

    # when it does not commit, then nothing of it was ever there, and nobody was woken.
    env.rung.clear()
    with pytest.raises(PowerCut):
        env.store.write(change)
    assert env.snapshot() == before
    assert env.rung == []


#: Words that are refused, each to a task in the state that refuses it.
REFUSED: dict[str, Callable[[LedgerEnv, int], object]] = {
    "a stale report": lambda env, key: env.ledger.report(key, t.Report(0, "done")),
    "a stale failure": lambda env, key: env.ledger.fail(key, 7, "no"),
    "an answer to no question": lambda env, key: env.ledger.answer(key, "boss", "yes"),
    "a second claim": lambda env, key: env.ledger.claim_task(key, "bob"),
    "a reopening of what is open": lambda env, key: env.ledger.requeue(key, "boss"),
    "a verdict on nothing": lambda env, key: env.ledger.verdict(key, "boss", t.Ruling.ACCEPT),
    "an approval nobody wants": lambda env, key: env.ledger.approve(key, "boss"),
}


@pytest.mark.usefixtures("open_lanes")
@pytest.mark.parametrize("word", REFUSED)
def test_a_refused_trigger_has_no_effects(env: LedgerEnv, word: str) -> None:
    key = env.submit(reply_to="results.boss")
    env.start()
    before = counts(env)
    with pytest.raises(Refused):
        REFUSED[word](env, key)
    assert counts(env) == before
    assert env.state() is State.IN_PROGRESS


# -- at least once, by stable ids --------------------------------------------------------------


def announced(env: LedgerEnv, number: int) -> list[str]:
    names = [f"task-{each}" for each in range(number)]
    env.ledger.open_lanes("delivery")
    for name in names:
        env.submit(name)
    return names


def test_what_was_found_comes_again_unless_acked(env: LedgerEnv) -> None:
    # Given three effects, when a carrier finds two and dies,
    names = announced(env, 3)
    first = env.ledger.effects("delivery", 2)
    assert [row.key for row in first] == [env.key(name) for name in names[:2]]
    # then the next one finds them again, under the same ids.
    again = env.ledger.effects("delivery", 5)
    assert again[:2] == first
    assert again[2].key == env.key(names[2])


def test_what_could_not_be_carried_out_comes_back_counting_the_tries(env: LedgerEnv) -> None:
    announced(env, 3)
    first, second, third = env.ledger.effects("delivery", 5)
    until = env.clock.now + 30_000
    env.store.write(lambda tx: tx.settle_effects([first.sequence, third.sequence], until))
    env.clock.forward(29.999)
    assert env.ledger.effects("delivery", 5) == [second]
    env.clock.forward(0.001)
    again = env.ledger.effects("delivery", 5)
    assert again == [first._replace(tries=1), second, third._replace(tries=1)]


def test_what_is_acked_is_gone_for_good(env: LedgerEnv) -> None:
    announced(env, 2)
    first, second = env.ledger.effects("delivery", 2)
    env.ledger.ack_effects([first.sequence])
    env.clock.forward(60)
    assert env.ledger.effects("delivery", 5) == [second]
    env.ledger.ack_effects([first.sequence, second.sequence])
    assert counts(env) == {}


def test_every_effect_has_an_id_of_its_own(env: LedgerEnv) -> None:
    env.ledger.open_lanes(*LANES)
    env.submit(reply_to="results.boss", review=True, budget=Usage(usd=10))
    for epoch in (1, 2):
        env.start()
        env.spend("task-1", 4)
        env.report(result="result.md", result_sha256="f" * 64)
        ruling = t.Ruling.CHANGES if epoch == 1 else t.Ruling.ACCEPT
        env.ledger.verdict(env.key("task-1"), "boss", ruling)
    rows = [row for lane in LANES for row in env.ledger.effects(lane, 100)]
    assert len(rows) >= 7
    assert len({row.effect_id for row in rows}) == len(rows)
    assert all(json.loads(row.payload)["task_id"] == "task-1" for row in rows)


def test_lanes_do_not_get_in_each_others_way(env: LedgerEnv) -> None:
    env.ledger.open_lanes(*LANES)
    env.submit(reply_to="results.boss")
    env.complete("task-1")
    assert len(env.ledger.effects("reply", 5)) == 1
    assert len(env.ledger.effects("delivery", 5)) == 1
    assert env.ledger.effects("kanban", 5) == []


def test_effects_leave_in_the_order_of_their_commits(env: LedgerEnv) -> None:
    names = announced(env, 20)
    taken: list[int] = []
    while rows := env.ledger.effects("delivery", 3):
        taken += [row.key for row in rows]
        env.ledger.ack_effects([row.sequence for row in rows])
    assert taken == [env.key(name) for name in names]
