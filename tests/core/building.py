"""Tasks to test with: each reaches its state by triggers, never by setting fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentq.core import triggers as t
from agentq.core.effects import Effect
from agentq.core.states import State
from agentq.core.task import Spec, Task, Usage
from agentq.core.transition import Decision, transition

NOW = 1_700_000_000_000
SECOND = 1_000
LEASE_MS = 60 * SECOND


def a_spec(**fields: Any) -> Spec:
    return Spec(**{"id": "task-1", "to": "worker", **fields})


def submitted(
    *,
    waiting_on: tuple[str, ...] = (),
    ended: tuple[tuple[str, State], ...] = (),
    **fields: Any,
) -> Task:
    spec = a_spec(after=(*waiting_on, *(name for name, _ in ended)), **fields)
    return transition(None, t.Submit(spec, waiting_on, ended), NOW).task


def then(task: Task, *triggers: t.Trigger, at: int = 0) -> Task:
    """The task after these triggers, all at one moment: `at`, or when it last changed."""
    for trigger in triggers:
        task = transition(task, trigger, at or task.updated_at).task
    return task


def claimed(holder: str = "ann", **fields: Any) -> Task:
    task = submitted(**fields)
    if task.spec.needs_approval:
        task = then(task, t.Approve("boss"))
    return then(task, t.ClaimTask(holder, LEASE_MS))


def due(task: Task) -> Decision:
    """What time does to the task at the very moment that matters to it next."""
    assert task.wake_at, "no moment matters to this task"
    return transition(task, t.Tick(), task.wake_at)


def failed_task(**fields: Any) -> Task:
    return then(claimed(**fields), t.FailAttempt(1, "no good", t.FailureKind.INVALID))


BY_STATE: dict[State, Callable[[], Task]] = {
    State.PENDING: lambda: submitted(waiting_on=("task-0",)),
    State.READY: submitted,
    State.IN_PROGRESS: claimed,
    State.REVIEW: lambda: then(claimed(review=True), t.Report(1, "done")),
    State.BLOCKED: lambda: then(claimed(), t.BlockTask(1, "which branch?")),
    State.COMPLETE: lambda: then(claimed(), t.Report(1, "done")),
    State.FAILED: failed_task,
    State.CANCELLED: lambda: then(claimed(), t.Cancel("boss")),
    State.EXPIRED: lambda: due(submitted(ttl_seconds=60)).task,
}

#: One of each kind, as somebody might say it about attempt 1 of task-1.
A_TRIGGER: dict[str, t.Trigger] = {
    "Submit": t.Submit(a_spec()),
    "DependencyEnded": t.DependencyEnded("task-0", State.COMPLETE),
    "Approve": t.Approve("boss"),
    "Reject": t.Reject("boss", "too risky"),
    "Claim": t.ClaimTask("bob", LEASE_MS),
    "Progress": t.Progress(1, 50, "half way"),
    "AddArtifact": t.AddArtifact(1, "patch.diff", 10, "0" * 64),
    "Spend": t.Spend(1, Usage(usd=0.5)),
    "Report": t.Report(1, "done"),
    "Fail": t.FailAttempt(1, "network down"),
    "Block": t.BlockTask(1, "which branch?"),
    "Release": t.Release(1, "shutting down"),
    "Answer": t.Answer("boss", "the main one"),
    "Verdict": t.Verdict("boss", t.Ruling.ACCEPT),
    "ReviewFailed": t.ReviewFailed("task-1.review-1", State.FAILED, "no time"),
    "Yield": t.Yield(1, signals=("deployed",)),
    "ChildrenSubmitted": t.ChildrenSubmitted(("task-8",)),
    "Signal": t.Signal("boss", "deployed", '{"to":"prod"}'),
    "Cancel": t.Cancel("boss", "changed my mind"),
    "Stopped": t.Stopped(1),
    "Requeue": t.Requeue("boss"),
    "Applied": t.Applied("boss", "0" * 40, "main"),
    "Edit": t.Edit("ed", instructions="do something else"),
    "Hold": t.Hold("boss", "not now"),
    "Dispatch": t.Dispatch("boss"),
    "Tick": t.Tick(),
    "Comment": t.Comment("boss", "nice"),
    "Tell": t.Tell("boss", "keep the old page"),
    "TakeMessages": t.TakeMessages(1),
    "RefuseReport": t.RefuseReport(1, "ann", "completed", "late"),
}


def effects_of(decision: Decision, kind: type[Effect]) -> list[Any]:
    return [effect for effect in decision.effects if type(effect) is kind]
