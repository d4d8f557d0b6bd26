"""Two `agentq up` share a ledger and its schedules, and are killed again and again, one or both.

Schedules that occur every second or two catch up on everything they miss. In the end the tasks are
exactly those of the seconds that have passed: each occurrence once, none early, none forgotten.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from agentq.client.queue import Queue
from agentq.contracts.schedule_values import ScheduleState
from agentq.core.access import SYSTEM
from agentq.core.task import Task
from agentq.protocol.occurrences import read_moment
from tests.daemon.ups import Up, Ups, several_ups
from tests.eventually import eventually
from tests.processes.warm_parent import WarmParent

EVERY = {"often": 1, "seldom": 3}
#: A leader that was killed is followed so soon.
_TERM = "1s"


class KilledSchedules(NamedTuple):
    """What came of it: kills, occurrences that were carried out, and how late the latest was."""

    kills: int
    occurrences: int
    latest_ms: int


def run_schedule_kills(
    folder: Path, url: str, seconds: float, seed: int, parent: WarmParent | None = None
) -> KilledSchedules:
    """Kill for so long, let one process catch up, and hold the tasks against the clock."""
    rng = random.Random(seed)
    (folder / "agentq.toml").write_text(f'[ledger]\nurl = "{url}"\n[artifacts]\nroot = "files"\n')
    (folder / "schedules").mkdir()
    for name, every in EVERY.items():
        (folder / f"schedules/{name}.md").write_text(
            f"---\nevery: {every}s\ncatch_up: all\noverlap: queue\nrole: worker\n---\nLook.\n"
        )
    with Queue.create(url) as queue, several_ups(folder, parent) as ups:
        kills = _kill(ups, queue, rng, time.monotonic() + seconds)
        last = _start(ups)
        eventually(lambda: not _due(queue) and last.said_of("schedules: runs here"))
        last.end()
        return _account(queue, kills)


def _start(ups: Ups) -> Up:
    return ups.start("--no-workers", "--no-http", "--term", _TERM)


def _kill(ups: Ups, queue: Queue, rng: random.Random, until: float) -> int:
    running, kills = [_start(ups), _start(ups)], 0
    eventually(lambda: len(_states(queue)) == len(EVERY))
    while time.monotonic() < until:
        _work(queue)
        # At some moment: while they start, or when a few more have come.
        enough = _fired(queue) + rng.choice((0, 1, 1, 2, 3, 5))
        eventually(partial(_has_fired, queue, enough))
        chosen = rng.choice((running[:1], running[1:], running))
        for up in chosen:
            up.kill()
        kills += len(chosen)
        running = [up if up not in chosen else _start(ups) for up in running]
    for up in running:
        up.kill()
    return kills


def _has_fired(queue: Queue, count: int) -> bool:
    return _fired(queue) >= count


def _fired(queue: Queue) -> int:
    return sum(state.fired for state in _states(queue))


def _work(queue: Queue) -> None:
    """Complete what is there, and what waits for it, so that no queue grows too long."""
    while claims := queue.claim_many("worker", 500):
        queue.complete_many([(each, "done") for each in claims])


def _states(queue: Queue) -> list[ScheduleState]:
    return queue._client.service.schedules(SYSTEM)


def _due(queue: Queue) -> bool:
    if any(len(each.open_tasks) > 20 for each in _states(queue)):
        _work(queue)
    now = queue._client.service.now()
    return any(each.next_at <= now for each in _states(queue))


def _account(queue: Queue, kills: int) -> KilledSchedules:
    tasks = list(queue._client.every_task())
    latest = 0
    for state in _states(queue):
        mine = [task for task in tasks if task.spec.labels["schedule"] == state.name]
        latest = max(latest, _account_one(state, mine))
    return KilledSchedules(kills, len(tasks), latest)


def _account_one(state: ScheduleState, tasks: Sequence[Task]) -> int:
    """Hold the tasks of one schedule against its seconds; by how much the latest was late."""
    every = EVERY[state.name] * 1000
    passed = [*range(state.since_at + every, state.next_at, every)]
    keys = {_moment(task): task for task in tasks}
    assert len(keys) == len(tasks), "an occurrence came twice"
    assert state.fired == len(tasks), state
    assert (sorted(keys), state.skipped) == (passed, 0), "an occurrence was forgotten"
    lateness = [task.submitted_at - at for at, task in keys.items()]
    assert min(lateness, default=0) >= 0, "an occurrence came early"
    return max(lateness, default=0)


def _moment(task: Task) -> int:
    return read_moment(task.spec.idempotency_key.split(":", 2)[2], "UTC")
