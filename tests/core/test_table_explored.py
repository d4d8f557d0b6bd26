"""The table against a crowd: everything is said to every task that can be reached at all.

Tasks that differ in nothing that decides (see `sketch`) count as one, so the exploration ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.errors import AgentqError, Invalid, Refused, Stale
from agentq.core.schedule import expected_wake
from agentq.core.states import TABLE, State
from agentq.core.task import (
    ApprovalPolicy,
    Escalation,
    Gates,
    OnDependencyFailure,
    OnTimeout,
    Spec,
    Task,
    Usage,
)
from agentq.core.transition import transition
from agentq.core.values import replace
from tests.core.building import A_TRIGGER, LEASE_MS, NOW, a_spec

DEPENDENCY = ("task-0",)
ONE_DOLLAR = Usage(usd=1)
#: What is said at the moment that matters to a task next.
LATER = (t.Tick(), t.ClaimTask("ann", LEASE_MS), t.Edit("ed", instructions="in time"))

_SPECS: tuple[Spec, ...] = (
    a_spec(),
    a_spec(max_attempts=1, review=True, ttl_seconds=60, budget=ONE_DOLLAR),
    a_spec(irreversible=True, review=True, approval_timeout_seconds=60),
    a_spec(requires_approval=True, approval_timeout_seconds=60, after=DEPENDENCY),
    a_spec(budget=ONE_DOLLAR, delay_seconds=30, ttl_seconds=60, after=DEPENDENCY),
    a_spec(irreversible=True, budget=ONE_DOLLAR, after=DEPENDENCY,
           approval_timeout_seconds=60, on_dependency_failure=OnDependencyFailure.SKIP),
    a_spec(after=DEPENDENCY, on_dependency_failure=OnDependencyFailure.RUN),
    a_spec(gates=Gates(reviewer="reviewer", min_score=50, max_rounds=1, person=True)),
    a_spec(approval=ApprovalPolicy(0, (Escalation(10, "lead"),), OnTimeout.REJECT),
           approval_timeout_seconds=60, requires_approval=True, review=True),
    a_spec(review=True, approval_timeout_seconds=60,
           approval=ApprovalPolicy(on_timeout=OnTimeout.APPROVE)),
    a_spec(review=True, labels={"has": "children"}),
    a_spec(review=True, wait_for=("deployed",)),
)  # fmt: skip
#: Each has a title of its own, by which `sketch` tells it from the others.
SPECS = tuple(replace(spec, title=f"spec {number}") for number, spec in enumerate(_SPECS))
CHILD = ("task-8",)
#: What tasks with children, signals and reviewers need not be told as well.
PLAIN = {"FailAttempt", "Spend", "Answer", "Release", "Edit", "Hold"}


def sayings(task: Task) -> Iterator[t.Trigger]:
    """What can be said to this task, in every variant that decides differently."""
    spec, epoch = task.spec, task.epoch
    yield from (t.Yield(epoch), t.Yield(epoch, signals=("deployed",) * 51))
    if spec.labels:
        yield from (t.ChildrenSubmitted(CHILD), t.DependencyEnded(*CHILD, State.FAILED))
        yield from (t.Yield(epoch, "any"), t.Yield(epoch, "none"))
        yield from (t.Report(epoch, "so far", leaves_children=True), t.Cancel("boss", tree=True))
        yield t.Requeue("boss", "", (), "", CHILD, asks_again=True)
    if spec.wait_for:
        yield t.Yield(epoch, signals=("deployed",))
        if len(task.details.signals) < 2:
            yield t.Signal("boss", "deployed")
    if spec.gates.reviewer:
        review = task.details.review_task or "another"
        for ruling, score in product(t.Ruling, (-1, 90)):
            yield t.Verdict("rae", ruling, "", "", score, review, epoch)
        yield from (t.ReviewFailed(review, State.FAILED), t.ReviewFailed("another", State.FAILED))
        yield t.Verdict("rae", t.Ruling.ACCEPT, "", "", 90, review, epoch + 1)
    is_plain = not (spec.labels or spec.wait_for or spec.gates.reviewer or spec.approval.escalate)
    for each in said_to_all(task):
        if is_plain or type(each).__name__ not in PLAIN:
            yield each


def said_to_all(task: Task) -> Iterator[t.Trigger]:
    """Everything that can be said to any task."""
    later = task.updated_at + 5_000
    for outcome in (State.COMPLETE, State.FAILED, State.CANCELLED, State.EXPIRED):
        yield t.DependencyEnded("task-0", outcome)
    yield from (t.Approve("boss"), t.Approve(task.spec.sender), t.Reject("boss"))
    yield from (t.ClaimTask("ann", LEASE_MS), t.Cancel("boss"), t.Tick())
    epoch = task.epoch
    yield from (t.Progress(epoch, 10), t.AddArtifact(epoch, "log", 1, "0"))
    yield t.AddArtifact(epoch, "output.log", 1, "0")
    yield from (t.Spend(epoch, Usage(usd=0.2)), t.Spend(epoch, ONE_DOLLAR))
    yield from (t.Report(epoch, "done"), t.Report(epoch, "done", cost=ONE_DOLLAR))
    yield from (t.BlockTask(epoch, "what now?"), t.Stopped(epoch))
    yield from (t.Release(epoch), t.Release(epoch, "quota", later))
    yield from (t.FailAttempt(epoch, "why", kind) for kind in t.FailureKind)
    for resolution in t.Resolution:
        yield t.Answer("boss", "", resolution)
        yield t.Answer("boss", "yes", resolution, ONE_DOLLAR)
    yield from (t.Verdict("boss", ruling) for ruling in t.Ruling)
    yield from (t.Verdict("ann", t.Ruling.ACCEPT), t.Comment("boss", "hm"))
    yield from (t.Tell("boss", "more"), t.TakeMessages(epoch))
    yield from (t.Requeue("boss"), t.Requeue("boss", "", DEPENDENCY))
    yield t.Applied("boss", "0" * 40)
    yield t.Edit("ed", instructions="do something else")
    yield t.Edit("ed", to="other")
    yield from (t.Hold("boss"), t.Dispatch("boss"))
    yield t.RefuseReport(task.epoch - 1, "ann", "completed")


def births() -> Iterator[tuple[t.Submit, Task]]:
    for spec in SPECS:
        for waiting_on, ended in (
            (spec.after, ()),
            ((), tuple((name, State.COMPLETE) for name in spec.after)),
            ((), tuple((name, State.FAILED) for name in spec.after)),
        ):
            trigger = t.Submit(spec, waiting_on, ended)
            yield trigger, transition(None, trigger, NOW).task


def sketch(task: Task) -> tuple[object, ...]:
    """What decides what may follow; two tasks alike in this need not both be explored."""
    details = task.details
    return (
        task.spec.title, bool(details.edited),
        task.state, min(task.epoch, 1), bool(task.holder),
        details.waiting_on, bool(details.not_before), bool(details.approved_by),
        details.reason_kind, bool(details.failures), min(details.crashes, 3),
        bool(details.spent.usd >= 1), bool(details.report),
        min(details.rounds, 2) if task.spec.gates.reviewer else 0,
        bool(details.children), bool(details.ended_since), details.yielded,
        details.awaited_signals, any(not each.is_taken for each in details.signals),
        bool(details.review_task), bool(details.accepted_epoch), details.escalations,
        bool(details.held),
    )  # fmt: skip


@dataclass
class Explored:
    """Everything that can be reached, what followed which cell, and what was refused."""

    tasks: dict[tuple[object, ...], Task] = field(default_factory=dict)
    outcomes: dict[tuple[State | None, str], set[State]] = field(default_factory=dict)
    refusals: dict[tuple[State, str, str], AgentqError] = field(default_factory=dict)

    def note(self, before: Task | None, trigger: t.Trigger, after: Task) -> Task | None:
        cell = (before.state if before else None, t.trigger_name(trigger))
        self.outcomes.setdefault(cell, set()).add(after.state)
        is_new = sketch(after) not in self.tasks
        self.tasks.setdefault(sketch(after), after)
        return after if is_new else None

    def steps_from(self, task: Task) -> Iterator[Task]:
        at_once = ((trigger, task.updated_at) for trigger in sayings(task))
        when_due = ((trigger, task.wake_at) for trigger in LATER)
        for trigger, now in chain(at_once, when_due):
            try:
                after = transition(task, trigger, now).task
            except (Refused, Invalid) as refusal:
                self.refusals[task.state, t.trigger_name(trigger), refusal.code] = refusal
                continue
            new = self.note(task, trigger, after)
            if new is not None:
                yield new


@pytest.fixture(scope="module")
def explored() -> Explored:
    found = Explored()
    frontier = [new for trigger, task in births() if (new := found.note(None, trigger, task))]
    while frontier:
        frontier = [new for task in frontier for new in found.steps_from(task)]
    return found


def test_exactly_what_the_table_says_is_seen(explored: Explored) -> None:
    # Transition coverage: every promised outcome occurs, and no other outcome of any cell does.
    assert explored.outcomes == {cell: set(outcomes) for cell, outcomes in TABLE.items()}


def test_every_refusal_names_its_cause_and_its_remedy(explored: Explored) -> None:
    assert {code for _, _, code in explored.refusals} >= {
        "wrong_state", "stale", "self_approval", "self_review", "budget", "expired",
        "open_children", "nothing_to_wait_for", "irreversible",
    }  # fmt: skip
    wordless = {
        cell: refusal.cause
        for cell, refusal in explored.refusals.items()
        if not (refusal.cause.endswith(".") and refusal.remedy.endswith("."))
    }
    assert wordless == {}


def test_a_stale_attempt_is_refused_by_every_task(explored: Explored) -> None:
    words: list[Any] = [
        trigger
        for trigger in A_TRIGGER.values()
        if hasattr(trigger, "epoch") and not isinstance(trigger, t.RefuseReport)
    ]
    # Given every task that was reached, when an older or a future attempt speaks,
    for task in explored.tasks.values():
        for word, epoch in product(words, (task.epoch - 1, task.epoch + 1)):
            stale = replace(word, epoch=epoch)
            if isinstance(word, t.Comment) and not epoch:
                continue  # said by a person, not by an attempt
            if isinstance(word, t.Stopped) and task.state is State.CANCELLED:
                # (that somebody stopped who should have stopped is no news and no harm)
                assert transition(task, stale, NOW).task is task
            else:
                # then it is told that it is stale.
                assert _refusal(task, stale) is Stale


def _refusal(task: Task, trigger: t.Trigger) -> type | None:
    try:
        transition(task, trigger, NOW)
    except Refused as refusal:
        return type(refusal)
    return None


def test_custody_and_time_add_up_in_every_task(explored: Explored) -> None:
    for task in explored.tasks.values():
        # Whoever is in custody has a holder and an end of the lease; nobody else has a holder.
        if task.state is State.IN_PROGRESS:
            assert task.holder and task.wake_at > task.updated_at - LEASE_MS
        elif task.state is not State.CANCELLED:
            assert not task.holder
        if task.holder:
            assert task.wake_at
        else:
            assert task.wake_at == expected_wake(task)
        # A task that is over waits for nothing any more.
        if task.is_terminal:
            assert not task.details.waiting_on, task.details.reason
            assert not task.details.yielded and not task.details.awaited_signals
            assert not task.details.held
        # Nothing that is held can be claimed.
        if task.details.held:
            assert task.state in (State.PENDING, State.BLOCKED)
        # Only one that nobody has may have yielded, and only to somebody.
        if task.details.yielded:
            assert task.details.children
            assert task.state in (State.PENDING, State.BLOCKED)
        # A review is awaited by a report, and by nothing else.
        if task.details.review_task and not task.is_terminal:
            assert task.state is State.REVIEW


def test_a_moment_that_is_due_is_always_moved(explored: Explored) -> None:
    for found in explored.tasks.values():
        task = found
        for _ in range(6):
            if not task.wake_at:
                break
            decision = transition(task, t.Tick(), task.wake_at)
            assert decision.events, task
            assert (decision.task.state, decision.task.wake_at) != (task.state, task.wake_at)
            task = decision.task
