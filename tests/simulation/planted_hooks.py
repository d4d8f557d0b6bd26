"""Bugs on purpose about webhooks: each must be caught by the histories of `hook_world`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

from agentq.client.task_input.specs import Draft
from agentq.contracts.hook_values import HookDelivery, IncomingDelivery, Intake
from agentq.contracts.store import Changes, DedupRow
from agentq.core.errors import Invalid, Unavailable
from agentq.core.values import replace
from agentq.hooks import applying
from agentq.ledger import hook_deliveries
from agentq.ledger.hook_deliveries import HookLedger
from agentq.stores.sqlite.transaction import SqliteTx
from tests.simulation import planted
from tests.simulation.hook_world import AS_RULED, DECIDED_ONCE, KEPT, TAKEN_ONCE, HookWorld
from tests.simulation.planted import Bug, sql

HOOK_BUGS: dict[str, Bug] = {}
breaks = partial(planted.breaks, world=HookWorld, among=HOOK_BUGS)


@breaks(KEPT)
def a_delivery_is_answered_before_it_is_stored() -> AbstractContextManager[Any]:
    real = HookLedger.take

    def hasty(self: HookLedger, deliveries: Sequence[IncomingDelivery]) -> list[Intake]:
        try:
            return real(self, deliveries)
        except Unavailable:
            return [Intake.STORED for _ in deliveries]

    return patch.object(HookLedger, "take", hasty)


@breaks(KEPT)
def what_waits_makes_room_for_the_next_of_its_id() -> AbstractContextManager[Any]:
    old = "WHERE hook_deliveries.way = 'out' OR hook_deliveries.state <> 0"
    return sql("save_hook_delivery", old, "")


@breaks(KEPT)
def what_still_waits_is_pruned() -> AbstractContextManager[Any]:
    return sql("forget_hook_deliveries", "state <> 0 AND", "")


@breaks(TAKEN_ONCE)
def a_known_delivery_is_taken_again() -> AbstractContextManager[Any]:
    real = SqliteTx.dedup_records

    def forgetful(self: SqliteTx, names: Sequence[str]) -> dict[str, DedupRow]:
        return real(self, [name for name in names if not name.startswith("hook:")])

    return patch.object(SqliteTx, "dedup_records", forgetful)


@breaks(TAKEN_ONCE)
def pruning_forgets_the_ids_of_deliveries() -> AbstractContextManager[Any]:
    return sql("forget_dedup", "expires_at <= ?", "expires_at <= ? OR name LIKE 'hook:%'")


@breaks(DECIDED_ONCE)
def whoever_was_overtaken_decides_again() -> AbstractContextManager[Any]:
    return patch.object(hook_deliveries, "is_undecided", lambda tx, delivery: True)


@breaks(DECIDED_ONCE)
def tasks_are_saved_and_the_outcome_is_not() -> AbstractContextManager[Any]:
    real = SqliteTx.save

    def half(self: SqliteTx, changes: Changes) -> None:
        real(self, replace(changes, hook_outcomes=()) if changes.new else changes)

    return patch.object(SqliteTx, "save", half)


@breaks(AS_RULED)
def a_replay_makes_its_tasks_again() -> AbstractContextManager[Any]:
    real, numbers = applying._made, itertools.count()

    def unique(*words: Any) -> Draft | None:
        made = real(*words)
        if made is None:
            return None
        key = f"hook:{next(numbers)}"
        return made._replace(spec=replace(made.spec, idempotency_key=key))

    return patch.object(applying, "_made", unique)


@breaks(AS_RULED)
def a_rule_that_fails_stops_those_after_it() -> AbstractContextManager[Any]:
    real = applying.apply_rules

    def strict(*words: Any) -> list[applying.RuleOutcome]:
        outcomes = real(*words)
        for each in outcomes:
            if each.error:
                raise Invalid(each.error)
        return outcomes

    return patch.object(applying, "apply_rules", strict)


@breaks(AS_RULED)
def a_broken_file_stops_the_daemon() -> AbstractContextManager[Any]:
    return patch.object(applying, "_FAULTS", ())


@breaks(AS_RULED)
def a_failure_is_taken_for_no_interest() -> AbstractContextManager[Any]:
    real = hook_deliveries.outcome

    def mild(delivery: HookDelivery, tasks: Sequence[str], error: str) -> Any:
        return real(delivery, tasks, "")

    return patch.object(hook_deliveries, "outcome", mild)
