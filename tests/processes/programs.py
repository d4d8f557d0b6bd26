"""What the children do. Each is told where to say what the ledger has acknowledged."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from agentq.client.queue import Queue
from agentq.core.errors import AgentqError, Refused, Stale, Unavailable
from tests.eventually import pause

Say = Callable[..., int]


def submitter(say: Say, url: str, stem: str, role: str = "w", count: int = 1_000_000) -> None:
    """Submit tasks one by one and in batches; says the ids that were acknowledged."""
    queue = Queue(url)
    chance = random.Random(stem)
    number = 0
    while number < count:
        pause(chance.random() * 0.1)
        size = min(chance.choice((1, 1, 1, 4, 8)), count - number)
        ids = [f"{stem}-{number + each}" for each in range(size)]
        number += size
        tasks = [{"id": each, "to": role, "instructions": "count me"} for each in ids]
        patiently(partial(queue.submit_many, tasks))
        for task_id in ids:
            say("ack", task_id)


def worker(
    say: Say, url: str, name: str, role: str = "w", lease: int = 1, pause_ms: int = 4
) -> None:
    """Claim, work a little, complete; says each completion that was accepted."""
    queue = Queue(url)
    chance = random.Random(name)
    while True:
        claim = patiently(lambda: queue.claim(role, wait=2, holder=name, lease=lease))
        if claim is None:
            continue
        say("claimed", claim.id, claim.epoch)
        try:
            with claim:
                pause(chance.random() * pause_ms / 1000)
                if chance.random() < 0.2:
                    claim.put("notes.md", f"by {name}")
                claim.complete(summary=f"done by {name}")
            say("done", claim.id, claim.epoch)
        except (Stale, Unavailable) as error:
            # Either the lease is gone, or the answer was lost: the ledger knows which.
            say("unsure", claim.id, claim.epoch, type(error).__name__)


def racer(say: Say, url: str, name: str, role: str = "w", batch: int = 7) -> None:
    """Claim in batches as fast as possible until there is nothing left."""
    queue = Queue(url)
    while True:
        claims = queue.claim_many(role, batch, holder=name)
        if not claims:
            return
        for claim in claims:
            say("claimed", claim.id, claim.epoch)
        for refusal in queue.complete_many([(claim, name) for claim in claims]):
            say("refused", refusal.claim.id, refusal.error.code)


def zombie(say: Say, url: str, role: str, go: str) -> None:
    """Claim one task, say so, and when told to go on try every verb an attempt has."""
    queue = Queue(url)
    claim = queue.claim(role, wait=10, holder="zombie", lease=1)
    assert claim is not None
    say("claimed", claim.id, claim.epoch)
    with open(go, encoding="ascii") as pipe:  # noqa: PTH123 - a named pipe: sleeps until it opens
        pipe.read()
    for verb, call in _every_verb(queue, claim).items():
        try:
            call()
        except Stale:
            say("refused", verb)
        except AgentqError as error:
            say("other", verb, type(error).__name__)
        else:
            say("accepted", verb)


def _every_verb(queue: Queue, claim: Any) -> dict[str, Callable[[], Any]]:
    return {
        "heartbeat": claim.heartbeat,
        "progress": lambda: queue.progress(claim.id, 50, "still here", epoch=claim.epoch),
        "put": lambda: queue.put(claim.id, "late.md", "too late", epoch=claim.epoch),
        "comment": lambda: queue.comment(claim.id, "zombie", "hello", epoch=claim.epoch),
        "spend": lambda: claim.spend(usd=1.0),
        "child": lambda: queue._client.submit_under(
            claim.id, claim.epoch, {"to": "w", "instructions": "a child"}
        ),
        "block": lambda: queue.block(claim.id, "help", epoch=claim.epoch),
        "release": lambda: queue.release(claim.id, "bye", epoch=claim.epoch),
        "fail": lambda: queue.fail(claim.id, "late failure", epoch=claim.epoch),
        "complete": lambda: queue.complete(claim.id, "late success", epoch=claim.epoch),
        "complete_result": lambda: queue.complete(
            claim.id, "late success", "a late result\n", epoch=claim.epoch
        ),
    }


def patiently(call: Callable[[], Any]) -> Any:
    """Go on through a restart of the server: what was not acknowledged is asked for again."""
    while True:
        try:
            return call()
        except Unavailable:
            pause(0.05)


def canceller(say: Say, url: str, ids: list[str], name: str) -> None:
    """Cancel these tasks one after the other, by a name of its own; says each that was."""
    queue = Queue(url)
    for task_id in ids:
        try:
            queue.cancel(task_id, by=name)
        except Refused:
            continue  # somebody was here before
        say("cancelled", task_id)


PROGRAMS: dict[str, Callable[..., None]] = {
    "submitter": submitter,
    "worker": worker,
    "racer": racer,
    "zombie": zombie,
    "canceller": canceller,
}
