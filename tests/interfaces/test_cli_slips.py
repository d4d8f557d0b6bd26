"""Slips of the finger: empty words, numbers without end, places that are no files."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from agentq import Invalid, Queue
from agentq.contracts.service_values import Wanted
from tests.interfaces.conftest import Submit, count_tasks, run_here, run_program
from tests.servers import machine

pytestmark = pytest.mark.both_ways

SUBMIT = ("submit", "--to", "w", "--instructions", "x")


@pytest.mark.parametrize(
    "words",
    [
        ["submit", "--to", "w", "--instructions", ""],
        ["submit", "--to", "w", "--instructions", " \n"],
        ["submit", "--to", "", "--instructions", "x"],
        [*SUBMIT, "--id", ""],
        [*SUBMIT, "--title", " "],
        [*SUBMIT, "--from", ""],
        [*SUBMIT, "--type", ""],
        [*SUBMIT, "--after", ""],
        [*SUBMIT, "--resource", ""],
        [*SUBMIT, "--idempotency-key", ""],
        [*SUBMIT, "--expect", ""],
        [*SUBMIT, "--reply-to", ""],
        [*SUBMIT, "--label", ""],
        ["submit", "--to", "w", "--file", ""],
        ["submit", "--bulk", ""],
        ["status", ""],
        ["claim", "--as", ""],
        ["claim", "--as", "w", "--holder", ""],
        ["claim", "--as", "w", "--holder", "\t"],
        ["claim", "--as", "w", "--wait", ""],
        ["complete", "first", "--from", ""],
        ["complete", "first", "--from", "w", "--result-file", ""],
        ["fail", "first", "--from", "w", "--reason", ""],
        ["block", "first", "--reason", " "],
        ["comment", "first", ""],
        ["comment", "first", " ", "--by", "ann"],
        ["comment", "", "hello"],
        ["comment", "first", "hello", "--by", ""],
        ["comment", "first", "hello", "--by", " "],
        ["approve", "first", "--by", ""],
        ["progress", "", "40"],
        ["artifacts", "put", "first", "/etc/hostname", "--name", ""],
        ["circuits", "open", "", "--for", "1h"],
        ["token", "create", "--name", "", "--scope", "read"],
        ["token", "create", "--name", "n", "--scope", ""],
        ["token", "revoke", " "],
        ["list", "--role", ""],
        ["list", "--from", ""],
        ["dlq", "requeue", ""],
        ["--url", "", "list"],
        ["worker", ""],
    ],
)
def test_what_says_nothing_is_refused(home: Path, submit: Submit, words: list[str]) -> None:
    submit("--id", "first", to="w")
    answer = run_here(*words).refused(2)
    assert "\n" in answer.err and count_tasks() == 1
    assert run_here("status", "first", "--json").ok().json()["epoch"] == 0


def test_a_summary_may_be_empty(submit: Submit) -> None:
    run_here("complete", submit(), "--from", "worker", "--summary", "").ok()
    run_here("cancel", submit(), "--reason", "").ok()


def test_programs_hear_the_same(queue: Queue) -> None:
    for fields in (
        {"instructions": ""}, {"instructions": " \n"}, {"title": ""}, {}, {"title": "t", "id": ""},
        {"title": "t", "from_": ""}, {"title": "t", "after": [""]},
        {"title": "t", "labels": {"k": ""}},
        {"title": "t", "next": [{"to": "w"}]}, {"title": "t", "reply_to": "nobody"},
        {"title": "t", "expect": ["../x"]},
    ):  # fmt: skip
        with pytest.raises(Invalid):
            queue.submit("w", **fields)
        with pytest.raises(Invalid):
            queue.submit_many([{"to": "w", "instructions": "x"}, {"to": "w", **fields}])
    assert list(queue.tasks()) == []
    task = queue.submit("w", "x")
    claim = queue.claim_task(task.id)
    for say in (claim.comment, lambda text: queue.comment(task.id, "ann", text)):
        with pytest.raises(Invalid, match="some text"):
            say(" ")


@pytest.mark.beside("a token says who asks, and not the name that is given")
def test_whoever_comments_has_a_name(queue: Queue) -> None:
    task = queue.submit("w", "x")
    with pytest.raises(Invalid, match="one line"):
        queue.comment(task.id, "  ", "hello")


NUMBERS = ["9" * 20, str(2**63), "9" * 6_000, "-1", "1e3", "0x10", " "]


@pytest.mark.parametrize(
    "words",
    [
        ["events", "--after"],
        ["events", "--limit"],
        ["list", "--cursor"],
        ["list", "--limit"],
        ["dlq", "--cursor"],
        ["results", "--after"],
        ["logs", "t", "--epoch"],
        ["complete", "t", "--epoch"],
        ["complete", "t", "--from", "w", "--cost-tokens"],
        ["heartbeat", "t", "--epoch"],
        ["submit", "--to", "w", "--title", "x", "--max-attempts"],
        ["limits", "w", "--running"],
        ["limits", "w", "--daily-tokens"],
        ["workspaces", "open", "t", "--epoch"],
        ["worker", "w", "--tasks"],
    ],
)
def test_numbers_that_no_ledger_holds(home: Path, submit: Submit, words: list[str]) -> None:
    submit("--id", "t", to="w")
    for number in NUMBERS:
        answer = run_here(*words, number).refused(2, words[-1])
        assert len(answer.err) < 7_000


@pytest.mark.parametrize("number", [str(2**63 - 1), "0" * 10 + "7"])
def test_numbers_that_a_ledger_holds(home: Path, submit: Submit, number: str) -> None:
    submit("--id", "t", to="w")
    run_here("events", "--after", number).ok()
    run_here("list", "--cursor", number).ok()
    run_here("heartbeat", "t", "--epoch", number).refused(4)


def test_numbers_of_a_program(queue: Queue) -> None:
    with pytest.raises(Invalid, match="does not fit"):
        queue.events(2**63)
    with pytest.raises(Invalid, match="does not fit"):
        queue._client.tasks(Wanted(cursor=2**70))


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../b", ".hidden", "a/b/c/d/e", "x\\y", "..", "a//b", "a\nb"]
)
def test_an_artifact_that_can_never_come_is_not_waited_for(home: Path, name: str) -> None:
    run_here(*SUBMIT, "--expect", name).refused(2, "An expected artifact")
    (home / "task.md").write_text(f"---\nto: w\nexpect: [{name!r}]\n---\nx".replace("\\n", "\\\\n"))
    run_here("submit", "--file", "task.md").refused(2)
    assert count_tasks() == 0


@pytest.mark.parametrize("place", ["nobody", "results.", "results.a b", "../x", "agentq.role.w"])
def test_an_outcome_that_nobody_could_hear(home: Path, place: str) -> None:
    run_here(*SUBMIT, "--reply-to", place).refused(2, "results.<coordinator>")
    assert count_tasks() == 0
    run_here(*SUBMIT, "--reply-to", "results.ann").ok()


def test_waiting_for_a_word(home: Path, submit: Submit) -> None:
    run_here("claim", "--as", "w", "--wait", "abc").refused(2, "--wait takes a duration", "'abc'")
    run_here("claim", "--wait", "abc").refused(2, "--wait takes a duration")
    run_here("claim", "--as", "w", "--wait", "5x").refused(2, "--wait", "90s, 15m")
    task = submit(to="w")
    assert task in run_here("claim", "--wait", task).ok().out


@pytest.mark.parametrize("line", ["[]", '"word"', "7", "null", "[1, 2]"])
def test_a_line_that_is_no_task_is_shown_as_it_was_written(home: Path, line: str) -> None:
    answer = run_here("submit", "--bulk", "-", stdin=line + "\n").refused(2)
    assert f"A task is a JSON object, got {line}." in answer.err and "b'" not in answer.err


def test_a_pipe_or_a_device_is_no_file(home: Path, submit: Submit) -> None:
    task = submit(to="w")
    run_here("claim", task).ok()
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as here:
        here.bind("socket")
        for special, word in (
            ("pipe", "a pipe"),
            ("/dev/zero", "a device"),
            ("socket", "a socket"),
        ):
            for words in (
                ["submit", "--to", "w", "--file", special],
                ["submit", "--bulk", special],
                [*SUBMIT, "--next", special],
                ["complete", task, "--result-file", special],
                ["artifacts", "put", task, special, "--name", "x"],
            ):
                run_here(*words).refused(2, f"is {word}")
    (home / "task.md").write_text("---\nto: w\nnext: pipe\n---\nx")
    run_here("submit", "--file", "task.md").refused(2, "a pipe")
    assert count_tasks() == 1


def test_what_another_program_writes_may_be_handed_over_as_a_file(home: Path) -> None:
    answer = run_program("submit", "--to", "w", "--file", "/dev/stdin", stdin="Do it.", cwd=home)
    assert run_here("status", answer.ok().out.strip(), "--json").ok().json()["title"] == ""


def test_settings_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.chdir(folder)
        run_here("init").ok()
        Path("agentq.toml").chmod(0o600)
        with machine.as_nobody():
            answer = run_here("list")
        answer.refused(7, "cannot read the settings", "permission denied")
        assert "TOML" not in answer.err
        monkeypatch.chdir("/")


def test_what_may_be_approved_is_said_in_full(submit: Submit) -> None:
    task = submit()
    run_here("complete", task, "--from", "worker").ok()
    for verb in ("approve", "reject"):
        run_here(verb, task).refused(4, "blocked or pending or review", f"{task} is complete")
