"""Bugs on purpose about relatives: children, signals, reviews, approval policies, leaders."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

from agentq.core import (
    approvals,
    children,
    custody,
    external_decisions,
    reviews,
    schedule,
    signals,
    steps,
    triggers,
    waiting,
)
from agentq.core.digests import spec_digest
from agentq.core.effects import CancelTasks
from agentq.core.gates import gates_of
from agentq.core.states import State
from agentq.core.task import ApprovalPolicy, OnTimeout, Task, TaskDetails
from agentq.core.values import replace
from agentq.ledger import claims, leader_leases, submit, task_effects, unit_of_work
from agentq.ledger import ledger as ledgers
from agentq.ledger.unit_of_work import UnitOfWork
from agentq.protocol import spec_validation
from tests.simulation.planted import breaks, deciding, nothing
from tests.simulation.violation import (
    CANCEL,
    DRAIN,
    FAMILY,
    GRAPH,
    INPUT,
    IRREVERSIBLE,
    POLICY,
    REVIEWS,
    SIGNALS,
    TERMS,
    TIMERS,
)


def together(*plantings: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    stack = ExitStack()
    for each in plantings:
        stack.enter_context(each)
    return stack


# -- children --------------------------------------------------------------------------------------


@breaks(FAMILY)
def a_parent_is_not_told_that_its_child_has_ended() -> AbstractContextManager[Any]:
    def concerns(task: Task, ended: str) -> bool:
        return ended in task.details.waiting_on

    return patch.object(unit_of_work, "_concerns", concerns)


@breaks(FAMILY, DRAIN)
def whoever_waits_for_any_waits_for_all() -> AbstractContextManager[Any]:
    return patch.object(children, "WAIT_FOR_ALL", type("Both", (), {"__eq__": lambda *_: True})())


@breaks(FAMILY)
def whoever_waits_for_all_goes_on_after_the_first() -> AbstractContextManager[Any]:
    real = children.without_child

    def without_child(details: TaskDetails, trigger: triggers.DependencyEnded) -> TaskDetails:
        return replace(real(details, trigger), yielded="")

    return together(
        patch.object(children, "without_child", without_child),
        patch.object(waiting, "without_child", without_child),
    )


@breaks(FAMILY)
def a_parent_completes_over_open_children() -> AbstractContextManager[Any]:
    return patch.object(custody, "check_children", nothing)


@breaks(FAMILY)
def a_yield_asks_for_no_ring_of_waits() -> AbstractContextManager[Any]:
    return patch.object(claims, "check_yield", nothing)


@breaks(FAMILY)
def a_parent_does_not_know_that_its_child_was_reopened() -> AbstractContextManager[Any]:
    return patch.object(ledgers, "note_reopened", nothing)


@breaks(FAMILY)
def a_reopened_parent_forgets_its_children() -> AbstractContextManager[Any]:
    real = external_decisions.requeue

    def requeue(task: Task, trigger: triggers.Requeue, now: int) -> steps.Step:
        step = real(task, trigger, now)
        assert step.details is not None
        step.details = replace(step.details, children=())
        return step

    return deciding(triggers.Requeue, requeue)


@breaks(FAMILY)
def a_yield_is_ready_at_once() -> AbstractContextManager[Any]:
    real = children.yield_

    def yield_(task: Task, trigger: triggers.Yield, now: int) -> steps.Step:
        step = real(task, trigger, now)
        assert step.details is not None
        return steps.waits(task.spec, replace(step.details, yielded=""), now, "yielded")

    return deciding(triggers.Yield, yield_)


@breaks(CANCEL)
def a_cancelled_tree_keeps_its_grandchildren() -> AbstractContextManager[Any]:
    real = triggers.Cancel

    def cancel(by: str, reason: str, how: str, *, tree: bool) -> triggers.Cancel:
        return real(by, reason, how)

    return patch.object(task_effects, "Cancel", cancel)


@breaks(CANCEL)
def a_cancelled_tree_ends_where_a_task_is_over() -> AbstractContextManager[Any]:
    real = task_effects._children_of

    def children_of(work: UnitOfWork, keys: list[int]) -> set[int]:
        return {key for key in real(work, keys) if not work.tasks[key].is_terminal}

    return patch.object(task_effects, "_children_of", children_of)


@breaks(GRAPH)
def a_list_makes_one_task_too_few() -> AbstractContextManager[Any]:
    real = submit.Submitter._next_of

    def next_of(work: UnitOfWork, key: int, parent: Task) -> Any:
        family, refused = real(work, key, parent)
        made = [name for name in family if name.endswith("-2")]
        return {name: spec for name, spec in family.items() if name not in made}, refused

    return patch.object(submit.Submitter, "_next_of", staticmethod(next_of))


# -- signals ---------------------------------------------------------------------------------------


@breaks(SIGNALS)
def a_signal_lets_two_waits_go_on() -> AbstractContextManager[Any]:
    real = signals.taken_signals

    def taken(details: TaskDetails, now: int, awaited: tuple[str, ...] = ()) -> TaskDetails:
        after = real(details, now, awaited)
        came = {each.name for each in after.signals if each.is_taken}
        left = tuple(name for name in after.awaited_signals if name not in came)
        return replace(after, awaited_signals=left)

    return together(
        patch.object(signals, "taken_signals", taken),
        patch.object(children, "taken_signals", taken),
    )


@breaks(SIGNALS)
def a_signal_that_comes_early_is_dropped() -> AbstractContextManager[Any]:
    real = signals.signal

    def signal(task: Task, trigger: triggers.Signal, now: int) -> steps.Step:
        step = real(task, trigger, now)
        assert step.details is not None
        kept = tuple(each for each in step.details.signals if each.is_taken)
        step.details = replace(step.details, signals=kept)
        return step

    return deciding(triggers.Signal, signal)


@breaks(SIGNALS)
def a_reopened_task_waits_for_no_signal() -> AbstractContextManager[Any]:
    return patch.object(external_decisions, "signals_to_come", lambda _: ())


# -- reviews ---------------------------------------------------------------------------------------


@breaks(REVIEWS)
def a_verdict_is_given_on_another_attempt() -> AbstractContextManager[Any]:
    real = triggers.Verdict

    def verdict(by: str, ruling: Any, notes: str, how: str, score: int, *of: Any) -> Any:
        return real(by, ruling, notes, how, score, of[0], of[1] + 1)

    judged = reviews.verdict

    def decide(task: Task, trigger: triggers.Verdict, now: int) -> steps.Step:
        report = task.details.report
        assert report is not None
        return judged(task, replace(trigger, reviewed=report.epoch), now)

    return together(
        patch.object(task_effects, "Verdict", verdict), deciding(triggers.Verdict, decide)
    )


@breaks(REVIEWS)
def the_least_score_is_not_asked() -> AbstractContextManager[Any]:
    real = gates_of
    return patch.object(reviews, "gates_of", lambda task: replace(real(task), min_score=0))


@breaks(REVIEWS)
def rounds_are_not_counted() -> AbstractContextManager[Any]:
    real = gates_of
    return patch.object(reviews, "gates_of", lambda task: replace(real(task), max_rounds=99))


@breaks(REVIEWS)
def a_person_is_not_asked_after_the_reviewer() -> AbstractContextManager[Any]:
    real = gates_of
    return patch.object(reviews, "gates_of", lambda task: replace(real(task), person=False))


@breaks(REVIEWS)
def a_review_goes_on_although_a_person_has_decided() -> AbstractContextManager[Any]:
    real = reviews.verdict

    def verdict(task: Task, trigger: triggers.Verdict, now: int) -> steps.Step:
        step = real(task, trigger, now)
        step.effects = tuple(each for each in step.effects if type(each) is not CancelTasks)
        return step

    return deciding(triggers.Verdict, verdict)


@breaks(REVIEWS)
def a_verdict_is_never_delivered() -> AbstractContextManager[Any]:
    return patch.object(task_effects, "_deliver", nothing)


@breaks(REVIEWS)
def a_review_may_be_given_to_the_author() -> AbstractContextManager[Any]:
    return patch.object(ledgers, "check_reviewer", nothing)


@breaks(REVIEWS, INPUT)
def a_review_without_a_verdict_is_taken() -> AbstractContextManager[Any]:
    return patch.object(custody, "parse_review", nothing)


# -- approval policies -----------------------------------------------------------------------------


@breaks(POLICY, TIMERS)
def an_escalation_is_skipped() -> AbstractContextManager[Any]:
    real = approvals._escalated

    def escalated(task: Task, now: int) -> steps.Step:
        step = real(task, now)
        assert step.details is not None
        step.details = replace(step.details, escalations=len(task.spec.approval.escalate))
        return step

    return patch.object(approvals, "_escalated", escalated)


@breaks(POLICY, TIMERS)
def an_escalation_comes_early() -> AbstractContextManager[Any]:
    real = schedule.next_escalation

    def next_escalation(*about: Any) -> int:
        return max(real(*about) - 120_000, 0)

    return together(
        patch.object(schedule, "next_escalation", next_escalation),
        patch.object(approvals, "next_escalation", next_escalation),
    )


@breaks(POLICY)
def silence_is_taken_for_somebodys_no() -> AbstractContextManager[Any]:
    real = approvals._timed_out

    def timed_out(task: Task, now: int) -> steps.Step:
        step = real(task, now)
        if step.state is State.FAILED and step.details is not None:
            step.details = replace(step.details, reason="rejected by lead", reason_kind="rejected")
        return step

    return patch.object(approvals, "_timed_out", timed_out)


@breaks(POLICY)
def silence_is_taken_for_somebodys_yes() -> AbstractContextManager[Any]:
    return patch.object(approvals, "BY_POLICY", "lead")


@breaks(POLICY, IRREVERSIBLE)
def silence_approves_what_cannot_be_undone() -> AbstractContextManager[Any]:
    """Both where it is submitted and where the time is over."""
    real, checked = approvals._timed_out, spec_validation._check_gates

    def timed_out(task: Task, now: int) -> steps.Step:
        step = real(replace(task, spec=replace(task.spec, irreversible=False)), now)
        if step.state is State.READY and step.details is not None:
            digest = spec_digest(task.spec)
            step.details = replace(step.details, approved_digest=digest)
        return step

    def check(spec: Any) -> None:
        checked(replace(spec, approval=ApprovalPolicy()) if spec.irreversible else spec)

    return together(
        patch.object(approvals, "_timed_out", timed_out),
        patch.object(spec_validation, "_check_gates", check),
    )


@breaks(POLICY, REVIEWS)
def silence_stands_for_a_reviewer() -> AbstractContextManager[Any]:
    return patch.object(approvals, "_is_reviewed", lambda _: True)


@breaks(POLICY)
def whoever_holds_back_is_asked_for_a_decision_again_and_again() -> AbstractContextManager[Any]:
    """The end of the time is told with every reminder."""
    real = approvals._timed_out

    def timed_out(task: Task, now: int) -> steps.Step:
        step = real(task, now)
        if step.details is not None and task.spec.approval.on_timeout is OnTimeout.HOLD:
            step.details = replace(step.details, escalations=task.details.escalations)
        return step

    return patch.object(approvals, "_timed_out", timed_out)


# -- leaders ---------------------------------------------------------------------------------------


@breaks(TERMS)
def two_lead_at_once() -> AbstractContextManager[Any]:
    real = leader_leases._held

    def held(row: Any, holder: str, now: int, length_ms: int) -> Any:
        return real(row._replace(expires_at=0), holder, now, length_ms)

    return patch.object(leader_leases, "_held", held)


@breaks(TERMS)
def a_term_has_the_number_of_the_one_before() -> AbstractContextManager[Any]:
    real = leader_leases._held

    def held(row: Any, holder: str, now: int, length_ms: int) -> Any:
        return real(row, holder, now, length_ms)._replace(term=max(row.term, 1))

    return patch.object(leader_leases, "_held", held)
