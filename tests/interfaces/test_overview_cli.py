"""`agentq status` without a task and `agentq workers`: by command and by SDK alike."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from agentq import AsyncQueue, DecisionKind, Queue, Usage
from agentq.cli.lines import cell_width, cut, table_lines
from agentq.client.presence import Presence, this_process
from tests.eventually import eventually
from tests.interfaces.conftest import (
    PROGRAM,
    Submit,
    clean_environment,
    run_here,
    run_on_terminal,
)
from tests.interfaces.live_terminal import on_terminal

pytestmark = pytest.mark.both_ways


@pytest.fixture
def busy(queue: Queue, submit: Submit) -> Queue:
    """Something of everything that the screen shows."""
    running = submit("--id", "task-run", "--title", "Build it")
    claim = queue.claim_task(running)
    claim.progress(40, "half \x1b[31mred")
    claim.spend(usd=0.5, tokens=1200, estimated_usd=0.2)
    submit("--id", "task-approve", "--irreversible")
    queue.claim_task(submit("--id", "task-ask")).block("which\nbranch?")
    queue.claim_task(submit("--id", "task-dead", "--max-attempts", "1")).fail("no API")
    submit("--id", "task-ready")
    run_here("limits", "worker", "--running", "3", "--daily-usd", "2").ok()
    run_here("circuits", "open", "acme", "--for", "2h", "--reason", "weekly limit").ok()
    return queue


def test_an_empty_installation_says_what_to_do(queue: Queue) -> None:
    assert "agentq submit" in run_here("status").ok().out
    assert run_here("status", "--json").ok().json()["roles"] == []
    assert "agentq up" in run_here("workers").ok().err
    assert run_here("workers", "--json").ok().json() == {"workers": []}


def test_the_screen_has_everything_and_obeys_nothing(busy: Queue) -> None:
    shown = run_here("status").ok().out
    for words in (
        "1 of 3", "task-run", "half \\x1b[31mred", "agentq approve task-approve",
        "agentq answer task-ask TEXT", "which branch?", "agentq requeue task-dead", "no API",
        "agentq circuits close acme", "weekly limit", "~0.50", "1.5 of 2 usd left",
    ):  # fmt: skip
        assert words in shown
    assert "\x1b" not in shown


def test_the_json_says_the_same_as_the_sdk(busy: Queue) -> None:
    plain, found = run_here("status", "--json").ok().json(), busy.overview()
    (role,) = plain["roles"]
    assert role["states"] == {
        "pending": 1, "ready": 1, "in_progress": 1, "review": 0, "blocked": 1,
    }  # fmt: skip
    assert role["spent_today"] == {"usd": 0.5, "tokens": 1200, "estimated_usd": 0.2}
    assert found.roles[0].today == Usage(usd=0.5, tokens=1200, estimated_usd=0.2)
    (running,) = plain["running"]
    assert (running["task_id"], running["percent"], running["started_at"]) == ("task-run", 40, None)
    assert [each["kind"] for each in plain["decisions"]] == ["approval", "question", "dead_letter"]
    assert [each.kind for each in found.decisions] == [
        DecisionKind.APPROVAL, DecisionKind.QUESTION, DecisionKind.DEAD_LETTER,
    ]  # fmt: skip
    assert [each["provider"] for each in plain["circuits"]] == ["acme"]
    assert plain["counted_to"] == 1000


def test_the_asynchronous_queue_has_both(busy: Queue) -> None:
    async def look() -> tuple[int, list[str]]:
        async with AsyncQueue() as queue:
            found, workers = await queue.overview(), await queue.workers()
        return found.running_count, [each.role for each in workers]

    assert asyncio.run(look()) == (1, ["worker"])


def test_workers_are_listed_while_they_are_there(busy: Queue) -> None:
    report = this_process("worker", agent="claude", slots=2)
    with Presence(busy._client, lambda: report):
        (worker,) = eventually(lambda: [each for each in busy.workers() if each.reports])
        assert worker.holder == busy._client.holder
        shown = run_here("workers").ok().out
        for words in ("worker", "claude", "1/2", "task-run", "40 %", "works"):
            assert words in shown
        (plain,) = run_here("workers", "--json").ok().json()["workers"]
        assert (plain["slots"], plain["reports"], plain["gone"]) == (2, True, False)
        assert "1/2 slots busy" in run_here("status").ok().out
    (left,) = busy.workers()
    assert not left.reports
    assert "does not report" in run_here("workers").ok().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("status", "--watch"), "--watch draws on a terminal"),
        (("status", "task-1", "--watch"), "goes without ID"),
        (("status", ""), "takes some text"),
    ],
)
def test_bad_words(queue: Queue, words: tuple[str, ...], says: str) -> None:
    run_here(*words).refused(2, says)


@pytest.mark.long
@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_of_a_terminal_is_too_long(busy: Queue, columns: int) -> None:
    found = run_on_terminal(["status"], {"NO_COLOR": "1"}, columns=columns).ok().out
    assert "\x1b" not in found
    assert max(map(len, found.splitlines())) <= columns


def test_lines_are_measured_as_a_terminal_shows_them() -> None:
    assert (cell_width("abc"), cell_width("日本"), cell_width("e\u0301")) == (3, 4, 1)
    assert (cut("日本語", 5), cut("short", 9), cut("anything", 0)) == ("日本…", "short", "anything")
    assert table_lines(("a", "b"), []) == []
    lines = table_lines(("id", ">n", "empty", "last"), [("x", "1", "", "a long one" * 9)], width=30)
    assert lines[0] == "id  n  last"
    assert cell_width(lines[1]) == 30


def test_costs_say_what_of_them_is_estimated(busy: Queue) -> None:
    shown = run_here("stats", "--cost").ok()
    assert "~0.50" in shown.out
    assert "0.20 of it is estimated" in shown.err
    costs = run_here("stats", "--cost", "--json").ok().json()
    assert costs["total"] == {"usd": 0.5, "tokens": 1200, "estimated_usd": 0.2}


def test_the_shapes_are_documented(busy: Queue) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/json.md").read_text()
    overview = run_here("status", "--json").ok().json()
    workers = run_here("workers", "--json").ok().json()["workers"]
    for title, plain in (("## An overview", overview), ("## A worker", workers[0])):
        section = page.partition(title)[2].partition("\n## ")[0]
        assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(plain)
        words = set(re.findall(r"\w+", page.partition("## An overview")[2]))
        inner = [each for value in plain.values() if isinstance(value, list) for each in value]
        assert {name for each in inner for name in each} <= words


@pytest.mark.long
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_the_screen_is_drawn_again_after_an_event(queue: Queue, submit: Submit, term: str) -> None:
    submit("--id", "task-1")
    with on_terminal("status", "-w", term=term) as terminal:
        eventually(lambda: terminal.shows("Roles"))
        submit("--id", "task-2", "--requires-approval")
        eventually(lambda: terminal.shows("agentq approve task-2"))
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(30) == 0
        terminal.lines()
        assert ("\x1b[2K" in terminal.written) == (term != "dumb")


@pytest.mark.long
def test_a_program_gets_a_line_after_each_event(home: Path, submit: Submit) -> None:
    submit("--id", "task-1")
    words = [*PROGRAM, "status", "--watch", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=clean_environment()) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["decisions"] == []
        submit("--id", "task-2", "--requires-approval")
        lines = iter(process.stdout.readline, b"")
        assert any(json.loads(line)["decisions"] for line in lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
