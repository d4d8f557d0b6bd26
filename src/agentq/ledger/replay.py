"""Proof: the log of every task, replayed through `transition`, gives the state that is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from agentq.contracts.service_values import Problem
from agentq.core.schedule import expected_wake
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.transition import transition
from agentq.core.triggers import Event, Submit


def replay(events: Sequence[Event]) -> Iterator[tuple[Event, Task]]:
    """Each event with the task it leaves, decided anew from nothing but the log."""
    task: Task | None = None
    for event in events:
        decision = transition(task, event.trigger, event.at)
        task = decision.task
        yield event, task


def check_task(stored: Task, events: Sequence[Event]) -> list[Problem]:
    """What is wrong with a task, by its log; empty if everything is proved."""
    problems: list[str] = []
    versions = [event.version for event in events]
    if versions != list(range(1, len(events) + 1)):
        problems.append(f"the log has versions {versions[:5]}… instead of 1 to {stored.version}")
    elif not events or not isinstance(events[0].trigger, Submit):
        problems.append("the log does not begin with a submission")
    else:
        problems += _compare(stored, events)
    return [Problem(stored.id, text) for text in problems]


def _told(events: Sequence[Event]) -> str:
    if not events:
        return "nothing"
    return f"{events[0].kind}, {events[0].state}, attempt {events[0].epoch}"


def _compare(stored: Task, events: Sequence[Event]) -> list[str]:
    problems: list[str] = []
    task: Task | None = None
    try:
        for event in events:
            decision = transition(task, event.trigger, event.at)
            task = decision.task
            if decision.events != (event,):
                problems.append(
                    f"event {event.version} says {event.kind}, {event.state}, attempt"
                    f" {event.epoch}; replaying gives {_told(decision.events)}"
                )
    except Exception as error:  # noqa: BLE001
        # Whatever a damaged log makes the rules do, it is a finding, not a crash of the checker.
        return [f"replaying stops after version {task.version if task else 0}: {error}"]
    assert task is not None
    if task.holder:
        # Heartbeats move the end of the lease without an event, and never back.
        if stored.wake_at < task.wake_at:
            problems.append(f"its lease ends at {stored.wake_at}, before the log says it may")
        task = replace(task, wake_at=stored.wake_at)
    elif stored.wake_at != expected_wake(stored):
        problems.append(f"wake_at is {stored.wake_at}, its fields call for {expected_wake(stored)}")
    if task != stored:
        different = [
            name
            for name in ("spec", "state", "version", "epoch", "submitted_at", "updated_at",
                         "wake_at", "holder", "details")
            if getattr(task, name) != getattr(stored, name)
        ]  # fmt: skip
        problems.append(f"the log does not give the stored {', '.join(different)}")
    if stored.holder and stored.state not in (State.IN_PROGRESS, State.CANCELLED):
        problems.append(f"it is {stored.state} and yet held by {stored.holder}")
    return problems
