"""Test support for programs that use agentq: a queue in memory, time travel, a pytest plugin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agentq import Claim, Fail, Retry, State
from agentq.testing import MemoryQueue

pytest_plugins = ["pytester"]


def test_time_passes_by_advance_alone(agentq_queue: MemoryQueue) -> None:
    queue = agentq_queue
    assert queue.time == datetime(2030, 1, 1, tzinfo=UTC)
    delayed = queue.submit("w", "x", delay="2h")
    expiring = queue.submit("v", "x", ttl="90m")
    assert queue.advance("1h") == 0
    assert queue.advance(timedelta(hours=1)) == 2
    assert queue.time == datetime(2030, 1, 1, 2, tzinfo=UTC)
    assert queue.task(delayed).state is State.READY
    assert queue.task(expiring).state is State.EXPIRED
    # Each at its own moment, not at the end of the journey
    assert queue.history(expiring)[-1].event.at - expiring.submitted_at == 90 * 60 * 1000


def test_a_dead_worker_loses_its_lease_and_a_live_one_does_not(agentq_queue: MemoryQueue) -> None:
    queue = agentq_queue
    dead, alive = queue.submit("w", "x", id="dead"), queue.submit("w", "y", id="alive")
    queue.claim_task(dead)
    with queue.claim_task(alive) as claim:
        queue.advance("6h")
        assert queue.task(alive).state is State.IN_PROGRESS
        claim.complete("done")
    assert queue.task(dead).state in (State.READY, State.PENDING)
    assert queue.task(dead).details.crashes == 1


def test_retries_come_again_in_virtual_time(agentq_queue: MemoryQueue) -> None:
    queue, tried = agentq_queue, []

    def flaky(claim: Claim) -> str:
        tried.append(claim.epoch)
        if claim.epoch < 3:
            raise Retry("busy")
        return "at last"

    task = queue.submit("w", "x")
    for _ in range(3):
        queue.serve("w", flaky, idle=0)
        queue.advance("1d")
    assert tried == [1, 2, 3]
    assert queue.result(task).text() == "at last"


def test_the_same_test_is_the_same_history() -> None:
    def history() -> list[tuple[str, int]]:
        with MemoryQueue() as queue:
            queue.submit("w", "x", id="task-1")
            for _ in range(2):
                queue.claim_task("task-1").fail("busy")
                queue.advance("1h")
            return [(entry.event.kind, entry.event.at) for entry in queue.history("task-1")]

    assert history() == history()


def test_queues_are_apart_and_proved() -> None:
    with MemoryQueue() as one, MemoryQueue() as other:
        for queue in (one, other):
            queue.submit("v", "x", id="task-same")
            with queue.claim_task("task-same") as claim:
                claim.put("notes.md", "the same name, twice")
                claim.complete("done")
        one.submit("w", "x", id="task-1")
        assert [task.id for task in other.tasks()] == ["task-same"]
        one.serve("w", _refuse, idle=0)
        assert one.task("task-1").state is State.FAILED
        assert [problems for _, problems in one.admin.verify() if problems] == []


def _refuse(claim: Claim) -> None:
    raise Fail("no")


def test_installing_agentq_is_enough_for_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_mine(agentq_queue):
            task = agentq_queue.submit("w", "x", delay="2h")
            agentq_queue.advance("2h")
            assert agentq_queue.task(task).state == "ready"
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
