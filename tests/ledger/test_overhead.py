"""Work, wall, critical path and overhead, against numbers that were worked out by hand."""

from __future__ import annotations

from agentq.contracts.service_values import Overhead, Wanted
from agentq.core.task import Spec
from agentq.core.triggers import FailureKind
from agentq.ledger.overhead import measured, overhead_of
from tests.ledger.conftest import Desk


def measure(desk: Desk, *task_ids: str) -> Overhead:
    views = desk.ledger.views
    tasks = [desk.task(task_id) for task_id in task_ids]
    return measured(views, tasks or views.list_tasks(Wanted()).tasks, desk.clock.now)


def test_three_side_by_side(desk: Desk) -> None:
    """Submitted at 0; claimed at 0.2, 0.3, 0.4 s; each runs 3.5 s; the last ends at 3.9 s."""
    desk.submit_many(*(Spec(f"task-{n}", "worker") for n in (1, 2, 3)))
    desk.clock.forward(0.1)
    for n in (1, 2, 3):
        desk.clock.forward(0.1)
        desk.start(f"task-{n}")
    desk.clock.forward(3.3)
    for n in (1, 2, 3):
        desk.report(f"task-{n}")
        desk.clock.forward(0.1)
    found = measure(desk)
    assert (found.tasks, found.attempts, found.running) == (3, 3, 0)
    assert (found.work_ms, found.wall_ms, found.critical_path_ms) == (10_500, 3_900, 3_500)
    assert (found.overhead_ms, found.gain_ms) == (400, 6_600)
    assert found.share is not None and round(found.share, 4) == 0.0606
    assert len(found.path) == 1


def test_a_diamond(desk: Desk) -> None:
    """a (2 s), then b (3 s) and c (5 s) side by side, then d (1 s); 0.5 s before each start."""
    desk.submit_many(
        Spec("a", "worker"),
        Spec("b", "worker", after=("a",)),
        Spec("c", "worker", after=("a",)),
        Spec("d", "worker", after=("b", "c")),
    )
    desk.clock.forward(0.5)
    desk.start("a")
    desk.clock.forward(2)
    desk.report("a")
    desk.clock.forward(0.5)
    desk.start("b")
    desk.start("c")
    desk.clock.forward(3)
    desk.report("b")
    desk.clock.forward(2)
    desk.report("c")
    desk.clock.forward(0.5)
    desk.start("d")
    desk.clock.forward(1)
    desk.report("d")
    found = measure(desk)
    assert found.path == ("a", "c", "d")
    assert (found.work_ms, found.wall_ms, found.critical_path_ms) == (11_000, 9_500, 8_000)
    assert (found.overhead_ms, found.gain_ms, found.share) == (1_500, 1_500, 1.0)
    # Of a part of them, dependencies outside of it do not count.
    part = measure(desk, "b", "d")
    assert (part.work_ms, part.critical_path_ms, part.path) == (4_000, 4_000, ("b", "d"))


def test_all_attempts_are_work(desk: Desk) -> None:
    """2 s until it fails, a pause, 1 s until it is given back, 4 s; one after the other."""
    desk.submit("task-1")
    held = desk.start("task-1")
    desk.clock.forward(2)
    desk.ledger.fail(held.key, 1, "no", FailureKind.TRANSIENT)
    pause_ms = desk.task("task-1").wake_at - desk.clock.now
    desk.clock.now += pause_ms
    desk.ledger.tick()
    desk.start("task-1")
    desk.clock.forward(1)
    desk.ledger.release(held.key, 2, "shutdown")
    desk.start("task-1")
    desk.clock.forward(4)
    desk.report("task-1")
    found = measure(desk)
    assert (found.attempts, found.work_ms, found.critical_path_ms) == (3, 7_000, 7_000)
    assert found.wall_ms == 7_000 + pause_ms and found.overhead_ms == pause_ms
    assert found.gain_ms < 0 and found.share is None


def test_attempts_that_run_or_vanish_or_are_cancelled(desk: Desk) -> None:
    desk.submit_many(*(Spec(f"task-{n}", "worker", lease_seconds=10) for n in (1, 2, 3, 4)))
    for n in (1, 2, 3):
        desk.start(f"task-{n}")
    desk.clock.forward(3)
    for n in (2, 3):
        desk.ledger.cancel(desk.key(f"task-{n}"), "bob")
    desk.clock.forward(1)
    desk.ledger.stopped(desk.key("task-2"), 1)  # 4 s: until its agent was gone
    desk.clock.forward(2)
    now = measure(desk)
    assert (now.running, now.work_ms) == (2, 6_000 + 4_000 + 6_000)
    desk.clock.forward(4)
    desk.ledger.tick()  # two leases have ended
    later = measure(desk)
    assert (later.running, later.attempts) == (0, 3)
    assert (later.work_ms, later.wall_ms) == (10_000 + 4_000 + 10_000, 10_000)


def test_what_comes_next_comes_after(desk: Desk) -> None:
    desk.submit("first", next=(Spec("second", "worker"),))
    desk.start("first")
    desk.clock.forward(1)
    desk.report("first")
    desk.start("second")
    desk.clock.forward(2)
    desk.report("second")
    found = measure(desk)
    assert found.path == ("first", "second") and found.overhead_ms == 0


def test_nothing_at_all(desk: Desk) -> None:
    assert overhead_of([], {}, 0) == Overhead(0, 0, 0, 0, 0, 0, ())
    desk.submit("waits")
    found = measure(desk)
    assert (found.tasks, found.wall_ms, found.share) == (1, 0, None)


def test_a_chain_of_thousands(desk: Desk) -> None:
    specs = [Spec("t0", "worker")]
    specs += [Spec(f"t{n}", "worker", after=(f"t{n - 1}",)) for n in range(1, 3000)]
    found = overhead_of([], {spec.id: spec for spec in specs}, 0)
    assert found.critical_path_ms == 0 and found.tasks == 3000


def test_words_in_between_neither_begin_nor_end_an_attempt(desk: Desk) -> None:
    # Given an attempt that says how far it is, and one that was cancelled and still runs,
    for name in ("task-1", "task-2", "other"):
        desk.submit(name)
    for name in ("task-1", "task-2", "other"):
        desk.start(name)
    desk.clock.forward(1)
    desk.ledger.progress(desk.key("task-1"), 1, 50)
    desk.ledger.cancel(desk.key("task-2"), "bob")
    desk.clock.forward(1)
    # when somebody comments on it,
    desk.ledger.comment(desk.key("task-2"), "bob", "is it gone?")
    desk.clock.forward(1)
    desk.ledger.stopped(desk.key("task-2"), 1)
    desk.report("task-1")
    # then both ran until they ended; and the log of another task is passed over.
    entries = desk.ledger.views.events_after(0, 100)
    assert "other" in {entry.task_id for entry in entries}
    specs = {name: desk.task(name).spec for name in ("task-1", "task-2")}
    found = overhead_of(entries, specs, desk.clock.now)
    assert (found.tasks, found.attempts, found.work_ms) == (2, 2, 6_000)
