"""Ending attempts and claiming the next in one transaction: as if one came after the other."""

from __future__ import annotations

from agentq.client.queue import Queue
from agentq.core.errors import Stale
from agentq.core.limits import RoleLimits
from agentq.core.states import State


def test_these_end_and_the_next_begin(queue: Queue) -> None:
    tasks = [queue.submit(to="w", instructions=f"task {n}") for n in range(7)]
    claims = queue.claim_many("w", n=3)
    refused, claims = queue.complete_and_claim([(claim, "done") for claim in claims], "w", 3)
    assert refused == [] and [claim.id for claim in claims] == [each.id for each in tasks[3:6]]
    refused, claims = queue.complete_and_claim([(claim, claim.id) for claim in claims], "w", 3)
    assert refused == [] and [claim.id for claim in claims] == [tasks[6].id]
    assert queue.complete_and_claim([(claims[0], "done")], "w", 3) == ([], [])
    assert {queue.task(each.id).state for each in tasks} == {State.COMPLETE}
    for each in tasks:
        kinds = [entry.event.kind for entry in queue.history(each.id)]
        assert kinds == ["submitted", "claimed", "completed"]
    positions = [entry.position for entry in queue.events(limit=1000)]
    assert positions == list(range(1, 22))


def test_what_is_stale_is_refused_and_the_rest_goes_on(queue: Queue) -> None:
    for n in range(4):
        queue.submit(to="w", instructions=f"task {n}")
    first, second = queue.claim_many("w", n=2)
    queue.release(first.id, epoch=first.epoch)
    refused, claims = queue.complete_and_claim([(first, "late"), (second, "done")], "w", 5)
    assert [(each.claim.id, type(each.error)) for each in refused] == [(first.id, Stale)]
    assert len(claims) == 2  # the one that was released waits for the next call
    assert [claim.id for claim in queue.claim_many("w", n=5)] == [first.id]


def test_limits_hold(queue: Queue) -> None:
    for n in range(4):
        queue.submit(to="w", instructions=f"task {n}")
    queue.admin.set_limits("w", RoleLimits(max_running=1))
    (claim,) = queue.claim_many("w", n=4)
    refused, claims = queue.complete_and_claim([(claim, "done")], "w", 4)
    assert refused == [] and len(claims) == 1


def test_dependents_of_what_ended_are_told(queue: Queue) -> None:
    parent = queue.submit(to="w", instructions="first", id="task-first")
    child = queue.submit(to="w", instructions="then", after=[parent.id], id="task-then")
    queue.submit(to="w", instructions="beside")
    claim = queue.claim_task(parent.id)
    _, claims = queue.complete_and_claim([(claim, "done")], "w", 1)
    assert len(claims) == 1 and queue.task(child.id).state is State.READY
