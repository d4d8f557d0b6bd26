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
from agentq.core.task import Amounts, Spec
from agentq.ledger.ledger import Ledger
from tests.ledger.conftest import Desk


@pytest.fixture
def open_lanes(ledger: Ledger) -> None:
    ledger.open_lanes(*LANES)


def counts(desk: Desk) -> dict[str, int]:
    return desk.ledger.views.stats().outbox


# -- what is stored ----------------------------------------------------------------------------


@pytest.mark.usefixtures("open_lanes")
@pytest.mark.parametrize("generated", [(), ("task-1",)], ids=["named", "generated"])
def test_a_ready_task_is_announced(desk: Desk, generated: tuple[str, ...]) -> None:
    desk.ledger.submit([Spec("task-1", "worker")], generated)
    assert desk.effects("delivery") == [
        {"effect": "Announce", "task_id": "task-1", "role": "worker"}
    ]


@pytest.mark.usefixtures("open_lanes")
def test_the_outcome_goes_back_to_whoever_asked_and_the_result_is_published(desk: Desk) -> None:
    desk.submit(reply_to="results.boss")
    desk.start()
    desk.report(summary="all green", result="result.md", result_sha256="f" * 64)
    assert desk.effects("reply") == [
        {
            "effect": "Reply", "task_id": "task-1", "reply_to": "results.boss",
            "status": "completed", "summary": "all green",
        }
    ]  # fmt: skip
    assert desk.effects("results") == [
        {
            "effect": "PublishResult", "task_id": "task-1", "epoch": 1, "name": "result.md",
            "sha256": "f" * 64,
        }
    ]  # fmt: skip


@pytest.mark.usefixtures("open_lanes")
def test_a_holder_is_told_to_stop(desk: Desk) -> None:
    desk.submit()
    desk.start()
    desk.ledger.cancel(desk.key("task-1"), "boss")
    assert desk.effects("delivery")[-1] == {
        "effect": "StopHolder", "task_id": "task-1", "holder": "ann", "epoch": 1
    }  # fmt: skip


@pytest.mark.usefixtures("open_lanes")
def test_people_are_told_what_waits_for_them(desk: Desk) -> None:
    desk.submit("approve", requires_approval=True, title="Deploy")
    held = desk.ledger.claim_task(desk.submit("ask"), "ann")
    desk.ledger.block(held.key, 1, "which branch?")
    desk.submit("dead")
    desk.fail("dead", "broken")
    assert [(each["kind"], each["text"]) for each in desk.effects("notify")] == [
        ("approval_wanted", "Deploy"), ("blocked", "which branch?"), ("dead_letter", "broken")
    ]  # fmt: skip


def test_a_closed_lane_stores_nothing(desk: Desk) -> None:
    # Only results are carried out from the start.
    desk.submit(reply_to="results.boss")
    desk.complete("task-1")
    assert counts(desk) == {}
    desk.ledger.open_lanes("delivery")
    desk.submit("task-2")
    desk.ledger.close_lanes("delivery")
    desk.submit("task-3")
    assert [effect["task_id"] for effect in desk.effects("delivery")] == ["task-2"]


def test_an_unknown_lane_is_refused(ledger: Ledger) -> None:
    with pytest.raises(Invalid, match="carrier-pigeon"):
        ledger.open_lanes("carrier-pigeon")


def test_a_lane_opened_while_a_task_is_being_submitted_misses_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a submitter that is about to begin, when a lane is opened just before it does,
    write = desk.store.write

    def and_first_a_lane_is_opened(change: Callable[[Tx], Any], *, durable: bool = True) -> Any:
        monkeypatch.undo()
        desk.ledger.open_lanes("delivery")
        return write(change, durable=durable)

    monkeypatch.setattr(desk.store, "write", and_first_a_lane_is_opened)
    desk.ledger.submit([Spec("task-1", "worker")], {"task-1"})
    # then the task, which commits after that, is announced.
    assert len(desk.effects("delivery")) == 1


# -- only with the commit ----------------------------------------------------------------------


class PowerCut(Exception):
    """Whatever may happen before a commit."""


@pytest.mark.usefixtures("open_lanes")
def test_nothing_leaves_from_a_transaction_that_was_rolled_back(desk: Desk) -> None:
    # Given a change that was decided and saved,
    key = desk.submit(reply_to="results.boss")
    desk.start()
    before = desk.snapshot()

    def change(tx: Tx) -> None:
        work = desk.ledger._work(tx)
        work.load([key])
        work.apply(key, t.Report(1, "done", "result.md", "f" * 64))
        work.finish()
        assert tx.effect_counts()["reply"] == 1
        raise PowerCut

    # when it does not commit, then nothing of it was ever there, and nobody was woken.
    desk.rung.clear()
    with pytest.raises(PowerCut):
        desk.store.write(change)
    assert desk.snapshot() == before
    assert desk.rung == []


