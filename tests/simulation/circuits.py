"""Circuits by a second opinion, written from the documentation: who may claim, and what follows.

A provider that fails is left alone for a time that doubles; then one task, the probe, is given out.
A role that cannot work is left alone until somebody closes its circuit. Neither is in the log of a
task, so the checker compares the rows themselves with what each call must have made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentq.core.triggers import ClaimTask, Event, Release
from agentq.core.values import replace
from tests.simulation.calls import Call
from tests.simulation.shadow import Shadow
from tests.simulation.violation import LIMITS, SURROUNDINGS, Violation

FIRST_PAUSE_MS, LONGEST_PAUSE_MS, PROBE_WAIT_MS = 10_000, 600_000, 300_000
NO_LIMIT = 1_000_000


def pause_after(times: int) -> int:
    """For how long nobody asks again, after so many failures in a row."""
    pause = FIRST_PAUSE_MS
    for _ in range(times - 1):
        pause = min(pause * 2, LONGEST_PAUSE_MS)
    return pause


@dataclass(frozen=True, slots=True)
class ModelCircuit:
    """A provider's circuit as it must stand."""

    open_until: int = 0
    failures: int = 0
    probing: bool = False

    def opened(self, until: int) -> ModelCircuit:
        """Somebody names its end: later than it was, never sooner."""
        return ModelCircuit(until) if until > self.open_until else self

    def closed(self, now: int) -> ModelCircuit:
        """Somebody knows that it serves again."""
        if self.open_until <= now and not self.failures:
            return self
        return ModelCircuit(min(self.open_until, now))

    def failed(self, now: int) -> ModelCircuit:
        """It did not serve an attempt. While it is open only the probe tells anything new."""
        if self.open_until > now and not self.probing:
            return self
        return ModelCircuit(now + pause_after(self.failures + 1), self.failures + 1)

    def served(self, now: int) -> ModelCircuit:
        """It served an attempt. While it is open only the probe tells anything new."""
        waits_for_probe = self.open_until > now and not self.probing
        return self if not self.failures or waits_for_probe else self.closed(now)

    def probed(self, now: int) -> ModelCircuit:
        return replace(self, open_until=now + PROBE_WAIT_MS, probing=True)


NEVER_OPEN = ModelCircuit()


@dataclass(slots=True)
class ModelCircuits:
    """All circuits: of providers, and of roles with the reason why they need a person."""

    providers: dict[str, ModelCircuit] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)

    def of(self, provider: str) -> ModelCircuit:
        return self.providers.get(provider, NEVER_OPEN)

    def allowed(self, provider: str, now: int) -> int:
        """How many tasks may be claimed for a provider: any number, one as a probe, or none."""
        circuit = self.of(provider)
        if circuit.open_until > now:
            return 0
        return 1 if circuit.failures else NO_LIMIT

    def is_open(self, provider: str, now: int) -> bool:
        return self.of(provider).open_until > now

    def after(self, call: Call, now: int) -> ModelCircuits:
        """As they stand if the call, which is about nothing but a circuit, is committed."""
        said = call.circuit
        if said is None:
            return self
        deed, name, what = said
        if deed == "open_role":
            return ModelCircuits(self.providers, {**self.roles, name: str(what)})
        if deed == "close_role":
            roles = {role: why for role, why in self.roles.items() if role != name}
            return ModelCircuits(self.providers, roles)
        before = self.providers.get(name)
        if before is None and deed != "open":
            return self
        circuit = before or NEVER_OPEN
        if deed == "open":
            circuit = circuit.opened(int(what))
        else:
            circuit = circuit.closed(now) if deed == "close" else circuit.served(now)
        return ModelCircuits({**self.providers, name: circuit}, self.roles)

    # -- what events do to them --------------------------------------------------------------------

    def claimed(self, call: Call, claimed: Sequence[Shadow], now: int, seen: set[str]) -> None:
        """Claims were committed: was each of them allowed? A probe is noted."""
        for shadow in claimed:
            if shadow.spec.to in self.roles:
                why = self.roles[shadow.spec.to]
                raise Violation(
                    SURROUNDINGS,
                    f"{shadow.id} was started, and {shadow.spec.to} cannot work: {why}",
                )
        allowed = self.allowed(call.provider, now)
        if len(claimed) > allowed:
            circuit = self.of(call.provider)
            broken = SURROUNDINGS if circuit.failures else LIMITS
            ids = [shadow.id for shadow in claimed]
            raise Violation(broken, f"{ids} were started for {call.provider}: {circuit}")
        if allowed == 1 and claimed:
            seen.add("circuit: a probe is out")
            self.providers[call.provider] = self.of(call.provider).probed(now)

    def interrupted(
        self, call: Call, shadow: Shadow, trigger: Release, now: int, seen: set[str]
    ) -> None:
        """An attempt was given back because of its surroundings: what must its event say?"""
        if call.provider:
            before = self.of(call.provider)
            after = self.providers[call.provider] = before.failed(now)
            tells = after != before and not before.failures
            not_before = now + pause_after(shadow.interruptions)
            if before.probing and after != before:
                seen.add("circuit: a probe failed")
        else:
            why = trigger.reason
            tells, not_before = self.roles.get(shadow.spec.to) != why, 0
            self.roles[shadow.spec.to] = why
            seen.add("circuit: a role needs a person")
        if (bool(trigger.circuit), trigger.not_before) != (tells, not_before):
            raise Violation(
                SURROUNDINGS, f"{shadow.id}: {trigger}; not before {not_before}, {tells=} was due"
            )

    def take_in(
        self, call: Call, events: Sequence[tuple[Shadow, Event]], now: int, seen: set[str]
    ) -> None:
        """Follow the events of one step."""
        for shadow, event in events:
            if isinstance(event.trigger, Release):
                _check_counters(shadow)
                if call.verb == "interrupt":
                    self.interrupted(call, shadow, event.trigger, now, seen)
        claimed = [shadow for shadow, event in events if isinstance(event.trigger, ClaimTask)]
        if claimed:
            self.claimed(call, claimed, now, seen)

    def check(self, call: Call, stored: ModelCircuits, now: int, seen: set[str]) -> ModelCircuits:
        """Compare the rows with what must be, with this call or, if it failed, without it."""
        after = self.after(call, now)
        if stored not in (self, after):
            raise Violation(SURROUNDINGS, f"circuits are {stored} after {call}; {after} was due")
        if call.circuit and stored == after != self:
            seen.add(f"circuit: {call.circuit[0]}")
        return stored


def _check_counters(shadow: Shadow) -> None:
    """Giving back uses no attempt: the task has counted the failures of its shadow, and no more."""
    assert shadow.task is not None
    details = shadow.task.details
    counted = (details.failures, details.interruptions)
    due = (shadow.failures, shadow.interruptions)
    if counted != due:
        raise Violation(
            SURROUNDINGS, f"{shadow.id} counts {counted} after it was given back, not {due}"
        )


def read(providers: Sequence[tuple[Any, ...]], roles: Sequence[tuple[Any, ...]]) -> ModelCircuits:
    """The circuits as the tables have them."""
    return ModelCircuits(
        {name: ModelCircuit(until, failures, bool(probing))
         for name, until, failures, probing in providers},
        dict(roles),
    )  # fmt: skip
