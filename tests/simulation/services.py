"""The processes that keep a queue going: relay, pruner, follower of the log, and an operator."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from agentq.core.effects import LANES
from agentq.core.errors import Unavailable
from agentq.core.limits import RoleLimits
from agentq.core.triggers import LogEntry
from agentq.core.values import replace
from tests.simulation import quotas
from tests.simulation.calls import Call
from tests.simulation.circuits import NO_LIMIT
from tests.simulation.specs import ROLES
from tests.simulation.surroundings import PROVIDER, operator_turns
from tests.simulation.violation import DEDUP, EFFECTS, INPUT, LIMITS, LOG, LOST, Violation

if TYPE_CHECKING:
    from agentq.contracts.store import OutboxRow, Tx
    from agentq.ledger.ledger import Ledger
    from tests.simulation.world import Script, World


YEAR_MS = 365 * 24 * 3_600_000
#: For how long a relay hides from others what it carries out.
HIDDEN_MS = 30_000


def relay(world: World) -> Script:
    """Carry effects out: take, deliver, ack; it may die between any two of them."""
    while True:
        yield world.rarely(2)
        lanes = sorted({lane for _, lane, _ in world.checker.outbox.values()})
        if lanes:
            yield from carry(world, world.rng.choice(lanes), world.rng.choice((1, 3, 100)))


def carry(world: World, lane: str, count: int) -> Script:
    ledger = world.ledger()
    outcome = world.do(Call("relay", "take", lambda: _take(ledger, lane, count)))
    taken: list[OutboxRow] = outcome.value or []
    if notices := [row.sequence for row in taken if not row.key]:
        # Of no task: nobody here reads them.
        world.store.write(lambda tx: tx.settle_effects(notices))
    rows = [row for row in taken if row.key]
    for row in rows:
        stored = world.checker.outbox.get(row.sequence)
        if stored != (row.effect_id, row.lane, row.payload) or row.lane != lane:
            raise Violation(EFFECTS, f"{row} was taken, {stored} was stored")
    if not rows or world.fault(0.1):
        return
    done = rows[: world.rng.randrange(1, len(rows) + 1)] if world.fault(0.2) else rows
    for row in done:
        world.model.deliver(row.effect_id, row.lane, row.payload)
    if world.fault(0.1):
        return
    yield world.rng.randrange(0, 20_000)
    sequences = tuple(row.sequence for row in done)

    def ack() -> None:
        ledger.store.write(lambda tx: tx.settle_effects(sequences))

    world.do(Call("relay", "ack", ack, sequences=sequences))


def _take(ledger: Ledger, lane: str, count: int) -> list[OutboxRow]:
    """The oldest effects that are due; others do not see them for a while."""

    def change(tx: Tx) -> list[OutboxRow]:
        rows = tx.effects(lane, count, due_only=True)
        tx.settle_effects([row.sequence for row in rows], tx.now() + HIDDEN_MS)
        return rows

    return ledger.store.write(change)


def pruner(world: World) -> Script:
    """Clean up what ended some time ago."""
    rng = world.rng
    while True:
        yield world.rarely(6)
        ledger, before = world.ledger(), world.store_ms - rng.choice((-1, 60_000, 3_600_000))
        limit = rng.choice((1, 2, 500))
        prune(world, ledger, before, limit)


def prune(world: World, ledger: Ledger, before: int, limit: int) -> None:
    """Prune on files that cannot always be removed; those of every pruned task go in the end."""
    call = Call("pruner", "prune", lambda: None, before=before)
    files, model = world.model.files, world.model

    def forget(task_id: str) -> None:
        if world.fault(0.05):
            raise Unavailable(f"The files of {task_id} are out of reach.", "Wait.")
        call.forgotten.append(task_id)

    call.run = lambda: ledger.prune(before, forget, limit)
    outcome = world.do(call)
    for task_id in call.forgotten:
        if task_id in model.by_id:
            raise Violation(LOST, f"the files of {task_id} are gone, and it is there")
        files.discard(task_id)
    for task_id in files & model.pruned.keys() - model.by_id.keys():
        if not model.is_kept(task_id, world.store_ms + YEAR_MS):
            raise Violation(DEDUP, f"{task_id} may be given again, and its files are there")
    live = [shadow.spec for shadow in model.shadows.values() if not shadow.over]
    coming = {child.id for spec in live for child in spec.next}
    left = files - model.by_id.keys() - coming
    if outcome.ok and left:
        raise Violation(LOST, f"{left} are pruned, and their files are there")


def follower(world: World) -> Script:
    """Read the log page by page; every event once, in the order of commits, without gaps."""
    cursor = 0
    while True:
        yield world.rarely(5)
        cursor = follow(world, cursor, world.rng.choice((1, 7, 500)))


def follow(world: World, cursor: int, limit: int) -> int:
    """One page after `cursor`; where the next begins."""
    ledger = world.ledger()
    outcome = world.do(
        Call("follower", "follow", lambda: ledger.queries.events_after(cursor, limit))
    )
    if not outcome.ok:
        return cursor
    page: list[LogEntry] = outcome.value
    seen = [(entry.position, entry.task_id, entry.event.version) for entry in page]
    model = world.model
    there = [
        line
        for line, key in zip(model.log[cursor:], model.log_keys[cursor:], strict=True)
        if key in model.shadows
    ]
    if seen != there[:limit]:
        raise Violation(LOG, f"a follower at {cursor} saw {seen[:5]}, not {there[:5]}")
    return page[-1].position if page else cursor


def operator(world: World) -> Script:
    """Turn the knobs, look at the dials, and pull a plug now and then."""
    rng = world.rng
    while True:
        yield world.some_time() * 2
        if world.healed:
            return
        deed = rng.choice((_limit, _lanes, _look, _look, _restart, _jump, _stop_ticking, _circuit))
        deed(world)
        operator_turns(world)
        quotas.operator_turns(world)


def _limit(world: World) -> None:
    limits = some_limits(world.rng)
    if world.rng.random() < 0.1:
        limits = replace(limits, paused=True)
    set_limits(world, world.rng.choice(ROLES), limits)


def some_limits(rng: Random) -> RoleLimits:
    return RoleLimits(rng.choice((0, 1, 1, 2, 3)), rng.choice((0, 0, 1, 2)))


def set_limits(world: World, role: str, limits: RoleLimits) -> None:
    ledger = world.ledger()
    outcome = world.do(Call("operator", "limits", lambda: ledger.set_limits(role, limits)))
    if outcome.ok and world.model.limits[role] != limits:
        raise Violation(INPUT, f"{role} was given {limits}, has {world.model.limits[role]}")


def _lanes(world: World) -> None:
    lane, ledger = world.rng.choice(LANES[:4]), world.ledger()
    change = ledger.open_lanes if world.rng.random() < 0.7 else ledger.close_lanes
    world.do(Call("operator", "lanes", lambda: change(lane)))


def _circuit(world: World) -> None:
    """A provider's quota is used up for a while; or somebody knows that it is not any more."""
    ledger, rng = world.ledger(), world.rng
    if rng.random() < 0.3:
        close_circuit(world)
        return
    until = world.store_ms + rng.choice((-1, 1_000, 600_000, 7_200_000))
    before = world.model.circuits.of(PROVIDER).open_until
    call = Call(
        "operator", "circuit", lambda: ledger.open_circuit(PROVIDER, until, "quota", "operator"),
        circuit=("open", PROVIDER, until),
    )  # fmt: skip
    outcome = world.do(call)
    if outcome.ok and outcome.value.open_until != max(before, until):
        raise Violation(LIMITS, f"opened from {before} until {until}, told {outcome.value}")


