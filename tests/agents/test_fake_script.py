"""Scripts of the stand-in: what they may say, and how a slip in one is told."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.core.errors import Invalid, NotFound
from agentq.core.task import Usage
from agentq.testing.fake_agent.actions import ScriptRunner
from agentq.testing.fake_agent.arguments import read_words
from agentq.testing.fake_agent.script import SCRIPT_BYTES_MAX, parse_script, read_script
from agentq.testing.fake_agent.steps import FORMS


def test_every_step_can_be_written_and_played() -> None:
    played = {name.removeprefix("do_") for name in dir(ScriptRunner) if name.startswith("do_")}
    assert {name.replace("-", "_") for name in FORMS} == played


def test_a_plain_value_means_what_the_step_is_about() -> None:
    script = parse_script(
        """
        seed: 7
        now: 2026-03-01T12:00:00Z
        before: {usd: 1.5, tokens: 10}
        steps:
          - say: Hello
          - think: 1m30s
          - work: {seconds: 0.25, busy: true}
          - flood: 2MB
          - crash: SEGV
          - fork-orphans: 3
          - hang
        """
    )
    steps = {step.name: step.needs for step in script.section("", 1).steps}
    assert steps["say"] == {"text": "Hello"}
    assert steps["think"] == {"seconds": 90.0}
    assert steps["work"] == {"seconds": 0.25, "busy": True, "every": 1.0}
    assert steps["flood"] == {"bytes": 2 << 20, "errors": False}
    assert steps["crash"] == {"signal": 11, "exit": None}
    assert steps["fork-orphans"]["count"] == 3
    assert steps["hang"] == {}
    assert (script.seed, script.now) == ("7", 1_772_366_400)
    assert script.before == Usage(1.5, 10)


def test_the_first_section_that_fits_is_played() -> None:
    script = parse_script(
        """
        tasks:
          - {attempt: 1, steps: [{say: first}]}
          - {attempt: [2, 3], prompt: roof, steps: [{say: again}]}
          - {prompt: "(?i)review", steps: [{say: review}]}
        steps: [{say: otherwise}]
        """
    )

    def said(prompt: str, attempt: int) -> object:
        return script.section(prompt, attempt).steps[0].needs["text"]

    assert said("Mend the roof.", 1) == "first"
    assert said("Mend the roof.", 3) == "again"
    assert said("Please REVIEW it.", 2) == "review"
    assert said("Mend the wall.", 2) == "otherwise"


def test_what_no_section_fits_gets_the_default() -> None:
    script = parse_script("tasks: [{attempt: 1, steps: [hang]}]")
    assert [step.name for step in script.section("", 2).steps] == ["say", "spend", "result"]


SLIPS = [
    ("", "expected `steps:` or `tasks:`"),
    ("[]", "expected `steps:` or `tasks:`"),
    ("{}", "expected `steps:` or `tasks:`, got neither"),
    ("steps: hang", "expected a list"),
    ("step: []", "'step' means nothing here"),
    ("steps: [{wrk: 3}]", "Did you mean work?"),
    ("steps: [{say: a, hang: b}]", "expected one step"),
    ("steps: [3]", "expected one step"),
    ("steps: [say]", "step 1 (say): expected `text`, got none"),
    ("steps: [{say: [a]}]", "expected text, got ['a']"),
    ("steps: [{refuse: No}]", "expected text (YAML reads yes, no"),
    ("steps: [{hang: 3}]", "expected nothing after it, got 3"),
    ("steps: [{write: out.txt}]", "expected {path: …, text: …}, got 'out.txt'"),
    ("steps: [{write: {path: /etc/passwd, text: x}}]", "a path inside the workspace"),
    ("steps: [{write: {path: a/../../b, text: x}}]", "a path inside the workspace"),
    ("steps: [{artifact: {name: ../b, text: x}}]", "a path inside the workspace"),
    ("steps: [{say: {text: a, loud: true}}]", "'loud' means nothing here. It takes: text."),
    ("steps: [{work: soon}]", "expected a duration, got 'soon'"),
    ("steps: [{work: -1}]", "expected a number from 0"),
    ("steps: [{work: .inf}]", "expected a number from 0"),
    ("steps: [{work: 99999999}]", "at most a month"),
    ("steps: [{work: {seconds: 1, every: 0}}]", "at least a thousandth"),
    ("steps: [{spend: {tokens: 1.5}}]", "a whole number from 0, got 1.5"),
    ("steps: [{flood: much}]", "a size such as"),
    ("steps: [{crash: {signal: BANG}}]", "a signal such as"),
    ("steps: [{exit: 256}]", "from 0 to 255"),
    ("steps: [{fork-orphans: 0}]", "from 1 to 100"),
    ("steps: [{bad-output: nice}]", "one of all, garbage, truncated, binary"),
    ("tasks: [{attempt: 1}]", "task 1: expected `steps:`, got none"),
    ("tasks: [{attempt: one, steps: []}]", "attempt: expected a whole number"),
    ("tasks: [{prompt: '(', steps: []}]", "is not a regular expression"),
    ("tasks: [hang]", "task 1: expected `steps:` and what it is for"),
    ("steps: [{say: a}]\nsteps: []", "'steps' is given twice"),
    ("steps: [", "cannot be read as YAML"),
    ("steps: [!!python/object:os.system {}]", "cannot be read as YAML"),
    ("now: 2026-99-99T00:00:00Z\nsteps: []", "cannot be read as YAML"),
    ("before: {euro: 3}\nsteps: []", "'euro' means nothing here"),
]


@pytest.mark.parametrize(("text", "words"), SLIPS, ids=[text[:40] for text, _ in SLIPS])
def test_a_slip_is_told_where_it_is(text: str, words: str) -> None:
    with pytest.raises(Invalid) as told:
        parse_script(text, "script.yaml")
    assert words in str(told.value)
    assert "script.yaml" in str(told.value)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(Invalid):
        assert parse_script(text).sections


def test_a_file_that_is_no_script(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no script"):
        read_script(tmp_path / "missing.yaml")
    with pytest.raises(Invalid, match="cannot be read"):
        read_script(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(Invalid, match="not text in UTF-8"):
        read_script(tmp_path / "binary")
    (tmp_path / "large").write_bytes(b"#" * (SCRIPT_BYTES_MAX + 1))
    with pytest.raises(Invalid, match="larger than"):
        read_script(tmp_path / "large")


WORDS = [
    ("claude", "-p --output-format stream-json --verbose --resume abc", ("", "abc", True)),
    ("claude", "-p --resume=abc --max-turns 3 do|it", ("do it", "abc", False)),
    ("codex", "exec --json -C /tmp -s read-only do|it", ("do it", "", False)),
    ("codex", "exec --json -C /tmp resume abc -", ("", "abc", True)),
    ("gemini", "--output-format stream-json --resume abc -p do|it", ("do it", "abc", True)),
    ("opencode", "run --format json --session abc -m a/b do|it", ("do it", "abc", False)),
    ("command", "--unknown -x -- --do|it", ("--do it", "", False)),
]


@pytest.mark.parametrize(("dialect", "line", "expected"), WORDS)
def test_words_are_read_as_the_tool_reads_them(
    dialect: str, line: str, expected: tuple[str, str, bool]
) -> None:
    words = read_words(dialect, [word.replace("|", " ") for word in line.split()])
    assert (words.prompt, words.session, words.reads_stdin) == expected
