"""The same operations give the same results on SQLite and on PostgreSQL, whatever they are.

A history is a list of numbers, each the seed of one step. Steps are drawn evenly from their seed
rather than by Hypothesis, which prefers small values and would keep lives short. A history that
differs is shortened to the steps that matter, and printed: `Comparison.play` repeats it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import hypothesis.strategies as st
import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings

from agentq.core.effects import LANES
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import ExpectedOutput, OnDependencyFailure, Priority, Spec, Task, Usage
from agentq.core.triggers import (
    Comment,
    FailAttempt,
    FailureKind,
    Progress,
    Report,
    Resolution,
    Ruling,
    Trigger,
)
from agentq.core.values import replace
from agentq.stores.postgres.store import PostgresStore
from agentq.stores.postgres.transaction import Assumed
from agentq.stores.sqlite.store import SqliteStore
from tests.contracts.rows import Clock
from tests.contracts.twins import Move, Sayings, Side, Twins
from tests.tiers import made_up

SECOND = 1000
IDS = tuple(f"t{n}" for n in range(24))
ROLES = ("build", "Review")
PEOPLE = ("lead", "coordinator", "ada")
TEXTS = ("", "done", "no\nwords — ñ 🦊", "x" * 300)
RESOURCES = ("gpu", "db")
COSTS = (Usage(), Usage(), Usage(usd=0.5), Usage(tokens=100))

EMPTY_LEDGER = """
SET search_path = agentq;
TRUNCATE specs, tasks, events, log, unnumbered, edges, wants, holds, dedup, artifacts, outbox,
    roles, circuits, spending, trees, tree_members RESTART IDENTITY;
