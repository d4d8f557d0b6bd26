"""Cleaning up: nothing goes that a live task refers to, and no file stays that nobody knows of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentq.contracts.service_values import FilesLeft
from agentq.contracts.task_filter import Filter
from agentq.core.errors import Conflict, Unavailable
from agentq.core.states import State
from agentq.core.task import OnDependencyFailure, Spec, Usage
from agentq.core.triggers import Comment, Ruling
from agentq.ledger import pruning
from agentq.ledger.pruning import Named
from tests.ledger.conftest import LedgerEnv

DAY = 24 * 3600


def prune(env: LedgerEnv, limit: int = 500) -> list[str]:
    """Clean up everything that may go; whose files went."""
    gone: list[str] = []
    env.ledger.prune(env.clock.now + 1, gone.append, limit)
    return gone


# -- what live tasks refer to ----------------------------------------------------------------------


def test_a_failed_task_that_a_next_task_comes_after_is_kept_until_that_was_told(
    env: LedgerEnv,
) -> None:
    env.submit("first")
    env.fail("first")
    env.submit("build", next=(Spec("build.1", "worker", after=("first",)),))
    assert prune(env) == []
    env.complete("build")
    assert env.state("build.1") is State.FAILED
    assert sorted(prune(env)) == ["build", "build.1", "first"]


def _waits(env: LedgerEnv) -> None:
    env.submit("other")
    env.submit("child", after=("parent", "other"))


def _is_blocked(env: LedgerEnv) -> None:
    env.submit("child", after=("parent",))
    held = env.start("child")
    env.ledger.block(held.key, held.task.epoch, "which one?")


def _is_in_review(env: LedgerEnv) -> None:
    env.submit("child", after=("parent",), review=True)
    env.start("child")
    env.report("child")
    assert env.state("child") is State.REVIEW


def _is_being_stopped(env: LedgerEnv) -> None:
    env.submit("child", after=("parent",))
    env.start("child")
    env.ledger.cancel(env.key("child"), "boss")


@pytest.mark.parametrize("stands", [_waits, _is_blocked, _is_in_review, _is_being_stopped])
def test_what_a_live_task_comes_after_is_kept(
    env: LedgerEnv, stands: Callable[[LedgerEnv], None]
) -> None:
    env.submit("parent")
    env.complete("parent")
    stands(env)
    assert prune(env) == []
    assert env.state("parent") is State.COMPLETE


def test_it_goes_with_the_last_that_came_after_it(env: LedgerEnv) -> None:
    env.submit("parent")
    env.complete("parent")
    env.submit("one", after=("parent",))
    env.submit("two", after=("parent",), review=True)
    env.complete("one", "two")
    assert prune(env) == ["one"]
    env.ledger.verdict(env.key("two"), "boss", Ruling.ACCEPT)
    assert sorted(prune(env)) == ["parent", "two"]


def test_of_a_chain_the_last_link_is_kept(env: LedgerEnv) -> None:
    env.submit("grandparent")
    env.submit("parent", after=("grandparent",))
    env.complete("grandparent", "parent")
    env.submit("child", after=("parent",))
    assert prune(env) == ["grandparent"]
    assert env.state("parent") is State.COMPLETE


def test_the_parent_of_a_live_task_is_kept(env: LedgerEnv) -> None:
    env.submit("build", next=(Spec("build.1", "worker"),))
    env.complete("build")
    assert prune(env) == []
    env.complete("build.1")
    assert sorted(prune(env)) == ["build", "build.1"]


def test_a_task_whose_name_is_to_be_given_again_is_kept_with_its_files(env: LedgerEnv) -> None:
    later = Spec("later", "worker", next=(Spec("latest", "worker"),))
    env.submit("build", next=(later,))
    env.submit("later", to="somebody-else")
    env.submit("latest", to="somebody-else")
    env.complete("later", "latest")
    assert prune(env) == []


def test_the_budget_of_a_tree_can_be_raised_while_somebody_is_in_it(env: LedgerEnv) -> None:
    env.submit("root", tree_budget=Usage(usd=5.0))
    env.submit("child", parent="root")
    env.submit("grandchild", parent="child")
    env.complete("root", "child")
    assert prune(env) == []
    env.ledger.raise_tree(env.key("root"), "boss", Usage(usd=1.0))
    env.complete("grandchild")
    assert sorted(prune(env)) == ["child", "grandchild", "root"]


def test_words_that_look_like_a_field_keep_nothing(env: LedgerEnv) -> None:
    env.submit("done")
    env.complete("done")
    env.submit("live", instructions='say {"parent": "done", "next": []}', labels={"next": "done"})
    assert prune(env) == ["done"]


def test_what_is_submitted_meanwhile_counts(env: LedgerEnv) -> None:
    for name in ("a", "b", "c"):
        env.submit(name)
        env.fail(name)
    gone: list[str] = []

    def forget(task_id: str) -> None:
        gone.append(task_id)
        if task_id == "a":
            env.submit("build", next=(Spec("build.1", "worker", after=("b",)),))

    env.ledger.prune(env.clock.now + 1, forget, limit=1)
    assert gone == ["a", "c"]
    assert env.state("b") is State.FAILED


# -- dependencies that are gone --------------------------------------------------------------------


def family(env: LedgerEnv, **fields: Any) -> State:
    """A task whose next comes after `old`, which is gone: how that next one begins."""
    env.submit("build", next=(Spec("build.1", "worker", after=("old",), **fields),))
    env.complete("build")
    assert env.state("build") is State.COMPLETE
    return env.state("build.1")


def last_comment(env: LedgerEnv) -> str:
    (*_, last) = env.ledger.queries.history(env.key("build"))
    assert isinstance(last.event.trigger, Comment)
    return last.event.trigger.text


def test_a_dependency_that_was_complete_and_is_gone_is_fine(env: LedgerEnv) -> None:
    env.submit("old")
    env.complete("old")
    assert prune(env) == ["old"]
    assert family(env) is State.READY
    assert last_comment(env) == "the next task build.1 does not wait for old (complete): gone"
    assert env.problems() == []


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        (OnDependencyFailure.FAIL, State.FAILED),
        (OnDependencyFailure.SKIP, State.CANCELLED),
        (OnDependencyFailure.RUN, State.READY),
    ],
)
def test_a_dependency_that_failed_and_is_gone_has_failed(
    env: LedgerEnv, policy: OnDependencyFailure, state: State
) -> None:
    env.submit("old")
    env.fail("old")
    assert prune(env) == ["old"]
    assert family(env, on_dependency_failure=policy) is state
    assert "old (failed)" in last_comment(env)
    assert env.problems() == []


def test_a_dependency_that_nobody_remembers_is_not_taken_for_complete(env: LedgerEnv) -> None:
    assert family(env) is State.FAILED
    assert "old (unknown)" in last_comment(env)
    assert env.task("build.1").spec.after == ()


def test_the_outcome_of_a_made_up_name_is_known_while_that_is_taken(env: LedgerEnv) -> None:
    env.ledger.submit([Spec("old", "worker")], {"old"})
    env.complete("old")
    assert prune(env) == ["old"]
    assert family(env) is State.READY
    assert "old (complete)" in last_comment(env)


def test_and_not_for_ever(env: LedgerEnv) -> None:
    env.ledger.submit([Spec("old", "worker")], {"old"})
    env.complete("old")
    prune(env)
    env.clock.forward(DAY)
    prune(env)
    assert family(env, on_dependency_failure=OnDependencyFailure.RUN) is State.READY
    assert "old (unknown)" in last_comment(env)


# -- files -----------------------------------------------------------------------------------------


class Files:
    """The files of every task, on a store that may be away."""

    def __init__(self, *ids: str) -> None:
        self.there = set(ids)
        self.broken: set[str] = set()
        self.tried: list[str] = []

    def remove(self, task_id: str) -> None:
        self.tried.append(task_id)
        if task_id in self.broken:
            raise Unavailable(f"Cannot remove the files of {task_id}.", "Mend it.")
        self.there.discard(task_id)


def finished(env: LedgerEnv, count: int) -> Files:
    names = [f"task-{number}" for number in range(count)]
    env.submit_many(*(Spec(name, "worker") for name in names))
    env.complete(*names)
    return Files(*names)


def test_one_that_cannot_be_removed_keeps_none_of_the_others(env: LedgerEnv) -> None:
    files = finished(env, 5)
    files.broken = {"task-1"}
    with pytest.raises(FilesLeft, match=r"5 tasks were deleted.*files of task-1") as left:
        env.ledger.prune(env.clock.now + 1, files.remove, limit=2)
    assert left.value.deleted == 5
    assert files.there == {"task-1"}
    assert files.tried.count("task-1") == 1
    # The next one removes what is left, and nothing else is asked for again.
    files.broken, files.tried = set(), []
    assert env.ledger.prune(env.clock.now + 1, files.remove) == 0
    assert (files.there, files.tried) == (set(), ["task-1"])
    assert env.sql("SELECT * FROM outbox") == []


def test_what_another_has_removed_meanwhile_is_left_to_it(env: LedgerEnv) -> None:
    # Given three orders to remove files, that could not be carried out,
    files = finished(env, 3)
    files.broken = set(files.there)
    for _ in range(2):
        with pytest.raises(FilesLeft):
            env.ledger.prune(env.clock.now + 1, files.remove, limit=1)
    orders = env.sql("SELECT sequence FROM outbox WHERE lane = 'forget' ORDER BY sequence")
    assert len(orders) >= 2
    # when another process carries out all but the first while we are at that one,
    files.broken, files.tried = set(), []

    def remove(task_id: str) -> None:
        if not files.tried:
            files.tried.append("somebody else")
            env.ledger.prune(env.clock.now + 1, files.remove)
        files.remove(task_id)

    env.ledger.prune(env.clock.now + 1, remove)
    # then each is removed, and nothing is left to do.
    assert files.there == set()
    assert env.sql("SELECT * FROM outbox") == []


def test_what_live_tasks_refer_to_is_looked_up_page_by_page(
    env: LedgerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_PAGE", 2)
    names = [f"{number}" for number in range(5)]
    for name in names:
        env.submit(f"old-{name}")
        env.complete(f"old-{name}")
        env.submit(f"new-{name}", next=(Spec(f"next-{name}", "worker", after=(f"old-{name}",)),))
    env.submit("free")
    env.complete("free")
    assert prune(env) == ["free"]
    assert all(env.state(f"old-{name}") is State.COMPLETE for name in names)


def test_orders_behind_a_store_that_is_away_wait_untouched(env: LedgerEnv) -> None:
    # Given four orders of which one task each could not be removed,
    files = finished(env, 8)
    files.broken = {f"task-{number}" for number in (0, 2, 4, 6)}
    with pytest.raises(FilesLeft):
        env.ledger.prune(env.clock.now + 1, files.remove, limit=2)
    assert files.there == files.broken
    # when the next attempt fails three times in a row, then the fourth is not even tried.
    files.tried = []
    with pytest.raises(FilesLeft):
        env.ledger.prune(env.clock.now + 1, files.remove)
    assert files.tried == ["task-0", "task-2", "task-4"]
    files.broken = set()
    env.ledger.prune(env.clock.now + 1, files.remove)
    assert files.there == set()


def test_a_store_that_is_away_is_not_asked_for_every_task(env: LedgerEnv) -> None:
    files = finished(env, 60)
    files.broken = set(files.there)
    with pytest.raises(FilesLeft):
        env.ledger.prune(env.clock.now + 1, files.remove, limit=10)
    assert len(files.tried) == 3
    # It stops deleting, and does not begin again before what is left is gone.
    for _ in range(3):
        with pytest.raises(FilesLeft, match="0 tasks were deleted"):
            env.ledger.prune(env.clock.now + 1, files.remove, limit=10)
    assert env.sql("SELECT count(*) FROM tasks") == [(50,)]
    files.broken = set()
    assert env.ledger.prune(env.clock.now + 1, files.remove, limit=10) == 50
    assert files.there == set()


@pytest.mark.parametrize("dies_at", range(1, 6))
def test_a_pruner_that_dies_leaves_the_rest_to_the_next(env: LedgerEnv, dies_at: int) -> None:
    files = finished(env, 5)

    def forget(task_id: str) -> None:
        if len(files.tried) == dies_at - 1:
            raise SystemExit
        files.remove(task_id)

    with pytest.raises(SystemExit):
        env.ledger.prune(env.clock.now + 1, forget, limit=3)
    env.ledger.prune(env.clock.now + 1, files.remove)
    assert files.there == set()
    assert env.sql("SELECT * FROM outbox") == []


def test_what_is_left_is_counted_and_is_nobody_elses_business(env: LedgerEnv) -> None:
    files = finished(env, 2)
    files.broken = set(files.there)
    with pytest.raises(FilesLeft):
        env.ledger.prune(env.clock.now + 1, files.remove)
    assert env.ledger.queries.stats().outbox == {"forget": 1}
    assert env.problems() == []
    # Of its task nothing is left that a carrier of other lanes could say.
    (row,) = env.store.read(lambda reader: reader.effects("forget", 10))
    assert env.store.read(lambda reader: reader.tasks([row.key])) == []


# -- names -----------------------------------------------------------------------------------------


def left_behind(env: LedgerEnv) -> Files:
    """A task is deleted, and its files are there; its name would be free for long."""
    files = finished(env, 1)
    files.broken = {"task-0"}
    env.clock.forward(31 * DAY)
    with pytest.raises(FilesLeft):
        env.ledger.prune(env.clock.now + 1, files.remove)
    return files


def test_a_name_is_taken_until_its_files_have_been_gone_for_a_day(env: LedgerEnv) -> None:
    files = left_behind(env)
    # However long that takes, and whatever is forgotten meanwhile,
    env.clock.forward(400 * DAY)
    with pytest.raises(FilesLeft):
        env.ledger.prune(env.clock.now + 1, files.remove)
    with pytest.raises(Conflict, match="task-0"):
        env.submit("task-0", title="Something else")
    files.broken = set()
    assert env.ledger.prune(env.clock.now + 1, files.remove) == 0
    assert files.there == set()
    # a context may have been staged before they went.
    env.clock.forward(DAY - 1)
    with pytest.raises(Conflict, match="task-0"):
        env.submit("task-0", title="Something else")
    env.clock.forward(1)
    env.submit("task-0", title="Something else")


def test_nobody_gets_a_name_while_files_are_being_removed(env: LedgerEnv) -> None:
    names = [f"task-{number}" for number in range(30)]
    # Of made-up names nothing is noted when they are submitted.
    env.ledger.submit([Spec(name, "worker") for name in names], names[:15])
    env.complete(*names)
    env.clock.forward(31 * DAY)
    files = Files(*names)
    refused = []

    def forget(task_id: str) -> None:
        if not files.tried:
            for name in names:
                with pytest.raises(Conflict, match=name):
                    env.submit(name, title="Something else")
                refused.append(name)
        files.remove(task_id)

    assert env.ledger.prune(env.clock.now + 1, forget) == 30
    assert refused == names
    assert files.there == set()


def test_the_same_words_still_give_the_same_task(env: LedgerEnv) -> None:
    files = left_behind(env)
    again = env.ledger.submit([Spec("task-0", "worker")])[0]
    assert (again.created, again.task.state) == (False, State.COMPLETE)
    files.broken = set()
    env.ledger.prune(env.clock.now + 1, files.remove)


def test_pruning_never_frees_a_name_earlier(env: LedgerEnv) -> None:
    files = finished(env, 1)
    env.ledger.prune(env.clock.now + 1, files.remove)
    env.clock.forward(30 * DAY - 1)
    with pytest.raises(Conflict):
        env.submit("task-0", title="Something else")
    env.clock.forward(1)
    env.submit("task-0", title="Something else")


def test_a_task_to_come_gets_no_such_name(env: LedgerEnv) -> None:
    left_behind(env)
    deep = Spec("later", "worker", next=(Spec("task-0", "worker"),))
    for child in (Spec("task-0", "worker"), deep):
        with pytest.raises(Conflict, match="task-0"):
            env.submit("build", next=(child,))
    assert env.sql("SELECT count(*) FROM tasks") == [(0,)]


def test_files_of_a_name_that_is_to_be_given_again_wait(env: LedgerEnv) -> None:
    files = finished(env, 1)
    files.broken = {"task-0"}
    env.clock.forward(60)
    # Given a task that failed, and does not keep what it would have named,
    env.submit("build", next=(Spec("task-0", "worker"),))
    env.fail("build")
    with pytest.raises(FilesLeft):
        env.ledger.prune(env.clock.now, files.remove)
    # when it is opened again, then the context of what is to follow may be among the files,
    env.ledger.requeue(env.key("build"), "boss")
    files.broken, files.tried = set(), []
    assert env.ledger.prune(env.clock.now, files.remove) == 0
    assert files.tried == []
    # and nothing follows under a name whose files are there.
    env.complete("build")
    assert last_comment(env) == "the next task task-0 was not submitted: that id is taken"
    assert env.ledger.prune(env.clock.now + 1, files.remove) == 1
    assert files.there == set()


def test_an_order_of_an_older_version_leaves_new_tasks_alone(env: LedgerEnv) -> None:
    # It held no names, so that a task may have got one, and others may get one meanwhile.
    files = left_behind(env)
    env.store._writer.execute("DELETE FROM dedup")
    env.submit("task-0", title="Something else")
    files.broken, files.tried = set(), []
    assert env.ledger.prune(env.clock.now + 1, files.remove) == 0
    assert files.tried == []
    assert env.sql("SELECT * FROM outbox") == []
    env.complete("task-0")
    assert env.ledger.prune(env.clock.now + 1, files.remove) == 1
    assert files.there == set()


# -- how much is read ------------------------------------------------------------------------------


def test_what_was_looked_at_is_not_read_again_though_nobody_names_anybody(env: LedgerEnv) -> None:
    names = [f"task-{number}" for number in range(1200)]
    env.submit_many(*(Spec(name, "worker") for name in names))
    named = Named()
    env.store.read(named.look)
    # Some overlap apart, a second look begins where the first one ended.
    asked: list[int] = []

    def look(reader: Any) -> None:
        class Watched:
            @staticmethod
            def list_tasks(wanted: Filter) -> Any:
                if wanted.refers:
                    asked.append(wanted.key)
                return reader.list_tasks(wanted)

        named.look(Watched())  # type: ignore[arg-type]

    env.submit("build", next=(Spec("build.1", "worker"),))
    env.store.read(look)
    assert asked == [env.key("task-1199") - 1000]
    assert named.coming == {"build.1"}
