"""Tasks by the batch: submitted, claimed and ended many at a time, alike or each in its own words.

The usual actors take a few tasks at once and no two of them ask for the same. Whoever decides many
tasks in one go must decide each as if it were alone; that is seen only where there are many.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from agentq.core import triggers as t
from agentq.core.task import Priority, Spec, Usage
from agentq.core.values import replace
from agentq.ledger.claims import Held
from agentq.ledger.ledger import Ledger
from agentq.ledger.submit import Submitted
from tests.simulation.calls import Call, Outcome
from tests.simulation.specs import SpecMaker

if TYPE_CHECKING:
    from tests.simulation.histories import RecordedWorld
    from tests.simulation.world import Script

#: Nobody else works for it, so that nobody else's habits change what the crew does.
CREW_ROLE = "crew"
BULK_TASKS = 60
_VOCABULARY = (
    "align branch build cache check column commit daemon deploy digest draft edge fence field file "
    "fixture flag graph header index journal key lease ledger limit loop merge mirror note order "
    "page patch plan point prune queue quota range record relay report rest review role row schema "
    "scope seed shard signal sort stage state store stream table task term test tick token trace "
    "tree trigger unit value verdict view wait work"
)
WORDS = _VOCABULARY.split()


def some_words(rng: Random, length: int) -> str:
    """About so many characters, different in every word."""
    said: list[str] = []
    while sum(map(len, said)) + len(said) < length:
        said.append(rng.choice(WORDS) if rng.random() < 0.8 else f"{rng.randrange(10**6):06d}")
    return " ".join(said)


@dataclass(slots=True)
class UnlikeSpecs(SpecMaker):
    """The usual specs, each with words of its own: title, label, type, instructions."""

    def make(self, sender: str, there: list[str], *, nested: bool = False) -> Spec:
        # By name: `super()` does not find its way in a dataclass with slots.
        spec = SpecMaker.make(self, sender, there, nested=nested)
        return in_its_own_words(spec)


def in_its_own_words(spec: Spec) -> Spec:
    """The same spec, said as nobody else would say it."""
    rng = Random(f"words of {spec.id}")
    return replace(
        spec,
        title=some_words(rng, 40),
        type=rng.choice(WORDS),
        instructions=some_words(rng, rng.choice((60, 600, 600, 1200))),
        labels={"lot": spec.id, rng.choice(WORDS): rng.choice(WORDS)},
    )


def _bulk_spec(world: RecordedWorld, task_id: str) -> Spec:
    rng = world.rng
    if world.alike == "alike" or (world.alike == "mixed" and rng.random() < 0.5):
        return Spec(task_id, CREW_ROLE, instructions=f"do {task_id}")
    spec = in_its_own_words(Spec(task_id, CREW_ROLE, priority=rng.choice(list(Priority))))
    how = rng.random()
    if how < 0.1:
        return replace(spec, review=True)
    if how < 0.2:
        return replace(spec, ttl_seconds=rng.choice((600, 40_000)))
    if how < 0.3:
        return replace(spec, reply_to=f"results.{spec.sender}")
    if how < 0.4:
        return replace(spec, budget=Usage(tokens=rng.choice((5, 100))))
    return spec


def bulk(world: RecordedWorld) -> Script:
    """Submit one by one, as a caller who says no more than he must, or many at once."""
    rng, made = world.rng, 0
    while made < BULK_TASKS and not world.healed:
        count = rng.choice((1, 1, 1, 1, 1, 2, 5, 12, 25))
        specs = tuple(_bulk_spec(world, f"bulk-{made + each:03d}") for each in range(count))
        made += count
        ledger = world.ledger()
        generated = frozenset(spec.id for spec in specs if rng.random() < 0.95)
        call = _submit(ledger, specs, generated)
        while world.do(call).worth_a_retry:
            yield rng.randrange(100, 10_000)
        yield world.some_time()


def _submit(ledger: Ledger, specs: tuple[Spec, ...], generated: frozenset[str]) -> Call:
    def run() -> list[Submitted]:
        first = specs[0]
        shortest = Spec(first.id, first.to, instructions=first.instructions)
        # Some versions of the ledger have a call of its own for a task that says nothing else.
        bare = getattr(ledger, "submit_bare", None)
        if bare and specs == (shortest,) and first.id in generated:
            task = bare(first.id, first.to, first.instructions)
            if task is not None:
                return [Submitted(task, True)]
        return ledger.submit(specs, generated)

    return Call("bulk", "submit", run, specs=specs, generated=generated)


def crew(world: RecordedWorld, name: str) -> Script:
    """Claim many, end them in one go, and claim the next beside it; forget them now and then."""
    rng, held = world.rng, list[Held]()
    while True:
        if not held:
            outcome = world.do(_claim(world, name))
            held = list(outcome.value or ())
            yield rng.randrange(1_000, 15_000) if held else world.some_time()
            continue
        if world.fault(0.05):
            held = []
            continue
        ended, held = held, []
        outcome, held = _end(world, name, ended)
        while outcome.worth_a_retry and rng.random() < 0.8:
            yield rng.randrange(100, 3_000)
            outcome, held = _end(world, name, ended)
        yield rng.randrange(1_000, 15_000)


def _claim(world: RecordedWorld, name: str) -> Call:
    rng, ledger = world.rng, world.ledger()
    count = rng.choice((1, 3, 10, 25))
    if rng.random() < 0.25:
        ready = [s.id for s in world.model.shadows.values() if s.spec.to == CREW_ROLE]
        ids = tuple(rng.sample(ready, min(len(ready), count)))

        def claim_named() -> list[Held]:
            return ledger.complete_and_claim([], CREW_ROLE, 0, name, ids=ids)[1]

        return Call(name, "claim_named", claim_named, role=CREW_ROLE, count=count)
    return Call(
        name, "claim", lambda: ledger.claim(CREW_ROLE, count, name), role=CREW_ROLE, count=count
    )


def _end(world: RecordedWorld, name: str, held: list[Held]) -> tuple[Outcome, list[Held]]:
    """End these; sometimes take the next in the same transaction."""
    rng, ledger = world.rng, world.ledger()
    items = tuple(_endings(world, held))
    plain = all(isinstance(trigger, t.Report) for _, trigger in items)
    ours = [s.spec for s in world.model.shadows.values() if s.spec.to == CREW_ROLE]
    timed = any(spec.ttl_seconds for spec in ours)
    following: list[Held] = []

    def complete_and_claim() -> list[Any]:
        outcomes, taken = ledger.complete_and_claim(items, CREW_ROLE, 10, name)
        following.extend(taken)
        return outcomes

    # What expires under a claim, and what comes back at once, is judged where it is claimed.
    if plain and not timed and not world.healed and rng.random() < 0.6:
        call = Call(name, "apply_many", complete_and_claim, items, role=CREW_ROLE, count=10)
    else:
        call = Call(name, "apply_many", lambda: ledger.apply_many(items), items)
    outcome = world.do(call)
    return outcome, following if outcome.ok else []


def _endings(world: RecordedWorld, held: list[Held]) -> list[tuple[int, t.Trigger]]:
    """Reports, alike or not; where all are alike, tasks of one epoch get the very same one."""
    rng = world.rng
    alike = world.alike == "alike" or rng.random() < 0.3
    said: dict[int, t.Trigger] = {}
    items: list[tuple[int, t.Trigger]] = []
    for each in held:
        epoch = each.task.epoch
        if not world.healed and rng.random() < 0.1:
            kind = rng.choice(tuple(t.FailureKind))
            items.append((each.key, t.FailAttempt(epoch, "it broke", kind, jitter=rng.random())))
        elif alike:
            items.append((each.key, said.setdefault(epoch, t.Report(epoch, "done"))))
        else:
            words = some_words(Random(f"{each.task.id} {world.unique()}"), 80)
            cost = Usage(tokens=rng.choice((0, 0, 9)))
            items.append((each.key, t.Report(epoch, words, "result.md", "f" * 64, cost=cost)))
    return items
