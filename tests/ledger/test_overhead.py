"""Work, wall, critical path and overhead, against numbers that were worked out by hand."""

from __future__ import annotations

import json

import pytest

from agentq.contracts.service_values import Overhead
from agentq.core.errors import Damaged
from agentq.core.phases import Phase, Span, TaskLife
from agentq.core.task import Gates, Spec, Usage
from agentq.core.triggers import FailureKind, Report, Ruling
from agentq.ledger import measuring
from agentq.ledger.overhead import overhead_of
from tests.ledger.conftest import NOW, LedgerEnv


def measure(env: LedgerEnv, *task_ids: str, below: bool = False, **asked: object) -> Overhead:
    """Of these tasks; else of the newest."""
    found = env.ledger.queries.measuring()
    chosen = found.named(task_ids, below=below) if task_ids else found.recent(**asked)  # type: ignore[arg-type]
    return found.overhead(chosen, env.clock.now)


def phases(found: Overhead) -> dict[str, int]:
    """Seconds by phase; phases without any are left out."""
    return {str(each.phase): each.span_ms // 1000 for each in found.phases if each.span_ms}


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
    assert measure(env, "nobody") == measure(env) == overhead_of({}, {})
    assert (overhead_of({}, {}).tasks, overhead_of({}, {}).flagged) == (0, False)
    env.submit("waits")
    found = measure(env)
    assert (found.tasks, found.wall_ms, found.share, found.bottleneck) == (1, 0, None, None)


def test_a_chain_of_thousands() -> None:
    specs = [Spec("t0", "worker")]
    specs += [Spec(f"t{n}", "worker", after=(f"t{n - 1}",)) for n in range(1, 3000)]
    lives = {}
    for n, spec in enumerate(specs):
        spans = (Span(Phase.WORKING, n, n + 1),)
        lives[spec.id] = TaskLife("worker", 0, n + 1, spans, (), 1, 1, n + 1, False, False)
    found = overhead_of(lives, {spec.id: spec for spec in specs})
    assert (found.critical_path_ms, found.tasks, found.overhead_ms) == (3000, 3000, 0)
    assert found.bottleneck is None


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
    # then both ran until they ended.
    found = measure(env, "task-1", "task-2")
    assert (found.tasks, found.attempts, found.work_ms) == (2, 2, 6_000)


# -- phases ----------------------------------------------------------------------------------------


def test_phases_and_money_of_a_tree(env: LedgerEnv) -> None:
    """A run of two steps: one is done at the second try, the other waits for its review."""
    env.submit("run-1", "coordinator", type="run")
    env.start("run-1")
    env.submit_many(
        Spec("build", "builder", parent="run-1"),
        Spec("page", "writer", parent="run-1", review=True),
        Spec("else", "writer"),
    )
    env.clock.forward(10)
    held = env.start("build")
    env.start("page")
    env.clock.forward(5)
    env.ledger.fail(held.key, 1, "no", FailureKind.TRANSIENT, Usage(usd=1.5, tokens=100))
    pause = env.task("build").details.not_before - env.clock.now
    env.clock.now += pause
    env.ledger.tick()
    env.start("build")
    env.clock.forward(20)
    env.ledger.report(held.key, Report(2, cost=Usage(usd=0.5)))
    env.report("page")
    env.clock.forward(7)
    env.ledger.report(env.key("run-1"), Report(1, cost=Usage(usd=0.25), leaves_children=True))
    # A task names itself and all below it, and nothing else.
    tree = measure(env, "run-1", below=True)
    assert (tree.tasks, tree.attempts, tree.running, tree.cut) == (3, 4, 0, False)
    assert phases(tree) == {
        "working": 20 + 25 + pause // 1000, "supervising": 42 + pause // 1000,
        "retrying": 5 + pause // 1000, "waiting_for_slot": 20, "waiting_for_review": 7,
    }  # fmt: skip
    costs = {str(each.phase): (each.cost.usd, each.cost.tokens) for each in tree.phases}
    assert costs.pop("retrying") == (1.5, 100) and costs.pop("working") == (0.5, 0)
    assert costs.pop("supervising") == (0.25, 0) and set(costs.values()) == {(0.0, 0)}
    # What only coordinates is no work, and the children come after it.
    assert tree.work_ms == 2 * 25_000 + pause
    assert tree.path[0] == "run-1" and len(tree.path) == 2
    assert measure(env, "run-1").tasks == 1
    # Of one role, a task that has submitted others is known by those all the same.
    own = measure(env, role="coordinator")
    assert phases(own) == {"supervising": 42 + pause // 1000}
    assert measure(env, role="nobody").tasks == 0


def test_whoever_has_children_coordinates_and_what_follows_is_none(env: LedgerEnv) -> None:
    env.submit("lead", next=(Spec("follows", "worker"),))
    env.start("lead")
    env.clock.forward(1)
    env.report("lead")
    assert phases(measure(env, "lead")) == {"working": 1}
    assert measure(env, "lead", below=True).tasks == 2
    env.start("follows")
    env.submit("child", parent="follows")
    env.submit("grandchild", parent="child")
    env.clock.forward(1)
    assert phases(measure(env, "follows")) == {"supervising": 1}
    assert measure(env, "lead", below=True).tasks == 4


def test_reviews_are_measured_with_what_they_judged(env: LedgerEnv) -> None:
    """Two rounds: 3 s of work that is sent back, 3 s of review, 1 s of work, 1 s of review."""
    env.submit("page", gates=Gates(reviewer="judge"), labels={"run": "7"})
    rounds = ((3, 3, "changes", 40), (1, 1, "accept", 90))
    for number, (work, review, verdict, score) in enumerate(rounds, start=1):
        env.start("page")
        env.clock.forward(work)
        env.report("page")
        judging = env.start(f"page.review-{number}", "bob")
        env.clock.forward(review)
        said = json.dumps({"verdict": verdict, "score": score, "notes": "more"})
        env.ledger.report(judging.key, Report(1, data=said, cost=Usage(usd=review)))
    found = measure(env, "page", below=True)
    assert (found.tasks, found.work_ms) == (3, 4_000)
    assert phases(found) == {
        "working": 1, "supervising": 4, "retrying": 3, "waiting_for_review": 4
    }  # fmt: skip
    assert [each.cost.usd for each in found.phases if each.cost.usd] == [4.0]
    assert found.bottleneck is not None and found.bottleneck.phase is Phase.WAITING_FOR_REVIEW
    # A task that only has the name of a review is none.
    env.submit("other", gates=Gates(reviewer="judge"))
    env.submit("other.review-1", "judge")
    env.start("other")
    assert measure(env, "other", below=True).tasks == 1
    reader = env.ledger.queries.measuring()
    assert len(reader.named(["page"], below=True, reviews=False).found) == 1
    (judged,) = reader.quality(reader.named(["page"])).roles
    assert (judged.accepted, judged.changes, judged.mean_rounds) == (1, 1, 2.0)
    assert (judged.newest_scores, judged.mean_score) == ((90, 40), 65.0)


# -- what is read ----------------------------------------------------------------------------------


def test_the_newest_are_measured_and_the_answer_says_so(
    env: LedgerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_TASK_PAGE", 2)
    monkeypatch.setattr(measuring, "_LOG_PAGE", 2)
    for n in range(5):
        env.submit(f"task-{n}")
        env.clock.forward(1)
    everything = measure(env)
    assert (everything.tasks, everything.cut) == (5, False)
    since = measure(env, since_ms=NOW + 2_000)
    assert (since.tasks, since.cut, phases(since)) == (3, False, {"waiting_for_slot": 3 + 2 + 1})
    monkeypatch.setattr(measuring, "TASKS_MAX", 3)
    cut = measure(env)
    assert (cut.tasks, cut.cut, phases(cut)) == (3, True, {"waiting_for_slot": 3 + 2 + 1})


def test_children_are_looked_for_among_so_many_later_tasks(
    env: LedgerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.submit("root")
    for n in range(6):
        env.submit(f"child-{n}", parent="root")
    monkeypatch.setattr(measuring, "_TASK_PAGE", 2)
    whole = measure(env, "root", below=True)
    assert (whole.tasks, whole.cut) == (7, False)
    monkeypatch.setattr(measuring, "LATER_MAX", 4)
    part = measure(env, "root", below=True)
    assert (part.tasks, part.cut) == (5, True)


def test_a_log_that_cannot_be_replayed_is_named(victim: LedgerEnv) -> None:
    victim.submit("task-1", review=True)
    victim.start("task-1")
    victim.report("task-1")
    victim.ledger.verdict(victim.key("task-1"), "bob", Ruling.ACCEPT)
    victim.sql("UPDATE events SET data = '{' WHERE trigger = 'Verdict'")
    with pytest.raises(Damaged, match="The log of task-1 cannot be replayed"):
        measure(victim)
    found = victim.ledger.queries.measuring()
    with pytest.raises(Damaged, match="agentq verify"):
        found.quality(found.recent())


def test_a_task_that_was_pruned_meanwhile_is_left_out(env: LedgerEnv) -> None:
    env.submit("task-1")
    env.complete("task-1")
    found = env.ledger.queries.measuring()
    chosen = found.named(["task-1"])
    env.clock.forward(10)
    gone: list[str] = []
    env.ledger.prune(env.clock.now + 1, gone.append)
    assert gone == ["task-1"]
    assert found.overhead(chosen, env.clock.now).tasks == 0
