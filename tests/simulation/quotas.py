"""Places of resources, and rates: what the model knows of them, and somebody who changes them.

Only some histories have them, and their chance is their own (`World.quota_luck`). The model counts
a bucket in fractions of tokens; and however a bucket is counted, in no stretch of time may more
start than it holds at most and gets in that time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.rates import NO_RATE, SET_BACK_MS, Rate
from agentq.core.values import replace
from agentq.ledger.codec import decode_rate
from tests.simulation.calls import Call
from tests.simulation.circuits import NO_LIMIT
from tests.simulation.specs import RESOURCES, ROLES
from tests.simulation.violation import INPUT, LIMITS, Violation

if TYPE_CHECKING:
    from tests.simulation.shadow import Shadow
    from tests.simulation.world import World

#: How many of the histories have places and rates.
SHARE = 0.4
RATES = (NO_RATE, Rate(1, 60), Rate(2, 600, 1), Rate(3, 30), Rate(5, 3600, 2), Rate(7, 1000, 3))
_ROLES = "SELECT 'role ' || name, rate, level, level_at, next_at FROM roles"
_RESOURCES = "SELECT 'key ' || name, rate, level, level_at, next_at FROM resources"
_PLACES = "SELECT name, max_held FROM resources"
_HOLDS = "SELECT resource, key FROM holds"


@dataclass(slots=True)
class Tokens:
    """What is in a bucket, and when the tasks started that took from it since it is counted so."""

    rate: Rate
    level: Fraction
    at: int
    starts: list[int] = field(default_factory=list)

    def come_in(self, now: int) -> None:
        passed = now - self.at
        if passed < -SET_BACK_MS:
            self.at = now
        elif passed > 0:
            gained = Fraction(passed * self.rate.starts, self.rate.seconds * 1000)
            self.level, self.at = min(self.level + gained, Fraction(self.rate.most)), now

    def left(self, now: int) -> int:
        looked = replace(self)
        looked.come_in(now)
        return int(looked.level)

    def take(self, name: str, now: int) -> None:
        self.come_in(now)
        self.level -= 1
        if self.starts and now < self.starts[-1]:
            self.starts.clear()  # the clock was set back: stretches of it mean nothing any more
        self.starts.append(now)
        for nth, since in enumerate(self.starts):
            most = self.rate.most + Fraction(
                (now - since) * self.rate.starts, self.rate.seconds * 1000
            )
            if len(self.starts) - nth > most:
                raise Violation(LIMITS, f"{len(self.starts) - nth} of {name} since {since}: {self}")


class Quotas:
    """Who holds what, how many may, and what is in the buckets."""

    def __init__(self) -> None:
        self.held: defaultdict[str, set[int]] = defaultdict(set)
        self.places: dict[str, int] = {}
        self.buckets: dict[str, Tokens] = {}

    def left(self, name: str, now: int) -> int:
        return self.buckets[name].left(now) if name in self.buckets else NO_LIMIT

    def is_free(self, resources: Iterable[str], now: int) -> bool:
        return all(
            len(self.held[each]) < self.places.get(each, 1) and self.left(f"key {each}", now)
            for each in resources
        )

    def hold(self, shadow: Shadow, seen: set[str]) -> None:
        for resource in shadow.spec.resources:
            held = self.held[resource]
            held.add(shadow.key)
            if len(held) > self.places.get(resource, 1):
                raise Violation(LIMITS, f"{resource} is held by {held}: {self.places}")
            if len(held) > 1:
                seen.add("quota: a resource with several holders")

    def release(self, shadow: Shadow) -> None:
        for resource in shadow.spec.resources:
            self.held[resource].discard(shadow.key)

    def started(self, shadow: Shadow, now: int) -> None:
        for name in (f"role {shadow.spec.to}", *(f"key {each}" for each in shadow.spec.resources)):
            if name in self.buckets:
                self.buckets[name].take(name, now)

    # -- against the database --------------------------------------------------------------------

    def read(self, ask: Callable[[str], list[tuple[Any, ...]]], now: int) -> None:
        """Take over what somebody has set."""
        self.places = dict(ask(_PLACES))
        for name, text, *_ in (*ask(_ROLES), *ask(_RESOURCES)):
            rate, before = decode_rate(text), self.buckets.get(name)
            if not rate.starts:
                self.buckets.pop(name, None)
            elif before is None:
                self.buckets[name] = Tokens(rate, Fraction(rate.most), now)
            elif rate != before.rate:
                self.buckets[name] = Tokens(rate, Fraction(min(before.left(now), rate.most)), now)

    def check(self, ask: Callable[[str], list[tuple[Any, ...]]], now: int, seen: set[str]) -> None:
        held = defaultdict(set)
        for resource, key in ask(_HOLDS):
            held[resource].add(key)
        if held != {name: keys for name, keys in self.held.items() if keys}:
            raise Violation(LIMITS, f"held resources are {held}, should be {self.held}")
        for name, text, *stored in (*ask(_ROLES), *ask(_RESOURCES)) if self.buckets else ():
            if text:
                self._check_bucket(name, stored, now, seen)

    def _check_bucket(self, name: str, stored: Sequence[int], now: int, seen: set[str]) -> None:
        bucket, (level, at, next_at) = self.buckets[name], stored
        if bucket.at - now > SET_BACK_MS and at == now:
            bucket.come_in(now)
            seen.add("quota: a bucket is measured anew")
        parts = bucket.rate.seconds * 1000
        if (Fraction(level, parts), at) != (bucket.level, bucket.at):
            raise Violation(LIMITS, f"the bucket of {name} has {stored}, should be {bucket}")
        if bool(next_at) is not (level < parts):
            raise Violation(LIMITS, f"{name} has {bucket}, and the next comes at {next_at}")
        if next_at:
            seen.add("quota: a bucket is empty")


# -- somebody who turns them -----------------------------------------------------------------------


def begin(world: World) -> None:
    for _ in range(4):
        operator_turns(world)


def operator_turns(world: World) -> None:
    luck = world.quota_luck
    if not world.has_quotas or luck.random() < 0.4:
        return
    ledger, rate = world.ledger(), luck.choice(RATES)
    if luck.random() < 0.4:
        role = luck.choice(ROLES)
        limits = replace(world.model.limits.get(role, RoleLimits()), rate=rate)
        world.do(Call("operator", "limits", lambda: ledger.set_limits(role, limits)))
        return
    key, wanted = luck.choice(RESOURCES), KeyLimits(luck.choice((1, 2, 2, 3)), rate)
    outcome = world.do(Call("operator", "limits", lambda: ledger.set_key_limits(key, wanted)))
    if outcome.ok and world.model.quotas.places.get(key, 1) != wanted.max_held:
        raise Violation(INPUT, f"{key} was given {wanted}, has {world.model.quotas.places}")
