"""The logs of tools as conversations: what each said, and that no log can break the reading."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.agents.conversation import (
    OUTPUT_LINE_MAX,
    RESULT_LINE_MAX,
    RESULT_LINES_MAX,
    TEXT_SHOWN_MAX,
    ConversationReader,
)
from tests.agents.jobs import captured

ANSWER = ("text", "Done: out.txt contains hello-from-stub.")
COMMAND = "echo hello-from-stub > out.txt && cat out.txt"
MODEL_WARNING = (
    "Model metadata for `stub-model` not found. Defaulting to fallback metadata; this can degrade"
    " performance and cause issues."
)
GAVE = ("result", "hello-from-stub")


def conversation(*lines: bytes | dict[str, Any], epoch: int = 1) -> list[tuple[str, str]]:
    reader = ConversationReader("task-1", epoch)
    written = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    entries = [entry for line in written for entry in reader.line(line)]
    return [(str(entry.kind), entry.text) for entry in [*entries, *reader.end()]]


@pytest.mark.parametrize(
    ("capture", "expected"),
    [
        (
            "claude_happy.jsonl",
            [("text", "I will write the file."), ("tool", f"Bash: {COMMAND}"), GAVE, ANSWER,
             ("cost", "0.0018 $, 250 tokens, 2 turns")],
        ),
        ("claude_json.json", [ANSWER, ("cost", "0.0018 $, 250 tokens, 2 turns")]),
        (
            "claude_err_429.jsonl",
            [("status", "the provider answered 429; try 1 of 1"),
             ("text", "API Error: Request rejected (429) · stub: rate limited"),
             ("cost", "1 turn")],
        ),
        (
            "claude_max_turns.jsonl",
            [("text", "I will write the file."), ("tool", f"Bash: {COMMAND}"), GAVE,
             ("error", "Reached maximum number of turns (1)"),
             ("cost", "0.0009 $, 125 tokens, 2 turns")],
        ),
        ("claude_resume.jsonl", [ANSWER, ("cost", "0.0009 $, 125 tokens, 1 turn")]),
        (
            "codex_happy.jsonl",
            [("status", MODEL_WARNING),
             ("tool", f"/bin/bash -lc '{COMMAND}'"), GAVE, ANSWER, ("cost", "240 tokens, 1 turn")],
        ),
        (
            "gemini_happy.jsonl",
            [("tool", f"run_shell_command: {COMMAND}"), GAVE, ANSWER,
             ("cost", "240 tokens, 2 turns")],
        ),
        (
            "opencode_happy.jsonl",
            [("tool", f"bash: {COMMAND}"), GAVE, ANSWER, ("cost", "240 tokens, 2 turns")],
        ),
    ],
)  # fmt: skip
def test_what_real_tools_printed(capture: str, expected: list[tuple[str, str]]) -> None:
    assert conversation(*captured(capture)) == expected


@pytest.mark.parametrize("tool", ["claude", "gemini", "opencode"])
def test_what_was_not_allowed_is_said_once(tool: str) -> None:
    said = conversation(*captured(f"{tool}_denied.jsonl"))
    commit = [text for kind, text in said if kind == "denied" and "git commit -m x" in text]
    assert len(commit) == 2  # it tried twice
    assert not any("IMPORTANT" in text or "rule which prevents" in text for _, text in said)


def test_an_error_is_said_once_though_the_end_of_the_turn_repeats_it() -> None:
    said = conversation(*captured("codex_err_429.jsonl"))
    assert [text for kind, text in said if kind == "error"] == [
        "exceeded retry limit, last status: 429 Too Many Requests"
    ]


def test_what_comes_in_pieces_is_put_together() -> None:
    """Also the lines of the ACP bridge: a tool call is told when it says what it is about."""

    def said(text: str) -> dict[str, Any]:
        return {"type": "said", "text": text, "message": "m1"}

    def tool(title: str, status: str, output: str = "") -> dict[str, Any]:
        return {"type": "tool", "id": "t1", "title": title, "status": status, "output": output}

    assert conversation(
        {"type": "session", "session": "s-1"},
        {"type": "thought", "text": "Where to ", "message": ""},
        {"type": "thought", "text": "begin?", "message": ""},
        said("I will\n\n  look"),
        said(" around."),
        tool("Terminal", "pending"),
        tool("ls -l", ""),
        tool("ls -l", "completed", "a\nb"),
        {"type": "denied", "what": "rm -rf /"},
        {"type": "stop", "reason": "max_tokens", "asked": False, "usage": {"total_tokens": 7}},
        {"type": "session", "session": "s-2"},
        said("Once more, from the start"),
    ) == [
        ("thinking", "Where to begin?"),
        ("text", "I will"),
        ("text", "\n  look around."),
        ("tool", "ls -l"),
        ("result", "a\nb"),
        ("denied", "rm -rf /"),
        ("error", "it stopped with max_tokens"),
        ("cost", "7 tokens, 1 turn"),
        ("text", "Once more, from the start"),
        ("cost", "7 tokens, 2 turns"),
    ]


def test_the_lines_of_a_warm_agent() -> None:
    about = {"id": "task-1/2"}
    lines = (
        {"type": "said", **about, "text": "Here.\nAnd there."},
        {"type": "said", "id": "task-9/1", "text": "of another task"},
        {"type": "progress", **about, "percent": 50, "note": "half"},
        {"type": "error", **about, "class": "refused", "message": "No."},
    )
    assert conversation(*lines, epoch=2) == [
        ("text", "Here.\nAnd there."), ("status", "half (50 %)"), ("error", "No."),
    ]  # fmt: skip
    # Read as another attempt they are nobody's events.
    assert {kind for kind, _ in conversation(*lines)} == {"output"}


def test_plain_text_stays_and_unknown_events_go() -> None:
    plain = [b"making things", b'{"level": "info", "message": "no event"}', b"{broken", b"\xff"]
    assert conversation(*plain) == [
        ("output", line.decode("utf-8", "replace")) for line in plain
    ]  # fmt: skip
    known = captured("codex_happy.jsonl")[0]
    assert conversation(known, *plain, {"type": "item.invented", "item": {}}, {"type": "new"}) == [
        ("output", line.decode("utf-8", "replace")) for line in plain
    ]  # fmt: skip


def test_what_is_long_is_cut() -> None:
    def item(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": "item.completed", "item": {"type": kind, **fields}}

    long_line = b'{"type": "item.completed"' + b" " * 5000
    output = "x" * 5000 + "\n" + "line\n" * 100
    said = conversation(
        {"type": "turn.started"},
        item("command_execution", command="ls", aggregated_output=output),
        item("agent_message", text="y" * (TEXT_SHOWN_MAX + 1)),
        long_line,
    )
    result, text, cut = (text for _, text in said)
    assert result.split("\n") == [
        "x" * RESULT_LINE_MAX + "…", *["line"] * (RESULT_LINES_MAX - 1), "… 96 more lines",
    ]  # fmt: skip
    assert text.endswith("y\n… 1 character more") and len(text) < TEXT_SHOWN_MAX + 30
    assert cut.endswith(f"… {len(long_line) - OUTPUT_LINE_MAX} bytes more") and len(cut) < 2100


@given(
    tool=st.sampled_from(["claude_happy", "codex_happy", "gemini_happy", "opencode_happy", ""]),
    lines=st.lists(st.binary(max_size=80) | st.sampled_from([b'{"type":"session","session":"s"}'])),
    fields=st.dictionaries(
        st.sampled_from(["type", "message", "item", "part", "content", "text", "id", "status"]),
        st.sampled_from(["assistant", "result", "tool", "error", 7, None, [], {}, [{}], {"a": []}]),
    ),
)
def test_no_log_breaks_the_reading(tool: str, lines: list[bytes], fields: dict[str, Any]) -> None:
    real = captured(f"{tool}.jsonl") if tool else []
    for _, text in conversation(*real[:2], *lines, fields, *real[2:]):
        assert text.encode("utf-8").decode() == text
