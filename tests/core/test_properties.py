"""Whatever is said to whatever task, in whatever order and at whatever time, these always hold."""

from __future__ import annotations

from hypothesis import given

from agentq.core import triggers as t
from agentq.core.digests import spec_digest
from agentq.core.effects import Announce, ResolveDependents
from agentq.core.errors import AgentqError, Invalid, Refused, Stale
from agentq.core.gates import gates_of
from agentq.core.limits import CHILDREN_MAX, NOTES_KEPT, SIGNALS_KEPT
from agentq.core.schedule import expected_wake
from agentq.core.states import TABLE, State
from agentq.core.task import OnTimeout, Task, Usage
from agentq.core.transition import transition
from agentq.core.values import replace
from tests.core.lives import SAYINGS, Life, lived


def check_steps(life: Life) -> None:
    """Every step is in the table; the version grows by one per event; no event, no change."""
    for before, trigger, decision in life.steps:
        after = decision.task
        assert after.state in TABLE[before.state, t.trigger_name(trigger)]
        assert len(decision.events) <= 1
        assert after.version == before.version + len(decision.events)
        assert after.updated_at >= before.updated_at
        if not decision.events:
            assert after is before
            assert decision.effects == ()


def check_refusals(life: Life) -> None:
    for _, _, refusal in life.refused:
        assert isinstance(refusal, Refused | Invalid)
        assert refusal.code and refusal.cause


def check_epochs(life: Life) -> None:
    """The epoch never shrinks; only a claim makes it grow, and by one."""
    for before, trigger, decision in life.steps:
        assert decision.task.epoch - before.epoch == int(isinstance(trigger, t.ClaimTask))


def check_custody(life: Life) -> None:
    """A holder exactly while in progress, or cancelled and not yet seen to stop."""
    for before, trigger, decision in life.steps:
        task = decision.task
        if task.state is State.IN_PROGRESS:
            assert task.holder
        elif task.holder:
            assert task.state is State.CANCELLED
            assert (before.holder, before.epoch) == (task.holder, task.epoch)
        if task.holder:
            assert task.wake_at
        if isinstance(trigger, t.Stopped) and trigger.epoch == task.epoch:
            assert not task.holder


def check_endings(life: Life) -> None:
    """Terminal is absorbing but for requeue; dependents are told exactly when a task ends."""
    for before, trigger, decision in life.steps:
        after = decision.task
        if before.is_terminal and not isinstance(trigger, t.Requeue):
            assert after.state is before.state
            assert after.details.report == before.details.report
        told = [each for each in decision.effects if isinstance(each, ResolveDependents)]
        ended = after.is_terminal and not before.is_terminal
        assert told == ([ResolveDependents(after.state)] if ended else [])
        if after.is_terminal:
            assert after.details.waiting_on == ()
            assert (after.details.yielded, after.details.awaited_signals) == ("", ())


def check_announcements(life: Life) -> None:
    """A worker is woken exactly when a task becomes claimable, or asks for something else."""
    for before, trigger, decision in life.steps:
        changed = before.state is not State.READY or isinstance(trigger, t.Edit)
        became = decision.task.state is State.READY and changed and bool(decision.events)
        assert any(isinstance(each, Announce) for each in decision.effects) is became


def check_time(life: Life) -> None:
    """`wake_at` follows from the other fields, unless a lease decides it."""
    for task in life.tasks():
        expected = expected_wake(task)
        assert expected is None or task.wake_at == expected
        details = task.details
        waits_for_others = bool(
            details.waiting_on or details.yielded or details.awaited_signals or details.held
        )
        assert task.state is not State.PENDING or task.wake_at or waits_for_others


def check_due_time_moves(life: Life) -> None:
    """The due loop picks a task while its moment has come, so every tick must move that moment."""
    task = life.task
    for _ in range(8):
        if not task.wake_at:
            return
        if task.updated_at < task.wake_at:
            assert transition(task, t.Tick(), task.wake_at - 1).task is task
        decision = transition(task, t.Tick(), max(life.now, task.wake_at))
        assert decision.events
        assert (decision.task.state, decision.task.wake_at) != (task.state, task.wake_at)
        task = decision.task


def check_replay(life: Life) -> None:
    """The log alone, decided anew, gives the same events and the same task."""
    task: Task | None = None
    for logged in life.log:
        decision = transition(task, logged.trigger, logged.at)
        task = decision.task
        assert decision.events == (logged,)
    assert task == life.task


