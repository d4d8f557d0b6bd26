"""The loop of numbers: the log becomes stored samples, page by page, and each event counts once."""

from __future__ import annotations

import pytest

from agentq import Usage
from agentq.client.queue import Queue
from agentq.contracts.sample_rows import SampleFilter
from agentq.core.access import SYSTEM
from agentq.core.samples import Sample
from agentq.daemon.loops.numbers import EVERY_SECONDS, NumbersLoop
from agentq.ledger import numbers
from tests.daemon.test_loops import running
from tests.eventually import eventually

_TOTAL = SampleFilter(0, 0)


def stored(queue: Queue) -> int:
    """How many samples the store has, of whatever there ever was."""
    return len(queue._client.installation.store.read(lambda reader: reader.records(_TOTAL)))


def by_role(queue: Queue) -> dict[str, Sample]:
    return queue._client.service.numbers(SYSTEM, "total").by_role()


def work(queue: Queue, count: int) -> None:
    for number in range(count):
        task = queue.submit("build", f"build {number}")
        queue.claim_task(task).complete("done", cost=Usage(usd=0.5))


def test_samples_are_stored_and_tell_what_the_log_tells(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "PAGE", 4)
    work(queue, 3)
    before = by_role(queue)
    assert before["build"].completed == 3 and not stored(queue), "counted by whoever asked"
    loop = NumbersLoop(queue._client.service)
    waits = [loop.run_once()]
    assert waits[0] < 1, "there is more to count"
    while waits[-1] < EVERY_SECONDS:
        waits.append(loop.run_once())
    assert stored(queue) and by_role(queue) == before
    assert loop.run_once() == EVERY_SECONDS and by_role(queue) == before, "and each event once"


def test_it_runs_by_itself_and_another_that_counts_too_adds_nothing(queue: Queue) -> None:
    work(queue, 2)
    loops = NumbersLoop(queue._client.service), NumbersLoop(queue._client.service)
    with running(queue, loops[0]) as one, running(queue, loops[1]) as other:
        eventually(lambda: stored(queue), what="stored samples")
        work(queue, 2)
        one.nudge()
        other.nudge()
        eventually(lambda: by_role(queue)["build"].completed == 4)
    assert by_role(queue)["build"].cost.usd == 2.0
