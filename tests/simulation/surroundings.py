"""Surroundings that fail: providers that do not serve, roles that cannot work, people who mend it.

Only some histories have them, and their chance is their own (`World.luck`): all others are the same
with and without this module.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from agentq.core import triggers as t
from agentq.ledger.circuits import Interruption
from tests.simulation.calls import Call
from tests.simulation.specs import ROLES

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Whose quota some of the workers use.
PROVIDER = "acme"
REASONS = ("no program", "no login", "no repository")
#: How many of the histories have failing surroundings.
SHARE = 0.4


def strikes(world: World, share: float) -> bool:
    """Whether the surroundings fail now; never in a history without, nor once faults stopped."""
    return world.profile.bad_surroundings and not world.healed and world.luck.random() < share


def interruption(
    world: World, name: str, key: int, epoch: int, provider: str, skew_ms: int
) -> Call:
    """An attempt ends because its provider does not serve, or because its role cannot work."""
    ledger, luck = world.ledger(), world.luck
    whose = provider if luck.random() < 0.8 else ""
    reason = f"{whose} is overloaded" if whose else luck.choice(REASONS)
    said = Interruption(epoch, reason, whose)
    return Call(
        name, "interrupt", lambda: ledger.interrupt(key, said, name),
        ((key, t.Release(epoch, reason)),), provider=whose, skew_ms=skew_ms,
    )  # fmt: skip


def served(world: World, name: str, provider: str) -> Call:
    """The provider has served an attempt: if it was the probe, its circuit closes."""
    ledger = world.ledger()
    return Call(
        name, "served", lambda: ledger.circuits.reset(provider), circuit=("served", provider, "")
    )


def preflight(world: World, name: str, role: str) -> Generator[object, None, None]:
    """A worker finds that its role cannot work; later it can again, which somebody may forget."""
    if not strikes(world, 0.12):
        return
    world.do(open_role(world, name, role))
    yield world.some_time()
    if not strikes(world, 0.4):
        yield from _insist(world, close_role(world, name, role))


def open_role(world: World, by: str, role: str) -> Call:
    ledger, reason = world.ledger(), world.luck.choice(REASONS)
    return Call(
        by, "circuit", lambda: ledger.circuits.open_role(role, reason, by),
        circuit=("open_role", role, reason),
    )  # fmt: skip


def close_role(world: World, by: str, role: str) -> Call:
    ledger = world.ledger()
    return Call(
        by, "circuit", lambda: ledger.circuits.close_role(role), circuit=("close_role", role, "")
    )


def _insist(world: World, call: Call) -> Generator[object, None, None]:
    while world.do(call).worth_a_retry:
        yield world.luck.randrange(500, 30_000)


def operator_turns(world: World) -> None:
    """Somebody looks after the roles: mostly mends what is open, sometimes stops what is not."""
    if not strikes(world, 0.5):
        return
    opened = sorted(world.model.circuits.roles)
    if opened and world.luck.random() < 0.8:
        world.do(close_role(world, "operator", world.luck.choice(opened)))
    else:
        world.do(open_role(world, "operator", world.luck.choice(ROLES)))


def mend_roles(world: World) -> None:
    """Once faults have stopped, roles work again where there is somebody to mend them: also one
    whose circuit is opened by a message from before."""
    if world.profile.people_stay:
        for role in sorted(world.model.circuits.roles):
            world.do(close_role(world, "operator", role))


def is_closed_by_hand(world: World) -> bool:
    """Whether the circuit of the provider is closed once faults have stopped, or must close by a
    probe that is served."""
    return not world.profile.bad_surroundings or world.luck.random() < 0.3
