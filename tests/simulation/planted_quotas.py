"""Bugs on purpose about the places of resources, and about rates."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from agentq.contracts.limit_rows import ResourceRow
from agentq.core import rates
from agentq.core.rates import Rate, TokenBucket
from agentq.core.task import Task
from agentq.core.values import replace
from agentq.ledger import claims, resources
from tests.simulation.contended import ContendedWorld
from tests.simulation.planted import breaks, nothing
from tests.simulation.violation import LIMITS


@breaks(LIMITS)
def a_resource_has_one_place_too_many() -> AbstractContextManager[Any]:
    real = resources.WantedResources._wanted

    def more(self: resources.WantedResources, task: Task) -> list[ResourceRow]:
        return [row._replace(max_held=row.max_held + 1) for row in real(self, task)]

    return patch.object(resources.WantedResources, "_wanted", more)


@breaks(LIMITS, world=ContendedWorld)
def half_a_set_of_resources_is_kept() -> AbstractContextManager[Any]:
    """They are taken one by one, and what a task has got stays with it when another is lacking."""
    real = resources.WantedResources.take

    def take(self: resources.WantedResources, key: int, task: Task) -> bool:
        alone = [replace(task.spec, resources=(name,)) for name in sorted(task.spec.resources)]
        return all(real(self, key, replace(task, spec=spec)) for spec in alone)

    return patch.object(resources.WantedResources, "take", take)


@breaks(LIMITS)
def a_role_pays_no_token() -> AbstractContextManager[Any]:
    return patch.object(claims, "_charge", nothing)


@breaks(LIMITS)
def a_resource_pays_no_token() -> AbstractContextManager[Any]:
    return patch.object(resources, "take", lambda row, count, now: row)


@breaks(LIMITS)
def a_batch_pays_one_token() -> AbstractContextManager[Any]:
    real = claims._charge
    return patch.object(claims, "_charge", lambda work, row, count: real(work, row, min(count, 1)))


@breaks(LIMITS)
def a_bucket_fills_twice_as_fast() -> AbstractContextManager[Any]:
    real = rates.refilled

    def hasty(bucket: TokenBucket, rate: Rate, now: int) -> TokenBucket:
        return real(bucket, rate, max(now, 2 * now - bucket.level_at))

    return patch.object(rates, "refilled", hasty)
