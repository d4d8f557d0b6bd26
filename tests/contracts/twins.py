"""Two ledgers on two databases that are told the same things, and must answer alike.

Keys and sequence numbers are each database's own business, so tasks are named by id here and
effects by (task, version, number); everything else must be equal, down to the words of an error.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentq.contracts.service_values import Wanted
from agentq.contracts.store import Lease, OutboxRow, Store, TreeRow
from agentq.core.errors import AgentqError
from agentq.core.states import State
from agentq.core.task import Task, Usage
from agentq.core.triggers import (
    AddArtifact,
    FailureKind,
    LogEntry,
    Report,
    Resolution,
    Ruling,
    Trigger,
)
from agentq.core.values import replace
from agentq.ledger.claims import Held
from agentq.ledger.submit import Submitted
from tests.contracts.rows import Clock
from tests.ledger_verbs import VerbLedger

Action = Callable[["Side"], object]


class Side:
    """One ledger, spoken to by task ids."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.ledger = VerbLedger(store, random.Random(seed).random, dedup_ms=3 * 24 * 3600 * 1000)
        self.taken: list[OutboxRow] = []

    def key(self, task_id: str) -> int:
        return self.ledger.queries.find(task_id)[0]

    def epoch(self, task_id: str) -> int:
        return self.ledger.queries.find(task_id)[1].epoch

    def apply_many(self, items: Sequence[tuple[str, Trigger]]) -> object:
        return self.ledger.apply_many([(self.key(task_id), trigger) for task_id, trigger in items])

    def heartbeat(self, leases: Sequence[tuple[str, int, int]]) -> set[str]:
        keys = {self.key(task_id): task_id for task_id, _, _ in leases}
        by_id = {task_id: key for key, task_id in keys.items()}
        renewed = self.ledger.heartbeat([Lease(by_id[each], *rest) for each, *rest in leases])
        return {keys[key] for key in renewed}

    def effects(self, lane: str, count: int) -> object:
        rows = self.ledger.effects(lane, count)
        self.taken += rows
        return [self.named(row) for row in rows]

    def postpone_effects(self, places: Sequence[int], until: int) -> None:
        """Postpone what was found at these places, counted over all that ever was."""
        rows = [self.taken[place % len(self.taken)] for place in places if self.taken]
        sequences = [row.sequence for row in rows]
        self.store.write(lambda tx: tx.settle_effects(sequences, until))

    def named(self, row: OutboxRow) -> tuple[object, ...]:
        """An effect by what both databases call it alike; of a pruned task nobody knows the id."""
        found = self.store.read(lambda reader: reader.tasks([row.key]))
        task_id = json.loads(found[0].spec.body)["id"] if found else ""
        _, version, number = row.effect_id.split(".")
        return task_id, version, number, row.lane, row.payload, row.tries

    def ack_effects(self, places: Sequence[int]) -> None:
        """Ack what was found at these places, counted over all that ever was."""
        rows = [self.taken[place % len(self.taken)] for place in places if self.taken]
        self.ledger.ack_effects([row.sequence for row in rows])

    def prune(self, before: int) -> tuple[int, list[str]]:
        forgotten: list[str] = []
        return self.ledger.prune(before, forgotten.append, limit=3), forgotten


@dataclass(frozen=True)
class Move:
    """What somebody might do to a task. `offset` is how far beside the true epoch they are."""

    task: int
    verb: int
    offset: int
    by: str
    text: str
    cost: Usage
    kind: FailureKind
    ruling: Ruling
    resolution: Resolution


