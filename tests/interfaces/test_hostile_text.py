"""Whatever a task, a report or a message says: no terminal obeys it, and JSON keeps it as it is."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from agentq.cli import dlq
from agentq.cli.log_lines import JsonLines, TextLines
from agentq.contracts.delivery import DeadMessage
from agentq.worker.terminal_view import Lines
from tests.interfaces.conftest import Answer, doctor_checks, run_here, run_on_terminal

pytestmark = [pytest.mark.both_ways, pytest.mark.long]

#: Sets the title of a window, clears the screen, rings, overwrites the line, turns the reading
#: order round, begins a sequence with one character, and colours what follows.
HOSTILE = "a\x1b]0;owned\x07b\x1b[2Jc\rd\u202ee\x9b31mf\x1b[31mg\u2066h\x00"
#: Arguments of programs hold no NUL.
TYPED = HOSTILE.removesuffix("\x00")
#: Control characters that may reach a terminal: line ends, tabs.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_OWN_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def harmless(answer: Answer, *, on_terminal: bool = False) -> Answer:
    shown = answer.out + answer.err
    if on_terminal:
        assert "\x1b[31mg" not in shown, "not even a colour"
        shown = _OWN_COLOURS.sub("", shown)
    assert _OBEYED.findall(shown) == []
    return answer


def said(*words: str) -> None:
    """Say something hostile; where such a text is refused, that too is said harmlessly."""
    answer = harmless(run_here(*words))
    if answer.status == 2:
        run_here(*(word.replace(TYPED, "plain") for word in words)).ok()
    else:
        answer.ok()


@pytest.fixture
def hostile(home: Path) -> Path:
    """Tasks in every state, with such text wherever text goes."""
    by = ("--by", TYPED)
    (home / "result.md").write_text(HOSTILE)
    for name in ("ready", "held", "failed", "blocked", "done", "review", "approval"):
        more = {"review": ("--review",), "approval": ("--requires-approval",)}.get(name, ())
        new = ("submit", "--to", "w", "--id", f"task-{name}")
        harmless(run_here(*new, "--instructions", "x", "--title", TYPED)).refused(2)
        said(*new, "--instructions", f"{TYPED}\nmore {TYPED}", *more)
        said("comment", f"task-{name}", TYPED, *by)
    for name in ("held", "failed", "blocked", "done", "review"):
        said("claim", f"task-{name}", "--holder", TYPED)
        about = (f"task-{name}", "--epoch", "1")
        said("progress", f"task-{name}", "5", TYPED, "--epoch", "1")
        if name == "failed":
            said("fail", *about, "--kind", "invalid", "--reason", TYPED)
        elif name == "blocked":
            said("block", *about, "--reason", TYPED)
        elif name != "held":
            put = ("artifacts", "put", f"task-{name}", "result.md", "--epoch", "1", "--name")
            harmless(run_here(*put, TYPED)).refused(2)
            said(*put, "notes.md")
            said("complete", *about, "--summary", TYPED)
    said("submit", "--to", "w", "--id", "task-gone", "--instructions", "x")
    said("cancel", "task-gone", "--reason", TYPED)
    return home


VIEWS = [
    ["list"], ["list", "--all"], ["stats"], ["events"], ["events", "--limit", "1000"], ["dlq"],
    ["dlq", "show", "task-failed"], ["limits"], ["circuits"], ["workspaces"], ["verify"], ["audit"],
    *([verb, f"task-{name}"] for verb in ("status", "explain", "replay", "events")
      for name in ("ready", "held", "failed", "blocked", "done", "review", "approval")),
    ["artifacts", "list", "task-done"],
]  # fmt: skip


def test_every_view_in_a_pipe(hostile: Path) -> None:
    shown = [run_here(*words) for words in VIEWS]
    known = [harmless(answer) for answer in shown if answer.status == 0]
    assert len(known) >= len(VIEWS) - 3, [answer.err for answer in shown if answer.status]
    for answer in shown:
        harmless(answer)
    # Nothing is left out: it is there to be read.
    assert "\\x1b]0;owned\\x07" in run_here("dlq", "show", "task-failed").ok().out
    assert "\\u202e" in run_here("status", "task-done").ok().out


@pytest.mark.parametrize(
    "words",
    [["list"], ["status", "task-blocked"], ["dlq", "show", "task-failed"], ["events"], ["audit"]],
)
def test_on_a_terminal(hostile: Path, words: list[str]) -> None:
    answer = run_on_terminal(words, columns=400).ok()
    harmless(answer, on_terminal=True)
    assert "\\x1b" in answer.out


def test_json_says_it_as_it_is(hostile: Path) -> None:
    for words in VIEWS:
        answer = harmless(run_here(*words, "--json"))
        assert answer.status != 0 or answer.out
    assert run_here("status", "task-done", "--json").ok().json()["summary"] == TYPED


def test_decisions_and_errors(hostile: Path) -> None:
    by, reason = ("--by", TYPED), ("--reason", TYPED)
    for words in (
        ["answer", "task-blocked", TYPED, *by], ["approve", "task-approval", *by],
        ["reject", "task-review", *by, *reason, "--changes"],
        ["cancel", "task-ready", *by, *reason],
        ["dlq", "requeue", "task-failed", *by, *reason], ["release", "task-held", "--epoch", "1"],
        ["status", TYPED], ["submit", "--to", TYPED], ["artifacts", "get", "task-done", TYPED],
        [TYPED], ["list", "--label", f"a={TYPED}"], ["limits", TYPED], ["logs", TYPED],
        ["submit", "--file", f"/nowhere/{TYPED}"], ["db", "backup", f"/nowhere/{TYPED}"],
    ):  # fmt: skip
        harmless(run_here(*words))


def test_messages_nobody_could_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fields: dict[str, Any] = dict.fromkeys(DeadMessage.__dataclass_fields__, HOSTILE)
    fields.update(key="0a1b", body=HOSTILE.encode() + b"\xff", size=3, certain=True)
    message = DeadMessage(**fields)
    for text in (*dlq._described(message), dlq._body(message)):
        assert not _OBEYED.search(text)
    assert json.loads(json.dumps(dlq._plain(message)))["reason"] == HOSTILE


def test_what_a_worker_and_the_daemon_say() -> None:
    for as_json in (False, True):
        out = io.StringIO()
        Lines(out, as_json=as_json, steps=True).show_step("task-1", "collect", HOSTILE)
        assert not _OBEYED.search(out.getvalue())
        assert not as_json or json.loads(out.getvalue())["note"] == HOSTILE
    record = logging.LogRecord("agentq", 30, "x", 1, "worker says %s", (HOSTILE,), None)
    assert not _OBEYED.search(TextLines("%(message)s").format(record))
    line = JsonLines().format(record)
    assert not _OBEYED.search(line) and json.loads(line)["message"] == f"worker says {HOSTILE}"


def test_settings_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / TYPED.replace("/", "")
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("AGENTQ_URL", raising=False)
    for words in (["init"], ["init", "--json"], ["doctor"], ["doctor", "--json"], ["db", "status"]):
        harmless(run_here(*words).ok())
    assert doctor_checks()["files"]["status"] == "ok"
