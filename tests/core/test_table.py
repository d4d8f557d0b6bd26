"""Every cell of state × trigger: what the table promises happens, and what it lacks is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.errors import Refused, Stale
from agentq.core.states import DEAD_LETTERS, TABLE, TERMINAL, State
from agentq.core.task import (
    ApprovalPolicy,
    Gates,
    OnDependencyFailure,
    OnTimeout,
    Task,
    Usage,
)
from agentq.core.transition import Decision, transition
from tests.core.building import (
    A_TRIGGER,
    BY_STATE,
    LEASE_MS,
    NOW,
    a_spec,
    claimed,
    due,
    failed_task,
    submitted,
    then,
)

P, R, H, V, B = State.PENDING, State.READY, State.IN_PROGRESS, State.REVIEW, State.BLOCKED
C, F, X, E = State.COMPLETE, State.FAILED, State.CANCELLED, State.EXPIRED

Triple = tuple[State | None, str, State]
Maker = Callable[[], Task]
Case = tuple[Maker | None, t.Trigger, int]

TRIPLES: list[Triple] = [
    (before, name, outcome)
    for (before, name), outcomes in TABLE.items()
    for outcome in sorted(outcomes)
]
MISSING: list[tuple[State | None, str]] = [
    (before, name)
    for before in (None, *State)
    for name in t.TRIGGERS
    if (before, name) not in TABLE
]

SKIP = OnDependencyFailure.SKIP
LATER = NOW + 3_600_000
WHEN_DUE = -1

make = partial


def applied(maker: Maker | None, trigger: t.Trigger) -> Case:
    return maker, trigger, 0


def ticked(maker: Maker) -> Case:
    return maker, t.Tick(), WHEN_DUE


def submission(waiting_on: tuple[str, ...] = (), broken: bool = False, **fields: Any) -> Case:
    ended = (("task-0", F),) if broken else ()
    return applied(None, t.Submit(a_spec(**fields), waiting_on, ended))


def nobody_approved(waiting_on: tuple[str, ...] = ("task-0",), **fields: Any) -> Task:
    """Blocked because an approval did not come in time, and still waiting for a dependency."""
    task = submitted(
        waiting_on=waiting_on, requires_approval=True, approval_timeout_seconds=60, **fields
    )
    return due(task).task


def approved() -> Task:
    return then(submitted(requires_approval=True), t.Approve("boss"))


def poisonous() -> Task:
    """In progress for the third time after two holders vanished."""
    task = claimed()
    for holder in ("bob", "cid"):
        task = then(due(task).task, t.ClaimTask(holder, LEASE_MS))
    return task


def irreversible_in_review() -> Task:
    return then(claimed(irreversible=True, review=True), t.Report(1, "done"))


def irreversible_unknown() -> Task:
    return then(claimed(irreversible=True), t.FailAttempt(1, "lost the connection"))


def costly_in_review() -> Task:
    """Reported, and the report's cost used up the budget."""
    task = claimed(review=True, budget=Usage(usd=1))
    return then(task, t.Report(1, "done", cost=Usage(usd=1)))


def too_costly() -> Task:
    return then(costly_in_review(), t.Verdict("boss", t.Ruling.REJECT))


def failed_once() -> Task:
    return then(claimed(budget=Usage(usd=1)), t.FailAttempt(1, "network down"))


def given_back() -> Task:
    return then(claimed(budget=Usage(usd=1)), t.Release(1))


def in_reviewers_hands(person: bool = False) -> Task:
    """Reported, and judged by a task of the role `reviewer`."""
    gates = Gates(reviewer="reviewer", person=person)
    return then(claimed(gates=gates), t.Report(1, "done"))


def with_child(maker: Maker) -> Task:
    return then(maker(), t.ChildrenSubmitted(("task-8",)))


def yielded(*children: str) -> Task:
    """Pending until its children are over."""
    return then(claimed(), t.ChildrenSubmitted(children), t.Yield(1))


def undecided(policy: OnTimeout, **fields: Any) -> dict[str, Any]:
    return {"approval": ApprovalPolicy(on_timeout=policy), "approval_timeout_seconds": 60, **fields}


def reported(**fields: Any) -> Task:
    return then(claimed(review=True, **fields), t.Report(1, "done"))


REVIEWED = t.Verdict("reviewer", t.Ruling.ACCEPT, review="task-1.review-1", reviewed=1)
CHILD_DONE = t.DependencyEnded("task-8", C)
SIGNAL = A_TRIGGER["Signal"]
DONE = t.DependencyEnded("task-0", C)
BROKEN = t.DependencyEnded("task-0", F)
APPROVED = t.Approve("boss")
EDITED = A_TRIGGER["Edit"]
HELD = A_TRIGGER["Hold"]

