"""Which part of coordination to mend first, and when it is too much."""

from __future__ import annotations

from agentq.contracts.service_values import Bottleneck, Overhead
from agentq.core.phases import Phase, Span, TaskLife
from agentq.core.task import Spec
from agentq.ledger.overhead import overhead_of

SECOND = 1000
WORK, SLOT, DEPS = Phase.WORKING, Phase.WAITING_FOR_SLOT, Phase.WAITING_FOR_DEPENDENCIES
SUPERVISING, REVIEW = Phase.SUPERVISING, Phase.WAITING_FOR_REVIEW


def a_life(begin: int, *spans: tuple[Phase, int], role: str = "worker") -> TaskLife:
    """A life that begins at so many seconds, and is in each of these phases for so many."""
    here, found = begin * SECOND, []
    attempts = [length for phase, length in spans if phase in (WORK, SUPERVISING)]
    for phase, length in spans:
        found.append(Span(phase, here, here + length * SECOND))
        here += length * SECOND
    return TaskLife(
        role, begin * SECOND, here, tuple(found), (), len(attempts), sum(attempts) * SECOND, here,
        running=False, coordinates=any(phase is SUPERVISING for phase, _ in spans),
    )  # fmt: skip


def measured(*tasks: tuple[Spec, TaskLife]) -> Overhead:
    lives = {spec.id: life for spec, life in tasks}
    return overhead_of(lives, {spec.id: spec for spec, _ in tasks})


def seconds(found: Overhead) -> tuple[str, str, int] | None:
    named = found.bottleneck
    return None if named is None else (str(named.phase), named.role, named.span_ms // SECOND)


def test_the_task_that_ended_last_says_what_it_waited_for() -> None:
    """The longest task never waited; that everything took so long was for want of a slot."""
    found = measured(
        (Spec("long", "worker"), a_life(0, (WORK, 50))),
        (Spec("last", "worker"), a_life(0, (SLOT, 50), (WORK, 10))),
    )
    assert found.path == ("long",)
    assert found.bottleneck == Bottleneck(
        SLOT, "worker", 50 * SECOND,
        "waiting for a slot of role worker: 50s; raise its slots or max_running",
    )  # fmt: skip


def test_waiting_for_what_is_on_the_chain_is_not_counted_twice() -> None:
    """b waits for a, which waits for its review: that is the bottleneck, not that b waits."""
    found = measured(
        (Spec("a", "builder"), a_life(0, (WORK, 10), (REVIEW, 30), role="builder")),
        (Spec("b", "tester", after=("a",)), a_life(0, (DEPS, 40), (SLOT, 5), (WORK, 10))),
    )
    assert seconds(found) == ("waiting_for_review", "builder", 30)


def test_of_a_role_within_the_phase() -> None:
    """Two roles wait for slots on the way: the phase has both, and the longer one is named."""
    found = measured(
        (Spec("a", "builder"), a_life(0, (SLOT, 10), (WORK, 1), role="builder")),
        (Spec("b", "tester", after=("a",)),
         a_life(0, (DEPS, 11), (SLOT, 20), (REVIEW, 15), (WORK, 1), role="tester")),
    )  # fmt: skip
    assert seconds(found) == ("waiting_for_slot", "tester", 30)


def test_whoever_submits_others_is_on_the_chain_before_and_after_them() -> None:
    run = a_life(0, (SLOT, 3), (SUPERVISING, 47), role="lead")
    child = a_life(10, (SLOT, 4), (WORK, 16))
    found = measured(
        (Spec("run", "lead", type="run"), run), (Spec("child", "worker", parent="run"), child)
    )
    # It supervised for 7 s before it submitted the child, and for 20 s after that had ended.
    assert seconds(found) == ("supervising", "lead", 27)
    assert (found.work_ms, found.critical_path_ms) == (16 * SECOND, 16 * SECOND)
    assert found.path == ("run", "child")


def test_waiting_for_tasks_elsewhere_is_named_if_nothing_else_is() -> None:
    found = measured((Spec("b", "worker", after=("elsewhere",)), a_life(0, (DEPS, 9), (WORK, 1))))
    assert seconds(found) == ("waiting_for_dependencies", "worker", 9)


def test_parents_in_a_ring_do_not_matter() -> None:
    found = measured(
        (Spec("a", "worker", parent="b"), a_life(0, (WORK, 1))),
        (Spec("b", "worker", parent="a"), a_life(0, (SLOT, 1), (WORK, 1))),
        (Spec("c", "worker", parent="c"), a_life(0, (WORK, 1))),
    )
    assert found.tasks == 3 and seconds(found) == ("waiting_for_slot", "worker", 1)


def test_what_follows_a_task_comes_after_its_end() -> None:
    first = Spec("first", "worker", next=(Spec("second", "worker"),))
    found = measured(
        (first, a_life(0, (WORK, 5))),
        (Spec("second", "worker", parent="first"), a_life(6, (SLOT, 2), (WORK, 1))),
    )
    assert (found.path, seconds(found)) == (("first", "second"), ("waiting_for_slot", "worker", 2))


def test_coordination_above_a_third_of_the_gain_is_flagged() -> None:
    def side_by_side(slot: int) -> Overhead:
        lives = [a_life(0, (SLOT, slot), (WORK, 100)) for _ in range(3)]
        return measured(*((Spec(f"t{n}", "worker"), life) for n, life in enumerate(lives)))

    # 300 s of work in 100 s and the waiting: 30 % of the gain is the waiting at 46.15 s.
    assert not side_by_side(46).flagged and side_by_side(47).flagged
    # Nothing was gained, and all of it could have been.
    in_vain = side_by_side(300)
    assert in_vain.share is None and in_vain.flagged
    # One after the other there was nothing to gain.
    alone = measured((Spec("alone", "worker"), a_life(0, (SLOT, 500), (WORK, 1))))
    assert alone.overhead_ms and not alone.flagged
