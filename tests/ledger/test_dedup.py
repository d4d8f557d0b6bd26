"""Idempotency: the same key and body is the same task, also when the task itself is long gone."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from agentq.core.errors import Conflict, Invalid, NotFound
from agentq.core.states import State
from agentq.core.task import Spec
from agentq.core.triggers import FailureKind
from agentq.core.values import replace
from agentq.ledger.submit import DEDUP_MS, Submitted
from agentq.stores.sqlite.transaction import SqliteTx
from tests.ledger.conftest import LedgerEnv, open_env

KEYED = Spec("task-1", "worker", title="Fix it", idempotency_key="order-7")


def send(env: LedgerEnv, spec: Spec, task_id: str, *, generated: bool = True) -> Submitted:
    """Send it as a client does: under a fresh id, unless somebody chose one."""
    (answer,) = env.ledger.submit([replace(spec, id=task_id)], {task_id} if generated else ())
    return answer


def prune_everything(env: LedgerEnv) -> list[str]:
    gone: list[str] = []
    env.ledger.prune(env.clock.now + 1, gone.append)
    return gone


def test_the_same_key_and_body_is_the_same_task(env: LedgerEnv) -> None:
    first = send(env, KEYED, "task-1")
    again = send(env, KEYED, "task-2")
    assert (first.created, again.created) == (True, False)
    assert again.task == first.task
    with pytest.raises(NotFound):
        env.task("task-2")


def test_the_answer_shows_how_the_task_stands_by_now(env: LedgerEnv) -> None:
    send(env, KEYED, "task-1")
    env.complete("task-1")
    assert send(env, KEYED, "task-2").task.state is State.COMPLETE


def test_the_same_key_and_another_body_is_a_conflict(env: LedgerEnv) -> None:
    send(env, KEYED, "task-1")
    before = env.snapshot()
    with pytest.raises(Conflict, match="order-7") as refusal:
        send(env, replace(KEYED, title="Break it"), "task-2")
    assert "task-1" in refusal.value.cause
    assert refusal.value.remedy
    assert env.snapshot() == before


def test_another_key_is_another_task(env: LedgerEnv) -> None:
    send(env, KEYED, "task-1")
    assert send(env, replace(KEYED, idempotency_key="order-8"), "task-2").created


# -- within one batch --------------------------------------------------------------------------


def test_one_key_twice_in_a_batch_is_one_task(env: LedgerEnv) -> None:
    specs = [replace(KEYED, id=f"task-{number}") for number in range(3)]
    answers = env.ledger.submit(specs, {spec.id for spec in specs})
    assert [answer.created for answer in answers] == [True, False, False]
    assert {answer.task.id for answer in answers} == {"task-0"}
    assert len(env.ledger.queries.events_after(0)) == 1


def test_one_key_for_two_bodies_in_a_batch_is_a_conflict(env: LedgerEnv) -> None:
    with pytest.raises(Conflict, match="order-7"):
        env.submit_many(KEYED, replace(KEYED, id="task-2", title="Break it"))
    assert env.ledger.queries.events_after(0) == []


def test_a_batch_sent_again_after_a_lost_answer_is_recognised_as_a_whole(env: LedgerEnv) -> None:
    batch = [
        replace(KEYED, id="task-1"),
        Spec("task-2", "worker", after=("task-1",)),
        Spec("task-3", "worker", idempotency_key="order-8"),
    ]
    ids = {"task-1", "task-3"}
    first = env.ledger.submit(batch, ids)
    again = env.ledger.submit(batch, ids)
    assert [each.created for each in again] == [False] * 3
    assert [each.task for each in again] == [each.task for each in first]


# -- longer than the task ----------------------------------------------------------------------


def test_cleaning_up_tasks_never_reopens_the_window(env: LedgerEnv) -> None:
    # Given a task that completed and was cleaned away,
    send(env, KEYED, "task-1")
    env.complete("task-1")
    assert prune_everything(env) == ["task-1"]
    # when its key comes again, then the answer is the task of old and how it ended;
    again = send(env, KEYED, "task-2")
    assert (again.created, again.task.id, again.task.state) == (False, "task-1", State.COMPLETE)
    # nothing was made, and another body is still a conflict.
    assert env.ledger.queries.events_after(0) == []
    with pytest.raises(Conflict):
        send(env, replace(KEYED, title="Break it"), "task-3")


def test_a_chosen_id_is_remembered_like_a_key(env: LedgerEnv) -> None:
    spec = Spec("release-1.2", "worker")
    send(env, spec, "release-1.2", generated=False)
    env.complete("release-1.2")
    prune_everything(env)
    assert not send(env, spec, "release-1.2", generated=False).created
    with pytest.raises(Conflict):
        send(env, replace(spec, title="other"), "release-1.2", generated=False)


def test_records_have_a_lifetime_of_their_own(env: LedgerEnv) -> None:
    # Given a task that is gone, when its record has had its time,
    send(env, KEYED, "task-1")
    env.complete("task-1")
    prune_everything(env)
    env.clock.now += DEDUP_MS - 1
    assert not send(env, KEYED, "task-2").created
    env.clock.now += 1
    # then the key is free, and stands for the new task from then on.
    assert send(env, replace(KEYED, title="New"), "task-3").created
    assert send(env, replace(KEYED, title="New"), "task-4").task.id == "task-3"


def test_the_lifetime_can_be_chosen() -> None:
    env = open_env(dedup_ms=1000)
    send(env, KEYED, "task-1")
    env.clock.forward(1)
    assert send(env, KEYED, "task-2").created
    env.store.close()


def test_a_key_whose_time_is_up_does_not_bring_a_live_task_back(env: LedgerEnv) -> None:
    send(env, KEYED, "task-1")
    env.clock.now += DEDUP_MS
    assert send(env, KEYED, "task-2").task.id == "task-2"


def test_a_chosen_id_of_a_task_that_is_there_stays_taken_for_ever(env: LedgerEnv) -> None:
    spec = Spec("release-1.2", "worker")
    send(env, spec, "release-1.2", generated=False)
    env.clock.now += 2 * DEDUP_MS
    assert not send(env, spec, "release-1.2", generated=False).created
    with pytest.raises(Conflict):
        send(env, replace(spec, title="other"), "release-1.2", generated=False)


def test_records_are_cleaned_up_only_when_their_time_is_up(env: LedgerEnv) -> None:
    send(env, KEYED, "task-1")
    prune_everything(env)
    assert env.sql("SELECT name FROM dedup") == [("key:order-7",)]
    env.clock.now += DEDUP_MS
    prune_everything(env)
    assert env.sql("SELECT name FROM dedup") == []


def test_a_key_that_was_answered_stands_for_its_task_from_then_on(env: LedgerEnv) -> None:
    # Given a task of a chosen id, when it is asked for again, now with a key,
    named = Spec("release-1.2", "worker")
    send(env, named, "release-1.2", generated=False)
    keyed = replace(named, idempotency_key="order-9")
    assert not send(env, keyed, "release-1.2", generated=False).created
    # then that key gives the same task also without the id.
    again = send(env, keyed, "task-9")
    assert (again.created, again.task.id) == (False, "release-1.2")


def test_a_key_learned_when_the_task_is_gone_knows_how_it_ended(env: LedgerEnv) -> None:
    # Given a task of a chosen id that completed and was cleaned away, when a key is given to it,
    named = Spec("release-1.2", "worker")
    send(env, named, "release-1.2", generated=False)
    env.complete("release-1.2")
    prune_everything(env)
    keyed = replace(named, idempotency_key="order-9")
    send(env, keyed, "release-1.2", generated=False)
    # then whoever comes with that key is not left waiting for something that is over.
    again = send(env, keyed, "task-9")
    assert (again.task.id, again.task.state) == ("release-1.2", State.COMPLETE)


def test_an_id_that_was_asked_for_but_not_given_is_free(env: LedgerEnv) -> None:
    # Given a key that stands for a task, when it comes again under another id,
    send(env, KEYED, "task-1")
    assert send(env, KEYED, "mine", generated=False).task.id == "task-1"
    # then that id, under which nothing is known, may still be used for something else.
    other = Spec("mine", "worker", title="Something else")
    assert send(env, other, "mine", generated=False).created


# -- cleaning up -------------------------------------------------------------------------------


def test_only_what_is_over_for_long_enough_is_cleaned_up(env: LedgerEnv) -> None:
    env.submit("done")
    env.complete("done")
    env.submit("failed")
    env.fail("failed")
    env.clock.forward(60)
    for name in ("ready", "running", "stopping", "fresh"):
        env.submit(name)
    env.start("running")
    env.start("stopping")
    env.ledger.cancel(env.key("stopping"), "boss")
    env.complete("fresh")
    gone: list[str] = []
    assert env.ledger.prune(env.clock.now, gone.append) == 2
    assert sorted(gone) == ["done", "failed"]
    assert prune_everything(env) == ["fresh"]
    assert env.states("ready", "running", "stopping") == ["ready", "in_progress", "cancelled"]


def test_what_has_not_left_the_outbox_is_not_cleaned_up(env: LedgerEnv) -> None:
    env.submit()
    env.start()
    env.report(result="result.md", result_sha256="f" * 64)
    assert prune_everything(env) == []
    env.ledger.ack_effects([row.sequence for row in env.ledger.effects("results", 10)])
    assert prune_everything(env) == ["task-1"]


def test_cleaning_up_leaves_no_crumbs(env: LedgerEnv) -> None:
    env.submit("a", resources=("repo",))
    env.submit("b", after=("a",), idempotency_key="k")
    env.complete("a", "b")
    prune_everything(env)
    tables = env.snapshot()
    assert isinstance(tables, dict)
    assert {name for name, rows in tables.items() if rows} == {"dedup"}


def test_positions_and_keys_are_never_used_twice(env: LedgerEnv) -> None:
    key = env.submit("a")
    env.complete("a")
    position = env.ledger.queries.last_position()
    prune_everything(env)
    assert env.ledger.queries.last_position() == position
    assert env.submit("b") > key
    assert env.ledger.queries.last_position() == position + 1


def test_cleaning_up_goes_page_by_page(env: LedgerEnv) -> None:
    specs = [Spec(f"task-{number}", "worker") for number in range(25)]
    env.submit_many(*specs)
    for held in env.ledger.claim("worker", 25, "ann"):
        env.ledger.fail(held.key, 1, "no", FailureKind.INVALID)
    gone: list[str] = []
    assert env.ledger.prune(env.clock.now + 1, gone.append, limit=10) == 25
    assert len(set(gone)) == 25


def test_an_id_that_was_made_up_is_taken_by_its_body_all_the_same(env: LedgerEnv) -> None:
    # Given a task whose id nobody chose, so nobody remembers it by that,
    spec = Spec("made-up", "worker", instructions="this")
    env.ledger.submit([spec], {"made-up"})
    # when somebody chooses that very id, then other words conflict, and the same give it.
    with pytest.raises(Conflict, match="taken by a task with another body"):
        env.ledger.submit([Spec("made-up", "worker", instructions="that")])
    (found,) = env.ledger.submit([spec])
    assert (found.task.id, found.created) == ("made-up", False)


def test_a_dependency_that_is_pruned_while_it_is_looked_up_is_looked_up_again(
    env: LedgerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a look that still sees a task which is gone when it is locked,
    keys, looks = SqliteTx.keys, []

    def sees_a_ghost(tx: SqliteTx, ids: Collection[str]) -> dict[str, int]:
        found = keys(tx, ids)
        if "ghost" in ids:
            looks.append(ids)
            if len(looks) == 1:
                return {**found, "ghost": 12_345}
        return found

    monkeypatch.setattr(SqliteTx, "keys", sees_a_ghost)
    # then it is looked for again, and found missing.
    with pytest.raises(Invalid, match="do not exist: ghost"):
        env.submit("task-1", after=("ghost",))
    # What is missing is looked for once more before it is called missing.
    assert len(looks) == 3
