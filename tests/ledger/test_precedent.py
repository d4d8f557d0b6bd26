"""Deciding alike tasks by the first one's decision says nothing that `transition` would not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agentq.core.errors import AgentqError
from agentq.core.states import State
from agentq.core.task import Amounts, Spec, Task
from agentq.core.transition import Decision, transition
from agentq.core.triggers import Claim, Report, Trigger
from agentq.ledger.precedent import Precedent
from tests.core.building import NOW
from tests.core.lives import Life, lived

#: A task like another, or almost.
_VARIANTS: list[Callable[[Task], Task]] = [
    *[lambda task: replace(task, spec=replace(task.spec, id="twin", instructions="else"))] * 6,
    lambda task: replace(task, submitted_at=task.submitted_at - 1),
    lambda task: replace(task, updated_at=task.updated_at + 100),
    lambda task: replace(task, wake_at=NOW + 7),
    lambda task: replace(task, holder="bob"),
    lambda task: replace(task, epoch=task.epoch + 1),
    lambda task: replace(task, version=task.version + 1),
    lambda task: replace(task, state=State.REVIEW),
    lambda task: replace(task, memo=replace(task.memo, extra_budget=Amounts(usd=9))),
    lambda task: replace(task, spec=replace(task.spec, review=not task.spec.review)),
    lambda task: replace(task, spec=replace(task.spec, ttl_seconds=task.spec.ttl_seconds + 5)),
    lambda task: replace(task, spec=replace(task.spec, irreversible=True)),
    lambda task: replace(task, spec=replace(task.spec, next=(Spec("then", "worker"),))),
]


def outcome(decide: Callable[[Task, Trigger, int], Decision], *said: object) -> Decision | str:
    try:
        return decide(*said)  # type: ignore[arg-type]
    except AgentqError as refusal:
        return f"{refusal.code}: {refusal}"


@given(
    lived(),
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(_VARIANTS)), max_size=12),
    st.booleans(),
)
def test_the_same_as_without_it(
    life: Life, variants: list[tuple[int, Callable[[Task], Task]]], claiming: bool
) -> None:
    tasks = list(life.tasks())
    wanted = State.READY if claiming else State.IN_PROGRESS
    fitting = [task for task in tasks if task.state is wanted] or tasks
    first = fitting[-1]
    trigger: Trigger = Claim("ann", 60_000) if claiming else Report(first.epoch, "done")
    precedent = Precedent()
    told = [first, *(change(fitting[nth % len(fitting)]) for nth, change in variants)]
    for task in told:
        expected = outcome(transition, task, trigger, life.now)
        assert outcome(precedent.decide, task, trigger, life.now) == expected


def test_what_is_alike_is_decided_once() -> None:
    precedent, claim = Precedent(), Claim("ann", 60_000)
    ready = Task(Spec("a", "worker"), State.READY, 1, 0, NOW, NOW)
    first = precedent.decide(ready, claim, NOW)
    twin = precedent.decide(replace(ready, spec=Spec("b", "worker", instructions="x")), claim, NOW)
    assert twin.events is first.events and twin.task.memo is first.task.memo
    assert twin.task.spec.id == "b" and twin.task.state is State.IN_PROGRESS


def test_another_moment_is_another_decision() -> None:
    precedent, claim = Precedent(), Claim("ann", 60_000)
    ready = Task(Spec("a", "worker"), State.READY, 1, 0, NOW, NOW)
    precedent.decide(ready, claim, NOW)
    assert precedent.decide(ready, claim, NOW + 5).task.wake_at == NOW + 60_005
