"""Programs that speak only messages: each message is taken once, and only from whoever holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agentq.contracts.inbound_messages import Incoming, Outcome
from agentq.contracts.store import Tx
from agentq.core.errors import Unavailable
from agentq.core.limits import ENVELOPE_BYTES_MAX, RoleLimits
from agentq.core.states import State
from agentq.core.task import Amounts
from agentq.core.triggers import Ruling
from agentq.ledger.ingest import REMEMBERED_MS, ingest
from tests.ledger.conftest import Desk
from tests.ledger.sayings import ANSWERS, UNREADABLE, answer_of, lose, refusal, said, start, take

# -- the life of an attempt --------------------------------------------------------------------


def test_an_attempt_from_its_start_to_its_end(desk: Desk) -> None:
    # Given a ready task, when a program says that it started,
    desk.submit()
    (verdict,) = ingest(desk.ledger, [said("started", message_id="m-first", lease_seconds=30)])
    # then it holds the task, and is told its epoch and for how long,
    answer = answer_of(verdict)
    assert answer == {
        "v": 1, "task_id": "task-1", "epoch": 1, "from": "agentq", "to": "js-1",
        "in_reply_to": "m-first", "status": "accepted", "about": "started", "lease_seconds": 30,
        "notes": [],
    }  # fmt: skip
    task = desk.task()
    assert (task.state, task.holder, task.epoch) == (State.IN_PROGRESS, "js-1", 1)
    assert task.wake_at == desk.clock.now + 30_000
    # and what it says from then on is recorded.
    assert take(
        desk,
        said("progress", epoch=1, percent=40, note="reading"),
        said("completed", epoch=1, summary="done", cost={"usd": 0.5, "tokens": 10}),
    ) == [Outcome.ACCEPTED, Outcome.ACCEPTED]
    task = desk.task()
    assert (task.state, task.summary, task.memo.spent) == (
        State.COMPLETE, "done", Amounts(usd=0.5, tokens=10)
    )  # fmt: skip
    assert desk.kinds() == ["submitted", "claimed", "progress", "completed"]


@pytest.mark.parametrize(
    ("status", "fields", "state", "reason"),
    [
        ("failed", {"summary": "no disk"}, State.PENDING, "no disk"),
        ("failed", {"summary": "nonsense", "kind": "invalid"}, State.FAILED, "nonsense"),
        ("blocked", {"summary": "which branch?"}, State.BLOCKED, "which branch?"),
        ("released", {"summary": "shutting down"}, State.READY, ""),
        ("released", {}, State.READY, ""),
    ],
)
def test_other_ends(
    desk: Desk, status: str, fields: dict[str, str], state: State, reason: str
) -> None:
    desk.submit()
    start(desk)
    assert take(desk, said(status, epoch=1, **fields)) == [Outcome.ACCEPTED]
    assert (desk.state(), desk.task().reason) == (state, reason)


def test_the_next_attempt_hears_what_was_left_for_it(desk: Desk) -> None:
    desk.submit(review=True)
    start(desk)
    take(desk, said("completed", epoch=1, summary="done"))
    desk.ledger.verdict(desk.key("task-1"), "boss", Ruling.CHANGES, "add tests")
    (verdict,) = ingest(desk.ledger, [said("started")])
    answer = answer_of(verdict)
    assert answer["epoch"] == 2
    assert [(note["by"], note["text"]) for note in answer["notes"]] == [("boss", "add tests")]


def test_a_task_that_waits_or_is_taken_cannot_be_started(desk: Desk) -> None:
    desk.submit("waits", requires_approval=True)
    desk.submit("taken")
    desk.start("taken", "ann")
    assert refusal(desk, said("started", "waits"))[0] == "wrong_state"
    assert refusal(desk, said("started", "taken"))[0] == "wrong_state"
    assert refusal(desk, said("started", "nowhere"))[0] == "not_found"
    assert desk.task("taken").holder == "ann"


# -- the fence ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("heartbeat", {}),
        ("progress", {"percent": 90}),
        ("completed", {"summary": "late"}),
        ("failed", {"summary": "late"}),
        ("blocked", {"summary": "late"}),
        ("released", {}),
    ],
)
def test_a_fenced_out_attempt_changes_nothing(
    desk: Desk, status: str, fields: dict[str, Any]
) -> None:
    # Given an attempt that was silent for too long, and another that has taken over,
    desk.submit()
    start(desk, sender="slow")
    lose(desk)
    assert start(desk, sender="quick") == 2
    before = desk.task()
    # when the first speaks again, then it is refused, under its own epoch and under the other's,
    assert refusal(desk, said(status, sender="slow", epoch=1, **fields))[0] == "stale"
    assert refusal(desk, said(status, sender="slow", epoch=2, **fields))[0] == "stale"
    # (no answer tells it the epoch of the other)
    (verdict,) = ingest(desk.ledger, [said(status, sender="slow", epoch=1, **fields)])
    assert answer_of(verdict)["epoch"] == 1
    # and when it leaves its epoch out, it is asked for it.
    assert refusal(desk, said(status, sender="slow", **fields))[0] == "epoch_needed"
    after = desk.task()
    assert (after.state, after.holder, after.epoch, after.wake_at, after.summary) == (
        before.state, before.holder, before.epoch, before.wake_at, ""
    )  # fmt: skip
    # Of a report that came too late the log keeps that it came.
    kept = ["report_refused"] * 2 if status in {"completed", "failed"} else []
    assert desk.kinds()[4:] == kept


def test_the_epoch_may_be_left_out_while_there_was_one_attempt(desk: Desk) -> None:
    desk.submit()
    start(desk)
    assert take(desk, said("heartbeat"), said("completed", summary="done")) == [
        Outcome.ACCEPTED, Outcome.ACCEPTED
    ]  # fmt: skip
    assert desk.state() is State.COMPLETE


def test_nobody_speaks_for_somebody_else(desk: Desk) -> None:
    # Given a task that a worker of another kind holds,
    desk.submit()
    desk.start(holder="ann")
    # when a program guesses its epoch, then it is not listened to.
    for message in (
        said("heartbeat", sender="eve", epoch=1),
        said("completed", sender="eve", epoch=1, summary="mine"),
        said("completed", sender="eve", summary="mine"),
    ):
        assert refusal(desk, message)[0] == "stale"
    assert desk.kinds() == ["submitted", "claimed"]


def test_nobody_speaks_for_another_role(desk: Desk) -> None:
    # The broker checks who may publish under which routing key; the ledger holds them to it.
    desk.submit(to="deployer")
    for role in ("worker", ""):
        assert refusal(desk, said("started", role=role))[0] == "refused"
    assert desk.state() is State.READY


def test_a_cancelled_attempt_is_told_so_by_its_heartbeat(desk: Desk) -> None:
    desk.submit()
    start(desk)
    desk.ledger.cancel(desk.key("task-1"), "boss")
    code, reason = refusal(desk, said("heartbeat", epoch=1))
    assert code == "stale"
    assert "cancelled" in reason


# -- leases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["heartbeat", "progress"])
def test_who_speaks_keeps_the_lease(desk: Desk, status: str) -> None:
    desk.submit()
    start(desk)
    for _ in range(5):
        desk.clock.forward(50)
        assert take(desk, said(status, epoch=1, percent=1)) == [Outcome.ACCEPTED]
        desk.ledger.tick()
        assert desk.state() is State.IN_PROGRESS
    assert take(desk, said(status, epoch=1, percent=1, lease_seconds=3600)) == [Outcome.ACCEPTED]
    assert desk.task().wake_at == desk.clock.now + 3_600_000
    lose(desk)
    assert desk.state() is State.IN_PROGRESS


def test_a_lease_renewed_and_progress_in_one_batch(desk: Desk) -> None:
    desk.submit()
    start(desk)
    desk.clock.forward(50)
    take(
        desk,
        said("heartbeat", epoch=1),
        said("progress", epoch=1, percent=1, lease_seconds=5),
        said("heartbeat", epoch=1, lease_seconds=10),
    )
    assert desk.task().wake_at == desk.clock.now + 60_000
    # A last sign of life and the end may come together.
    assert take(desk, said("heartbeat", epoch=1), said("completed", epoch=1)) == [
        Outcome.ACCEPTED, Outcome.ACCEPTED
    ]  # fmt: skip
    assert desk.state() is State.COMPLETE


# -- once --------------------------------------------------------------------------------------


def test_a_message_that_comes_again_gets_the_same_answer(desk: Desk) -> None:
    # Given a start whose answer was lost, when it is sent again,
    desk.submit()
    started = said("started")
    (first,) = ingest(desk.ledger, [started])
    before = desk.snapshot()
    (again,) = ingest(desk.ledger, [started])
    # then the task is not started again, and the answer is the same.
    assert again.outcome is Outcome.DUPLICATE
    assert again.answer == first.answer
    assert desk.snapshot() == before
    # The same goes for what was refused,
    early = said("completed", epoch=2)
    assert take(desk, early) == [Outcome.REFUSED]
    (again,) = ingest(desk.ledger, [early])
    assert again.outcome is Outcome.DUPLICATE
    assert answer_of(again)["status"] == "refused"
    # and for every copy within one batch.
    done = said("completed", epoch=1, summary="done")
    assert take(desk, done, done, done) == [
        Outcome.ACCEPTED, Outcome.DUPLICATE, Outcome.DUPLICATE
    ]  # fmt: skip
    assert desk.kinds().count("completed") == 1


def test_a_start_that_was_refused_leaves_nothing_behind(desk: Desk) -> None:
    # Given a role that has no room, when its workers ask for more and more,
    desk.submit("running")
    start(desk, "running")
    desk.ledger.set_limits("worker", RoleLimits(max_running=1))
    desk.submit("later")
    before = desk.snapshot()
    early = said("started", "later")
    assert take(desk, early, said("started", "later"), said("started", "nowhere")) == [
        Outcome.REFUSED, Outcome.REFUSED, Outcome.REFUSED
    ]  # fmt: skip
    # then the ledger does not grow,
    assert desk.snapshot() == before
    # and who asks again, in whatever words, is heard again.
    take(desk, said("completed", "running", epoch=1))
    assert take(desk, early) == [Outcome.ACCEPTED]


def test_a_late_copy_of_a_start_gives_nobody_an_attempt_that_is_lost(desk: Desk) -> None:
    desk.submit()
    started = said("started")
    take(desk, started)
    lose(desk)
    (again,) = ingest(desk.ledger, [started])
    assert again.outcome is Outcome.DUPLICATE
    assert (answer_of(again)["status"], answer_of(again)["code"]) == ("refused", "stale")
    # Nor does it give one that the same program started later under another message.
    assert start(desk) == 2
    (again,) = ingest(desk.ledger, [started])
    assert answer_of(again)["status"] == "refused"


def test_an_id_stands_for_one_message(desk: Desk) -> None:
    desk.submit()
    take(desk, said("started", message_id="1"))
    assert refusal(desk, said("completed", message_id="1", epoch=1))[0] == "conflict"
    assert desk.state() is State.IN_PROGRESS
    # Another sender may count from 1 as well.
    desk.submit("task-2")
    assert start(desk, "task-2", sender="go-1", message_id="1") == 1


def test_ids_of_different_senders_are_never_the_same(desk: Desk) -> None:
    # However the names are cut: a name may hold a colon, and so may an id.
    desk.submit()
    desk.submit("task-2")
    assert start(desk, sender="w1", message_id="q:1") == 1
    assert start(desk, "task-2", sender="w1:q", message_id="1") == 1


def test_messages_are_forgotten_after_a_while_and_tasks_are_not_needed_for_it(desk: Desk) -> None:
    desk.submit()
    take(desk, said("started", message_id="m"), said("completed", message_id="n", epoch=1))
    (names,) = desk.sql("SELECT count(*) FROM dedup WHERE name LIKE 'message:%'")
    assert names == (2,)
    desk.clock.forward(REMEMBERED_MS / 1000 + 1)
    desk.ledger.prune(desk.clock.now, lambda _: None)
    (names,) = desk.sql("SELECT count(*) FROM dedup WHERE name LIKE 'message:%'")
    assert names == (0,)


def test_heartbeats_leave_nothing_behind(desk: Desk) -> None:
    desk.submit()
    start(desk)
    before = desk.snapshot()
    beat = said("heartbeat", epoch=1)
    assert take(desk, beat, beat, said("heartbeat", epoch=1)) == [Outcome.ACCEPTED] * 3
    assert desk.snapshot() == before


def test_the_id_may_be_the_brokers_property(desk: Desk) -> None:
    desk.submit()
    body = json.dumps({"task_id": "task-1", "from": "js-1", "status": "started"}).encode()
    message = Incoming("property-1", body, ANSWERS, "worker")
    (verdict,) = ingest(desk.ledger, [message])
    assert answer_of(verdict)["in_reply_to"] == "property-1"
    assert take(desk, message) == [Outcome.DUPLICATE]


# -- limits ------------------------------------------------------------------------------------


def test_limits_hold_within_one_batch(desk: Desk) -> None:
    # Given a role that may run two at once, when three are started together,
    for name in "abcd":
        desk.submit(name)
    desk.ledger.set_limits("worker", RoleLimits(max_running=2))
    verdicts = ingest(desk.ledger, [said("started", name) for name in "abc"])
    # then the third must wait,
    assert [verdict.outcome for verdict in verdicts] == [
        Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.REFUSED
    ]  # fmt: skip
    assert answer_of(verdicts[2])["code"] == "limit"
    # and room that is made counts at once.
    assert take(desk, said("completed", "a", epoch=1), said("started", "d")) == [
        Outcome.ACCEPTED, Outcome.ACCEPTED
    ]  # fmt: skip
    assert desk.states("a", "b", "c", "d") == [
        State.COMPLETE, State.IN_PROGRESS, State.READY, State.IN_PROGRESS
    ]  # fmt: skip


def test_exclusive_resources_hold_within_one_batch(desk: Desk) -> None:
    for name in "abc":
        desk.submit(name, resources=("db",))
    verdicts = ingest(desk.ledger, [said("started", "a"), said("started", "b")])
    assert [verdict.outcome for verdict in verdicts] == [Outcome.ACCEPTED, Outcome.REFUSED]
    assert answer_of(verdicts[1])["code"] == "resource_held"
    assert take(desk, said("completed", "a", epoch=1), said("started", "c")) == [
        Outcome.ACCEPTED, Outcome.ACCEPTED
    ]  # fmt: skip


def test_a_start_that_is_refused_holds_nothing(desk: Desk) -> None:
    # Given a task whose time to live is over, though nobody has said so yet,
    desk.submit("late", resources=("db",), ttl_seconds=10)
    desk.submit("other", resources=("db",))
    desk.clock.forward(11)
    # when both are started, then the first does not keep its resource from the second.
    assert take(desk, said("started", "late"), said("started", "other")) == [
        Outcome.REFUSED, Outcome.ACCEPTED
    ]  # fmt: skip


def test_a_budget_that_is_used_up_blocks(desk: Desk) -> None:
    desk.submit(budget=Amounts(usd=1))
    start(desk)
    take(desk, said("progress", epoch=1, percent=50, cost={"usd": 2}))
    assert desk.state() is State.BLOCKED
    assert refusal(desk, said("heartbeat", epoch=1))[0] == "stale"


# -- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read_changes_nothing_and_says_why(desk: Desk, what: str) -> None:
    desk.submit()
    before = desk.snapshot()
    (verdict,) = ingest(desk.ledger, [Incoming("", UNREADABLE[what], ANSWERS, "worker")])
    assert verdict.outcome is Outcome.UNREADABLE
    assert len(verdict.reason) > 10
    assert bool(verdict.answer) == (what == "too long")
    assert desk.snapshot() == before


def test_who_sends_too_much_hears_so(desk: Desk) -> None:
    # The message is as good as lost, but its sender need not wait for an answer, nor guess.
    desk.submit()
    start(desk)
    long = said("completed", epoch=1, message_id="m-long", summary="x" * ENVELOPE_BYTES_MAX)
    (verdict,) = ingest(desk.ledger, [long])
    assert verdict.outcome is Outcome.UNREADABLE
    answer = answer_of(verdict)
    reason, remedy = answer.pop("reason"), answer.pop("remedy")
    assert answer == {
        "v": 1, "task_id": "task-1", "epoch": 1, "from": "agentq", "to": "js-1",
        "in_reply_to": "m-long", "status": "refused", "about": "completed", "code": "too_large",
    }  # fmt: skip
    assert "65536" in reason and "artifact" in remedy
    assert desk.state() is State.IN_PROGRESS
    # It is told what can be known of it, be that little, and nobody else is.
    for body in (b"[" * 70_000, b"\xff" * 70_000, json.dumps({"from": 5, "epoch": "1"}).encode()):
        (verdict,) = ingest(desk.ledger, [Incoming("p-1", body.ljust(70_000), ANSWERS, "worker")])
        answer = answer_of(verdict)
        assert (answer["in_reply_to"], answer["code"]) == ("p-1", "too_large")
    (verdict,) = ingest(desk.ledger, [Incoming("p-1", b" " * 70_000, "agentq.ingest", "worker")])
    assert verdict.answer == b""


def test_what_is_unknown_is_passed_over_and_null_is_nothing(desk: Desk) -> None:
    desk.submit()
    assert start(desk, mood="good", epoch=None, note=None, artifacts=None, cost=None) == 1


def test_an_unreadable_message_does_not_keep_others_waiting(desk: Desk) -> None:
    desk.submit()
    bad = Incoming("", b"?", "", "worker")
    assert take(desk, bad, said("started"), bad, said("completed", epoch=1)) == [
        Outcome.UNREADABLE, Outcome.ACCEPTED, Outcome.UNREADABLE, Outcome.ACCEPTED
    ]  # fmt: skip
    assert take(desk) == []


def test_secrets_and_long_words_are_not_kept(desk: Desk) -> None:
    desk.submit()
    start(desk)
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    take(
        desk,
        said("progress", epoch=1, percent=1, note=f"with {key}"),
        said("completed", epoch=1, summary=f"{'x' * 9000} {key}"),
    )
    assert key not in json.dumps(desk.snapshot())
    assert len(desk.task().summary) <= 4000


@pytest.mark.parametrize(
    "to", ["", "agentq.role.worker", "agentq.ingest", "x" * 256, "x\ud800", "\x00"]
)
def test_some_are_not_answered(desk: Desk, to: str) -> None:
    # Nobody makes agentq write into its own queues.
    desk.submit()
    (verdict,) = ingest(desk.ledger, [said("started", reply_to=to)])
    assert (verdict.outcome, verdict.answer) == (Outcome.ACCEPTED, b"")


# -- trouble -----------------------------------------------------------------------------------


def test_when_the_ledger_cannot_serve_nothing_is_answered_and_all_may_come_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a batch whose transaction does not commit,
    desk.submit()
    batch = [said("started"), said("completed", epoch=1, summary="done")]
    write = desk.store.write

    def cut_off(change: Callable[[Tx], object]) -> object:
        def change_and_die(tx: Tx) -> object:
            change(tx)
            raise Unavailable("The power went.")

        return write(change_and_die)

    before = desk.snapshot()
    monkeypatch.setattr(desk.store, "write", cut_off)
    with pytest.raises(Unavailable):
        ingest(desk.ledger, batch)
    assert desk.snapshot() == before
    # when it is given again, then it is taken as if for the first time.
    monkeypatch.undo()
    assert take(desk, *batch) == [Outcome.ACCEPTED, Outcome.ACCEPTED]
    assert desk.state() is State.COMPLETE
