"""The same operations give the same results on SQLite and on PostgreSQL, whatever they are."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import psycopg
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentq.core.effects import LANES
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Amounts, ExpectedOutput, OnDependencyFailure, Priority, Spec, Task
from agentq.core.triggers import (
    Comment,
    Fail,
    FailureKind,
    Progress,
    Report,
    Resolution,
    Ruling,
    Trigger,
)
from agentq.stores.postgres import PostgresStore
from agentq.stores.sqlite import SqliteStore
from tests.conftest import IN_CI
from tests.contracts.rows import Clock
from tests.contracts.twins import Move, Sayings, Twins

SECOND = 1000
ROLES = ("build", "Review")
PEOPLE = ("lead", "coordinator", "ada")
TEXTS = ("", "done", "no\nwords — ñ 🦊", "x" * 300)
IDS = tuple(f"t{n}" for n in range(14))
RESOURCES = ("gpu", "db")
COSTS = (Amounts(), Amounts(), Amounts(usd=0.5), Amounts(tokens=100))
EMPTY_LEDGER = """
TRUNCATE specs, tasks, events, edges, wants, holds, dedup, artifacts, outbox, roles
    RESTART IDENTITY;
UPDATE head SET position = 0, lanes = 'results';
ALTER SEQUENCE task_keys RESTART;
"""

holders = st.sampled_from(["w1", "w2"])
texts = st.sampled_from(TEXTS)
roles = st.sampled_from(ROLES)
seeds = st.integers(0, 2**32)


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
        idempotency_key=chance.choice(("k1", "k2")) if often(0.15) else "",
        irreversible=often(0.15),
        requires_approval=often(0.15),
        approval_timeout_seconds=50 if often(0.2) else 0,
        review=often(0.25),
        budget=chance.choice((Amounts(usd=2.0), Amounts(1.0, 150))) if often(0.2) else Amounts(),
        reply_to="results.lead" if often(0.2) else "",
        labels={"area": "db"} if often(0.2) else {},
    )


#: What would naturally be said to a task in this state, so that random lives get somewhere.
NATURAL = {
    State.PENDING: ("approve", "time", "cancel", "reject", "tick"),
    State.READY: ("claim", "claim_task", "claim_task", "cancel", "time"),
    State.IN_PROGRESS: ("report", "report", "report", "report", "report", "report", "fail", "fail",
                        "artifact", "artifact", "block", "release", "spend", "progress", "cancel",
                        "time", "tick", "heartbeat", "comment"),
    State.REVIEW: ("verdict", "verdict", "verdict", "cancel", "comment", "time"),
    State.BLOCKED: ("answer", "answer", "answer", "cancel"),
    State.COMPLETE: ("report", "comment", "prune"),
    State.FAILED: ("requeue", "requeue", "comment", "prune"),
    State.CANCELLED: ("stopped", "requeue", "heartbeat", "report", "tick"),
    State.EXPIRED: ("requeue", "prune"),
}  # fmt: skip
VERBS = sorted({verb for verbs in NATURAL.values() for verb in verbs})


def moves_of(seed: int, count: int) -> list[Move]:
    """Drawn evenly, not by Hypothesis: it prefers small numbers, and lives would stay short."""
    chance = random.Random(seed)
    return [
        Move(
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
        for _ in range(count)
    ]


moves = st.builds(moves_of, seeds, st.integers(1, 20))


class Differential(RuleBasedStateMachine):
    """Random lives of tasks, on both databases at once."""

    twins_made: Callable[[], Twins]

    def __init__(self) -> None:
        super().__init__()
        self.twins = self.twins_made()
        self.clock = self.twins.clock
        self.born: list[Task] = []

    def teardown(self) -> None:
        self.twins.compare_everything()

    def look_around(self) -> None:
        self.born = sorted(self.twins.tasks(), key=lambda task: task.id)

    # -- submitting ------------------------------------------------------------------------------

    @initialize(seed=seeds)
    def begin(self, seed: int) -> None:
        self.submit(seed, 4)

    @rule(seed=seeds, count=st.integers(1, 5))
    def submit(self, seed: int, count: int) -> None:
        chance = random.Random(seed)
        batch = [draw_spec(chance) for _ in range(count)]
        known = {task.id for task in self.born} | {spec.id for spec in batch}
        if len(batch) > 1:  # alone, a task may come after one that does not exist
            batch = [replace(s, after=tuple(a for a in s.after if a in known)) for s in batch]
        self.twins.both(lambda side: side.ledger.submit(batch))
        self.look_around()

    @rule(role=roles, count=st.integers(1, 5), text=texts)
    def submit_plain(self, role: str, count: int, text: str) -> None:
        """The short way: made-up ids and nothing special."""
        made = [f"task-{self.twins.position}-{n}" for n in range(count)]
        batch = [Spec(each, role, instructions=text) for each in made]
        self.twins.both(lambda side: side.ledger.submit(batch, set(made)))
        self.look_around()

    @precondition(lambda self: self.born)
    @rule(index=st.integers(0, 50), keyed=st.booleans())
    def submit_a_taken_id(self, index: int, keyed: bool) -> None:
        """A made-up id that happens to be there already."""
        taken = self.born[index % len(self.born)].id
        spec = Spec(taken, "build", idempotency_key="k1" if keyed else "")
        self.twins.both(lambda side: side.ledger.submit([spec, replace(spec, id="x")], {taken}))
        self.look_around()

    # -- lives -----------------------------------------------------------------------------------

    @rule(role=roles, count=st.integers(1, 4), holder=holders, lease_ms=st.sampled_from([0, 2000]))
    def claim(self, role: str, count: int, holder: str, lease_ms: int) -> None:
        self.twins.both(lambda side: side.ledger.claim(role, count, holder, lease_ms))
        self.look_around()

    @precondition(lambda self: self.born)
    @rule(listed=moves)
    def live(self, listed: list[Move]) -> None:
        """What comes naturally, mostly."""
        for move in listed:
            if not self.born:
                return
            task = self.born[move.task % len(self.born)]
            verbs = NATURAL[task.state]
            self.act(verbs[move.verb % len(verbs)], task, move)

    @precondition(lambda self: self.born)
    @rule(listed=moves)
    def anything(self, listed: list[Move]) -> None:
        """What may well be refused."""
        for move in listed[:3]:
            if self.born:
                verb = VERBS[move.verb % len(VERBS)]
                self.act(verb, self.born[move.task % len(self.born)], move)

    def act(self, verb: str, task: Task, move: Move) -> None:
        if verb == "time":
            left = max(task.wake_at - self.clock.now, 0)
            self.clock.now += left + move.offset if left else move.verb % 60 * SECOND
            verb = "tick"
        action = getattr(Sayings, verb)
        epoch = task.epoch + move.offset
        self.twins.both(lambda side: action(side, task, epoch, move))
        self.look_around()

    @precondition(lambda self: self.born)
    @rule(listed=moves, which=st.integers(0, 3))
    def tell_many(self, listed: list[Move], which: int) -> None:
        items: list[tuple[str, Trigger]] = []
        for number, move in enumerate(listed):
            task = self.born[move.task % len(self.born)]
            epoch = task.epoch + move.offset
            made: tuple[Trigger, ...] = (
                Report(epoch, move.text),
                Fail(epoch, "broken", move.kind, jitter=0.25),
                Progress(epoch, 10),
                Comment("ada", "hm"),
            )
            items.append((task.id, made[(which + number) % 4]))
        self.twins.both(lambda side: side.tell_many(items))
        self.look_around()

    @precondition(lambda self: self.born)
    @rule(wanted=moves)
    def heartbeat(self, wanted: list[Move]) -> None:
        tasks = [self.born[move.task % len(self.born)] for move in wanted]
        leases = [(t.id, t.epoch + m.offset, 7000) for t, m in zip(tasks, wanted, strict=True)]
        self.twins.both(lambda side: side.heartbeat(leases))

    # -- time, effects and care ------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.001, 1, 5, 30, 61, 3600, 4 * 86_400]),
          limit=st.sampled_from([1, 500]))  # fmt: skip
    def time_passes(self, seconds: float, limit: int) -> None:
        self.clock.now += int(seconds * SECOND)
        self.twins.both(lambda side: side.ledger.tick(limit))
        self.look_around()

    @rule(lane=st.sampled_from(LANES), opening=st.booleans())
    def lanes(self, lane: str, opening: bool) -> None:
        self.twins.both(
            lambda side: side.ledger.open_lanes(lane) if opening else side.ledger.close_lanes(lane)
        )

    @rule(lane=st.sampled_from(LANES), count=st.integers(1, 3), hide_ms=st.sampled_from([0, 5000]),
          acked=st.lists(st.integers(0, 20), max_size=3))  # fmt: skip
    def relay(self, lane: str, count: int, hide_ms: int, acked: list[int]) -> None:
        self.twins.both(lambda side: side.take_effects(lane, count, hide_ms))
        self.twins.both(lambda side: side.ack_effects(acked))

    @rule(role=roles, running=st.sampled_from([0, 0, 1, 2]), review=st.sampled_from([0, 0, 1]),
          paused=st.integers(0, 9))  # fmt: skip
    def set_limits(self, role: str, running: int, review: int, paused: int) -> None:
        limits = RoleLimits(running, review, paused == 9)
        self.twins.both(lambda side: side.ledger.set_limits(role, limits))


def test_sqlite_and_postgresql_answer_alike(fresh_postgres_url: str) -> None:
    clock = Clock()
    served = PostgresStore(fresh_postgres_url, clock=clock)
    embedded = [SqliteStore(":memory:", clock=clock)]

    with psycopg.connect(fresh_postgres_url, autocommit=True) as cleaner:

        def empty_both() -> Twins:
            cleaner.execute(EMPTY_LEDGER)
            served._roles.clear()
            served._lanes = None
            embedded.pop().close()
            embedded.append(SqliteStore(":memory:", clock=clock))
            clock.now = 1_700_000_000_000
            return Twins(embedded[0], served, clock)

        class OnTheseTwo(Differential):
            twins_made = staticmethod(empty_both)

        run_state_machine_as_test(
            OnTheseTwo,
            settings=settings(
                max_examples=150 if IN_CI else 50,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    served.close()
    embedded[0].close()
