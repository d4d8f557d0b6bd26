"""Claiming tasks by name, as messages hint at them: the ledger alone says which may be had."""

from __future__ import annotations

from agentq.client.claim import Claim
from agentq.client.queue import Queue
from agentq.contracts.delivery import Hint
from agentq.core.limits import RoleLimits
from agentq.core.states import State


def hinted(queue: Queue, *ids: str, role: str = "w", provider: str = "") -> list[Claim]:
    return queue._client.claim_hinted(role, [Hint(each) for each in ids], provider=provider)


def test_what_is_ready_is_claimed_in_the_order_it_was_named(queue: Queue) -> None:
    ids = [queue.submit(to="w", instructions=f"task {n}").id for n in range(4)]
    claims = hinted(queue, ids[2], ids[0], ids[3])
    assert [claim.id for claim in claims] == [ids[2], ids[0], ids[3]]
    assert {claim.epoch for claim in claims} == {1}
    assert queue.task(ids[1]).state is State.READY


def test_what_came_too_late_is_left_out(queue: Queue) -> None:
    over, held, cancelled, ready, elsewhere = (
        queue.submit(to="v" if n == 4 else "w", instructions=f"task {n}").id for n in range(5)
    )
    queue.claim_task(over).complete(summary="done")
    queue.claim_task(held)
    queue.cancel(cancelled, by="somebody")
    waits = queue.submit(to="w", instructions="later", delay="1h").id
    named = (over, held, cancelled, waits, elsewhere, "task-nobody-knows", ready, ready)
    assert [claim.id for claim in hinted(queue, *named)] == [ready]
    assert hinted(queue, *named) == [] == hinted(queue)


def test_limits_hold(queue: Queue) -> None:
    ids = [queue.submit(to="w", instructions=f"task {n}").id for n in range(4)]
    queue.admin.set_limits("w", RoleLimits(max_running=2))
    assert len(hinted(queue, *ids)) == 2
    assert hinted(queue, *ids) == []
    queue.admin.set_limits("w", RoleLimits(paused=True))
    assert hinted(queue, *ids) == []


def test_exclusive_resources_are_had_by_one(queue: Queue) -> None:
    ids = [queue.submit(to="w", instructions=f"{n}", resources=["gpu"]).id for n in range(2)]
    (claim,) = hinted(queue, *ids)
    claim.complete(summary="done")
    assert [each.id for each in hinted(queue, *ids)] == [ids[1]]


def test_an_open_circuit_holds_them(queue: Queue) -> None:
    task = queue.submit(to="w", instructions="ask the model")
    queue._client.open_circuit("acme", queue.admin.now() + 60_000, "out of quota")
    assert hinted(queue, task.id, provider="acme") == []
    assert [claim.id for claim in hinted(queue, task.id, provider="other")] == [task.id]


def test_a_tree_that_has_spent_its_budget_holds_them(queue: Queue) -> None:
    root = queue.submit(to="w", instructions="plan", tree_budget={"usd": 1.0})
    claim = queue.claim_task(root.id)
    child = claim.submit(to="w", instructions="do")
    claim.spend(usd=2.0)
    assert hinted(queue, child.id) == []