UPDATE head SET position = 0, lanes = 'results';
DELETE FROM system_events WHERE number > 1;
ALTER SEQUENCE task_keys RESTART;
"""

#: What would naturally be said to a task in this state, so that random lives get somewhere.
NATURAL = {
    State.PENDING: ("approve", "approve", "time", "cancel", "reject", "tick"),
    State.READY: ("claim", "claim_task", "claim_task", "claim_task", "cancel", "time"),
    State.IN_PROGRESS: ("report", "report", "report", "report", "report", "report", "fail", "fail",
                        "artifact", "artifact", "block", "release", "spend", "progress", "cancel",
                        "time", "heartbeat", "comment"),
    State.REVIEW: ("verdict", "verdict", "verdict", "cancel", "comment", "time"),
    State.BLOCKED: ("answer", "answer", "answer", "cancel"),
    State.COMPLETE: ("report", "comment"),
    State.FAILED: ("requeue", "requeue", "comment"),
    State.CANCELLED: ("stopped", "stopped", "requeue", "heartbeat", "report", "tick"),
    State.EXPIRED: ("requeue",),
}  # fmt: skip
VERBS = sorted({verb for verbs in NATURAL.values() for verb in verbs} | {"prune"})


def draw_spec(chance: random.Random, depth: int = 1) -> Spec:
    """Mostly plain tasks; each feature in some of them."""

    def often(share: float) -> bool:
        return chance.random() < share

    return Spec(
        chance.choice(IDS),
        chance.choice(ROLES),
        sender=chance.choice(PEOPLE) if often(0.3) else "coordinator",
        type="review" if often(0.2) else "task",
        priority=chance.choice(list(Priority)) if often(0.4) else Priority.NORMAL,
        instructions=chance.choice(TEXTS),
        expected_output=ExpectedOutput(artifacts=("summary",) if often(0.2) else ()),
        ttl_seconds=chance.choice((5, 100)) if often(0.2) else 0,
        delay_seconds=chance.choice((3, 60)) if often(0.2) else 0,
        lease_seconds=chance.choice((1, 10)) if often(0.2) else 60,
        max_attempts=chance.choice((1, 2, 3)),
        after=tuple(chance.sample(IDS, chance.choice((1, 1, 2)))) if often(0.35) else (),
        on_dependency_failure=chance.choice(list(OnDependencyFailure)),
        next=tuple(draw_spec(chance, depth - 1) for _ in range(2)) if depth and often(0.2) else (),
        resources=tuple(chance.sample(RESOURCES, chance.choice((1, 2)))) if often(0.3) else (),
        idempotency_key=chance.choice(("k1", "k2")) if often(0.1) else "",
        irreversible=often(0.15),
        requires_approval=often(0.15),
        approval_timeout_seconds=50 if often(0.2) else 0,
        review=often(0.25),
        budget=chance.choice((Usage(usd=2.0), Usage(1.0, 150))) if often(0.2) else Usage(),
        tree_budget=Usage(usd=1.5) if often(0.2) else Usage(),
        parent=chance.choice(IDS) if often(0.4) else "",
        reply_to="results.lead" if often(0.2) else "",
        labels={"area": "db"} if often(0.2) else {},
    )


def draw_move(chance: random.Random) -> Move:
    return Move(
        chance.randrange(1000),
        chance.randrange(1000),
        chance.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 1)),
        chance.choice(PEOPLE),
        chance.choice(TEXTS),
        chance.choice(COSTS),
        chance.choice(list(FailureKind)),
        chance.choice(list(Ruling)),
        chance.choice(list(Resolution)),
    )


class History:
    """Random lives of tasks, on both databases at once."""

    def __init__(self, twins: Twins) -> None:
        self.twins = twins
        self.clock = twins.clock
        self.tasks: list[Task] = []
        self.asked: list[Spec] = []

    def step(self, seed: int) -> None:
        chance = random.Random(seed)
        kinds: list[Callable[[random.Random], None]] = [self.submit, self.submit_plain]
        weights = [10, 4]
        if self.tasks:
            kinds += [self.live, self.anything, self.claim, self.apply_many, self.heartbeat,
                      self.submit_again, self.submit_a_taken_id, self.time_passes, self.set_lanes,
                      self.relay, self.set_limits, self.prune, self.circuit,
                      self.raise_tree]  # fmt: skip
            weights += [60, 10, 8, 5, 3, 6, 3, 4, 3, 6, 3, 3, 2, 2]
        (kind,) = chance.choices(kinds, weights)
        kind(chance)
        self.tasks = sorted(self.twins.tasks(), key=lambda task: task.id)

    # -- submitting ------------------------------------------------------------------------------

    def submit(self, chance: random.Random) -> None:
        batch = [draw_spec(chance) for _ in range(chance.randrange(1, 6))]
        known = {task.id for task in self.tasks} | {spec.id for spec in batch}
        if chance.random() < 0.9:  # else they may name tasks that do not exist
            batch = [replace(s, after=tuple(a for a in s.after if a in known)) for s in batch]
        live = [task.id for task in self.tasks if not task.is_terminal]
        if live and chance.random() < 0.5:
            after = (chance.choice(live),)
            batch = [s if s.id in after or s.next else replace(s, after=after) for s in batch]
        self.twins.both(lambda side: side.ledger.submit(batch))
        self.asked += batch

    def submit_again(self, chance: random.Random) -> None:
        """What was asked for before, in the same words or others; it may be pruned by now."""
        if self.asked:
            spec = replace(chance.choice(self.asked), after=(), next=())
            if chance.random() < 0.3:
                spec = replace(spec, instructions="something else")
            self.twins.both(lambda side: side.ledger.submit([spec]))

    def submit_plain(self, chance: random.Random) -> None:
        """The short way: made-up ids and nothing special."""
        made = [f"task-{self.twins.position}-{n}" for n in range(chance.randrange(1, 6))]
        batch = [Spec(each, chance.choice(ROLES), instructions="go") for each in made]
        self.twins.both(lambda side: side.ledger.submit(batch, set(made)))

    def submit_a_taken_id(self, chance: random.Random) -> None:
        """A made-up id that happens to be there already."""
        taken = chance.choice(self.tasks)
        spec = taken.spec if chance.random() < 0.3 else Spec(taken.id, "build")
        self.twins.both(lambda side: side.ledger.submit([spec], {spec.id}))

    # -- lives -----------------------------------------------------------------------------------

    def claim(self, chance: random.Random) -> None:
        role, count = chance.choice(ROLES), chance.randrange(1, 5)
        holder, lease_ms = chance.choice(("w1", "w2")), chance.choice((0, 2000))
        provider = chance.choice(("", "acme", "other"))
        self.twins.both(lambda side: side.ledger.claim(role, count, holder, lease_ms, provider))

    def live(self, chance: random.Random) -> None:
        """What comes naturally."""
        task, move = chance.choice(self.tasks), draw_move(chance)
        self.act(chance.choice(NATURAL[task.state]), task, move)

    def anything(self, chance: random.Random) -> None:
        """What may well be refused."""
        self.act(chance.choice(VERBS), chance.choice(self.tasks), draw_move(chance))

    def act(self, verb: str, task: Task, move: Move) -> None:
        if verb == "time":
            left = max(task.wake_at - self.clock.now, 0)
            self.clock.now += left + move.offset if left else move.verb % 60 * SECOND
            verb = "tick"
        action = getattr(Sayings, verb)
        epoch = task.epoch + move.offset
        self.twins.both(lambda side: action(side, task, epoch, move))

    def apply_many(self, chance: random.Random) -> None:
        items: list[tuple[str, Trigger]] = []
        for _ in range(chance.randrange(1, 7)):
            task, move = chance.choice(self.tasks), draw_move(chance)
            epoch = task.epoch + move.offset
            made: tuple[Trigger, ...] = (
                Report(epoch, move.text, cost=move.cost),
                FailAttempt(epoch, "broken", move.kind, move.cost, jitter=0.25),
                Progress(epoch, 10),
                Comment("ada", "hm"),
            )
            items.append((task.id, chance.choice(made)))
        self.twins.both(lambda side: side.apply_many(items))

    def heartbeat(self, chance: random.Random) -> None:
        leases = [
            (task.id, task.epoch + chance.choice((0, 0, 0, 1)), 7000)
            for task in chance.sample(self.tasks, min(len(self.tasks), 6))
        ]
        self.twins.both(lambda side: side.heartbeat(leases))

    # -- time, effects and care ------------------------------------------------------------------

    def time_passes(self, chance: random.Random) -> None:
        self.clock.now += int(chance.choice((0.001, 1, 1, 5, 5, 30, 61, 3600, 4 * 86_400)) * SECOND)
        limit = chance.choice((1, 500))
        self.twins.both(lambda side: side.ledger.tick(limit))

    def set_lanes(self, chance: random.Random) -> None:
        lane, opening = chance.choice(LANES[:5]), chance.random() < 0.8
        self.twins.both(
            lambda side: side.ledger.open_lanes(lane) if opening else side.ledger.close_lanes(lane)
        )

    def relay(self, chance: random.Random) -> None:
        lane = chance.choice(("results", "delivery", "delivery", "notify", "reply"))
        acked = [chance.randrange(20) for _ in range(3)]
        late = [chance.randrange(20) for _ in range(2)]
        until = self.clock.now + chance.choice((1, 5000))
        for _ in range(2):
            self.twins.both(partial(Side.effects, lane=lane, count=chance.randrange(1, 4)))
            self.twins.both(lambda side: side.postpone_effects(late, until))
        self.twins.both(lambda side: side.ack_effects(acked))

    def set_limits(self, chance: random.Random) -> None:
        limits = RoleLimits(chance.choice((0, 0, 2, 3)), chance.choice((0, 0, 1)),
                            chance.random() < 0.1,
                            chance.choice((Usage(), Usage(), Usage(usd=3.0))))  # fmt: skip
        role = chance.choice(ROLES)
        self.twins.both(lambda side: side.ledger.set_limits(role, limits))

    def circuit(self, chance: random.Random) -> None:
        until = self.clock.now + chance.choice((-1, 1, 5, 60)) * SECOND
        provider, closing = chance.choice(("acme", "other")), chance.random() < 0.3
        self.twins.both(
            lambda side: (
                side.ledger.close_circuit(provider, "ada")
                if closing
                else side.ledger.open_circuit(provider, until, "quota", "ada")
            )
        )

    def raise_tree(self, chance: random.Random) -> None:
        task = chance.choice(self.tasks)
        self.twins.both(
            lambda side: side.ledger.raise_tree(side.key(task.id), "ada", Usage(usd=0.5))
        )

    def prune(self, chance: random.Random) -> None:
        before = self.clock.now - chance.choice((0, 100)) * SECOND
        self.twins.both(lambda side: side.prune(before))


class Comparison:
    """One PostgreSQL database, emptied for each history, beside a new SQLite in memory."""

    def __init__(self, url: str) -> None:
        self.clock = Clock()
        self.served = PostgresStore(url, create=True, clock=self.clock)
        self.cleaner = psycopg.connect(url, autocommit=True)
        self.happened: Counter[str] = Counter()

    def play(self, seeds: list[int]) -> None:
        """Raises AssertionError where the two answer differently."""
        self.cleaner.execute(EMPTY_LEDGER)
        self.served._roles.clear()
        self.served._lanes = None
        self.served._assumed = Assumed()
        self.clock.now = 1_700_000_000_000
        embedded = SqliteStore(":memory:", create=True, clock=self.clock)
        try:
            twins = Twins(embedded, self.served, self.clock)
            history = History(twins)
            for seed in seeds:
                history.step(seed)
            twins.compare_everything()
            self.happened.update(entry.event.kind for entry in twins.log())
        finally:
            embedded.close()

    def differs(self, seeds: list[int]) -> bool:
        try:
            self.play(seeds)
        except AssertionError:
            return True
        return False

    def shortened(self, seeds: list[int]) -> list[int]:
        """Without the steps that a difference does not need: what a person wants to look at."""
        for place in reversed(range(len(seeds))):
            shorter = seeds[:place] + seeds[place + 1 :]
            if self.differs(shorter):
                seeds = shorter
        return seeds

    def close(self) -> None:
        self.served.close()
        self.cleaner.close()


@pytest.fixture
def comparison(postgres_ledger_url: str) -> Iterator[Comparison]:
    comparison = Comparison(postgres_ledger_url)
    yield comparison
    comparison.close()


@pytest.mark.parametrize(
    "histories", [15, pytest.param(30, marks=[pytest.mark.long, pytest.mark.fuzz])]
)
def test_sqlite_and_postgresql_answer_alike(comparison: Comparison, histories: int) -> None:
    """`make fuzz` plays hundreds."""

    @settings(
        max_examples=max(histories, made_up(histories)),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        # Hypothesis would spend minutes on making the numbers small, which says nothing here.
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )
    @given(st.lists(st.integers(1, 2**32), min_size=80, max_size=160))
    def check(seeds: list[int]) -> None:
        if comparison.differs(seeds):
            seeds = comparison.shortened(seeds)
            note(f"the shortest history that differs: {seeds}")
            comparison.play(seeds)

    check()
    # Two that do nothing also agree: make sure that tasks have truly lived.
    lived = {"claimed", "completed", "retrying", "blocked", "expired", "requeued", "approved"}
    assert lived <= comparison.happened.keys()
