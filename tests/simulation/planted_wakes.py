"""Bugs on purpose about wakes: each must be caught by the histories of `wakes`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from agentq.core.states import State
from agentq.core.task import Spec, Task
from agentq.core.values import replace
from agentq.organisation import waking
from agentq.organisation.waking import WakeDecision, WakeItem
from agentq.settings.profiles import Profile
from agentq.settings.working_hours import WorkingHours
from tests.simulation import planted
from tests.simulation import wakes as histories
from tests.simulation.planted import Bug
from tests.simulation.wakes import (
    IN_HOURS,
    NOT_LOST,
    ONCE,
    ONE_AT_A_TIME,
    WITH_CAUSE,
    WakeWorld,
)

WAKE_BUGS: dict[str, Bug] = {}
breaks = partial(planted.breaks, world=WakeWorld, among=WAKE_BUGS)


@breaks(WITH_CAUSE)
def a_wake_without_work() -> AbstractContextManager[Any]:
    real = waking.decide_wake

    def eager(*words: Any, always: bool = False, **fields: Any) -> WakeDecision:
        return real(*words, always=True, **fields)

    return patch.object(waking, "decide_wake", eager)


@breaks(WITH_CAUSE)
def an_agent_wakes_itself() -> AbstractContextManager[Any]:
    real = waking.news_of

    def vain(profile: Profile, items: Iterable[WakeItem], previous: Task | None) -> list[WakeItem]:
        return real(replace(profile, name="nobody", roles=("nobody",)), items, previous)

    return patch.object(waking, "news_of", vain)


@breaks(ONE_AT_A_TIME, ONCE)
@contextmanager
def a_wake_has_a_name_of_its_own() -> Iterator[None]:
    """Two that look at once make two."""
    real, numbers = waking._spec, itertools.count()

    def unique(*words: Any) -> Spec:
        spec, number = real(*words), next(numbers)
        return replace(spec, id=f"{spec.id}-{number}", idempotency_key=f"wake:{number}")

    with patch.object(waking, "_spec", unique):
        yield


@breaks(ONE_AT_A_TIME, ONCE)
def a_wake_that_is_not_over_is_overlooked() -> AbstractContextManager[Any]:
    return patch.object(waking, "TERMINAL", frozenset(State))


@breaks(ONCE)
def what_was_listed_is_forgotten() -> AbstractContextManager[Any]:
    return patch.object(waking, "_seen_by", lambda previous: (set(), 0))


@breaks(NOT_LOST)
def what_came_while_it_was_busy_is_forgotten() -> AbstractContextManager[Any]:
    real = waking._seen_by

    def late(previous: Task | None) -> tuple[set[tuple[str, str, int]], int]:
        seen, looked_at = real(previous)
        return seen, max(looked_at, previous.updated_at if previous is not None else 0) + 10_000

    return patch.object(waking, "_seen_by", late)


@breaks(IN_HOURS)
def working_hours_are_ignored() -> AbstractContextManager[Any]:
    # Those who check it must still know the hours.
    real = WorkingHours.is_open
    checking = histories.WakeWorld._check_wake

    def check(self: Any, *words: Any) -> None:
        with patch.object(WorkingHours, "is_open", real):
            checking(self, *words)

    stack = ExitStack()
    stack.enter_context(patch.object(WorkingHours, "is_open", lambda self, at_ms: True))
    stack.enter_context(patch.object(histories.WakeWorld, "_check_wake", check))
    return stack