#: How each promised outcome comes about: a task, what is said to it, and when.
CASES: dict[Triple, Case] = {
    (None, "Submit", P): submission(waiting_on=("task-0",)),
    (None, "Submit", R): submission(),
    (None, "Submit", F): submission(broken=True),
    (None, "Submit", X): submission(broken=True, on_dependency_failure=SKIP),
    (P, "DependencyEnded", P): applied(make(submitted, waiting_on=("task-0", "task-9")), DONE),
    (P, "DependencyEnded", R): applied(make(submitted, waiting_on=("task-0",)), DONE),
    (P, "DependencyEnded", F): applied(make(submitted, waiting_on=("task-0",)), BROKEN),
    (P, "DependencyEnded", X): applied(
        make(submitted, waiting_on=("task-0",), on_dependency_failure=SKIP), BROKEN
    ),
    (P, "Approve", P): applied(
        make(submitted, requires_approval=True, waiting_on=("task-0",)), APPROVED
    ),
    (P, "Approve", R): applied(make(submitted, requires_approval=True), APPROVED),
    (P, "Reject", F): applied(make(submitted, requires_approval=True), t.Reject("boss")),
    (P, "Tick", P): ticked(make(submitted, requires_approval=True)),
    (P, "Tick", R): ticked(make(submitted, delay_seconds=60)),
    (P, "Tick", E): ticked(make(submitted, waiting_on=("task-0",), ttl_seconds=60)),
    (P, "Tick", B): ticked(make(submitted, requires_approval=True, approval_timeout_seconds=60)),
    (P, "Tick", F): ticked(make(submitted, **undecided(OnTimeout.REJECT, requires_approval=True))),
    (P, "Signal", P): applied(BY_STATE[P], SIGNAL),
    (P, "Signal", R): applied(make(submitted, wait_for=("deployed",)), SIGNAL),
    (H, "Yield", P): applied(claimed, A_TRIGGER["Yield"]),
    (H, "Yield", R): applied(
        lambda: then(claimed(), t.ChildrenSubmitted(("task-8",)), CHILD_DONE), t.Yield(1)
    ),
    (V, "Verdict", V): applied(make(in_reviewers_hands, person=True), REVIEWED),
    (V, "ReviewFailed", V): applied(in_reviewers_hands, A_TRIGGER["ReviewFailed"]),
    (V, "Tick", C): ticked(make(reported, **undecided(OnTimeout.APPROVE))),
    (V, "Tick", F): ticked(make(reported, **undecided(OnTimeout.REJECT))),
    **{
        (s, "ChildrenSubmitted", s): applied(BY_STATE[s], A_TRIGGER["ChildrenSubmitted"])
        for s in (P, R, H, V, B)
    },
    **{
        (s, "DependencyEnded", s): applied(make(with_child, BY_STATE[s]), CHILD_DONE)
        for s in (R, H, V)
    },
    **{(s, "Signal", s): applied(BY_STATE[s], SIGNAL) for s in (R, H, V, B)},
    (R, "Claim", H): applied(submitted, t.ClaimTask("ann", LEASE_MS)),
    (R, "Tick", R): applied(make(submitted, ttl_seconds=60), t.Tick()),
    (R, "Tick", E): ticked(make(submitted, ttl_seconds=60)),
    (H, "Progress", H): applied(claimed, t.Progress(1, 10)),
    (H, "AddArtifact", H): applied(claimed, t.AddArtifact(1, "log", 1, "0" * 64)),
    (H, "Spend", H): applied(make(claimed, budget=Usage(usd=1)), t.Spend(1, Usage(usd=0.5))),
    (H, "Spend", B): applied(make(claimed, budget=Usage(usd=1)), t.Spend(1, Usage(usd=1.5))),
    (H, "Report", C): applied(claimed, t.Report(1, "done")),
    (H, "Report", V): applied(make(claimed, review=True), t.Report(1, "done")),
    (H, "Fail", P): applied(claimed, t.FailAttempt(1, "network down")),
    (H, "Fail", F): applied(make(claimed, max_attempts=1), t.FailAttempt(1, "network down")),
    (H, "Fail", B): applied(make(claimed, irreversible=True), t.FailAttempt(1, "network down")),
    (H, "Block", B): applied(claimed, t.BlockTask(1, "which branch?")),
    (H, "Release", R): applied(claimed, t.Release(1)),
    (H, "Release", P): applied(claimed, t.Release(1, "quota", LATER)),
    (H, "Release", B): applied(make(claimed, irreversible=True), t.Release(1)),
    (H, "Tick", H): applied(claimed, t.Tick()),
    (H, "Tick", R): ticked(claimed),
    (H, "Tick", F): ticked(poisonous),
    (H, "Tick", B): ticked(make(claimed, irreversible=True)),
    (V, "Verdict", C): applied(BY_STATE[V], t.Verdict("boss", t.Ruling.ACCEPT)),
    (V, "Verdict", R): applied(BY_STATE[V], t.Verdict("boss", t.Ruling.CHANGES, "add tests")),
    (V, "Verdict", P): applied(irreversible_in_review, t.Verdict("boss", t.Ruling.CHANGES)),
    (V, "Verdict", B): applied(costly_in_review, t.Verdict("boss", t.Ruling.CHANGES)),
    (V, "Verdict", F): applied(BY_STATE[V], t.Verdict("boss", t.Ruling.REJECT)),
    (V, "Tick", V): ticked(BY_STATE[V]),
    (B, "DependencyEnded", B): applied(nobody_approved, DONE),
    (B, "DependencyEnded", F): applied(nobody_approved, BROKEN),
    (B, "DependencyEnded", X): applied(make(nobody_approved, on_dependency_failure=SKIP), BROKEN),
    (B, "Answer", R): applied(BY_STATE[B], t.Answer("boss", "the main one")),
    (B, "Answer", P): applied(irreversible_unknown, t.Answer("boss", "it did not happen")),
    (B, "Answer", C): applied(BY_STATE[B], t.Answer("boss", "I did it", t.Resolution.DONE)),
    (B, "Answer", F): applied(BY_STATE[B], t.Answer("boss", "forget it", t.Resolution.GIVE_UP)),
    (B, "Approve", P): applied(nobody_approved, APPROVED),
    (B, "Approve", R): applied(make(nobody_approved, ()), APPROVED),
    (B, "Reject", F): applied(nobody_approved, t.Reject("boss")),
    (B, "Tick", B): ticked(BY_STATE[B]),
    (X, "AddArtifact", X): applied(BY_STATE[X], t.AddArtifact(1, "log", 1, "0" * 64)),
    (X, "Spend", X): applied(BY_STATE[X], t.Spend(1, Usage(usd=0.5))),
    (P, "Spend", P): applied(failed_once, t.Spend(1, Usage(usd=0.5))),
    (P, "Spend", B): applied(failed_once, t.Spend(1, Usage(usd=2))),
    (R, "Spend", R): applied(given_back, t.Spend(1, Usage(usd=0.5))),
    (R, "Spend", B): applied(given_back, t.Spend(1, Usage(usd=2))),
    **{(s, "Spend", s): applied(BY_STATE[s], t.Spend(1, Usage(usd=9))) for s in (V, B, C, F)},
    **{
        (s, "AddArtifact", s): applied(BY_STATE[s], t.AddArtifact(1, "output.log", 1, "0" * 64))
        for s in (V, C)
    },
    (X, "Stopped", X): applied(BY_STATE[X], t.Stopped(1)),
    (X, "Tick", X): ticked(BY_STATE[X]),
    (F, "Requeue", R): applied(failed_task, t.Requeue("boss")),
    (F, "Requeue", P): applied(failed_task, t.Requeue("boss", "", ("task-0",))),
    (F, "Requeue", B): applied(too_costly, t.Requeue("boss")),
    (E, "Requeue", R): applied(BY_STATE[E], t.Requeue("boss")),
    (E, "Requeue", P): applied(BY_STATE[E], t.Requeue("boss", "", ("task-0",))),
    (C, "Applied", C): applied(BY_STATE[C], A_TRIGGER["Applied"]),
    (P, "Edit", P): applied(BY_STATE[P], EDITED),
    (P, "Edit", R): (make(submitted, delay_seconds=60), EDITED, WHEN_DUE),
    (R, "Edit", R): applied(submitted, EDITED),
    (R, "Edit", P): applied(approved, EDITED),
    (B, "Edit", P): applied(nobody_approved, EDITED),
    (B, "Edit", R): applied(BY_STATE[B], t.Edit("ed", to="other")),
    (B, "Edit", B): applied(nobody_approved, t.Edit("ed", to="worker")),
    (P, "Hold", P): applied(BY_STATE[P], A_TRIGGER["Hold"]),
    (R, "Hold", P): applied(submitted, A_TRIGGER["Hold"]),
    (P, "Dispatch", P): applied(lambda: then(BY_STATE[P](), HELD), A_TRIGGER["Dispatch"]),
    (P, "Dispatch", R): applied(lambda: then(submitted(), HELD), A_TRIGGER["Dispatch"]),
    (R, "Dispatch", R): applied(submitted, A_TRIGGER["Dispatch"]),
    **{(s, "Cancel", X): applied(BY_STATE[s], t.Cancel("boss")) for s in (P, R, H, V, B)},
    **{(s, "Comment", s): applied(BY_STATE[s], t.Comment("boss", "nice")) for s in State},
    **{(s, "Tell", s): applied(BY_STATE[s], t.Tell("boss", "more")) for s in (P, R, H, V, B)},
    (H, "TakeMessages", H): applied(claimed, t.TakeMessages(1)),
    **{(s, "RefuseReport", s): applied(BY_STATE[s], A_TRIGGER["RefuseReport"]) for s in State},
}


