"""Programs that speak only messages: each message is taken once, and only from whoever holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agentq.contracts.inbound_messages import Incoming, IntakeStatus
from agentq.contracts.store import Tx
from agentq.core.errors import Unavailable
from agentq.core.limits import ENVELOPE_BYTES_MAX, RoleLimits
from agentq.core.states import State
from agentq.core.task import Usage
from agentq.core.triggers import Ruling
from agentq.ledger.ingest import REMEMBERED_MS
from tests.ledger.conftest import LedgerEnv
from tests.ledger.worker_messages import (
    ANSWERS,
    UNREADABLE,
    answer_of,
    incoming,
    lose,
    refusal,
    start,
    take,
)
from tests.ledger_verbs import ingest

# -- the life of an attempt --------------------------------------------------------------------


def test_an_attempt_from_its_start_to_its_end(env: LedgerEnv) -> None:
    # Given a ready task, when a program says that it started,
    env.submit()
    (verdict,) = ingest(env.ledger, [incoming("started", message_id="m-first", lease_seconds=30)])
    # then it holds the task, and is told its epoch and for how long,
    answer = answer_of(verdict)
    assert answer == {
        "v": 1, "task_id": "task-1", "epoch": 1, "from": "agentq", "to": "js-1",
        "in_reply_to": "m-first", "status": "accepted", "about": "started", "lease_seconds": 30,
        "notes": [],
    }  # fmt: skip
    task = env.task()
    assert (task.state, task.holder, task.epoch) == (State.IN_PROGRESS, "js-1", 1)
    assert task.wake_at == env.clock.now + 30_000
    # and what it says from then on is recorded.
    assert take(
        env,
        incoming("progress", epoch=1, percent=40, note="reading"),
        incoming("completed", epoch=1, summary="done", cost={"usd": 0.5, "tokens": 10}),
    ) == [IntakeStatus.ACCEPTED, IntakeStatus.ACCEPTED]
    task = env.task()
    assert (task.state, task.summary, task.details.spent) == (
        State.COMPLETE, "done", Usage(usd=0.5, tokens=10)
    )  # fmt: skip
    assert env.kinds() == ["submitted", "claimed", "progress", "completed"]


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
    env: LedgerEnv, status: str, fields: dict[str, str], state: State, reason: str
) -> None:
    env.submit()
    start(env)
    assert take(env, incoming(status, epoch=1, **fields)) == [IntakeStatus.ACCEPTED]
    assert (env.state(), env.task().reason) == (state, reason)


def test_the_next_attempt_hears_what_was_left_for_it(env: LedgerEnv) -> None:
    env.submit(review=True)
    start(env)
    take(env, incoming("completed", epoch=1, summary="done"))
    env.ledger.verdict(env.key("task-1"), "boss", Ruling.CHANGES, "add tests")
    (verdict,) = ingest(env.ledger, [incoming("started")])
    answer = answer_of(verdict)
    assert answer["epoch"] == 2
    assert [(note["by"], note["text"]) for note in answer["notes"]] == [("boss", "add tests")]


def test_a_task_that_waits_or_is_taken_cannot_be_started(env: LedgerEnv) -> None:
    env.submit("waits", requires_approval=True)
    env.submit("taken")
    env.start("taken", "ann")
    assert refusal(env, incoming("started", "waits"))[0] == "wrong_state"
    assert refusal(env, incoming("started", "taken"))[0] == "wrong_state"
    assert refusal(env, incoming("started", "nowhere"))[0] == "not_found"
    assert env.task("taken").holder == "ann"


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
    env: LedgerEnv, status: str, fields: dict[str, Any]
) -> None:
    # Given an attempt that was silent for too long, and another that has taken over,
    env.submit()
    start(env, sender="slow")
    lose(env)
    assert start(env, sender="quick") == 2
    before = env.task()
    # when the first speaks again, then it is refused, under its own epoch and under the other's,
    assert refusal(env, incoming(status, sender="slow", epoch=1, **fields))[0] == "stale"
    assert refusal(env, incoming(status, sender="slow", epoch=2, **fields))[0] == "stale"
    # (no answer tells it the epoch of the other)
    (verdict,) = ingest(env.ledger, [incoming(status, sender="slow", epoch=1, **fields)])
    assert answer_of(verdict)["epoch"] == 1
    # and when it leaves its epoch out, it is asked for it.
    assert refusal(env, incoming(status, sender="slow", **fields))[0] == "epoch_needed"
    after = env.task()
    assert (after.state, after.holder, after.epoch, after.wake_at, after.summary) == (
        before.state, before.holder, before.epoch, before.wake_at, ""
    )  # fmt: skip
    # Of a report that came too late the log keeps that it came.
    kept = ["report_refused"] * 2 if status in {"completed", "failed"} else []
    assert env.kinds()[4:] == kept


def test_the_epoch_may_be_left_out_while_there_was_one_attempt(env: LedgerEnv) -> None:
    env.submit()
    start(env)
    assert take(env, incoming("heartbeat"), incoming("completed", summary="done")) == [
        IntakeStatus.ACCEPTED, IntakeStatus.ACCEPTED
    ]  # fmt: skip
    assert env.state() is State.COMPLETE


def test_nobody_speaks_for_somebody_else(env: LedgerEnv) -> None:
    # Given a task that a worker of another kind holds,
    env.submit()
    env.start(holder="ann")
    # when a program guesses its epoch, then it is not listened to.
    for message in (
        incoming("heartbeat", sender="eve", epoch=1),
        incoming("completed", sender="eve", epoch=1, summary="mine"),
        incoming("completed", sender="eve", summary="mine"),
    ):
        assert refusal(env, message)[0] == "stale"
    assert env.kinds() == ["submitted", "claimed"]


def test_nobody_speaks_for_another_role(env: LedgerEnv) -> None:
    # The broker checks who may publish under which routing key; the ledger holds them to it.
    env.submit(to="deployer")
    for role in ("worker", ""):
        assert refusal(env, incoming("started", role=role))[0] == "refused"
    assert env.state() is State.READY


def test_a_cancelled_attempt_is_told_so_by_its_heartbeat(env: LedgerEnv) -> None:
    env.submit()
    start(env)
    env.ledger.cancel(env.key("task-1"), "boss")
    code, reason = refusal(env, incoming("heartbeat", epoch=1))
    assert code == "stale"
    assert "cancelled" in reason


# -- leases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["heartbeat", "progress"])
def test_who_speaks_keeps_the_lease(env: LedgerEnv, status: str) -> None:
    env.submit()
    start(env)
    for _ in range(5):
        env.clock.forward(50)
        assert take(env, incoming(status, epoch=1, percent=1)) == [IntakeStatus.ACCEPTED]
        env.ledger.tick()
        assert env.state() is State.IN_PROGRESS
    assert take(env, incoming(status, epoch=1, percent=1, lease_seconds=3600)) == [
        IntakeStatus.ACCEPTED
    ]
    assert env.task().wake_at == env.clock.now + 3_600_000
    lose(env)
    assert env.state() is State.IN_PROGRESS


def test_a_lease_renewed_and_progress_in_one_batch(env: LedgerEnv) -> None:
    env.submit()
    start(env)
    env.clock.forward(50)
    take(
        env,
        incoming("heartbeat", epoch=1),
        incoming("progress", epoch=1, percent=1, lease_seconds=5),
        incoming("heartbeat", epoch=1, lease_seconds=10),
    )
    assert env.task().wake_at == env.clock.now + 60_000
    # A last sign of life and the end may come together.
    assert take(env, incoming("heartbeat", epoch=1), incoming("completed", epoch=1)) == [
        IntakeStatus.ACCEPTED, IntakeStatus.ACCEPTED
    ]  # fmt: skip
    assert env.state() is State.COMPLETE


# -- once --------------------------------------------------------------------------------------


def test_a_message_that_comes_again_gets_the_same_answer(env: LedgerEnv) -> None:
    # Given a start whose answer was lost, when it is sent again,
    env.submit()
    started = incoming("started")
    (first,) = ingest(env.ledger, [started])
    before = env.snapshot()
    (again,) = ingest(env.ledger, [started])
    # then the task is not started again, and the answer is the same.
    assert again.outcome is IntakeStatus.DUPLICATE
    assert again.answer == first.answer
    assert env.snapshot() == before
    # The same goes for what was refused,
    early = incoming("completed", epoch=2)
    assert take(env, early) == [IntakeStatus.REFUSED]
    (again,) = ingest(env.ledger, [early])
    assert again.outcome is IntakeStatus.DUPLICATE
    assert answer_of(again)["status"] == "refused"
    # and for every copy within one batch.
    done = incoming("completed", epoch=1, summary="done")
    assert take(env, done, done, done) == [
        IntakeStatus.ACCEPTED, IntakeStatus.DUPLICATE, IntakeStatus.DUPLICATE
    ]  # fmt: skip
    assert env.kinds().count("completed") == 1


def test_a_start_that_was_refused_leaves_nothing_behind(env: LedgerEnv) -> None:
    # Given a role that has no room, when its workers ask for more and more,
    env.submit("running")
    start(env, "running")
    env.ledger.set_limits("worker", RoleLimits(max_running=1))
    env.submit("later")
    before = env.snapshot()
    early = incoming("started", "later")
    assert take(env, early, incoming("started", "later"), incoming("started", "nowhere")) == [
        IntakeStatus.REFUSED, IntakeStatus.REFUSED, IntakeStatus.REFUSED
    ]  # fmt: skip
    # then the ledger does not grow,
    assert env.snapshot() == before
    # and who asks again, in whatever words, is heard again.
    take(env, incoming("completed", "running", epoch=1))
    assert take(env, early) == [IntakeStatus.ACCEPTED]


def test_a_late_copy_of_a_start_gives_nobody_an_attempt_that_is_lost(env: LedgerEnv) -> None:
    env.submit()
    started = incoming("started")
    take(env, started)
    lose(env)
    (again,) = ingest(env.ledger, [started])
    assert again.outcome is IntakeStatus.DUPLICATE
    assert (answer_of(again)["status"], answer_of(again)["code"]) == ("refused", "stale")
    # Nor does it give one that the same program started later under another message.
    assert start(env) == 2
    (again,) = ingest(env.ledger, [started])
    assert answer_of(again)["status"] == "refused"


def test_an_id_stands_for_one_message(env: LedgerEnv) -> None:
    env.submit()
    take(env, incoming("started", message_id="1"))
    assert refusal(env, incoming("completed", message_id="1", epoch=1))[0] == "conflict"
    assert env.state() is State.IN_PROGRESS
    # Another sender may count from 1 as well.
    env.submit("task-2")
    assert start(env, "task-2", sender="go-1", message_id="1") == 1


def test_ids_of_different_senders_are_never_the_same(env: LedgerEnv) -> None:
    # However the names are cut: a name may hold a colon, and so may an id.
    env.submit()
    env.submit("task-2")
    assert start(env, sender="w1", message_id="q:1") == 1
    assert start(env, "task-2", sender="w1:q", message_id="1") == 1


def test_messages_are_forgotten_after_a_while_and_tasks_are_not_needed_for_it(
    env: LedgerEnv,
) -> None:
    env.submit()
    take(env, incoming("started", message_id="m"), incoming("completed", message_id="n", epoch=1))
    (names,) = env.sql("SELECT count(*) FROM dedup WHERE name LIKE 'message:%'")
    assert names == (2,)
    env.clock.forward(REMEMBERED_MS / 1000 + 1)
    env.ledger.prune(env.clock.now, lambda _: None)
    (names,) = env.sql("SELECT count(*) FROM dedup WHERE name LIKE 'message:%'")
    assert names == (0,)


def test_heartbeats_leave_nothing_behind(env: LedgerEnv) -> None:
    env.submit()
    start(env)
    before = env.snapshot()
    beat = incoming("heartbeat", epoch=1)
    assert take(env, beat, beat, incoming("heartbeat", epoch=1)) == [IntakeStatus.ACCEPTED] * 3
    assert env.snapshot() == before


def test_the_id_may_be_the_brokers_property(env: LedgerEnv) -> None:
    env.submit()
    body = json.dumps({"task_id": "task-1", "from": "js-1", "status": "started"}).encode()
    message = Incoming("property-1", body, ANSWERS, "worker")
    (verdict,) = ingest(env.ledger, [message])
    assert answer_of(verdict)["in_reply_to"] == "property-1"
    assert take(env, message) == [IntakeStatus.DUPLICATE]


# -- limits ------------------------------------------------------------------------------------


def test_limits_hold_within_one_batch(env: LedgerEnv) -> None:
    # Given a role that may run two at once, when three are started together,
    for name in "abcd":
        env.submit(name)
    env.ledger.set_limits("worker", RoleLimits(max_running=2))
    verdicts = ingest(env.ledger, [incoming("started", name) for name in "abc"])
    # then the third must wait,
    assert [verdict.outcome for verdict in verdicts] == [
        IntakeStatus.ACCEPTED, IntakeStatus.ACCEPTED, IntakeStatus.REFUSED
    ]  # fmt: skip
    assert answer_of(verdicts[2])["code"] == "limit"
    # and room that is made counts at once.
    assert take(env, incoming("completed", "a", epoch=1), incoming("started", "d")) == [
        IntakeStatus.ACCEPTED, IntakeStatus.ACCEPTED
    ]  # fmt: skip
    assert env.states("a", "b", "c", "d") == [
        State.COMPLETE, State.IN_PROGRESS, State.READY, State.IN_PROGRESS
    ]  # fmt: skip


def test_exclusive_resources_hold_within_one_batch(env: LedgerEnv) -> None:
    for name in "abc":
        env.submit(name, resources=("db",))
    verdicts = ingest(env.ledger, [incoming("started", "a"), incoming("started", "b")])
    assert [verdict.outcome for verdict in verdicts] == [
        IntakeStatus.ACCEPTED,
        IntakeStatus.REFUSED,
    ]
    assert answer_of(verdicts[1])["code"] == "resource_held"
    assert take(env, incoming("completed", "a", epoch=1), incoming("started", "c")) == [
        IntakeStatus.ACCEPTED, IntakeStatus.ACCEPTED
    ]  # fmt: skip


def test_a_start_that_is_refused_holds_nothing(env: LedgerEnv) -> None:
    # Given a task whose time to live is over, though nobody has said so yet,
    env.submit("late", resources=("db",), ttl_seconds=10)
    env.submit("other", resources=("db",))
    env.clock.forward(11)
    # when both are started, then the first does not keep its resource from the second.
    assert take(env, incoming("started", "late"), incoming("started", "other")) == [
        IntakeStatus.REFUSED, IntakeStatus.ACCEPTED
    ]  # fmt: skip


def test_a_budget_that_is_used_up_blocks(env: LedgerEnv) -> None:
    env.submit(budget=Usage(usd=1))
    start(env)
    take(env, incoming("progress", epoch=1, percent=50, cost={"usd": 2}))
    assert env.state() is State.BLOCKED
    assert refusal(env, incoming("heartbeat", epoch=1))[0] == "stale"


# -- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read_changes_nothing_and_says_why(env: LedgerEnv, what: str) -> None:
    env.submit()
    before = env.snapshot()
    (verdict,) = ingest(env.ledger, [Incoming("", UNREADABLE[what], ANSWERS, "worker")])
    assert verdict.outcome is IntakeStatus.UNREADABLE
    assert len(verdict.reason) > 10
    assert bool(verdict.answer) == (what == "too long")
    assert env.snapshot() == before


def test_who_sends_too_much_hears_so(env: LedgerEnv) -> None:
    # The message is as good as lost, but its sender need not wait for an answer, nor guess.
    env.submit()
    start(env)
    long = incoming("completed", epoch=1, message_id="m-long", summary="x" * ENVELOPE_BYTES_MAX)
    (verdict,) = ingest(env.ledger, [long])
    assert verdict.outcome is IntakeStatus.UNREADABLE
    answer = answer_of(verdict)
    reason, remedy = answer.pop("reason"), answer.pop("remedy")
    assert answer == {
        "v": 1, "task_id": "task-1", "epoch": 1, "from": "agentq", "to": "js-1",
        "in_reply_to": "m-long", "status": "refused", "about": "completed", "code": "too_large",
    }  # fmt: skip
    assert "65536" in reason and "artifact" in remedy
    assert env.state() is State.IN_PROGRESS
    # It is told what can be known of it, be that little, and nobody else is.
    for body in (b"[" * 70_000, b"\xff" * 70_000, json.dumps({"from": 5, "epoch": "1"}).encode()):
        (verdict,) = ingest(env.ledger, [Incoming("p-1", body.ljust(70_000), ANSWERS, "worker")])
        answer = answer_of(verdict)
        assert (answer["in_reply_to"], answer["code"]) == ("p-1", "too_large")
    (verdict,) = ingest(env.ledger, [Incoming("p-1", b" " * 70_000, "agentq.ingest", "worker")])
    assert verdict.answer == b""


def test_what_is_unknown_is_passed_over_and_null_is_nothing(env: LedgerEnv) -> None:
    env.submit()
    assert start(env, mood="good", epoch=None, note=None, artifacts=None, cost=None) == 1


def test_an_unreadable_message_does_not_keep_others_waiting(env: LedgerEnv) -> None:
    env.submit()
    bad = Incoming("", b"?", "", "worker")
    assert take(env, bad, incoming("started"), bad, incoming("completed", epoch=1)) == [
        IntakeStatus.UNREADABLE,
        IntakeStatus.ACCEPTED,
        IntakeStatus.UNREADABLE,
        IntakeStatus.ACCEPTED,
    ]
    assert take(env) == []


def test_secrets_and_long_words_are_not_kept(env: LedgerEnv) -> None:
    env.submit()
    start(env)
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    take(
        env,
        incoming("progress", epoch=1, percent=1, note=f"with {key}"),
        incoming("completed", epoch=1, summary=f"{'x' * 9000} {key}"),
    )
    assert key not in json.dumps(env.snapshot())
    assert len(env.task().summary) <= 4000


@pytest.mark.parametrize(
    "to", ["", "agentq.role.worker", "agentq.ingest", "x" * 256, "x\ud800", "\x00"]
)
def test_some_are_not_answered(env: LedgerEnv, to: str) -> None:
    # Nobody makes agentq write into its own queues.
    env.submit()
    (verdict,) = ingest(env.ledger, [incoming("started", reply_to=to)])
    assert (verdict.outcome, verdict.answer) == (IntakeStatus.ACCEPTED, b"")


# -- trouble -----------------------------------------------------------------------------------


def test_when_the_ledger_cannot_serve_nothing_is_answered_and_all_may_come_again(
    env: LedgerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a batch whose transaction does not commit,
    env.submit()
    batch = [incoming("started"), incoming("completed", epoch=1, summary="done")]
    write = env.store.write

    def cut_off(change: Callable[[Tx], object]) -> object:
        def change_and_die(tx: Tx) -> object:
            change(tx)
            raise Unavailable("The power went.")

        return write(change_and_die)

    before = env.snapshot()
    monkeypatch.setattr(env.store, "write", cut_off)
    with pytest.raises(Unavailable):
        ingest(env.ledger, batch)
    assert env.snapshot() == before
    # when it is given again, then it is taken as if for the first time.
    monkeypatch.undo()
    assert take(env, *batch) == [IntakeStatus.ACCEPTED, IntakeStatus.ACCEPTED]
    assert env.state() is State.COMPLETE
