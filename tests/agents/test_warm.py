"""The warm adapter: one process, many tasks, none of which hears of another."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentq.agents.warm import LATE_MAX, MIXED_UP_MAX, Rotation, Warm, WarmListener, attempt_id
from agentq.contracts.agent import (
    Agent,
    AgentEvent,
    AgentMessage,
    AgentSession,
    AttemptOutcome,
    AttemptResult,
    Denied,
    Done,
    Exit,
    Limited,
    MessageKind,
    Spent,
)
from agentq.core.errors import Invalid
from agentq.core.task import Usage
from tests.agents.conversing import Running, job_in, spent

SERVER = (sys.executable, str(Path(__file__).with_name("warm_server.py")))
NOW = 1_800_000_000_000


def listening() -> tuple[WarmListener, str]:
    """A listener for one attempt, and the name of that attempt."""
    job = job_in(Path("/tmp"))
    return Warm(clock=lambda: NOW).listen(job), attempt_id(job)


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def events_from(listener: WarmListener, *lines: bytes) -> list[AgentEvent]:
    return [events for each in lines for events in listener.line(each)]


class Warmed:
    """A warm process and the adapter it belongs to."""

    def __init__(self, folder: Path, command: tuple[str, ...] = SERVER) -> None:
        self.folder = folder
        self.agent: Agent = Warm()
        self.running = Running(self.agent.launch(job_in(folder, *command)), folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.running.__exit__()

    def serve(
        self, id: str, prompt: str, *, session: str = "", interrupts: bool = False
    ) -> tuple[list[AgentEvent], AttemptResult]:
        job = job_in(self.folder, id=id, prompt=prompt, session=session)
        listener = self.agent.listen(job)

        def at(events: AgentEvent) -> None:
            if interrupts and isinstance(events, AgentMessage) and events.text != "stopped":
                self.running.write(listener.interrupt() or b"")

        self.running.write(self.agent.opening(job))
        events = self.running.hear(listener, stays=True, at=at)
        ended = not any(isinstance(each, Done) for each in events)
        return events, listener.verdict(self.running.exit() if ended else Exit())


# -- with a real process ---------------------------------------------------------------------------


def test_one_process_serves_task_after_task(tmp_path: Path) -> None:
    with Warmed(tmp_path) as warm:
        for number in (1, 2, 3):
            events, verdict = warm.serve(f"task-{number}", "hello\nworld")
            assert verdict.outcome is AttemptOutcome.COMPLETED
            assert (verdict.summary, verdict.result) == (
                "Did it.",
                f"answer {number}: hello\nworld",
            )
            assert (
                AgentMessage(f"task-{number} in {tmp_path}") in events
                and AgentMessage("half", 50, MessageKind.STATUS) in events
            )
            assert AgentSession(f"session-{warm.running.process.pid}") in events
            assert spent(events) == Usage(0.25, 100, 1), "totals of the process became differences"


def test_a_crash_during_a_task_is_told_with_its_last_words(tmp_path: Path) -> None:
    with Warmed(tmp_path) as warm:
        warm.serve("task-1", "hello")
        _, verdict = warm.serve("task-2", "crash")
    assert verdict.outcome is AttemptOutcome.CRASHED
    assert "exit code 9" in verdict.summary and "out of memory" in verdict.summary


def test_a_late_answer_to_another_task_is_no_answer_to_this_one(tmp_path: Path) -> None:
    with Warmed(tmp_path) as warm:
        warm.serve("task-1", "hello")
        events, verdict = warm.serve("task-2", "late")
    assert verdict.result == "answer 2: late"
    assert not any("secret" in each.text for each in events if isinstance(each, AgentMessage))


def test_a_process_that_mixes_up_its_tasks_ends_as_bad_output(tmp_path: Path) -> None:
    with Warmed(tmp_path) as warm:
        warm.serve("task-1", "hello")
        _, verdict = warm.serve("task-2", "mixed-up")
    assert verdict.outcome is AttemptOutcome.BAD_OUTPUT
    assert "mixes up its tasks" in verdict.summary


def test_a_task_can_be_cancelled_and_the_process_goes_on(tmp_path: Path) -> None:
    with Warmed(tmp_path) as warm:
        _, verdict = warm.serve("task-1", "wait", interrupts=True)
        assert (verdict.outcome, verdict.summary) == (AttemptOutcome.CANCELLED, "stopped")
        assert warm.serve("task-2", "hello")[1].outcome is AttemptOutcome.COMPLETED


SCRIPT = """
tasks:
  - {prompt: quota, steps: [{quota: 1h}]}
  - {prompt: refuse, steps: [{refuse: That would be wrong.}]}
  - {prompt: permission, steps: [{ask-permission: climb}, {result: Without.}]}
  - {prompt: session, steps: [unknown-session, {result: Fresh.}]}
  - {prompt: crash, steps: [{crash: {signal: 9}}]}