def named(cell: tuple[Any, ...]) -> str:
    return "-".join(str(part or "nothing") for part in cell)


def decide(case: Case) -> tuple[Task | None, Decision]:
    maker, trigger, when = case
    task = maker() if maker else None
    if when == WHEN_DUE:
        assert task is not None
        assert task.wake_at > task.updated_at
        return task, transition(task, trigger, task.wake_at)
    return task, transition(task, trigger, task.updated_at if task else NOW)


@pytest.mark.parametrize("triple", TRIPLES, ids=named)
def test_a_promised_outcome_is_reached(triple: Triple) -> None:
    # Given a task in the state before, when the trigger is told, then the promised state follows.
    before, name, outcome = triple
    task, decision = decide(CASES[triple])
    assert (task.state if task else None) is before
    assert decision.task.state is outcome
    # And one event says so, unless nothing happened at all.
    if decision.events:
        (event,) = decision.events
        assert event.version == decision.task.version == (task.version if task else 0) + 1
        assert (event.state, event.epoch) == (outcome, decision.task.epoch)
        assert t.trigger_name(event.trigger) == name
        assert event.kind
    else:
        assert decision.task is task
        assert not decision.effects


def test_every_outcome_of_the_table_has_its_case_and_no_case_is_beside_the_table() -> None:
    assert set(CASES) == set(TRIPLES)


