"""Dependencies within one batch: parents first, or the cycle by name."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.core.errors import Invalid
from agentq.core.graph import parents_first
from agentq.core.limits import BATCH_MAX
from agentq.core.task import Spec


def one(name: str, *after: str) -> Spec:
    return Spec(name, "worker", after=after)


def order(*specs: Spec) -> list[str]:
    return [spec.id for spec in parents_first(specs)]


def test_nothing_comes_of_nothing() -> None:
    assert parents_first([]) == []


def test_independent_tasks_stay_in_the_given_order() -> None:
    assert order(one("c"), one("a"), one("b")) == ["c", "a", "b"]


def test_what_is_in_order_stays_so() -> None:
    given_order = [one("a"), one("b", "a"), one("x"), one("c", "a", "b"), one("y", "x")]
    assert parents_first(given_order) == given_order


def test_parents_come_first_whatever_the_order() -> None:
    assert order(one("c", "b"), one("b", "a"), one("a")) == ["a", "b", "c"]


def test_dependencies_outside_of_the_batch_do_not_matter_here() -> None:
    assert order(one("b", "elsewhere"), one("a")) == ["b", "a"]


def test_naming_a_parent_twice_is_naming_it_once() -> None:
    assert order(one("b", "a", "a"), one("a")) == ["a", "b"]


@st.composite
def graphs(draw: st.DrawFn) -> list[Spec]:
    """Acyclic graphs, shuffled."""
    size = draw(st.integers(1, 12))
    specs = []
    for number in range(size):
        parents = draw(st.sets(st.integers(0, number - 1), max_size=4)) if number else set()
        specs.append(one(f"t{number}", *(f"t{parent}" for parent in sorted(parents))))
    return draw(st.permutations(specs))


@given(graphs())
def test_every_graph_is_ordered_and_nothing_is_lost(specs: list[Spec]) -> None:
    ordered = parents_first(specs)
    assert sorted(spec.id for spec in ordered) == sorted(spec.id for spec in specs)
    seen: set[str] = set()
    for spec in ordered:
        assert seen.issuperset(spec.after)
        seen.add(spec.id)


@given(graphs(), st.integers(1, 5))
def test_a_cycle_anywhere_is_found_and_named(specs: list[Spec], length: int) -> None:
    # Given a graph with a ring of tasks in it, each after the next,
    ring = [one(f"ring{i}", f"ring{(i + 1) % length}") for i in range(length)]
    # when it is ordered, then the ring is named, and nothing beside it.
    with pytest.raises(Invalid) as refusal:
        parents_first([*specs, *ring])
    assert refusal.value.code == "cycle"
    named = refusal.value.cause.split(": ")[1].split(".")[0].split(" after ")
    assert named[0] == named[-1]
    assert sorted(named[:-1]) == sorted(spec.id for spec in ring)
    assert refusal.value.remedy


def test_the_cycle_reads_as_it_was_written() -> None:
    with pytest.raises(Invalid, match="a after b after c after a"):
        parents_first([one("a", "b"), one("b", "c"), one("c", "a"), one("d", "a")])


def test_a_chain_as_long_as_a_batch_may_be_is_no_problem() -> None:
    # Given the longest chain, the last task first: the deepest way down.
    chain = [one("t0"), *(one(f"t{i}", f"t{i - 1}") for i in range(1, BATCH_MAX))]
    assert parents_first(chain[::-1]) == chain
    # And in no order at all.
    shuffled = random.Random(1).sample(chain, len(chain))
    assert parents_first(shuffled) == chain


def test_a_task_after_very_many_is_no_problem() -> None:
    parents = [one(f"p{i}") for i in range(1000)]
    children = [one(f"c{i}", *(parent.id for parent in parents)) for i in range(20)]
    ordered = parents_first([*children, *parents])
    assert {spec.id for spec in ordered[:1000]} == {parent.id for parent in parents}
