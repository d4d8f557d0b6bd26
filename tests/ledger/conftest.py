"""A real ledger on SQLite in memory, under a clock that only the test moves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentq.contracts.service_values import Problem
from agentq.core.states import State
from agentq.core.task import Spec, Task, Usage
from agentq.core.triggers import Report
from agentq.ledger.claims import Held
from agentq.stores.sqlite.store import SqliteStore
from tests.ledger_verbs import VerbLedger

NOW = 1_700_000_000_000


@dataclass
class Clock:
    """The store's clock."""

    now: int = NOW

    def __call__(self) -> int:
        return self.now

    def forward(self, seconds: float) -> int:
        self.now += round(seconds * 1000)
        return self.now


@dataclass
class LedgerEnv:
    """A ledger, its clock, and short words for what most tests do with them."""

    ledger: VerbLedger
    store: SqliteStore
    clock: Clock
    rung: list[str] = field(default_factory=list)

    # -- asking ----------------------------------------------------------------------------------

    def submit(self, task_id: str = "task-1", to: str = "worker", **fields: Any) -> int:
        """Submit one task and return its key."""
        self.ledger.submit([Spec(task_id, to, **fields)])
        return self.key(task_id)

    def submit_many(self, *specs: Spec) -> None:
        self.ledger.submit(specs)

    def approve(self, task_id: str) -> Task:
        return self.ledger.approve(self.key(task_id), "boss")

    # -- working ---------------------------------------------------------------------------------

    def claim(self, count: int = 1, role: str = "worker", holder: str = "ann") -> list[str]:
        """Claim by role; the ids that were given."""
        return [held.task.id for held in self.ledger.claim(role, count, holder)]

    def start(self, task_id: str = "task-1", holder: str = "ann", lease_ms: int = 0) -> Held:
        return self.ledger.claim_task(self.key(task_id), holder, lease_ms)

    def report(self, task_id: str = "task-1", summary: str = "done", **fields: Any) -> Task:
        """Report for whichever attempt is the current one."""
        task = self.task(task_id)
        return self.ledger.report(self.key(task_id), Report(task.epoch, summary, **fields))

    def complete(self, *task_ids: str) -> None:
        """Start each and complete it, whatever becomes of its children."""
        for task_id in task_ids:
            self.start(task_id)
            self.report(task_id, leaves_children=True)

    def fail(self, task_id: str = "task-1", reason: str = "no") -> Task:
        """Start it and fail for good."""
        from agentq.core.triggers import FailureKind

        held = self.start(task_id)
        return self.ledger.fail(held.key, held.task.epoch, reason, FailureKind.INVALID)

    def spend(self, task_id: str, usd: float) -> Task:
        task = self.task(task_id)
        return self.ledger.spend(self.key(task_id), task.epoch, Usage(usd=usd))

    # -- looking ---------------------------------------------------------------------------------

    def key(self, task_id: str) -> int:
        return self.ledger.queries.find(task_id)[0]

    def task(self, task_id: str = "task-1") -> Task:
        return self.ledger.queries.find(task_id)[1]

    def state(self, task_id: str = "task-1") -> State:
        return self.task(task_id).state

    def states(self, *task_ids: str) -> list[State]:
        return [self.state(task_id) for task_id in task_ids]

    def kinds(self, task_id: str = "task-1") -> list[str]:
        """What happened to a task, in order."""
        return [entry.event.kind for entry in self.ledger.queries.history(self.key(task_id))]

    def causes(self, task_id: str = "task-1") -> str:
        explanation = self.ledger.queries.explain(self.key(task_id))
        return "\n".join([explanation.headline, *(cause for cause, _ in explanation.causes)])

    def snapshot(self) -> object:
        """Everything the ledger holds, to see that nothing changed."""
        tables = ("specs", "tasks", "events", "edges", "wants", "holds", "dedup", "artifacts",
                  "outbox")  # fmt: skip
        order = "ORDER BY 1, 2"
        return {table: self.sql(f"SELECT * FROM {table} {order}") for table in tables}  # noqa: S608

    def problems(self) -> list[Problem]:
        return [problem for _, found in self.ledger.queries.verify() for problem in found]

    def effects(self, lane: str, count: int = 100) -> list[dict[str, Any]]:
        """What waits in a lane, as the carrier would read it."""
        return [json.loads(row.payload) for row in self.ledger.effects(lane, count)]

    def sql(self, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """Past the ledger, straight at the database: only to look, or to plant damage."""
        return self.store._writer.execute(statement, bindings).fetchall()


def open_env(**settings: Any) -> LedgerEnv:
    clock = Clock()
    rung: list[str] = []

    def ring(topics: Iterable[str]) -> None:
        rung.extend(topics)

    store = SqliteStore(":memory:", create=True, clock=clock, ring=ring)
    return LedgerEnv(VerbLedger(store, lambda: 0.5, **settings), store, clock, rung)


@pytest.fixture
def env() -> Iterator[LedgerEnv]:
    """A ledger that must prove itself clean when the test is over."""
    env = open_env()
    yield env
    assert env.problems() == []
    env.store.close()


@pytest.fixture
def victim() -> Iterator[LedgerEnv]:
    """A ledger that a test may damage."""
    env = open_env()
    yield env
    env.store.close()


@pytest.fixture
def ledger(env: LedgerEnv) -> VerbLedger:
    return env.ledger


@pytest.fixture
def clock(env: LedgerEnv) -> Clock:
    return env.clock
