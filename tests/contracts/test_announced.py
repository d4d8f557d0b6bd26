"""With a lane open every task that becomes ready leaves word of it, whichever way it came in."""

from __future__ import annotations

import json

from agentq.client.queue import Queue
from agentq.core.states import State


def announced(queue: Queue) -> dict[str, str]:
    """Task -> role, of all that left; each by an effect of its own."""
    store = queue._client.installation.store
    rows = store.read(lambda reader: reader.effects("delivery", 1000, due_only=True))
    said = [json.loads(row.payload) for row in rows]
    assert {each["effect"] for each in said} <= {"Announce"}
    keys = store.read(lambda reader: reader.keys(each["task_id"] for each in said))
    assert [keys[each["task_id"]] for each in said] == [row.key for row in rows]
    assert len({row.effect_id for row in rows}) == len(rows)
    store.write(lambda tx: tx.settle_effects([row.sequence for row in rows]))
    return {each["task_id"]: each["role"] for each in said}


def test_one_by_one_and_many(queue: Queue) -> None:
    before = queue.submit(to="w", instructions="nobody listens yet")
    queue._client.installation.ledger.open_lanes("delivery")
    ones = [queue.submit(to="w", instructions=f'task "{n}"') for n in range(4)]
    many = queue.submit_many({"to": "w", "instructions": f"task {n}"} for n in range(5))
    mixed = queue.submit_many({"to": role, "instructions": "mixed"} for role in "wvwv")
    expected = {task.id: task.to for task in (*ones, *many, *mixed)}
    assert announced(queue) == expected and before.id not in expected
    queue._client.installation.ledger.close_lanes("delivery")
    queue.submit(to="w", instructions="nobody listens any more")
    assert announced(queue) == {}


def test_what_is_not_ready_is_not_announced(queue: Queue) -> None:
    queue._client.installation.ledger.open_lanes("delivery")
    queue.submit(to="w", instructions="now")
    later = queue.submit(to="w", instructions="later", delay="1h")
    again = queue.submit(to="w", instructions="now again")
    assert later.state is State.PENDING
    assert later.id not in announced(queue) and announced(queue) == {}
    queue.claim_task(again.id).release("not me")
    assert announced(queue) == {again.id: "w"}
