"""Parents and children in the ledger: who is told of whom, yields, trees, and opening again."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.errors import Refused
from agentq.core.limits import CHILDREN_MAX
from agentq.core.states import State
from agentq.core.task import OnDependencyFailure, Spec, Task
from tests.ledger.conftest import LedgerEnv

COMPLETE, FAILED = State.COMPLETE, State.FAILED


def under(env: LedgerEnv, parent: str, *names: str, **fields: Any) -> None:
    """Submit children of an attempt that runs."""
    task = env.task(parent)
    specs = [Spec(name, "worker", parent=parent, **fields) for name in names]
    env.ledger.submit(specs, fence=(env.key(parent), task.epoch))


def running(env: LedgerEnv, *children: str) -> None:
    """`lead`, in progress, with open children."""
    env.submit("lead", "lead")
    env.start("lead")
    under(env, "lead", *children)


def yields(env: LedgerEnv, name: str = "lead", wait: str = "all", *signals: str) -> Task:
    epoch = env.task(name).epoch
    return env.ledger.apply(env.key(name), t.Yield(epoch, wait, signals=signals))


def children(env: LedgerEnv, name: str = "lead") -> tuple[str, ...]:
    return env.task(name).details.children


def refused(env: LedgerEnv, name: str, trigger: t.Trigger) -> Refused:
    with pytest.raises(Refused) as caught:
        env.ledger.apply(env.key(name), trigger)
    return caught.value


# -- who is told of whom ---------------------------------------------------------------------------


def test_children_of_an_attempt_are_noted_in_the_transaction_that_submits_them(
    env: LedgerEnv,
) -> None:
    running(env, "a", "b")
    assert children(env) == ("a", "b")
    position = env.ledger.queries.last_position()
    env.complete("a")
    events = [(e.task_id, e.event.kind) for e in env.ledger.queries.events_after(position)]
    assert events[1:] == [("a", "completed"), ("lead", "child_ended")]
    assert env.task("lead").details.ended_children == (("a", COMPLETE),)


def test_the_same_submission_again_notes_nothing(env: LedgerEnv) -> None:
    running(env, "a")
    before = env.task("lead").version
    under(env, "lead", "a")
    assert env.task("lead").version == before
    env.complete("a")
    under(env, "lead", "a")
    assert children(env) == ()


def test_a_batch_may_bring_parents_with_their_children(env: LedgerEnv) -> None:
    env.submit_many(
        Spec("leaf", "worker", parent="branch"),
        Spec("branch", "worker", parent="root"),
        Spec("root", "worker"),
    )
    assert (children(env, "root"), children(env, "branch")) == (("branch",), ("leaf",))
    env.start("root")
    assert refused(env, "root", t.Report(1, "done")).code == "open_children"
    env.complete("leaf")
    env.complete("branch")
    assert env.report("root").state is COMPLETE


def test_a_batch_with_too_many_children_is_refused_whole(env: LedgerEnv) -> None:
    specs = [Spec(f"c{number}", "worker", parent="root") for number in range(CHILDREN_MAX + 1)]
    before = env.snapshot()
    with pytest.raises(Refused) as caught:
        env.submit_many(Spec("root", "worker"), *specs)
    assert caught.value.code == "too_many_children"
    assert env.snapshot() == before
    env.submit_many(Spec("root", "worker"), *specs[1:])
    with pytest.raises(Refused):
        env.submit("one-more", parent="root")


def test_a_ring_of_parents_waits_for_nobody(env: LedgerEnv) -> None:
    env.submit_many(
        Spec("x", "worker", parent="y"),
        Spec("y", "worker", parent="x"),
        Spec("tail", "worker", parent="x"),
    )
    assert (children(env, "x"), children(env, "y")) == ((), ())
    env.complete("tail", "x", "y")


def test_a_parent_that_is_not_there_or_is_over_is_told_nothing(env: LedgerEnv) -> None:
    env.submit("orphan", parent="nobody")
    env.submit("done")
    env.complete("done")
    env.submit("late", parent="done")
    env.submit("gone")
    env.ledger.cancel(env.key("gone"), "boss")
    env.submit("later", parent="gone")
    env.complete("orphan", "late", "later")
    assert env.sql("SELECT count(*) FROM edges") == [(0,)]


def test_one_that_is_over_at_birth_has_ended(env: LedgerEnv) -> None:
    env.submit("broken")
    env.fail("broken")
    running(env)
    under(env, "lead", "a", after=("broken",))
    assert env.task("lead").details.ended_children == (("a", FAILED),)
    assert children(env) == ()
    # Whoever yields to any is told of it at once.
    assert yields(env, wait="any").state is State.READY
    # Opened again, it is an open child that its parent is told of.
    env.start("lead")
    env.ledger.requeue(env.key("a"), "boss")
    assert children(env) == ("a",)
    assert yields(env).state is State.PENDING
    env.complete("a")
    assert env.state("lead") is State.READY


def test_a_batch_may_bring_children_that_are_over_at_birth(env: LedgerEnv) -> None:
    env.submit("broken")
    env.fail("broken")
    skip = OnDependencyFailure.SKIP
    env.submit_many(
        Spec("root", "worker"),
        Spec("a", "worker", parent="root", after=("broken",)),
        Spec("dead", "worker", after=("broken",)),
        Spec("b", "worker", parent="dead"),
        Spec("skipped", "worker", after=("broken",), on_dependency_failure=skip),
        Spec("c", "worker", parent="skipped"),
    )
    assert [children(env, name) for name in ("root", "dead", "skipped")] == [(), (), ()]
    # Those that may be opened again find their children then.
    env.ledger.requeue(env.key("dead"), "boss")
    assert children(env, "dead") == ("b",)
    env.ledger.requeue(env.key("a"), "boss")
    assert children(env, "root") == ("a",)
    env.complete("a", "b", "c")
    assert env.task("root").details.children == env.task("dead").details.children == ()


# -- yielding --------------------------------------------------------------------------------------


def test_a_parent_goes_on_when_its_children_are_over(env: LedgerEnv) -> None:
    running(env, "a", "b")
    assert yields(env).state is State.PENDING
    assert "yielded to its child a" in env.causes("lead")
    env.complete("a")
    env.fail("b")
    assert env.claim(role="lead") == ["lead"]
    assert env.task("lead").epoch == 2
    assert env.report("lead").state is COMPLETE


def test_many_children_that_end_together_wake_it_once(env: LedgerEnv) -> None:
    running(env, "a", "b", "c")
    yields(env, wait="any")
    for name in "abc":
        env.start(name)
    env.ledger.apply_many([(env.key(name), t.Report(1, "done")) for name in "abc"])
    assert env.kinds("lead")[-3:] == ["child_ended"] * 3
    assert env.claim(9, role="lead") == ["lead"]
    assert refused(env, "lead", t.Yield(2, "any")).code == "nothing_to_wait_for"


def test_a_child_that_waits_for_its_parent_cannot_be_yielded_to(env: LedgerEnv) -> None:
    running(env, "a")
    under(env, "lead", "b", after=("lead",))
    assert refused(env, "lead", t.Yield(1)).code == "cycle"
    env.ledger.cancel(env.key("b"), "boss")
    assert yields(env).state is State.PENDING


def test_neither_can_one_that_waits_for_it_through_others(env: LedgerEnv) -> None:
    running(env, "a")
    env.start("a")
    # The child of the child comes after the lead, which has yielded.
    yields(env)
    under(env, "a", "deep", after=("lead",))
    assert refused(env, "a", t.Yield(1)).code == "cycle"
    env.report("a", leaves_children=True)
    assert env.state("lead") is State.READY


def test_no_child_that_waits_for_it_is_added_to_one_that_has_yielded(env: LedgerEnv) -> None:
    running(env, "a")
    yields(env)
    before = env.snapshot()
    with pytest.raises(Refused) as caught:
        env.submit("b", parent="lead", after=("lead",))
    assert caught.value.code == "cycle"
    assert env.snapshot() == before
    env.submit("c", parent="lead")
    assert children(env) == ("a", "c")


def test_a_signal_to_one_that_waits_for_children_as_well(env: LedgerEnv) -> None:
    running(env, "a")
    yields(env, "lead", "all", "deployed")
    assert "waits for the signal deployed" in env.causes("lead")
    env.ledger.apply(env.key("lead"), t.Signal("ci", "deployed", '{"to":"prod"}'))
    assert env.state("lead") is State.PENDING
    env.complete("a")
    assert env.state("lead") is State.READY
    assert [note.text for note in env.task("lead").details.notes] == ['deployed: {"to":"prod"}']


# -- trees ----------------------------------------------------------------------------------------


def test_a_tree_is_cancelled_at_once_with_all_that_is_open_in_it(env: LedgerEnv) -> None:
    running(env, "a", "b", "done")
    env.complete("done")
    env.start("a")
    under(env, "a", "deep")
    yields(env)
    env.ledger.apply(env.key("lead"), t.Cancel("boss", "no need", tree=True))
    assert set(env.states("lead", "a", "b", "deep")) == {State.CANCELLED}
    assert env.state("done") is COMPLETE
    assert env.task("deep").reason == "cancelled by boss: no need"
    # The agent of the running one is told, and its word counts no more.
    assert env.task("a").holder == "ann"
    assert env.claim(9) == []


def test_so_is_what_was_made_of_a_list_below_it(env: LedgerEnv) -> None:
    running(env)
    under(env, "lead", "plan", next=(Spec("part", "worker", each="result"),))
    env.start("plan")
    env.report("plan", data="[1, 2]")
    env.complete("part-1")
    env.ledger.apply(env.key("lead"), t.Cancel("boss", tree=True))
    assert env.states("plan", "part-1", "part-2") == [COMPLETE, COMPLETE, State.CANCELLED]


def test_without_its_tree_the_others_go_on(env: LedgerEnv) -> None:
    running(env, "a")
    env.ledger.cancel(env.key("lead"), "boss")
    env.complete("a")
    assert env.task("lead").details.ended_children == ()


# -- opening again ---------------------------------------------------------------------------------


def test_a_parent_that_is_opened_again_finds_its_open_children(env: LedgerEnv) -> None:
    running(env, "a", "b")
    env.ledger.fail(env.key("lead"), 1, "no", t.FailureKind.INVALID)
    env.complete("a")
    env.submit("late", parent="lead")
    env.ledger.requeue(env.key("lead"), "boss")
    assert children(env) == ("b", "late")
    env.start("lead")
    assert refused(env, "lead", t.Report(2, "done")).code == "open_children"
    yields(env)
    env.complete("b", "late")
    assert env.state("lead") is State.READY


def test_a_child_that_is_opened_again_is_waited_for_anew(env: LedgerEnv) -> None:
    running(env, "a", "b")
    env.fail("a")
    yields(env)
    env.ledger.requeue(env.key("a"), "boss")
    assert set(children(env)) == {"a", "b"}
    env.complete("b")
    assert env.state("lead") is State.PENDING
    env.complete("a")
    assert env.state("lead") is State.READY


def test_a_child_without_an_edge_is_opened_again_alone(victim: LedgerEnv) -> None:
    """One of an earlier version: its parent was never told of it, and would never be told."""
    running(victim, "a")
    victim.fail("a")
    victim.sql("DELETE FROM edges")
    victim.ledger.requeue(victim.key("a"), "boss")
    assert children(victim) == ()


def test_a_task_may_come_after_its_own_child(env: LedgerEnv) -> None:
    env.submit_many(
        Spec("whole", "worker", after=("part",)), Spec("part", "worker", parent="whole")
    )
    assert env.state("whole") is State.PENDING
    env.fail("part")
    assert env.state("whole") is FAILED
    env.ledger.requeue(env.key("part"), "boss")
    env.ledger.requeue(env.key("whole"), "boss")
    assert env.task("whole").details.waiting_on == children(env, "whole") == ("part",)
    env.complete("part")
    assert env.state("whole") is State.READY


def test_requeue_asks_for_a_new_approval(env: LedgerEnv) -> None:
    env.submit(requires_approval=True)
    env.approve("task-1")
    env.fail("task-1")
    env.ledger.requeue(env.key("task-1"), "boss")
    assert env.state() is State.PENDING
    env.approve("task-1")
    assert env.state() is State.READY


# -- what is kept ---------------------------------------------------------------------------------


def test_what_a_live_parent_refers_to_is_kept(env: LedgerEnv) -> None:
    running(env, "a")
    env.complete("a")
    env.clock.forward(60)
    gone: list[str] = []
    assert env.ledger.prune(env.clock.now, gone.append) == 0
    env.report("lead")
    env.clock.forward(60)
    assert env.ledger.prune(env.clock.now, gone.append) == 2
    assert sorted(gone) == ["a", "lead"]
    assert env.sql("SELECT count(*) FROM edges") == [(0,)]


def test_a_parent_outlives_its_open_children(env: LedgerEnv) -> None:
    running(env, "a")
    env.report("lead", leaves_children=True)
    env.clock.forward(60)
    assert env.ledger.prune(env.clock.now, lambda _: None) == 0
    env.complete("a")
