"""Sixteen claimers, two thousand tasks, one winner each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from agentq.client.queue import Queue
from tests.processes.checker import check
from tests.processes.forkserver import Forkserver

TASKS, CLAIMERS = 2000, 16


def test_no_task_is_claimed_twice(url: str, tmp_path: Path) -> None:
    # Given two thousand ready tasks
    with Queue.create(url) as queue:
        tasks = queue.submit_many([{"to": "w", "instructions": str(n)} for n in range(TASKS)])
        # When sixteen processes claim them as fast as they can
        with Forkserver(tmp_path) as forkserver:
            racers = [forkserver.bear("racer", url=url, name=f"r{n}") for n in range(CLAIMERS)]
            statuses = [forkserver.wait(pid) for pid in racers]
            lines = forkserver.lines("racer")
            errors = forkserver.errors()
        # Then each task was claimed once, by one of them, as its first attempt
        assert statuses == [0] * CLAIMERS, errors
        claimed = Counter(words[1] for words in lines if words[0] == "claimed")
        assert claimed == Counter({task.id: 1 for task in tasks})
        assert {words[2] for words in lines if words[0] == "claimed"} == {"1"}
        assert not [words for words in lines if words[0] == "refused"]
        verdict = check(queue, {task.id for task in tasks}, set(claimed))
    assert verdict.complete == TASKS
    assert not (verdict.lost or verdict.twice or verdict.unproved or verdict.problems), verdict