#: Words that are refused, each to a task in the state that refuses it.
REFUSED: dict[str, Callable[[Desk, int], object]] = {
    "a stale report": lambda desk, key: desk.ledger.report(key, t.Report(0, "done")),
    "a stale failure": lambda desk, key: desk.ledger.fail(key, 7, "no"),
    "an answer to no question": lambda desk, key: desk.ledger.answer(key, "boss", "yes"),
    "a second claim": lambda desk, key: desk.ledger.claim_task(key, "bob"),
    "a reopening of what is open": lambda desk, key: desk.ledger.requeue(key, "boss"),
    "a verdict on nothing": lambda desk, key: desk.ledger.verdict(key, "boss", t.Ruling.ACCEPT),
    "an approval nobody wants": lambda desk, key: desk.ledger.approve(key, "boss"),
}


@pytest.mark.usefixtures("open_lanes")
@pytest.mark.parametrize("word", REFUSED)
def test_a_refused_trigger_has_no_effects(desk: Desk, word: str) -> None:
    key = desk.submit(reply_to="results.boss")
    desk.start()
    before = counts(desk)
    with pytest.raises(Refused):
        REFUSED[word](desk, key)
    assert counts(desk) == before
    assert desk.state() is State.IN_PROGRESS


# -- at least once, by stable ids --------------------------------------------------------------


def announced(desk: Desk, number: int) -> list[str]:
    names = [f"task-{each}" for each in range(number)]
    desk.ledger.open_lanes("delivery")
    for name in names:
        desk.submit(name)
    return names


def test_what_was_found_comes_again_unless_acked(desk: Desk) -> None:
    # Given three effects, when a carrier finds two and dies,
    names = announced(desk, 3)
    first = desk.ledger.effects("delivery", 2)
    assert [row.key for row in first] == [desk.key(name) for name in names[:2]]
    # then the next one finds them again, under the same ids.
    again = desk.ledger.effects("delivery", 5)
    assert again[:2] == first
    assert again[2].key == desk.key(names[2])


def test_what_could_not_be_carried_out_comes_back_counting_the_tries(desk: Desk) -> None:
    announced(desk, 3)
    first, second, third = desk.ledger.effects("delivery", 5)
    until = desk.clock.now + 30_000
    desk.store.write(lambda tx: tx.postpone_effects([first.sequence, third.sequence], until))
    desk.clock.forward(29.999)
    assert desk.ledger.effects("delivery", 5) == [second]
    desk.clock.forward(0.001)
    again = desk.ledger.effects("delivery", 5)
    assert again == [first._replace(tries=1), second, third._replace(tries=1)]


def test_what_is_acked_is_gone_for_good(desk: Desk) -> None:
    announced(desk, 2)
    first, second = desk.ledger.effects("delivery", 2)
    desk.ledger.ack_effects([first.sequence])
    desk.clock.forward(60)
    assert desk.ledger.effects("delivery", 5) == [second]
    desk.ledger.ack_effects([first.sequence, second.sequence])
    assert counts(desk) == {}


def test_every_effect_has_an_id_of_its_own(desk: Desk) -> None:
    desk.ledger.open_lanes(*LANES)
    desk.submit(reply_to="results.boss", review=True, budget=Amounts(usd=10))
    for epoch in (1, 2):
        desk.start()
        desk.spend("task-1", 4)
        desk.report(result="result.md", result_sha256="f" * 64)
        ruling = t.Ruling.CHANGES if epoch == 1 else t.Ruling.ACCEPT
        desk.ledger.verdict(desk.key("task-1"), "boss", ruling)
    rows = [row for lane in LANES for row in desk.ledger.effects(lane, 100)]
    assert len(rows) >= 7
    assert len({row.effect_id for row in rows}) == len(rows)
    assert all(json.loads(row.payload)["task_id"] == "task-1" for row in rows)


def test_lanes_do_not_get_in_each_others_way(desk: Desk) -> None:
    desk.ledger.open_lanes(*LANES)
    desk.submit(reply_to="results.boss")
    desk.complete("task-1")
    assert len(desk.ledger.effects("reply", 5)) == 1
    assert len(desk.ledger.effects("delivery", 5)) == 1
    assert desk.ledger.effects("git", 5) == []


def test_effects_leave_in_the_order_of_their_commits(desk: Desk) -> None:
    names = announced(desk, 20)
    taken: list[int] = []
    while rows := desk.ledger.effects("delivery", 3):
        taken += [row.key for row in rows]
        desk.ledger.ack_effects([row.sequence for row in rows])
    assert taken == [desk.key(name) for name in names]