def check_irreversible(life: Life) -> None:
    """One approval, by somebody else and for this very payload, starts one attempt."""
    fresh, editors = 0, set()
    for _, trigger, decision in life.steps:
        if isinstance(trigger, t.Edit) and decision.events:
            fresh = 0
            editors.add(trigger.by)
        if isinstance(trigger, t.Approve) and decision.events:
            assert trigger.by not in {life.spec.sender, *editors}
            fresh += 1
        if isinstance(trigger, t.ClaimTask) and life.spec.irreversible:
            assert fresh
            assert decision.task.details.approved_digest == spec_digest(decision.task.spec)
            fresh = 0


def check_dependencies(life: Life) -> None:
    """No attempt starts before the dependencies it was told to wait for have ended."""
    born = life.log[0].trigger
    assert isinstance(born, t.Submit)
    waiting = set(born.waiting_on)
    for _, trigger, _ in life.steps:
        if isinstance(trigger, t.DependencyEnded):
            waiting.discard(trigger.dependency)
        if isinstance(trigger, t.Requeue):
            waiting = set(trigger.waiting_on)
        assert not (isinstance(trigger, t.ClaimTask) and waiting)


def check_children(life: Life) -> None:
    """An attempt begins only when what its forerunner yielded to is over; a report over open
    children says that it leaves them."""
    for before, trigger, decision in life.steps:
        if isinstance(trigger, t.ClaimTask):
            assert not before.details.yielded and not before.details.awaited_signals
        if isinstance(trigger, t.Report) and decision.events:
            assert trigger.leaves_children or not before.details.children
        if decision.task.details.yielded:
            assert decision.task.details.children


def check_signals(life: Life) -> None:
    """Each signal lets one wait go on: as many were taken as were waited for and came."""
    for _, trigger, decision in life.steps:
        details = decision.task.details
        names = {each.name for each in details.signals if not each.is_taken}
        assert not names & set(details.awaited_signals), trigger


def check_reviews(life: Life) -> None:
    """A review counts only while the report that it judged waits for it, and says so itself."""
    for before, trigger, decision in life.steps:
        if isinstance(trigger, t.Verdict) and trigger.review and decision.events:
            report = before.details.report
            assert report is not None and trigger.reviewed == report.epoch
            if decision.task.state is State.COMPLETE:
                assert not gates_of(before).person
                assert trigger.score >= gates_of(before).min_score or not gates_of(before).min_score
        if isinstance(trigger, t.Tick) and decision.task.state is State.COMPLETE:
            assert before.spec.approval.on_timeout is OnTimeout.APPROVE
            assert not before.spec.irreversible
            assert not gates_of(before).reviewer or before.details.accepted_epoch


def check_bounds(life: Life) -> None:
    """Nothing in a task grows without end, and no attempt starts on money that is not there."""
    for task in life.tasks():
        assert len(task.details.notes) <= NOTES_KEPT
        assert len(task.details.children) <= CHILDREN_MAX
        assert len(task.details.signals) <= SIGNALS_KEPT
        if task.state is State.READY:
            budget, extra, spent = task.spec.budget, task.details.extra_budget, task.details.spent
            assert not budget.usd or spent.usd < budget.usd + extra.usd


@given(lived())
def test_whatever_happens_these_hold(life: Life) -> None:
    check_steps(life)
    check_refusals(life)
    check_epochs(life)
    check_custody(life)
    check_endings(life)
    check_announcements(life)
    check_time(life)
    check_due_time_moves(life)
    check_replay(life)
    check_irreversible(life)
    check_dependencies(life)
    check_children(life)
    check_signals(life)
    check_reviews(life)
    check_bounds(life)


@given(lived())
def test_stale_attempts_are_always_refused(life: Life) -> None:
    for task in life.tasks():
        for stale in (task.epoch - 1, task.epoch + 1):
            for trigger in (
                t.Progress(stale, 1), t.AddArtifact(stale, "a", 1, "0"), t.Report(stale),
                t.Spend(stale, Usage(usd=1)), t.FailAttempt(stale, "x"), t.BlockTask(stale, "x"),
                t.Release(stale), t.Yield(stale, signals=("deployed",)),
            ):  # fmt: skip
                assert _answer(task, trigger, life.now) is Stale


def _answer(task: Task, trigger: t.Trigger, now: int) -> object:
    try:
        return transition(task, trigger, now)
    except AgentqError as refusal:
        return type(refusal)


@given(lived())
def test_the_same_words_at_the_same_time_decide_alike(life: Life) -> None:
    task = life.task
    twin = replace(task, details=replace(task.details))
    for sayings in SAYINGS.values():
        trigger = sayings[0](task)
        assert _answer(task, trigger, life.now) == _answer(twin, trigger, life.now)
    # And deciding changes nothing but what it returns.
    assert task == twin
