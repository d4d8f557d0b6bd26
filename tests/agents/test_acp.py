"""The ACP adapter and its bridge: with an agent made of the SDK, a real one's words, bad ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentq.agents.acp import Acp, AcpListener
from agentq.agents.acp_files import READ_CHARS_MAX, Outside, inside, read_text, write_text
from agentq.contracts.agent import (
    AgentEvent,
    AgentMessage,
    AgentSession,
    AttemptOutcome,
    Denied,
    Done,
    Exit,
    Listening,
    Spent,
)
from agentq.core.errors import Invalid
from agentq.core.task import ToldMessage, Usage
from tests.agents.conversing import Running, attempt, job_in, spent

#: Many processes: `make test` has the contract of all adapters, this has the details.
pytestmark = pytest.mark.long

HERE = Path(__file__).parent
SMALL_AGENT = (sys.executable, str(HERE / "acp_agent.py"))
REPLAY = (sys.executable, str(HERE / "acp_replay.py"))
CAPTURE = str(HERE / "captures" / "acp_claude_agent.jsonl")
NOW = 1_800_000_000_000


def fake(script: Path, *steps: str) -> tuple[str, ...]:
    script.write_text("steps:\n" + "".join(f"  - {step}\n" for step in steps))
    return (sys.executable, "-m", "agentq.testing.fake_agent", "acp", "--script", str(script))


def messages_of(events: list[AgentEvent]) -> list[str]:
    return [each.text for each in events if isinstance(each, AgentMessage)]


# -- with real processes ---------------------------------------------------------------------------


def test_a_whole_conversation_with_an_agent_made_of_the_sdk(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("kept inside")
    orders = ("say I will look.", "spend 0.5", "use rm -rf x", "read in.txt", "read /etc/passwd",
              "write new/out.txt hello", "write ../out.txt no", "spend 0.75")  # fmt: skip
    events, verdict = attempt(Acp(), job_in(tmp_path, *SMALL_AGENT, prompt="\n".join(orders)))
    assert verdict.outcome is AttemptOutcome.COMPLETED
    assert verdict.result.splitlines() == [
        "permission: 3", "read: kept inside", "not read: -32602", "not written: -32602",
    ]  # fmt: skip
    assert verdict.denials == ("rm -rf x", "read /etc/passwd", "write ../out.txt")
    assert [each.what for each in events if isinstance(each, Denied)] == list(verdict.denials)
    assert events[0] == AgentSession("a-new-session") and events[-1] == Done()
    assert "I will look." in messages_of(events) and "rm -rf x" in messages_of(events)
    assert spent(events) == Usage(0.75, 250, 2), "cumulative money became differences"
    assert (tmp_path / "new" / "out.txt").read_text() == "hello"
    assert not (tmp_path.parent / "out.txt").exists()


@pytest.mark.long
def test_an_earlier_session_goes_on_and_is_not_paid_twice(tmp_path: Path) -> None:
    job = job_in(tmp_path, *SMALL_AGENT, prompt="use ls\nspend 2.5", session="an-old-session",
                 permissions="allow")  # fmt: skip
    events, verdict = attempt(Acp(), job)
    assert (verdict.outcome, verdict.result) == (AttemptOutcome.COMPLETED, "permission: 2")
    assert events[0] == AgentSession("an-old-session") and "allowed: ls" in messages_of(events)
    assert spent(events).usd == 0.5, "2.0 of it was spent before"
    assert "what was said before" not in messages_of(events)


def test_asked_to_stop_it_stops(tmp_path: Path) -> None:
    job = job_in(tmp_path, *SMALL_AGENT, prompt="wait")
    _, verdict = attempt(Acp(), job, interrupt_at=AgentSession)
    assert verdict.outcome is AttemptOutcome.CANCELLED


@pytest.mark.long
@pytest.mark.parametrize("how", ["signal", "end of input"])
def test_a_signal_or_a_worker_that_is_gone_stops_it_too(tmp_path: Path, how: str) -> None:
    job = job_in(tmp_path, *fake(tmp_path / "script.yaml", "say: Here.", "think: 60s"))
    agent = Acp()
    listener = agent.listen(job)

    def at(events: AgentEvent) -> None:
        if isinstance(events, AgentSession) and how == "signal":
            running.process.send_signal(signal.SIGINT)
        elif isinstance(events, AgentSession):
            running.close_input()

    with Running(agent.launch(job), tmp_path) as running:
        running.hear(listener, at=at)
        assert listener.verdict(running.exit()).outcome is AttemptOutcome.CANCELLED


@pytest.mark.long
def test_what_people_say_meanwhile_begins_another_turn(tmp_path: Path) -> None:
    agent, prompt = Acp(), "say first\nspend 0.5\nlook_for go"
    job = job_in(tmp_path, *SMALL_AGENT, prompt=prompt)
    listener = agent.listen(job)
    told = ToldMessage(1, 0, "say", "it again")  # which is an order to this agent
    assert listener.message(told) is None, "it has not even begun"

    def at(event: AgentEvent) -> None:
        if isinstance(event, Listening):
            running.write(listener.message(told) or b"")
            (tmp_path / "go").touch()

    with Running(agent.launch(job), tmp_path) as running:
        events = running.hear(listener, at=at)
        verdict = listener.verdict(running.exit())
    assert (verdict.outcome, verdict.result) == (AttemptOutcome.COMPLETED, "says: it again")
    assert messages_of(events) == ["first", "says: it again"]
    assert spent(events) == Usage(0.5, 500, 2) and listener.message(told) is None


@pytest.mark.long
def test_what_a_real_agent_sent(tmp_path: Path) -> None:
    events, verdict = attempt(Acp(), job_in(tmp_path, *REPLAY, CAPTURE))
    command = "echo hello-from-stub > out.txt && cat out.txt"
    assert verdict.outcome is AttemptOutcome.COMPLETED
    assert verdict.result == verdict.summary == "Done: out.txt contains hello-from-stub."
    assert verdict.denials == (command,)
    assert messages_of(events) == ["I will write the file.", command, "hello-from-stub",
                           verdict.result]  # fmt: skip
    assert spent(events) == Usage(0.00225, 250, 2)


@pytest.mark.long
def test_a_session_that_is_not_known_any_more_is_said(tmp_path: Path) -> None:
    command = fake(tmp_path / "script.yaml", "unknown-session")
    _, verdict = attempt(Acp(), job_in(tmp_path, *command, session="gone-1"))
    assert verdict.outcome is AttemptOutcome.TRANSIENT and verdict.session_unknown


@pytest.mark.long
def test_an_agent_that_dies_has_crashed(tmp_path: Path) -> None:
    command = fake(tmp_path / "script.yaml", "say: Oh.", "crash: {signal: 9}")
    events, verdict = attempt(Acp(), job_in(tmp_path, *command))
    assert verdict.outcome is AttemptOutcome.CRASHED and "signal 9" in verdict.summary
    assert "Oh." in messages_of(events), "what it said before is kept"


@pytest.mark.parametrize(
    ("word", "outcome", "words"),
    [
        ("huge", AttemptOutcome.BAD_OUTPUT, "a message of more than 16 MiB"),
        ("greedy", AttemptOutcome.BAD_OUTPUT, "without taking an answer"),
        ("noisy", AttemptOutcome.TRANSIENT, "not an object"),
        ("old", AttemptOutcome.INVALID, "version 999"),
    ],
)
@pytest.mark.long
def test_agents_that_break_the_protocol(
    tmp_path: Path, word: str, outcome: AttemptOutcome, words: str
) -> None:
    events, verdict = attempt(Acp(), job_in(tmp_path, *REPLAY, word))
    assert verdict.outcome is outcome and words in verdict.summary
    assert spent(events).usd == (0.5 if word == "noisy" else 0), (
        "money is read from odd updates too"
    )
    assert "not for us" not in messages_of(events)


def test_a_command_that_is_not_there_is_invalid(tmp_path: Path) -> None:
    _, verdict = attempt(Acp(), job_in(tmp_path, "no-such-agent", "--acp"))
    assert verdict.outcome is AttemptOutcome.INVALID and "no-such-agent" in verdict.summary


def test_without_the_sdk_the_bridge_says_what_to_install(tmp_path: Path) -> None:
    # As if it were not installed: what stands as None among the modules cannot be imported.
    bridge = (
        "import sys; sys.modules['acp'] = None\n"
        "from agentq.agents.acp_bridge import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["--workspace", str(tmp_path), "--", "agent"]
    ended = subprocess.run([sys.executable, "-P", "-c", bridge, *words], stdin=subprocess.DEVNULL,
                           capture_output=True, check=False, timeout=30)  # fmt: skip
    listener = Acp().listen(job_in(tmp_path))
    for line in ended.stdout.splitlines():
        list(listener.line(line))
    verdict = listener.verdict(Exit(code=ended.returncode))
    assert verdict.outcome is AttemptOutcome.INVALID
    assert "pip install 'agentq-orchestrator[acp]'" in verdict.summary


# -- what is started -------------------------------------------------------------------------------


def test_what_cannot_be_started_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="needs the command"):
        Acp().launch(job_in(tmp_path))
    with pytest.raises(Invalid, match="deny or allow"):
        Acp().launch(job_in(tmp_path, "agent", permissions="sometimes"))


def test_the_prompt_travels_on_standard_input(tmp_path: Path) -> None:
    launch = Acp().launch(job_in(tmp_path, "agent", "--acp", prompt="a\nb", session="-s"))
    assert launch.argv[-3:] == ("--", "agent", "--acp") and launch.keep_stdin
    assert "-P" in launch.argv, "a module in the workspace must not stand in for ours"
    assert json.loads(launch.stdin) == {"prompt": "a\nb", "session": "-s"}
    assert launch.stdin.count(b"\n") == 1


# -- what the bridge's lines mean ------------------------------------------------------------------


def listening(**words: Any) -> AcpListener:
    return Acp(lambda: NOW).listen(job_in(Path("/tmp"), "agent", **words))


def tell(listener: AcpListener, **event: Any) -> list[AgentEvent]:
    return list(listener.line(json.dumps(event).encode()))


@pytest.mark.parametrize(
    ("reason", "asked", "outcome"),
    [
        ("end_turn", False, AttemptOutcome.COMPLETED),
        ("end_turn", True, AttemptOutcome.COMPLETED),
        ("refusal", False, AttemptOutcome.REFUSED),
        ("max_tokens", False, AttemptOutcome.BUDGET),
        ("max_turn_requests", False, AttemptOutcome.BUDGET),
        ("cancelled", True, AttemptOutcome.CANCELLED),
        ("cancelled", False, AttemptOutcome.TRANSIENT),
        ("something new", False, AttemptOutcome.BAD_OUTPUT),
    ],
)
def test_reasons_to_stop(reason: str, asked: bool, outcome: AttemptOutcome) -> None:
    listener = listening()
    tell(listener, type="said", text="words", message="m1")
    assert tell(listener, type="stop", reason=reason, asked=asked)[-1] == Done()
    assert listener.verdict(Exit()).outcome is outcome


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ({"code": -32000, "message": "Authentication required"}, AttemptOutcome.SURROUNDINGS),
        (
            {"code": -32603, "message": "Internal error", "data": '{"status": 429}'},
            AttemptOutcome.QUOTA,
        ),
        ({"message": "try again in 1h", "data": '{"status": 429}'}, AttemptOutcome.QUOTA),
        (
            {"code": -32603, "message": "Internal error", "data": "overloaded"},
            AttemptOutcome.OVERLOADED,
        ),
        ({"code": -32603, "message": "Internal error"}, AttemptOutcome.TRANSIENT),
        ({"outcome": "bad_output", "message": "breaks the protocol"}, AttemptOutcome.BAD_OUTPUT),
        ({"outcome": "completed", "message": "odd"}, AttemptOutcome.TRANSIENT),
        ({"message": "stopped", "asked": True}, AttemptOutcome.CANCELLED),
        ({"stage": "load", "message": "too many requests"}, AttemptOutcome.QUOTA),
    ],
)
def test_errors(error: dict[str, Any], outcome: AttemptOutcome) -> None:
    listener = listening(session="s-1")
    tell(listener, type="error", **error)
    verdict = listener.verdict(Exit(code=1))
    assert verdict.outcome is outcome and not verdict.session_unknown
    assert verdict.resets_at == (NOW + 3_600_000 if "1h" in error["message"] else 0)


def test_the_last_message_with_words_is_the_answer() -> None:
    listener = listening()
    for words, message in (("First.", "m1"), ("", "m2"), ("Sec", "m2"), ("ond.", "m2"), ("", "m3")):
        tell(listener, type="said", text=words, message=message)
    tell(listener, type="stop", reason="end_turn")
    assert listener.verdict(Exit()).result == "Second."


def test_words_are_said_line_by_line() -> None:
    listener = listening()
    events = [
        each
        for words in ("I wi", "ll.\nAnd ", "then\n", "end")
        for each in tell(listener, type="said", text=words, message="m1")
    ]
    events += tell(listener, type="stop", reason="end_turn")
    assert messages_of(events) == ["I will.", "And then", "end"]


def test_foreign_money_is_not_counted_as_ours() -> None:
    listener = listening()
    assert tell(listener, type="usage", amount=5, currency="EUR") == []
    assert tell(listener, type="usage", amount=5, currency="USD") == [Spent(Usage(5.0))]
    assert tell(listener, type="usage", amount=None, currency="") == []
    assert tell(listener, type="usage", amount=5, currency="USD") == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KINDS = ["said", "thought", "tool", "usage", "session", "denied", "allowed", "log", "stop", "error",
         "gone", "alive"]  # fmt: skip
FIELDS = ["text", "message", "title", "status", "amount", "currency", "earlier", "session", "what",
          "reason", "asked", "usage", "outcome", "stage", "code", "data", "broken"]  # fmt: skip
EVENTS = st.builds(
    lambda kind, fields: json.dumps({"type": kind, **fields}).encode(),
    st.sampled_from(KINDS) | VALUES,
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.binary(max_size=200) | EVENTS, st.booleans()), max_size=20))
def test_no_output_makes_it_raise(lines: list[tuple[bytes, bool]]) -> None:
    listener = listening()
    for line, is_error in lines:
        for events in listener.line(line, is_error=is_error):
            if isinstance(events, Spent):
                assert min(events.cost.usd, events.cost.tokens, events.cost.turns) >= 0
    verdict = listener.verdict(Exit(code=1))
    assert verdict.summary
    repr(verdict).encode()
    verdict.result.encode()


def test_a_noisy_agent_fills_no_memory() -> None:
    listener = listening()
    tracemalloc.start()
    try:
        for number in range(3000):
            tell(listener, type="said", text="x" * 2000, message="m1")
            tell(listener, type="denied", what=str(number))
            list(listener.line(b"z" * 5000))
        assert tracemalloc.get_traced_memory()[0] < 8_000_000
    finally:
        tracemalloc.stop()
    tell(listener, type="stop", reason="end_turn")
    assert len(listener.verdict(Exit()).result) == 1_000_000


# -- files -----------------------------------------------------------------------------------------


def test_files_are_reached_inside_the_workspace_only(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "secret").write_text("secret")
    (workspace / "link").symlink_to(tmp_path / "secret")
    (workspace / "up").symlink_to(tmp_path)
    (workspace / "good").symlink_to(workspace / "here.txt")
    write_text(workspace, str(workspace / "here.txt"), "1\n2\n3\n")
    assert read_text(workspace, "good", None, None) == "1\n2\n3\n"
    for path in ("link", "up/secret", "../secret", str(tmp_path / "secret"), "/etc/passwd"):
        with pytest.raises(Outside):
            read_text(workspace, path, None, None)
        with pytest.raises(Outside):
            write_text(workspace, path, "mine now")
    assert (tmp_path / "secret").read_text() == "secret"
    with pytest.raises(OSError, match="not a path"):
        inside(workspace, "a\0b")


def test_lines_are_counted_from_one(tmp_path: Path) -> None:
    write_text(tmp_path, "f", "1\n2\n3\n4")
    assert read_text(tmp_path, "f", 2, 2) == "2\n3\n"
    assert read_text(tmp_path, "f", 4, None) == "4"
    assert read_text(tmp_path, "f", 9, 1) == read_text(tmp_path, "f", None, 0) == ""
    write_text(tmp_path, "f", "short")
    assert read_text(tmp_path, "f", None, None) == "short"


def test_only_plain_files_of_a_sensible_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a plain file"):
        read_text(tmp_path, "pipe", None, None)
    with (tmp_path / "big").open("wb") as file:
        file.truncate(READ_CHARS_MAX + 10)
    for first_line in (None, 1):
        with pytest.raises(OSError, match="ask for fewer lines"):
            read_text(tmp_path, "big", first_line, None if first_line is None else 5)
