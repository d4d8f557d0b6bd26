"""Decisions about signals: kept until something waits for them, and taken once.

A signal that comes before anybody waits is not lost, and one that was waited for lets one wait go
on, not two.
"""

from __future__ import annotations

from agentq.core import triggers as t
from agentq.core.errors import Refused
from agentq.core.limits import SIGNALS_KEPT
from agentq.core.states import State
from agentq.core.steps import Step, annotated, waits
from agentq.core.task import ReceivedSignal, Task, TaskDetails
from agentq.core.values import replace


def signal(task: Task, trigger: t.Signal, now: int) -> Step:
    """Keep a signal, and let the task go on if it has waited for it."""
    details, kept = task.details, task.details.signals
    if len(kept) >= SIGNALS_KEPT:
        taken = next((each for each in kept if each.is_taken), None)
        if taken is None:
            raise Refused(
                f"{task.id} keeps {len(kept)} signals that nothing has waited for; no more are"
                " kept. Nothing was changed.",
                "Look at what it waits for: `agentq explain`.",
                code="too_many_signals",
            )
        kept = tuple(each for each in kept if each is not taken)
    received = ReceivedSignal(now, trigger.by, trigger.name, trigger.data)
    details = taken_signals(replace(details, signals=(*kept, received)), now)
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
        details = annotated(details, came.at, came.by, "signal", text)
    return replace(details, signals=tuple(kept), awaited_signals=tuple(left))
