"""Work, wall, critical path and overhead, against numbers that were worked out by hand."""

from __future__ import annotations

from agentq.contracts.service_values import Overhead, Wanted
from agentq.core.task import Spec
from agentq.core.triggers import FailureKind
from agentq.ledger.overhead import measured, overhead_of
from tests.ledger.conftest import LedgerEnv


def measure(env: LedgerEnv, *task_ids: str) -> Overhead:
    queries = env.ledger.queries
    tasks = [env.task(task_id) for task_id in task_ids]
    return measured(queries, tasks or queries.list_tasks(Wanted()).tasks, env.clock.now)


def test_three_side_by_side(env: LedgerEnv) -> None:
    """Submitted at 0; claimed at 0.2, 0.3, 0.4 s; each runs 3.5 s; the last ends at 3.9 s."""
    env.submit_many(*(Spec(f"task-{n}", "worker") for n in (1, 2, 3)))
    env.clock.forward(0.1)
    for n in (1, 2, 3):
        env.clock.forward(0.1)
        env.start(f"task-{n}")
    env.clock.forward(3.3)
    for n in (1, 2, 3):
        env.report(f"task-{n}")
        env.clock.forward(0.1)
    found = measure(env)
    assert (found.tasks, found.attempts, found.running) == (3, 3, 0)
    assert (found.work_ms, found.wall_ms, found.critical_path_ms) == (10_500, 3_900, 3_500)
    assert (found.overhead_ms, found.gain_ms) == (400, 6_600)
    assert found.share is not None and round(found.share, 4) == 0.0606
    assert len(found.path) == 1


def test_a_diamond(env: LedgerEnv) -> None:
    """a (2 s), then b (3 s) and c (5 s) side by side, then d (1 s); 0.5 s before each start."""
    env.submit_many(
        Spec("a", "worker"),
        Spec("b", "worker", after=("a",)),
        Spec("c", "worker", after=("a",)),
        Spec("d", "worker", after=("b", "c")),
    )
    env.clock.forward(0.5)
    env.start("a")
    env.clock.forward(2)
    env.report("a")
    env.clock.forward(0.5)
    env.start("b")
    env.start("c")
    env.clock.forward(3)
    env.report("b")
    env.clock.forward(2)
    env.report("c")
    env.clock.forward(0.5)
    env.start("d")
    env.clock.forward(1)
    env.report("d")
    found = measure(env)
    assert found.path == ("a", "c", "d")
    assert (found.work_ms, found.wall_ms, found.critical_path_ms) == (11_000, 9_500, 8_000)
    assert (found.overhead_ms, found.gain_ms, found.share) == (1_500, 1_500, 1.0)
    # Of a part of them, dependencies outside of it do not count.
    part = measure(env, "b", "d")
    assert (part.work_ms, part.critical_path_ms, part.path) == (4_000, 4_000, ("b", "d"))


def test_all_attempts_are_work(env: LedgerEnv) -> None:
    """2 s until it fails, a pause, 1 s until it is given back, 4 s; one after the other."""
    env.submit("task-1")
    held = env.start("task-1")
    env.clock.forward(2)
    env.ledger.fail(held.key, 1, "no", FailureKind.TRANSIENT)
    pause_ms = env.task("task-1").wake_at - env.clock.now
    env.clock.now += pause_ms
    env.ledger.tick()
    env.start("task-1")
    env.clock.forward(1)
    env.ledger.release(held.key, 2, "shutdown")
    env.start("task-1")
    env.clock.forward(4)
    env.report("task-1")
    found = measure(env)
    assert (found.attempts, found.work_ms, found.critical_path_ms) == (3, 7_000, 7_000)
    assert found.wall_ms == 7_000 + pause_ms and found.overhead_ms == pause_ms
    assert found.gain_ms < 0 and found.share is None


def test_attempts_that_run_or_vanish_or_are_cancelled(env: LedgerEnv) -> None:
    env.submit_many(*(Spec(f"task-{n}", "worker", lease_seconds=10) for n in (1, 2, 3, 4)))
    for n in (1, 2, 3):
        env.start(f"task-{n}")
    env.clock.forward(3)
    for n in (2, 3):
        env.ledger.cancel(env.key(f"task-{n}"), "bob")
    env.clock.forward(1)
    env.ledger.stopped(env.key("task-2"), 1)  # 4 s: until its agent was gone
    env.clock.forward(2)
    now = measure(env)
    assert (now.running, now.work_ms) == (2, 6_000 + 4_000 + 6_000)
    env.clock.forward(4)
    env.ledger.tick()  # two leases have ended
    later = measure(env)
    assert (later.running, later.attempts) == (0, 3)
    assert (later.work_ms, later.wall_ms) == (10_000 + 4_000 + 10_000, 10_000)


def test_what_comes_next_comes_after(env: LedgerEnv) -> None:
    env.submit("first", next=(Spec("second", "worker"),))
    env.start("first")
    env.clock.forward(1)
    env.report("first")
    env.start("second")
    env.clock.forward(2)
    env.report("second")
    found = measure(env)
    assert found.path == ("first", "second") and found.overhead_ms == 0


def test_nothing_at_all(env: LedgerEnv) -> None:
    assert overhead_of([], {}, 0) == Overhead(0, 0, 0, 0, 0, 0, ())
    env.submit("waits")
    found = measure(env)
    assert (found.tasks, found.wall_ms, found.share) == (1, 0, None)


def test_a_chain_of_thousands(env: LedgerEnv) -> None:
    specs = [Spec("t0", "worker")]
    specs += [Spec(f"t{n}", "worker", after=(f"t{n - 1}",)) for n in range(1, 3000)]
    found = overhead_of([], {spec.id: spec for spec in specs}, 0)
    assert found.critical_path_ms == 0 and found.tasks == 3000


def test_words_in_between_neither_begin_nor_end_an_attempt(env: LedgerEnv) -> None:
    # Given an attempt that says how far it is, and one that was cancelled and still runs,
    for name in ("task-1", "task-2", "other"):
        env.submit(name)
    for name in ("task-1", "task-2", "other"):
        env.start(name)
    env.clock.forward(1)
    env.ledger.progress(env.key("task-1"), 1, 50)
    env.ledger.cancel(env.key("task-2"), "bob")
    env.clock.forward(1)
    # when somebody comments on it,
    env.ledger.comment(env.key("task-2"), "bob", "is it gone?")
    env.clock.forward(1)
    env.ledger.stopped(env.key("task-2"), 1)
    env.report("task-1")
    # then both ran until they ended; and the log of another task is passed over.
    entries = env.ledger.queries.events_after(0, 100)
    assert "other" in {entry.task_id for entry in entries}
    specs = {name: env.task(name).spec for name in ("task-1", "task-2")}
    found = overhead_of(entries, specs, env.clock.now)
    assert (found.tasks, found.attempts, found.work_ms) == (2, 2, 6_000)