@pytest.mark.parametrize("cell", MISSING, ids=named)
def test_a_missing_cell_is_refused_with_cause_and_remedy(cell: tuple[State | None, str]) -> None:
    # Given a task in a state where the trigger means nothing,
    before, name = cell
    task = BY_STATE[before]() if before else None
    untouched = BY_STATE[before]() if before else None
    # when it is told at the time it knows and much later, then it is refused in words,
    for now in (NOW, NOW + 10 * LEASE_MS):
        with pytest.raises(Refused) as refusal:
            transition(task, A_TRIGGER[name], now)
        error = refusal.value
        assert error.code in {"wrong_state", "stale", "refused", "not_claimed"}
        assert error.cause.endswith(".")
        assert "  " not in error.cause and " ;" not in error.cause
        assert error.remedy
        assert task is None or task.id in error.cause or name in error.cause
    # and nothing has changed.
    assert task == untouched


@pytest.mark.parametrize("cell", MISSING, ids=named)
def test_an_attempt_that_speaks_out_of_turn_is_told_it_is_stale(
    cell: tuple[State | None, str],
) -> None:
    before, name = cell
    speaks_for_an_attempt = hasattr(A_TRIGGER[name], "epoch")
    with pytest.raises(Refused) as refusal:
        transition(BY_STATE[before]() if before else None, A_TRIGGER[name], NOW)
    assert isinstance(refusal.value, Stale) is (speaks_for_an_attempt and before is not None)


def test_every_trigger_and_every_state_is_tested() -> None:
    assert set(A_TRIGGER) == set(t.TRIGGERS)
    assert set(BY_STATE) == set(State)
    for state, maker in BY_STATE.items():
        assert maker().state is state


def test_terminal_states_are_left_by_requeue_only() -> None:
    for (before, name), outcomes in TABLE.items():
        if before in TERMINAL:
            assert outcomes == {before} or (name == "Requeue" and before in DEAD_LETTERS)


def test_only_a_claim_leads_into_progress() -> None:
    ways_in = {
        (before, name)
        for (before, name), outcomes in TABLE.items()
        if H in outcomes and before is not H
    }
    assert ways_in == {(R, "Claim")}