steps: [{say: Here.}, {spend: {usd: 0.5, tokens: 7, turns: 1}}, {result: Yes.}]
"""


def test_the_stand_in_is_understood(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    words = ("-m", "agentq.testing.fake_agent", "warm", "--script", str(tmp_path / "script.yaml"))
    with Warmed(tmp_path, (sys.executable, *words)) as warm:
        events, verdict = warm.serve("task-1", "work")
        assert (verdict.outcome, verdict.result) == (AttemptOutcome.COMPLETED, "Yes.")
        assert AgentMessage("Here.") in events and spent(events) == Usage(0.5, 7, 1)
        assert warm.serve("task-2", "refuse")[1].outcome is AttemptOutcome.REFUSED
        assert warm.serve("task-3", "quota")[1].outcome is AttemptOutcome.QUOTA
        assert warm.serve("task-4", "permission")[1].denials == ("climb",)
        assert warm.serve("task-5", "session", session="s-1")[1].session_unknown
        assert warm.serve("task-6", "crash")[1].outcome is AttemptOutcome.CRASHED


# -- what lines mean -------------------------------------------------------------------------------


def test_without_a_command_nothing_starts(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="needs the command"):
        Warm().launch(job_in(tmp_path))


def test_another_attempt_has_another_name(tmp_path: Path) -> None:
    first, second = job_in(tmp_path, epoch=1), job_in(tmp_path, epoch=2, session="s-1")
    assert attempt_id(first) != attempt_id(second)
    opening = Warm().opening(second)
    assert opening.endswith(b"\n") and opening.count(b"\n") == 1
    assert json.loads(opening) == {
        "type": "task", "id": attempt_id(second), "task": "task-1", "epoch": 2, "prompt": "Work.",
        "workspace": str(tmp_path), "context": str(tmp_path / "context.md"),
        "result": str(tmp_path / "result.md"), "artifacts": str(tmp_path / "artifacts"),
        "session": "s-1",
    }  # fmt: skip


#: What would stop others is not for the agent to say.
NOT_FOR_IT = (
    AttemptOutcome.COMPLETED, AttemptOutcome.OVERLOADED, AttemptOutcome.SURROUNDINGS,
)  # fmt: skip


@pytest.mark.parametrize("outcome", [each for each in AttemptOutcome if each not in NOT_FOR_IT])
def test_an_error_names_its_outcome(outcome: AttemptOutcome) -> None:
    listener, ours = listening()
    assert events_from(
        listener, line(type="error", id=ours, **{"class": outcome.value}, message="no luck")
    )[-1:] == [Done()]
    verdict = listener.verdict(Exit())
    assert (verdict.outcome, verdict.summary) == (outcome, "no luck")


@pytest.mark.parametrize(
    ("named", "outcome"),
    [
        ("completed", AttemptOutcome.BAD_OUTPUT),
        ("odd", AttemptOutcome.TRANSIENT),
        ("overloaded", AttemptOutcome.TRANSIENT),
        ("surroundings", AttemptOutcome.TRANSIENT),
        (None, AttemptOutcome.TRANSIENT),
    ],
)
def test_an_error_of_no_class_is_no_success(named: str | None, outcome: AttemptOutcome) -> None:
    listener, ours = listening()
    events_from(listener, line(type="error", id=ours, **{"class": named}))
    assert listener.verdict(Exit()).outcome is outcome


def test_a_limit_gives_the_moment_at_which_it_ends() -> None:
    listener, ours = listening()
    at = NOW + 3_600_000
    assert events_from(
        listener, line(type="limited", id=ours, resets_at=at // 1000, reason="5 h limit")
    ) == [Limited(at, "5 h limit")]
    events_from(listener, line(type="error", id=ours, **{"class": "quota"}, message="later"))
    verdict = listener.verdict(Exit())
    assert (verdict.outcome, verdict.resets_at) == (AttemptOutcome.QUOTA, at)


def test_a_limit_without_an_answer_is_quota_too() -> None:
    listener, ours = listening()
    events_from(listener, line(type="limited", id=ours, reason="empty"))
    assert listener.verdict(Exit(code=1)).outcome is AttemptOutcome.QUOTA


def test_a_lost_session_is_said() -> None:
    listener, ours = listening()
    events_from(
        listener, line(type="error", id=ours, **{"class": "transient"}, session_unknown=True)
    )
    assert listener.verdict(Exit()).session_unknown


def test_a_result_may_be_json() -> None:
    listener, ours = listening()
    events_from(
        listener,
        b'{"type": "done", "id": "%s", "result": {"a": ["\\ud800\\u0000"]}}' % ours.encode(),
    )
    verdict = listener.verdict(Exit())
    assert verdict.outcome is AttemptOutcome.COMPLETED
    assert verdict.structured == json.loads(verdict.result) == {"a": ["?\ufffd"]}


def test_denials_are_told_and_kept() -> None:
    listener, ours = listening()
    assert events_from(listener, line(type="denied", id=ours, what="rm -rf /")) == [
        Denied("rm -rf /")
    ]
    events_from(listener, line(type="done", id=ours, result="ok"))
    assert listener.verdict(Exit()).denials == ("rm -rf /",)


def test_the_first_answer_counts() -> None:
    listener, ours = listening()
    events_from(listener, line(type="done", id=ours, result="first"))
    assert events_from(listener, line(type="done", id=ours, result="second")) == []
    assert listener.verdict(Exit()).result == "first"


def test_an_answer_without_an_id_ends_the_attempt_at_once() -> None:
    listener, _ = listening()
    assert events_from(listener, line(type="done", result="whose?"))[-1:] == [Done()]
    verdict = listener.verdict(Exit())
    assert verdict.outcome is AttemptOutcome.BAD_OUTPUT and '"id"' in verdict.summary


def test_how_many_lines_of_others_are_forgiven() -> None:
    other = line(type="said", id="task-0/1", text="late")
    listener, ours = listening()
    assert events_from(listener, *[other] * LATE_MAX) == []
    events_from(listener, line(type="said", id=ours, text="mine"), *[other] * MIXED_UP_MAX)
    assert events_from(listener, other)[-1:] == [Done()]
    listener, _ = listening()
    assert events_from(listener, *[other] * (LATE_MAX + 1))[-1:] == [Done()]


def test_what_a_process_spent_on_another_task_is_not_charged_here(tmp_path: Path) -> None:
    agent = Warm()
    agent.launch(job_in(tmp_path, *SERVER))
    job = job_in(tmp_path, *SERVER, id="task-2")
    listener = agent.listen(job)
    events = events_from(
        listener,
        line(type="spent", id="task-1/1", total=True, usd=1, tokens=10),
        line(type="spent", id=attempt_id(job), total=True, usd=1.5, tokens=15),
        line(type="spent", id=attempt_id(job), usd=0.25, tokens=1),
    )
    assert events == [Spent(Usage(0.5, 5)), Spent(Usage(0.25, 1))]
    listener = agent.listen(job)
    agent.launch(job)
    assert events_from(listener, line(type="spent", id=attempt_id(job), total=True, usd=0.1)) == [
        Spent(Usage(0.1))
    ], "a new process counts from nothing"


# -- hostile output --------------------------------------------------------------------------------

KINDS = ["said", "progress", "spent", "session", "denied", "limited", "done", "error", "odd"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["text", "percent", "note", "usd", "tokens", "turns", "total", "session", "what", "class",
          "resets_at", "reason", "summary", "result", "structured", "message"]  # fmt: skip
EVENTS = st.builds(
    lambda kind, whose, fields: json.dumps({"type": kind, "id": whose, **fields}).encode(),
    st.sampled_from(KINDS) | VALUES,
    st.sampled_from(["task-1/1", "task-0/1", None]) | VALUES,
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.binary(max_size=200) | EVENTS, st.booleans()), max_size=20))
def test_no_output_makes_it_raise(lines: list[tuple[bytes, bool]]) -> None:
    listener, _ = listening()
    for each, is_error in lines:
        for events in listener.line(each, is_error=is_error):
            if isinstance(events, Spent):
                assert min(events.cost.usd, events.cost.tokens, events.cost.turns) >= 0
    verdict = listener.verdict(Exit(code=1))
    assert verdict.summary
    repr(verdict).encode()
    verdict.result.encode()
    json.dumps(verdict.structured, allow_nan=False).encode()


@pytest.mark.parametrize("depth", [50, 400, 900, 5_000, 100_000])
def test_absurd_nesting_is_survived(depth: int) -> None:
    listener, ours = listening()
    nested = b"[" * depth + b"]" * depth
    events_from(listener, nested[:depth], b'{"type":' * depth)
    events_from(listener, b'{"type": "done", "id": "%s", "result": %s}' % (ours.encode(), nested))
    verdict = listener.verdict(Exit())
    assert verdict.outcome in {
        AttemptOutcome.COMPLETED,
        AttemptOutcome.BAD_OUTPUT,
        AttemptOutcome.CRASHED,
    }
    assert verdict.outcome is AttemptOutcome.COMPLETED or depth > 50


def test_a_noisy_agent_fills_no_memory() -> None:
    listener, ours = listening()
    chatter = [
        line(type="said", id=ours, text="x" * 5000),
        line(type="denied", id=ours, what="y" * 500),
        b"z" * 5000,
    ]
    tracemalloc.start()
    try:
        for number in range(3000):
            events_from(listener, *chatter, line(type="denied", id=ours, what=str(number)))
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


# -- rotation --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rotation", "done", "why"),
    [
        (Rotation(), (9, 10**9, 10.0**9), ""),
        (Rotation(), (10, 0, 0.0), "it has done 10 tasks, of 10"),
        (Rotation(tasks=0, tokens=500), (99, 499, 0.0), ""),
        (Rotation(tasks=0, tokens=500), (1, 501, 0.0), "it has used 501 tokens, of 500"),
        (Rotation(tasks=0, hours=0.5), (1, 0, 1799.0), ""),
        (Rotation(tasks=0, hours=0.5), (1, 0, 1800.0), "it has run for 0.5 h, of 0.5 h"),
        (Rotation(tasks=0), (10**6, 10**9, 10.0**9), ""),
    ],
)
def test_when_a_process_is_replaced(
    rotation: Rotation, done: tuple[int, int, float], why: str
) -> None:
    assert rotation.due(*done) == why
