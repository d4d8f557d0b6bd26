"""Processes that want to lead a loop: one at a time does, and the others wait for its term to end.

A leader dies without a word, is paused past its term and goes on as if nothing had happened, or
gives its term up. Whoever leads ticks; that two do so for a moment must harm nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentq.ledger.leader_leases import LeaderLeases
from tests.simulation.calls import Call
from tests.simulation.violation import TERMS, Violation

if TYPE_CHECKING:
    from tests.simulation.world import Script, World

#: Loop -> who leads it, in which term, until when.
Terms = dict[str, tuple[str, int, int]]

LOOPS = ("due", "prune")
TERM_MS = 60_000


def daemon(world: World, name: str) -> Script:
    """Ask for the terms again and again; tick while they are ours."""
    rng = world.rng
    while not world.healed:
        yield rng.choice((TERM_MS // 3, 20 * TERM_MS, 60 * TERM_MS))
        ledger = world.ledger()
        leases = LeaderLeases(ledger.store)
        if world.fault(0.1):
            # Those that it does not have stay as they are.
            world.do(_call(name, "give_up", lambda held=leases: held.give_up(LOOPS, name)))
            continue
        outcome = world.do(_call(name, "hold", lambda held=leases: held.hold(LOOPS, name, TERM_MS)))
        if not outcome.ok or outcome.value["due"].holder != name:
            continue
        if world.fault(0.2):
            yield rng.randrange(TERM_MS, 5 * TERM_MS)  # paused; it may lead no longer
        world.do(Call(name, "tick", ledger.tick))


def _call(name: str, verb: str, run: Any) -> Call:
    return Call(name, verb, run)


def check(call: Call, before: Terms, rows: Sequence[tuple[Any, ...]], now: int) -> Terms:
    """Compare the stored terms with what this call may have made of them."""
    after = {name: (holder, term, until) for name, holder, term, until in rows}
    for name in after.keys() | before.keys():
        was, now_is = before.get(name, ("", 0, 0)), after.get(name)
        if now_is != was and now_is not in _allowed(call, was, now):
            raise Violation(TERMS, f"{name} was led as {was}, and is as {now_is} after {call}")
    return after


def _allowed(call: Call, was: tuple[str, int, int], now: int) -> list[tuple[str, int, int]]:
    """What may become of a term by this call, once it is committed."""
    holder, term, until = was
    if call.verb == "give_up":
        return [("", term, 0)] if holder == call.actor else []
    if call.verb != "hold":
        return []
    if until <= now:
        return [(call.actor, term + 1, now + TERM_MS)] + ([("", 0, 0)] if not term else [])
    return [(holder, term, max(until, now + TERM_MS))] if holder == call.actor else []


def judge(call: Call, answer: Any, terms: Terms, now: int) -> None:
    """Hold what a process was told against what is stored: nobody else leads."""
    for name, told in answer.items():
        holder, term, until = terms.get(name, ("", 0, 0))
        due = (holder if until > now else "", term)
        if (told.holder, told.number) != due:
            raise Violation(TERMS, f"{call} was told {told}, and {name} is led by {terms}")
