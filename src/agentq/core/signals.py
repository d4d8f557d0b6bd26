"""Decisions about signals: kept until something waits for them, and taken once.

A signal that comes before anybody waits is not lost, and one that was waited for lets one wait go
on, not two.
"""

from __future__ import annotations

from agentq.core import triggers as t
from agentq.core.errors import Refused
from agentq.core.limits import NOTE_CHARS_MAX, SIGNALS_KEPT, shorten
from agentq.core.states import State
from agentq.core.steps import Step, annotated, waits
from agentq.core.task import ReceivedSignal, Task, TaskDetails
from agentq.core.values import replace


def signal(task: Task, trigger: t.Signal, now: int) -> Step:
    """Keep a signal, and let the task go on if it has waited for it."""
    received = ReceivedSignal(now, trigger.by, trigger.name, trigger.data)
    details = replace(task.details, signals=(*task.details.signals, received))
    details = taken_signals(details, now)
    kept = details.signals
    if len(kept) > SIGNALS_KEPT:
        taken = next((each for each in kept if each.is_taken), None)
        if taken is None:
            raise Refused(
                f"{task.id} keeps {SIGNALS_KEPT} signals that nothing has waited for; no more are"
                " kept. Nothing was changed.",
                "Look at what it waits for: `agentq explain`.",
                code="too_many_signals",
            )
        details = replace(details, signals=tuple(each for each in kept if each is not taken))
    if task.state is not State.PENDING or details.awaited_signals == task.details.awaited_signals:
        return Step(task.state, "signalled", (), details, keeps_custody=True)
    return waits(task.spec, details, now, "signalled")


def taken_signals(details: TaskDetails, now: int, awaited: tuple[str, ...] = ()) -> TaskDetails:
    """The details after every signal that is there was taken by whatever waits for it: for these
    names as well. What a signal brought becomes a note for the next attempt."""
    names = [*details.awaited_signals, *awaited]
    if not names:
        return details
    kept = list(details.signals)
    left = []
    for name in names:
        place = next(
            (at for at, each in enumerate(kept) if each.name == name and not each.is_taken), -1
        )
        if place < 0:
            left.append(name)
            continue
        came = kept[place]
        kept[place] = replace(came, is_taken=True)
        text = f"{name}: {came.data}" if came.data else name
        details = annotated(details, came.at, came.by, "signal", shorten(text, NOTE_CHARS_MAX))
    return replace(details, signals=tuple(kept), awaited_signals=tuple(left))


def signals_to_come(task: Task) -> tuple[str, ...]:
    """Those that must have come before the task starts and have not. Once it has, none is left."""
    if task.epoch:
        return ()
    left = list(task.spec.wait_for)
    for each in task.details.signals:
        if each.is_taken and each.name in left:
            left.remove(each.name)
    return tuple(left)
