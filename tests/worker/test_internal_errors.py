"""Errors of agentq itself, and of what only shows things: they cost one attempt at most, and never
a slot, a lease or the worker."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.errors import Stale
from agentq.core.states import State
from agentq.worker import attempt as attempt_module
from agentq.worker.internal_errors import INTERNAL_ERROR
from agentq.worker.prompt import prompt_for
from tests.eventually import eventually
from tests.worker.fleet import ROLE, Fleet, script

pytestmark = pytest.mark.both_ways

AGENT = script("print('what the agent said', flush=True)")


def text_of(fleet: Fleet, task_id: str, name: str) -> str:
    _, file = fleet.queue._client.open_artifact(task_id, name)
    with file:
        return file.read().decode()


def break_down(*_: Any, **__: Any) -> Any:
    raise RuntimeError("nobody foresaw this")


@pytest.mark.parametrize(
    ("broken", "step"),
    [
        ("recovery.look", "claim"),
        pytest.param("prompt_for", "context", marks=pytest.mark.long),
        pytest.param("environment_for", "spawn", marks=pytest.mark.long),
        pytest.param("Observer.shows_life", "stream", marks=pytest.mark.long),
        ("Observer.heard", "stream"),
        pytest.param("AttemptEvidence.take_result", "collect", marks=pytest.mark.long),
        pytest.param("verify", "collect", marks=pytest.mark.long),
        ("report", "collect"),
    ],
)
def test_an_error_at_any_step_ends_that_attempt_as_crashed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, broken: str, step: str
) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="be the victim", max_attempts=1)
    owner, _, name = broken.rpartition(".")
    target = getattr(attempt_module, owner) if owner else attempt_module
    monkeypatch.setattr(target, name, break_down)
    agent: dict[str, Any] = {"command": AGENT}
    if broken == "Observer.shows_life":
        agent = {"command": script("print('quiet now', flush=True); time.sleep(60)"), "silence": 1}
    elif broken == "Observer.heard":  # plain commands have no events
        line = '{"type": "result", "result": "done", "is_error": false, "total_cost_usd": 1}'
        agent = {"agent": "claude", "command": script(f"print({line!r})")}
    assert fleet.work(**agent).outcome is AttemptOutcome.CRASHED
    after = fleet.queue.task(task.id)
    assert after.state is State.PENDING and after.details.crashes == 1
    assert after.details.failures == 0 and after.holder == ""
    assert after.reason.startswith(f"{step}: an error of agentq itself: RuntimeError: nobody")
    assert "test_internal_errors.py:" in after.reason or "worker/" in after.reason
    assert "nobody foresaw this" in text_of(fleet, task.id, INTERNAL_ERROR)
    if step == "collect":
        assert text_of(fleet, task.id, "output.log") == "what the agent said\n"


def test_after_it_the_slot_takes_the_next_task(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        fleet.queue.submit(to=ROLE, instructions=f"task {number}", max_attempts=1)
    real: Any = prompt_for
    calls: list[object] = []

    def break_once(*given: Any, **named: Any) -> str:
        calls.append(given)
        return str(break_down() if len(calls) == 1 else real(*given, **named))

    monkeypatch.setattr(attempt_module, "prompt_for", break_once)
    fleet.work(tasks=3, command=AGENT)
    outcomes = [verdict.outcome for verdict in fleet.verdicts]
    assert outcomes == [AttemptOutcome.CRASHED, *[AttemptOutcome.COMPLETED] * 2]


def test_an_attempt_that_cannot_even_begin_is_reported(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread, no file: the claim is given up, and the loop goes on."""
    first = fleet.queue.submit(to=ROLE, instructions="first", max_attempts=1)
    second = fleet.queue.submit(to=ROLE, instructions="second")
    real = threading.Thread.start
    failures: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("slot-") and not failures:
            failures.append(thread)
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    fleet.work(tasks=2, command=AGENT)
    assert fleet.queue.task(first.id).details.crashes == 1
    assert "can't start new thread" in fleet.queue.task(first.id).reason
    assert fleet.queue.task(second.id).state is State.COMPLETE


def test_what_shows_it_may_break_at_every_word(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="unseen")

    class Broken:
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

        def flush(self) -> None:
            raise ValueError("I/O operation on closed file")

    fleet.output = Broken()  # type: ignore[assignment]
    assert fleet.work(command=AGENT).outcome is AttemptOutcome.COMPLETED
    assert fleet.queue.task(task.id).state is State.COMPLETE


def test_an_error_of_who_hears_of_a_lost_claim_ends_no_other_lease(fleet: Fleet) -> None:
    """All leases of a process are renewed by one thread."""
    lost, kept = (fleet.queue.submit(to=ROLE, instructions=each) for each in ("lost", "kept"))
    first, other = fleet.queue.claim(ROLE, lease=3), fleet.queue.claim(ROLE, lease=3)
    assert first is not None and other is not None and first.id == lost.id
    with contextlib.suppress(Stale), other, first:
        first.on_lost = break_down
        fleet.queue.cancel(lost.id, by="somebody")
        heartbeats = fleet.queue._client.heartbeats
        heartbeats.beat_now()
        eventually(lambda: first.lost)  # and its own words are heard no more
        before = fleet.queue.task(kept.id).wake_at

        def renewed() -> bool:
            heartbeats.beat_now()
            return fleet.queue.task(kept.id).wake_at > before

        eventually(renewed)
        other.complete("kept its lease")
    assert fleet.queue.task(kept.id).state is State.COMPLETE


@pytest.mark.long
def test_the_worker_ends_at_once_also_when_an_attempt_hangs(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(*_: Any, **__: Any) -> str:
        hangs.set()
        goes_on.wait(60)
        return ""

    monkeypatch.setattr(attempt_module, "prompt_for", hang)
    monkeypatch.setattr("agentq.worker.worker._HURRY_SECONDS", 0.2)
    fleet.queue.submit(to=ROLE, instructions="hang")
    try:
        with fleet.worker(fleet.settings(command=AGENT)) as worker:
            assert hangs.wait(30)
            worker.hurry()
            thread = next(each for each in threading.enumerate() if each.name == "the worker")
            thread.join(30)
            assert not thread.is_alive()
    finally:
        goes_on.set()
    assert eventually(lambda: not worker.running)
