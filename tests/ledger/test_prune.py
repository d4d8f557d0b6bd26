"""Cleaning up: nothing goes that a live task refers to, and no file stays that nobody knows of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentq.contracts.service_values import FilesLeft
from agentq.contracts.store import Filter
from agentq.core.errors import Conflict, Unavailable
from agentq.core.states import State
from agentq.core.task import Amounts, OnDependencyFailure, Spec
from agentq.core.triggers import Comment, Ruling
from agentq.ledger import pruning
from agentq.ledger.pruning import Named
from tests.ledger.conftest import Desk

DAY = 24 * 3600


def prune(desk: Desk, limit: int = 500) -> list[str]:
    """Clean up everything that may go; whose files went."""
    gone: list[str] = []
    desk.ledger.prune(desk.clock.now + 1, gone.append, limit)
    return gone


# -- what live tasks refer to ----------------------------------------------------------------------


def test_a_failed_task_that_a_next_task_comes_after_is_kept_until_that_was_told(desk: Desk) -> None:
    desk.submit("first")
    desk.fail("first")
    desk.submit("build", next=(Spec("build.1", "worker", after=("first",)),))
    assert prune(desk) == []
    desk.complete("build")
    assert desk.state("build.1") is State.FAILED
    assert sorted(prune(desk)) == ["build", "build.1", "first"]


def _waits(desk: Desk) -> None:
    desk.submit("other")
    desk.submit("child", after=("parent", "other"))


def _is_blocked(desk: Desk) -> None:
    desk.submit("child", after=("parent",))
    held = desk.start("child")
    desk.ledger.block(held.key, held.task.epoch, "which one?")


def _is_in_review(desk: Desk) -> None:
    desk.submit("child", after=("parent",), review=True)
    desk.start("child")
    desk.report("child")
    assert desk.state("child") is State.REVIEW


def _is_being_stopped(desk: Desk) -> None:
    desk.submit("child", after=("parent",))
    desk.start("child")
    desk.ledger.cancel(desk.key("child"), "boss")


@pytest.mark.parametrize("stands", [_waits, _is_blocked, _is_in_review, _is_being_stopped])
def test_what_a_live_task_comes_after_is_kept(desk: Desk, stands: Callable[[Desk], None]) -> None:
    desk.submit("parent")
    desk.complete("parent")
    stands(desk)
    assert prune(desk) == []
    assert desk.state("parent") is State.COMPLETE


def test_it_goes_with_the_last_that_came_after_it(desk: Desk) -> None:
    desk.submit("parent")
    desk.complete("parent")
    desk.submit("one", after=("parent",))
    desk.submit("two", after=("parent",), review=True)
    desk.complete("one", "two")
    assert prune(desk) == ["one"]
    desk.ledger.verdict(desk.key("two"), "boss", Ruling.ACCEPT)
    assert sorted(prune(desk)) == ["parent", "two"]


def test_of_a_chain_the_last_link_is_kept(desk: Desk) -> None:
    desk.submit("grandparent")
    desk.submit("parent", after=("grandparent",))
    desk.complete("grandparent", "parent")
    desk.submit("child", after=("parent",))
    assert prune(desk) == ["grandparent"]
    assert desk.state("parent") is State.COMPLETE


def test_the_parent_of_a_live_task_is_kept(desk: Desk) -> None:
    desk.submit("build", next=(Spec("build.1", "worker"),))
    desk.complete("build")
    assert prune(desk) == []
    desk.complete("build.1")
    assert sorted(prune(desk)) == ["build", "build.1"]


def test_a_task_whose_name_is_to_be_given_again_is_kept_with_its_files(desk: Desk) -> None:
    later = Spec("later", "worker", next=(Spec("latest", "worker"),))
    desk.submit("build", next=(later,))
    desk.submit("later", to="somebody-else")
    desk.submit("latest", to="somebody-else")
    desk.complete("later", "latest")
    assert prune(desk) == []


def test_the_budget_of_a_tree_can_be_raised_while_somebody_is_in_it(desk: Desk) -> None:
    desk.submit("root", tree_budget=Amounts(usd=5.0))
    desk.submit("child", parent="root")
    desk.submit("grandchild", parent="child")
    desk.complete("root", "child")
    assert prune(desk) == []
    desk.ledger.raise_tree(desk.key("root"), "boss", Amounts(usd=1.0))
    desk.complete("grandchild")
    assert sorted(prune(desk)) == ["child", "grandchild", "root"]


def test_words_that_look_like_a_field_keep_nothing(desk: Desk) -> None:
    desk.submit("done")
    desk.complete("done")
    desk.submit("live", instructions='say {"parent": "done", "next": []}', labels={"next": "done"})
    assert prune(desk) == ["done"]


def test_what_is_submitted_meanwhile_counts(desk: Desk) -> None:
    for name in ("a", "b", "c"):
        desk.submit(name)
        desk.fail(name)
    gone: list[str] = []

    def forget(task_id: str) -> None:
        gone.append(task_id)
        if task_id == "a":
            desk.submit("build", next=(Spec("build.1", "worker", after=("b",)),))

    desk.ledger.prune(desk.clock.now + 1, forget, limit=1)
    assert gone == ["a", "c"]
    assert desk.state("b") is State.FAILED


# -- dependencies that are gone --------------------------------------------------------------------


def family(desk: Desk, **fields: Any) -> State:
    """A task whose next comes after `old`, which is gone: how that next one begins."""
    desk.submit("build", next=(Spec("build.1", "worker", after=("old",), **fields),))
    desk.complete("build")
    assert desk.state("build") is State.COMPLETE
    return desk.state("build.1")


def last_comment(desk: Desk) -> str:
    (*_, last) = desk.ledger.views.history(desk.key("build"))
    assert isinstance(last.event.trigger, Comment)
    return last.event.trigger.text


def test_a_dependency_that_was_complete_and_is_gone_is_fine(desk: Desk) -> None:
    desk.submit("old")
    desk.complete("old")
    assert prune(desk) == ["old"]
    assert family(desk) is State.READY
    assert last_comment(desk) == "the next task build.1 does not wait for old (complete): gone"
    assert desk.problems() == []


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        (OnDependencyFailure.FAIL, State.FAILED),
        (OnDependencyFailure.SKIP, State.CANCELLED),
        (OnDependencyFailure.RUN, State.READY),
    ],
)
def test_a_dependency_that_failed_and_is_gone_has_failed(
    desk: Desk, policy: OnDependencyFailure, state: State
) -> None:
    desk.submit("old")
    desk.fail("old")
    assert prune(desk) == ["old"]
    assert family(desk, on_dependency_failure=policy) is state
    assert "old (failed)" in last_comment(desk)
    assert desk.problems() == []


def test_a_dependency_that_nobody_remembers_is_not_taken_for_complete(desk: Desk) -> None:
    assert family(desk) is State.FAILED
    assert "old (unknown)" in last_comment(desk)
    assert desk.task("build.1").spec.after == ()


def test_the_outcome_of_a_made_up_name_is_known_while_that_is_taken(desk: Desk) -> None:
    desk.ledger.submit([Spec("old", "worker")], {"old"})
    desk.complete("old")
    assert prune(desk) == ["old"]
    assert family(desk) is State.READY
    assert "old (complete)" in last_comment(desk)


def test_and_not_for_ever(desk: Desk) -> None:
    desk.ledger.submit([Spec("old", "worker")], {"old"})
    desk.complete("old")
    prune(desk)
    desk.clock.forward(DAY)
    prune(desk)
    assert family(desk, on_dependency_failure=OnDependencyFailure.RUN) is State.READY
    assert "old (unknown)" in last_comment(desk)


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


def finished(desk: Desk, count: int) -> Files:
    names = [f"task-{number}" for number in range(count)]
    desk.submit_many(*(Spec(name, "worker") for name in names))
    desk.complete(*names)
    return Files(*names)


def test_one_that_cannot_be_removed_keeps_none_of_the_others(desk: Desk) -> None:
    files = finished(desk, 5)
    files.broken = {"task-1"}
    with pytest.raises(FilesLeft, match=r"5 tasks were deleted.*files of task-1") as left:
        desk.ledger.prune(desk.clock.now + 1, files.remove, limit=2)
    assert left.value.deleted == 5
    assert files.there == {"task-1"}
    assert files.tried.count("task-1") == 1
    # The next one removes what is left, and nothing else is asked for again.
    files.broken, files.tried = set(), []
    assert desk.ledger.prune(desk.clock.now + 1, files.remove) == 0
    assert (files.there, files.tried) == (set(), ["task-1"])
    assert desk.sql("SELECT * FROM outbox") == []


def test_what_another_has_removed_meanwhile_is_left_to_it(desk: Desk) -> None:
    # Given three orders to remove files, that could not be carried out,
    files = finished(desk, 3)
    files.broken = set(files.there)
    for _ in range(2):
        with pytest.raises(FilesLeft):
            desk.ledger.prune(desk.clock.now + 1, files.remove, limit=1)
    orders = desk.sql("SELECT sequence FROM outbox WHERE lane = 'forget' ORDER BY sequence")
    assert len(orders) >= 2
    # when another process carries out all but the first while we are at that one,
    files.broken, files.tried = set(), []

    def remove(task_id: str) -> None:
        if not files.tried:
            files.tried.append("somebody else")
            desk.ledger.prune(desk.clock.now + 1, files.remove)
        files.remove(task_id)

    desk.ledger.prune(desk.clock.now + 1, remove)
    # then each is removed, and nothing is left to do.
    assert files.there == set()
    assert desk.sql("SELECT * FROM outbox") == []


def test_what_live_tasks_refer_to_is_looked_up_page_by_page(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_PAGE", 2)
    names = [f"{number}" for number in range(5)]
    for name in names:
        desk.submit(f"old-{name}")
        desk.complete(f"old-{name}")
        desk.submit(f"new-{name}", next=(Spec(f"next-{name}", "worker", after=(f"old-{name}",)),))
    desk.submit("free")
    desk.complete("free")
    assert prune(desk) == ["free"]
    assert all(desk.state(f"old-{name}") is State.COMPLETE for name in names)


def test_orders_behind_a_store_that_is_away_wait_untouched(desk: Desk) -> None:
    # Given four orders of which one task each could not be removed,
    files = finished(desk, 8)
    files.broken = {f"task-{number}" for number in (0, 2, 4, 6)}
    with pytest.raises(FilesLeft):
        desk.ledger.prune(desk.clock.now + 1, files.remove, limit=2)
    assert files.there == files.broken
    # when the next attempt fails three times in a row, then the fourth is not even tried.
    files.tried = []
    with pytest.raises(FilesLeft):
        desk.ledger.prune(desk.clock.now + 1, files.remove)
    assert files.tried == ["task-0", "task-2", "task-4"]
    files.broken = set()
    desk.ledger.prune(desk.clock.now + 1, files.remove)
    assert files.there == set()


def test_a_store_that_is_away_is_not_asked_for_every_task(desk: Desk) -> None:
    files = finished(desk, 60)
    files.broken = set(files.there)
    with pytest.raises(FilesLeft):
        desk.ledger.prune(desk.clock.now + 1, files.remove, limit=10)
    assert len(files.tried) == 3
    # It stops deleting, and does not begin again before what is left is gone.
    for _ in range(3):
        with pytest.raises(FilesLeft, match="0 tasks were deleted"):
            desk.ledger.prune(desk.clock.now + 1, files.remove, limit=10)
    assert desk.sql("SELECT count(*) FROM tasks") == [(50,)]
    files.broken = set()
    assert desk.ledger.prune(desk.clock.now + 1, files.remove, limit=10) == 50
    assert files.there == set()


@pytest.mark.parametrize("dies_at", range(1, 6))
def test_a_pruner_that_dies_leaves_the_rest_to_the_next(desk: Desk, dies_at: int) -> None:
    files = finished(desk, 5)

    def forget(task_id: str) -> None:
        if len(files.tried) == dies_at - 1:
            raise SystemExit
        files.remove(task_id)

    with pytest.raises(SystemExit):
        desk.ledger.prune(desk.clock.now + 1, forget, limit=3)
    desk.ledger.prune(desk.clock.now + 1, files.remove)
    assert files.there == set()
    assert desk.sql("SELECT * FROM outbox") == []


def test_what_is_left_is_counted_and_is_nobody_elses_business(desk: Desk) -> None:
    files = finished(desk, 2)
    files.broken = set(files.there)
    with pytest.raises(FilesLeft):
        desk.ledger.prune(desk.clock.now + 1, files.remove)
    assert desk.ledger.views.stats().outbox == {"forget": 1}
    assert desk.problems() == []
    # Of its task nothing is left that a carrier of other lanes could say.
    (row,) = desk.store.read(lambda reader: reader.effects("forget", 10))
    assert desk.store.read(lambda reader: reader.tasks([row.key])) == []


# -- names -----------------------------------------------------------------------------------------


def left_behind(desk: Desk) -> Files:
    """A task is deleted, and its files are there; its name would be free for long."""
    files = finished(desk, 1)
    files.broken = {"task-0"}
    desk.clock.forward(31 * DAY)
    with pytest.raises(FilesLeft):
        desk.ledger.prune(desk.clock.now + 1, files.remove)
    return files


def test_a_name_is_taken_until_its_files_have_been_gone_for_a_day(desk: Desk) -> None:
    files = left_behind(desk)
    # However long that takes, and whatever is forgotten meanwhile,
    desk.clock.forward(400 * DAY)
    with pytest.raises(FilesLeft):
        desk.ledger.prune(desk.clock.now + 1, files.remove)
    with pytest.raises(Conflict, match="task-0"):
        desk.submit("task-0", title="Something else")
    files.broken = set()
    assert desk.ledger.prune(desk.clock.now + 1, files.remove) == 0
    assert files.there == set()
    # a context may have been staged before they went.
    desk.clock.forward(DAY - 1)
    with pytest.raises(Conflict, match="task-0"):
        desk.submit("task-0", title="Something else")
    desk.clock.forward(1)
    desk.submit("task-0", title="Something else")


def test_nobody_gets_a_name_while_files_are_being_removed(desk: Desk) -> None:
    names = [f"task-{number}" for number in range(30)]
    # Of made-up names nothing is noted when they are submitted.
    desk.ledger.submit([Spec(name, "worker") for name in names], names[:15])
    desk.complete(*names)
    desk.clock.forward(31 * DAY)
    files = Files(*names)
    refused = []

    def forget(task_id: str) -> None:
        if not files.tried:
            for name in names:
                with pytest.raises(Conflict, match=name):
                    desk.submit(name, title="Something else")
                refused.append(name)
        files.remove(task_id)

    assert desk.ledger.prune(desk.clock.now + 1, forget) == 30
    assert refused == names
    assert files.there == set()


def test_the_same_words_still_give_the_same_task(desk: Desk) -> None:
    files = left_behind(desk)
    again = desk.ledger.submit([Spec("task-0", "worker")])[0]
    assert (again.created, again.task.state) == (False, State.COMPLETE)
    files.broken = set()
    desk.ledger.prune(desk.clock.now + 1, files.remove)


def test_pruning_never_frees_a_name_earlier(desk: Desk) -> None:
    files = finished(desk, 1)
    desk.ledger.prune(desk.clock.now + 1, files.remove)
    desk.clock.forward(30 * DAY - 1)
    with pytest.raises(Conflict):
        desk.submit("task-0", title="Something else")
    desk.clock.forward(1)
    desk.submit("task-0", title="Something else")


def test_a_task_to_come_gets_no_such_name(desk: Desk) -> None:
    left_behind(desk)
    deep = Spec("later", "worker", next=(Spec("task-0", "worker"),))
    for child in (Spec("task-0", "worker"), deep):
        with pytest.raises(Conflict, match="task-0"):
            desk.submit("build", next=(child,))
    assert desk.sql("SELECT count(*) FROM tasks") == [(0,)]


def test_files_of_a_name_that_is_to_be_given_again_wait(desk: Desk) -> None:
    files = finished(desk, 1)
    files.broken = {"task-0"}
    desk.clock.forward(60)
    # Given a task that failed, and does not keep what it would have named,
    desk.submit("build", next=(Spec("task-0", "worker"),))
    desk.fail("build")
    with pytest.raises(FilesLeft):
        desk.ledger.prune(desk.clock.now, files.remove)
    # when it is opened again, then the context of what is to follow may be among the files,
    desk.ledger.requeue(desk.key("build"), "boss")
    files.broken, files.tried = set(), []
    assert desk.ledger.prune(desk.clock.now, files.remove) == 0
    assert files.tried == []
    # and nothing follows under a name whose files are there.
    desk.complete("build")
    assert last_comment(desk) == "the next task task-0 was not submitted: that id is taken"
    assert desk.ledger.prune(desk.clock.now + 1, files.remove) == 1
    assert files.there == set()


def test_an_order_of_an_older_version_leaves_new_tasks_alone(desk: Desk) -> None:
    # It held no names, so that a task may have got one, and others may get one meanwhile.
    files = left_behind(desk)
    desk.store._writer.execute("DELETE FROM dedup")
    desk.submit("task-0", title="Something else")
    files.broken, files.tried = set(), []
    assert desk.ledger.prune(desk.clock.now + 1, files.remove) == 0
    assert files.tried == []
    assert desk.sql("SELECT * FROM outbox") == []
    desk.complete("task-0")
    assert desk.ledger.prune(desk.clock.now + 1, files.remove) == 1
    assert files.there == set()


# -- how much is read ------------------------------------------------------------------------------


def test_what_was_looked_at_is_not_read_again_though_nobody_names_anybody(desk: Desk) -> None:
    names = [f"task-{number}" for number in range(1200)]
    desk.submit_many(*(Spec(name, "worker") for name in names))
    named = Named()
    desk.store.read(named.look)
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

    desk.submit("build", next=(Spec("build.1", "worker"),))
    desk.store.read(look)
    assert asked == [desk.key("task-1199") - 1000]
    assert named.coming == {"build.1"}