def close_circuit(world: World) -> None:
    ledger = world.ledger()
    call = Call(
        "operator", "circuit", lambda: ledger.close_circuit(PROVIDER, "operator"),
        circuit=("close", PROVIDER, ""),
    )  # fmt: skip
    outcome = world.do(call)
    if outcome.ok and world.model.circuits.allowed(PROVIDER, world.store_ms) != NO_LIMIT:
        raise Violation(LIMITS, f"{PROVIDER} was closed and is still open")


def _restart(world: World) -> None:
    world.restart_a_process()


def _jump(world: World) -> None:
    """The store's clock is set: mostly forward, as after a suspend, or a little back."""
    if world.fault(world.profile.jumps):
        world.jump(world.rng.choice((2_000, 65_000, 700_000, 7_200_000, -3_000, -90_000)))


def _stop_ticking(world: World) -> None:
    if world.fault(world.profile.ticker_stops):
        world.stop_ticking(world.rng.choice((10_000, 600_000, 14_400_000)))


def _look(world: World) -> None:
    """Every view agrees with the model, and explains any task without falling over."""
    queries, model = world.ledger().queries, world.model
    outcome = world.do(Call("operator", "look", queries.stats))
    if not outcome.ok:
        return
    counted: dict[str, dict[str, int]] = {}
    for shadow in model.shadows.values():
        states = counted.setdefault(shadow.spec.to, {})
        states[str(shadow.state)] = states.get(str(shadow.state), 0) + 1
    if outcome.value.by_role != counted:
        raise Violation(INPUT, f"stats say {outcome.value.by_role}, not {counted}")
    if not model.shadows:
        return
    key = world.rng.choice(list(model.shadows))
    world.do(Call("operator", "look", lambda: queries.explain(key)))
    outcome = world.do(Call("operator", "look", lambda: queries.history(key)))
    if outcome.ok:
        seen = [(entry.position, entry.task_id, entry.event.version) for entry in outcome.value]
        there = [line for line, of in zip(model.log, model.log_keys, strict=True) if of == key]
        if seen != there:
            raise Violation(LOG, f"the history of task {key} is {seen}, not {there}")
