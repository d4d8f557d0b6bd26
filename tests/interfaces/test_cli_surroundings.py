"""The command among shells, pipes and terminals: help, completion, colours, start-up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import click
import pytest

from agentq.cli.main import COMMANDS, cli
from agentq.cli.screen import clean, one_line, size_words
from tests.interfaces.conftest import (
    PROGRAM,
    Submit,
    clean_environment,
    run_here,
    run_on_terminal,
    run_program,
)

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


# -- help ----------------------------------------------------------------------------------------


def test_the_table_tells_of_every_command_what_it_tells_of_itself() -> None:
    context = click.Context(cli)
    for section in COMMANDS.values():
        for name, (_, line) in section.items():
            command = cli.get_command(context, name)
            assert command is not None and command.name == name
            assert (command.help or "").split("\n")[0] == line


@pytest.mark.parametrize("words", [["--help"], ["-h"], []])
def test_help_lists_commands_by_purpose_and_every_exit_status(words: list[str]) -> None:
    out = run_here(*words).ok().out
    for title, section in COMMANDS.items():
        assert f"{title}:" in out
        assert all(f"\n  {name} " in out for name in section)
    for status in range(9):
        assert re.search(rf"^    {status}  \w", out, re.MULTILINE)


def test_every_command_has_help_and_takes_the_global_options() -> None:
    def walk(command: click.Command, path: list[str]) -> None:
        out = run_here(*path, "--help").ok().out
        assert "--json" in out and "--url" in out
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                walk(inner, [*path, name])

    walk(cli, [])


# -- start-up ------------------------------------------------------------------------------------


def modules_after(*words: str, cwd: Path | None = None) -> set[str]:
    """The modules that a command has imported when it ends."""
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: sys.stderr.write('\\n'.join(sys.modules)))\n"
        "from agentq.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stderr.splitlines())


def test_help_imports_no_command() -> None:
    imported = modules_after("--help")
    assert {each for each in imported if each.startswith("agentq.")} == {
        "agentq.cli", "agentq.cli.main", "agentq.cli.failures", "agentq.cli.options",
        "agentq.cli.session", "agentq.core", "agentq.core.errors",
    }  # fmt: skip


def test_status_imports_only_what_it_needs(home: Path, submit: Submit) -> None:
    imported = modules_after("status", submit(), cwd=home)
    assert "agentq.stores.sqlite.store" in imported
    unwanted = {
        "rich", "yaml", "asyncio", "logging", "socket", "hashlib", "difflib", "psycopg",
        "agentq.core.triggers", "agentq.core.transition", "agentq.ledger.ledger",
        "agentq.client.queue", "agentq.delivery.local.doorbell",
    }  # fmt: skip
    assert imported & unwanted == set()


def test_tables_in_a_pipe_need_no_rich(home: Path, submit: Submit) -> None:
    submit()
    assert "rich" not in modules_after("list", cwd=home)


# -- terminals and pipes -------------------------------------------------------------------------


def test_a_terminal_gets_colour_and_a_pipe_gets_none(home: Path, submit: Submit) -> None:
    task = submit("--title", "Coloured")
    shown = run_on_terminal(["list"]).ok().out
    assert COLOUR.search(shown) and "Coloured" in shown
    assert "\x1b[36mready" in shown
    assert COLOUR.search(run_on_terminal(["status", task]).ok().out)
    assert not COLOUR.search(run_program("list").ok().out)
    plain = run_on_terminal(["status", task], {"NO_COLOR": "1"}).ok().out
    assert not COLOUR.search(plain)
    assert "\x1b[31merror:" in run_on_terminal(["status", "nothing"]).refused(3).out


def test_a_narrow_terminal_shortens_the_last_column_and_no_id(home: Path, submit: Submit) -> None:
    task = submit("--title", "A title that is longer than any terminal is wide " * 3)
    lines = COLOUR.sub("", run_on_terminal(["list"], columns=90).ok().out).splitlines()
    assert len(lines) == 2 and lines[1].startswith(task) and lines[1].rstrip().endswith("…")
    assert task in run_on_terminal(["list"], columns=40).ok().out


def test_submit_says_more_to_people_than_to_programs(home: Path, submit: Submit) -> None:
    first = submit()
    assert re.fullmatch(r"task-[0-9a-z]{12}", first)
    words = ["submit", "--to", "w", "--instructions", "x", "--after", first]
    shown = COLOUR.sub("", run_on_terminal(words).ok().out)
    assert f"→ w  pending\n  waits for dependency {first}" in shown


def test_a_bulk_submit_shows_progress_on_a_terminal(home: Path) -> None:
    lines = "".join(f'{{"to": "w", "instructions": "{n}"}}\n' for n in range(2_001))
    (home / "many.jsonl").write_text(lines)
    shown = run_on_terminal(["submit", "--bulk", "many.jsonl"]).ok().out
    assert "submitting" in shown and "2001 tasks submitted" in shown
    shown = run_on_terminal(["verify"]).ok().out
    assert "verifying" in shown and "2001 tasks: every state proved" in shown


def test_pruning_asks_a_person(home: Path, submit: Submit) -> None:
    words = ["prune", "--older-than", "30d"]
    shown = run_on_terminal(words, typed="n\n").ok().out
    assert "more than 4w2d ago" in shown and "nothing was deleted" in shown
    assert "0 tasks deleted" in run_on_terminal(words, typed="y\n").ok().out


EVIL = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\x9b31m"


def test_what_others_wrote_cannot_speak_to_the_terminal(home: Path, submit: Submit) -> None:
    # Given a task whose every text tries to,
    (home / "task-evil.md").write_text(f"Read {EVIL} this.\n")
    words = ["submit", "--to", "worker", "--file", "task-evil.md", "--title", "[red]markup[/red]"]
    run_here(*words).ok()
    run_here("comment", "task-evil", EVIL, "--by", EVIL).ok()
    claimed = run_on_terminal(["claim", "task-evil", "--holder", EVIL])
    run_here("complete", "task-evil", "--summary", EVIL, "--result-file", "-", stdin=EVIL).ok()
    # when it is shown in whatever way,
    shown = [
        claimed,
        run_on_terminal(["status", "task-evil"]),
        run_on_terminal(["result", "task-evil"]),
        run_on_terminal(["list"]),
        run_on_terminal(["events"]),
        run_on_terminal(["events", "--follow", "--after", "0", "--limit", "3"]),
        run_on_terminal(["replay", "task-evil"]),
        run_on_terminal(["explain", "task-evil"]),
        run_on_terminal(["artifacts", "get", "task-evil", "result.md"]),
        run_on_terminal(["status", "task-evil", "--json"]),
        run_on_terminal(["events", "--json"]),
        run_on_terminal(["status", EVIL]),
    ]
    # then nothing but our own colours reaches the terminal.
    for answer in shown:
        text = COLOUR.sub("", answer.out)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "[red]markup[/red]" in shown[3].out
    # A pipe gets the bytes as they are.
    assert run_program("result", "task-evil").ok().out == EVIL


def test_clean_keeps_text_and_shows_the_rest() -> None:
    assert clean("Grüße, 日本語 👋\n\tok") == "Grüße, 日本語 👋\n\tok"
    assert clean("a\r\nb") == "a\nb"
    assert clean("\x1b[31m\x00\x9b\u202e\ud800") == "\\x1b[31m\\x00\\x9b\\u202e\\ud800"
    assert one_line(" two\n lines\t here ", 9) == "two line…"
    assert [size_words(n) for n in (312, 4_300, 7_340_032)] == ["312 B", "4.2 kB", "7.0 MB"]


def test_a_reader_that_leaves_is_no_error(home: Path, submit: Submit) -> None:
    for _ in range(3):
        submit()
    reading, writing = os.pipe()
    os.close(reading)
    child = subprocess.Popen(
        [*PROGRAM, "events", "--json"], stdout=writing, stderr=subprocess.PIPE,
        env=clean_environment(), text=True,
    )  # fmt: skip
    os.close(writing)
    _, complaint = child.communicate(timeout=60)
    assert (child.returncode, complaint) == (141, "")


def test_an_interrupt_ends_quietly(home: Path, submit: Submit) -> None:
    submit()
    child = subprocess.Popen(
        [*PROGRAM, "events", "--follow", "--after", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert "submitted" in child.stdout.readline()  # it is up, and now waits
    child.send_signal(signal.SIGINT)
    _, complaint = child.communicate(timeout=60)
    assert (child.returncode, complaint.strip()) == (130, "")


def test_something_unexpected_is_one_line_and_says_how_to_see_more(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import agentq.client.reader

    def break_down(self: object) -> None:
        raise KeyError("an accident")

    monkeypatch.setattr(agentq.client.reader.QueueReader, "stats", break_down)
    answer = run_here("stats").refused(1, "KeyError: 'an accident'", "AGENTQ_DEBUG=1")
    assert answer.err.count("\n") == 2
    assert run_here("stats", "--json").refused(1).json()["error"]["code"] == "unexpected"
    monkeypatch.setenv("AGENTQ_DEBUG", "1")
    assert "Traceback" in run_here("stats").err


def test_a_locked_ledger_says_so_while_it_is_waited_for(home: Path) -> None:
    holder = apsw.Connection(str(home / ".agentq/ledger.db"))
    holder.execute("BEGIN IMMEDIATE")
    child = subprocess.Popen(
        [*PROGRAM, "submit", "--to", "w", "--instructions", "x"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), text=True,
    )  # fmt: skip
    assert child.stderr is not None
    # It waits in silence for two seconds; then it says what for, and goes on waiting.
    assert "locked; it is waited for, up to 60 s" in child.stderr.readline()
    holder.execute("ROLLBACK")
    holder.close()
    said, complaint = child.communicate(timeout=60)
    assert (child.returncode, complaint) == (0, "") and said.startswith("task-")


# -- completion ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    assert "_AGENTQ_COMPLETE" in run_here("completion", shell).ok().out


def completed(home: Path, *words: str) -> list[str]:
    """What the shell offers for the last word."""
    asked = {
        "_AGENTQ_COMPLETE": "zsh_complete",
        "COMP_WORDS": " ".join(["agentq", *words]),
        "COMP_CWORD": str(len(words)),
    }
    out = run_program(env=asked, cwd=home).ok().out
    return out.splitlines()[1::3]


def test_the_shell_is_offered_commands_ids_roles_and_states(home: Path, submit: Submit) -> None:
    submit("--id", "alpha", to="builder")
    submit("--id", "alps", to="reviewer")
    assert completed(home, "sta") == ["status", "stats"]
    assert completed(home, "status", "al") == ["alpha", "alps"]
    assert completed(home, "claim", "--as", "b") == ["builder"]
    assert completed(home, "list", "--state", "c") == ["complete", "cancelled"]
    # Where there is no installation there is nothing to offer, and nothing to complain about.
    assert completed(Path("/"), "status", "al") == []
