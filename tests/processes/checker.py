"""The total-queue checker: what was acknowledged, against what the ledger and its log say."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from agentq.client.queue import Queue
from agentq.core.states import State


@dataclass(frozen=True)
class Verdict:
    """Counts of one campaign; `lost`, `twice` and `problems` must be empty."""

    acknowledged: int
    in_ledger: int
    complete: int
    failed: int
    unfinished: int
    lost: list[str]
    twice: list[str]
    unproved: list[str]
    problems: list[str]

    def __str__(self) -> str:
        return (
            f"acknowledged {self.acknowledged}, in the ledger {self.in_ledger}, complete"
            f" {self.complete}, quarantined {self.failed}, lost {len(self.lost)}, completed twice"
            f" {len(self.twice)}, said done but not so {len(self.unproved)}, not proved by the log"
            f" {len(self.problems)}"
        )


def check(queue: Queue, acknowledged: set[str], said_done: set[str]) -> Verdict:
    """Look at everything. `said_done` are completions whose acceptance a worker was told."""
    states = {task.id: task.state for task in queue.tasks()}
    accepted: Counter[str] = Counter()
    position = 0
    while entries := queue.events(position, 5000):
        for entry in entries:
            assert entry.position == position + 1, "positions have a gap"
            position = entry.position
            if entry.event.kind == "completed":
                accepted[entry.task_id] += 1
    counts = Counter(states.values())
    return Verdict(
        len(acknowledged),
        len(states),
        counts[State.COMPLETE],
        counts[State.FAILED],
        len(states) - counts[State.COMPLETE] - counts[State.FAILED],
        sorted(acknowledged - states.keys()),
        sorted(task_id for task_id, times in accepted.items() if times > 1),
        sorted(each for each in said_done if states.get(each) is not State.COMPLETE),
        [f"{p.task_id}: {p.what}" for _, problems in queue.admin.verify() for p in problems],
    )