class Sayings:
    """Every verb of the ledger that concerns one task, as one side is told it."""

    @staticmethod
    def claim(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.claim(task.to, 2, "w1")

    @staticmethod
    def claim_task(side: Side, task: Task, epoch: int, move: Move) -> object:
        provider = "acme" if move.verb % 4 == 0 else ""
        return side.ledger.claim_task(side.key(task.id), "w2", 9000, provider)

    @staticmethod
    def heartbeat(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.heartbeat([(task.id, epoch, 5000)])

    @staticmethod
    def progress(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.progress(side.key(task.id), epoch, move.verb % 105, move.text)

    @staticmethod
    def spend(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.spend(side.key(task.id), epoch, move.cost)

    @staticmethod
    def artifact(side: Side, task: Task, epoch: int, move: Move) -> object:
        added = AddArtifact(epoch, "summary.md", move.verb % 3, str(move.verb % 3) * 64)
        return side.ledger.record_artifacts(side.key(task.id), [added])

    @staticmethod
    def report(side: Side, task: Task, epoch: int, move: Move) -> object:
        result = "report.md" if move.verb % 2 else ""
        report = Report(epoch, move.text, result, "0" * 64 if result else "", (), move.cost)
        return side.ledger.report(side.key(task.id), report)

    @staticmethod
    def fail(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.fail(side.key(task.id), epoch, move.text, move.kind, move.cost)

    @staticmethod
    def block(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.block(side.key(task.id), epoch, move.text)

    @staticmethod
    def release(side: Side, task: Task, epoch: int, move: Move) -> object:
        not_before = task.updated_at + 20_000 if move.verb % 2 else 0
        return side.ledger.release(side.key(task.id), epoch, move.text, not_before)

    @staticmethod
    def stopped(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.stopped(side.key(task.id), epoch)

    @staticmethod
    def approve(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.approve(side.key(task.id), move.by)

    @staticmethod
    def reject(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.reject(side.key(task.id), move.by, move.text)

    @staticmethod
    def verdict(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.verdict(side.key(task.id), move.by, move.ruling, move.text)

    @staticmethod
    def answer(side: Side, task: Task, epoch: int, move: Move) -> object:
        answer = (move.by, move.text, move.resolution, move.cost)
        return side.ledger.answer(side.key(task.id), *answer)

    @staticmethod
    def cancel(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.cancel(side.key(task.id), move.by, move.text)

    @staticmethod
    def comment(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.comment(
            side.key(task.id), move.by, move.text, epoch if move.offset else 0
        )

    @staticmethod
    def requeue(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.requeue(side.key(task.id), move.by, move.text)

    @staticmethod
    def tick(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.ledger.tick()

    @staticmethod
    def prune(side: Side, task: Task, epoch: int, move: Move) -> object:
        return side.prune(task.updated_at + move.offset + 1)


def plain(answer: object) -> object:
    """An answer without what each database numbers for itself."""
    if isinstance(answer, Held):
        return ("held", answer.task)
    if isinstance(answer, Submitted):
        return ("submitted", answer.task, answer.created)
    if isinstance(answer, AgentqError):
        return (type(answer).__name__, answer.code, answer.cause, answer.remedy)
    if isinstance(answer, (list, tuple)):
        return [plain(each) for each in answer]
    return answer


class Twins:
    """Both sides, and the one clock they share."""

    def __init__(self, first: Store, second: Store, clock: Clock, seed: int = 0) -> None:
        self.clock = clock
        self.sides = Side(first, seed), Side(second, seed)
        self.position = 0

    def both(self, action: Action) -> Any:
        """Do it on both sides, compare what they answer and what they log; the answer."""
        answers = []
        for side in self.sides:
            try:
                answers.append(plain(action(side)))
            except AgentqError as error:
                answers.append(plain(error))
        assert answers[0] == answers[1]
        self.compare_news()
        return answers[0]

    def compare_news(self) -> None:
        first, second = (side.ledger.queries.events_after(self.position) for side in self.sides)
        assert first == second
        if first:
            self.position = first[-1].position

    def task(self, task_id: str) -> Task:
        return self.sides[0].ledger.queries.find(task_id)[1]

    def tasks(self) -> list[Task]:
        return list(self.sides[0].ledger.queries.list_tasks(Wanted(limit=1000)).tasks)

    def log(self) -> list[LogEntry]:
        return self.sides[0].ledger.queries.events_after(0, 10_000)

    def compare_everything(self) -> None:
        first, second = (self._everything(side) for side in self.sides)
        assert first.keys() == second.keys()
        for what, seen in first.items():
            assert seen == second[what], what

    def _everything(self, side: Side) -> dict[str, object]:
        queries = side.ledger.queries
        tasks = list(queries.list_tasks(Wanted(limit=1000)).tasks)
        keys = {task.id: side.key(task.id) for task in tasks}
        seen: dict[str, object] = {
            "tasks": tasks,
            "stats": queries.stats(),
            "last position": queries.last_position(),
            "next wake": queries.next_wake(),
            "log": queries.events_after(0, 10_000),
            "histories": {each: queries.history(key) for each, key in keys.items()},
            "reasons": {each: queries.explain(key) for each, key in keys.items()},
            "artifacts": {
                each: [row[1:] for row in queries.artifacts(key)] for each, key in keys.items()
            },
            "roles": [row[1:] for row in side.store.read(lambda reader: reader.roles())],
            "circuits": queries.circuits(),
            "costs": [queries.costs(by) for by in ("role", "label", "day")],
            "trees": {
                each: [row[1:] for _, row in self._trees(side, key)] for each, key in keys.items()
            },
            "lanes": side.store.write(lambda tx: tx.lanes()),
            "proof": [problem for _, page in queries.verify() for problem in page],
        }
        for wanted in _FILTERS:
            seen[f"list {wanted}"] = queries.list_tasks(wanted).tasks
            seen[f"pages {wanted}"] = self._pages(side, replace(wanted, limit=2))
        return seen

    @staticmethod
    def _trees(side: Side, key: int) -> list[tuple[int, TreeRow]]:
        return side.store.read(lambda reader: reader.trees_of([key]))

    @staticmethod
    def _pages(side: Side, wanted: Wanted) -> list[list[str]]:
        pages = []
        while True:
            page = side.ledger.queries.list_tasks(wanted)
            pages.append([task.id for task in page.tasks])
            if not page.cursor:
                return pages
            wanted = replace(wanted, cursor=page.cursor)


_FILTERS = (
    Wanted(role="build"),
    Wanted(states=(State.READY, State.PENDING)),
    Wanted(states=(State.FAILED, State.EXPIRED)),
    Wanted(sender="lead"),
    Wanted(type="review"),
    Wanted(labels=(("area", "db"),)),
    Wanted(role="nobody"),
)
