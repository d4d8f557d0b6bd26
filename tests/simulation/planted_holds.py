"""Bugs on purpose about holds: forgotten, evaded, or ended by whoever must not."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any
from unittest.mock import patch

from agentq.core import editing, holding, signals, steps, triggers, waiting
from agentq.core.task import Spec, Task, TaskDetails
from agentq.core.values import replace
from tests.simulation.planted import breaks, deciding
from tests.simulation.violation import HOLDS


def _forgetting(module: ModuleType) -> AbstractContextManager[Any]:
    """What this module decides ends a hold."""

    def waits(spec: Spec, details: TaskDetails, now: int, kind: str) -> steps.Step:
        return steps.waits(spec, replace(details, held=None), now, kind)

    return patch.object(module, "waits", waits)


@breaks(HOLDS)
def a_dependency_that_ends_ends_the_hold() -> AbstractContextManager[Any]:
    return _forgetting(waiting)


@breaks(HOLDS)
def an_edit_ends_the_hold() -> AbstractContextManager[Any]:
    return _forgetting(editing)


@breaks(HOLDS)
def a_signal_ends_the_hold() -> AbstractContextManager[Any]:
    return _forgetting(signals)


@breaks(HOLDS)
def a_program_dispatches_what_a_person_holds() -> AbstractContextManager[Any]:
    return patch.object(holding, "_outranks", lambda *_: False)


@breaks(HOLDS)
def a_dispatch_leaves_the_delay() -> AbstractContextManager[Any]:
    real = holding.dispatch

    def dispatch(task: Task, trigger: triggers.Dispatch, now: int) -> steps.Step:
        step = real(task, trigger, now)
        if step.details is None:
            return step
        details = replace(step.details, not_before=task.details.not_before)
        return steps.waits(task.spec, details, now, step.kind)

    return deciding(triggers.Dispatch, dispatch)


@breaks(HOLDS)
def what_is_held_is_ready() -> AbstractContextManager[Any]:
    real = holding.hold

    def hold(task: Task, trigger: triggers.Hold, now: int) -> steps.Step:
        step = real(task, trigger, now)
        return steps.Step(task.state, "", step.effects) if step.kind else step

    return deciding(triggers.Hold, hold)
