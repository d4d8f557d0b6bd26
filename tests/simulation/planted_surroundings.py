"""Bugs on purpose about circuits: of providers that fail, and of roles that cannot work."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from agentq.contracts.limit_rows import CircuitRow, RoleRow
from agentq.core import custody, steps, triggers
from agentq.core.circuits import ProviderCircuit, pause_ms
from agentq.core.errors import Stale
from agentq.core.task import Task
from agentq.core.values import replace
from agentq.ledger import circuits, ledger
from agentq.ledger.unit_of_work import UnitOfWork
from agentq.stores.sqlite.transaction import SqliteTx
from tests.simulation.planted import breaks, deciding
from tests.simulation.violation import DRAIN, FENCE, INPUT, LIMITS, SURROUNDINGS


@breaks(SURROUNDINGS, LIMITS)
def a_claim_ignores_the_circuit_of_its_provider() -> AbstractContextManager[Any]:
    return patch.object(SqliteTx, "_open_until", lambda *_: 0)


@breaks(SURROUNDINGS, LIMITS)
def a_named_claim_ignores_the_circuit_of_its_provider() -> AbstractContextManager[Any]:
    return patch.object(circuits, "held_back", lambda *_: None)


@breaks(SURROUNDINGS)
def two_probes_are_given_out() -> AbstractContextManager[Any]:
    real = circuits.probe

    def probe(work: UnitOfWork, provider: str) -> CircuitRow | None:
        row = real(work, provider)
        return row if row is None else row._replace(open_until=work.now)

    return patch.object(circuits, "probe", probe)


@breaks(SURROUNDINGS, DRAIN)
def a_probe_that_died_is_waited_for() -> AbstractContextManager[Any]:
    return patch.object(circuits, "probed", lambda now: now + 365 * 24 * 3_600_000)


@breaks(SURROUNDINGS)
def an_interruption_counts_as_a_failure() -> AbstractContextManager[Any]:
    real = custody.release

    def release(task: Task, trigger: triggers.Release, now: int) -> steps.Step:
        step = real(task, trigger, now)
        assert step.details is not None
        step.details = replace(step.details, failures=step.details.failures + 1)
        return step

    return deciding(triggers.Release, release)


@breaks(SURROUNDINGS, INPUT)
def a_role_that_cannot_work_is_given_tasks() -> AbstractContextManager[Any]:
    def is_limited(row: RoleRow) -> bool:
        limits = row.paused, row.max_running, row.max_review, row.daily, row.rate
        return any(limits)

    return patch.object(RoleRow, "is_limited", property(is_limited))


@breaks(SURROUNDINGS, FENCE)
def whoever_lost_the_task_opens_a_circuit() -> AbstractContextManager[Any]:
    real = circuits.interrupt

    def interrupt(work: UnitOfWork, key: int, said: circuits.Interruption, by: str) -> Any:
        try:
            return real(work, key, said, by)
        except Stale:
            return work.task(key), True

    return patch.object(ledger, "interrupt", interrupt)


@breaks(SURROUNDINGS)
def the_task_is_given_back_and_no_circuit_opens() -> AbstractContextManager[Any]:
    return patch.object(circuits, "tripped", lambda circuit, now: circuit)


@breaks(SURROUNDINGS)
def attempts_from_before_count_like_the_probe() -> AbstractContextManager[Any]:
    def tripped(circuit: ProviderCircuit, now: int) -> ProviderCircuit:
        failures = circuit.failures + 1
        return ProviderCircuit(now + pause_ms(failures), failures)

    return patch.object(circuits, "tripped", tripped)


@breaks(SURROUNDINGS, DRAIN)
def a_probe_that_is_served_closes_nothing() -> AbstractContextManager[Any]:
    return patch.object(circuits, "served", lambda circuit, now: circuit)


@breaks(SURROUNDINGS)
def people_are_told_at_every_failure() -> AbstractContextManager[Any]:
    real = circuits._trip_provider

    def trip(work: UnitOfWork, said: circuits.Interruption, by: str) -> tuple[bool, str]:
        return real(work, said, by)[0], f"{said.provider} does not serve"

    return patch.object(circuits, "_trip_provider", trip)
