"""Which task is meant: the SDK takes a `Task`, a `Claim` or an id wherever one of them fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.core.errors import Invalid
from agentq.core.states import State
from agentq.core.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentq.client.task_fields import TaskRef


def id_of(task: TaskRef) -> str:
    """Return the id of a task, or the id itself."""
    if isinstance(task, str):
        return task
    if isinstance(task, Task):
        return task.id
    raise Invalid(
        f"Expected a task or its id, got {type(task).__name__}. Nothing was done.",
        "Pass what submit() or task() returned, or its .id.",
    )


def states_of(states: State | str | Iterable[State | str]) -> tuple[State, ...]:
    """Return states by their words.

    >>> states_of("ready"), states_of([State.FAILED, "expired"])
    ((<State.READY: 'ready'>,), (<State.FAILED: 'failed'>, <State.EXPIRED: 'expired'>))
    """
    listed = [states] if isinstance(states, str) else states
    try:
        return tuple(State(each) for each in listed)
    except ValueError as error:
        raise Invalid(
            f"A state is one of {', '.join(State)}; {error}.", "Check the spelling."
        ) from None
