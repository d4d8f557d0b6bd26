"""Bad input gets a clear error and its exit status, and changes nothing."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import psycopg
import pytest

from tests.interfaces.conftest import Answer, Submit, count_tasks, run_here, run_program
from tests.servers import machine

pytestmark = pytest.mark.both_ways

TOKEN = "ghp_" + "0123456789abcdefghij" + "ABCDEFGHIJ012345"


def refused(status: int, *words: str, says: str) -> Answer:
    """The command is refused with this status and says why, also to programs."""
    plain = run_here(*words).refused(status)
    assert plain.out == ""
    assert plain.err.startswith("error: ") and says in plain.err
    told = run_here("--json", *words).refused(status)
    assert told.err == ""
    error = told.json()["error"]
    assert list(error) == ["code", "cause", "remedy"]
    assert says in error["cause"] + error["remedy"]
    return plain


# -- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["submti"], "Did you mean submit?"),
        (["submit", "--to"], "requires an argument"),
        (["submit", "--instructions", "x"], "--to ROLE"),
        (["submit", "--to", "w"], "What is to be done?"),
        (["submit", "--to", "no way", "--instructions", "x"], "'no way'"),
        (["submit", "--to", "w", "--instructions", "x", "--ttl", "5x"], "90s, 15m, 8h"),
        (["submit", "--to", "w", "--instructions", "x", "--delay", "-5"], "--delay"),
        (["submit", "--to", "w", "--instructions", "x", "--timeout", "11y"], "--timeout"),
        (["submit", "--to", "w", "--instructions", "x", "--lease", "0"], "more than zero"),
        (["submit", "--to", "w", "--instructions", "x", "--priority", "top"], "urgent"),
        (["submit", "--to", "w", "--instructions", "x", "--max-attempts", "0"], "1<=x<=1000"),
        (["submit", "--to", "w", "--instructions", "x", "--max-attempts", "x"], "integer"),
        (["submit", "--to", "w", "--instructions", "x", "--budget-usd", "nan"], "number from 0"),
        (["submit", "--to", "w", "--instructions", "x", "--budget-usd", "1e99"], "number from 0"),
        (["submit", "--to", "w", "--instructions", "x", "--label", "team"], "KEY=VALUE"),
        (["submit", "--to", "w", "--instructions", "x", "--id", "../up"], "A task id is"),
        (["submit", "--to", "w", "--instructions", "x", "--id", "a..b"], "A task id is"),
        (["submit", "--to", "w", "--instructions", "x", "--id", "me", "--after", "me"], "itself"),
        (["submit", "--to", "w", "--instructions", "x", "--after", "gone"], "do not exist: gone"),
        (["submit", "--to", "w", "--title", "two\nlines"], "one line"),
        (["submit", "--to", "w", "--instructions", f"use {TOKEN}"], "instructions"),
        (["submit", "--to", "w", "--instructions", "x", "--label", f"key={TOKEN}"], "labels"),
        (["submit", "--bulk", "x", "--to", "w"], "leave out --to"),
        (["explain"], "Which task?"),
        (["list", "--state", "done"], "'done'"),
        (["list", "--limit", "0"], "--limit"),
        (["claim", "--as", "w", "--wait", "5x"], "--wait"),
        (["progress", "nothing"], "[ID] PERCENT"),
        (["--url", "ledger.db", "list"], "sqlite:///"),
        (["--url", "ftp://example.org", "list"], "sqlite:///"),
        (["completion", "tcsh"], "'tcsh'"),
    ],
)  # fmt: skip
def test_wrong_words(home: Path, words: list[str], says: str) -> None:
    refused(2, *words, says=says)
    assert count_tasks() == 0


def test_a_secret_is_named_by_field_and_rule_and_never_shown(home: Path) -> None:
    answer = refused(2, "submit", "--to", "w", "--title", TOKEN, says="The field title")
    assert "GitHub token" in answer.err and TOKEN not in answer.err


def test_words_that_are_no_text(home: Path) -> None:
    answer = run_program("submit", "--to", "w", "--instructions", "\udcff\udcfe", cwd=home)
    answer.refused(2, "not text in UTF-8")
    run_here("submit", "--to", "w", "--instructions", "a\0b").refused(2, "NUL")
    garbage = bytes(range(256))
    words = ("submit", "--to", "w", "--instructions", "-")
    run_here(*words, stdin=garbage).refused(2, "not text in UTF-8")
    assert count_tasks() == 0


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"---\nto: [w\n---\nText.\n", "front matter"),
        (b"---\nto: w\nText without an end.\n", "never closed"),
        (b"---\nto: w\npriorty: high\n---\nText.\n", "Did you mean priority?"),
        (b"---\nto: w\nttl: soon\n---\nText.\n", "ttl"),
        (b"---\nto: w\nmax_attempts: many\n---\nText.\n", "max_attempts"),
        (b"---\n- a\n- list\n---\nText.\n", "got a list"),
        (b"---\nto: w\nto: v\n---\nText.\n", "to"),
        (b"---\nto: !!python/object:os.system {}\n---\nText.\n", "not allowed"),
        (b"---\nto: w\nbudget_usd: .inf\n---\nText.\n", "budget_usd"),
        (b"\x00\x01\x02" + bytes(range(256)), "UTF-8"),
        (b"\x7fELF\x02\x01\x01" + b"\x00" * 64, "bad.md"),
    ],
)
def test_a_bad_task_file(home: Path, content: bytes, says: str) -> None:
    (home / "bad.md").write_bytes(content)
    refused(2, "submit", "--to", "w", "--file", "bad.md", says=says)
    assert count_tasks() == 0
    assert not list(home.glob(".agentq/tasks/**/*.md"))


def test_files_that_cannot_be_read(home: Path, submit: Submit) -> None:
    task = submit()
    refused(3, "submit", "--to", "w", "--file", "gone.md", says="gone.md")
    refused(2, "submit", "--to", "w", "--file", str(home), says="folder")
    refused(3, "submit", "--bulk", "gone.jsonl", says="gone.jsonl")
    refused(2, "submit", "--bulk", str(home), says="cannot be read")
    refused(3, "submit", "--to", "w", "--title", "t", "--next", "gone.md", says="gone.md")
    # A report whose result is not there claims nothing and records nothing.
    words = ("complete", task, "--from", "worker", "--result-file")
    refused(3, *words, "gone.md", says="Nothing was recorded")
    refused(2, *words, str(home), says="Nothing was recorded")
    assert run_here("status", task, "--json").ok().json()["epoch"] == 0
    assert count_tasks() == 1


def test_files_that_name_themselves_as_next(home: Path) -> None:
    (home / "loop.md").write_text("---\nto: w\nnext: [loop.md]\n---\nAgain.\n")
    refused(2, "submit", "--file", "loop.md", says="without end")
    assert count_tasks() == 0


def test_too_much_for_an_envelope(home: Path) -> None:
    labels = [word for n in range(100) for word in ("--label", f"k{n}={'x' * 780}")]
    refused(2, "submit", "--to", "w", "--instructions", "x", *labels, says="65536 bytes")
    (home / "huge.md").write_bytes(b"text " * 2_000_000)
    refused(2, "submit", "--to", "w", "--file", "huge.md", says="8 MiB")
    assert count_tasks() == 0
    # Long instructions are no error: they become the task's context.
    (home / "long.txt").write_text("word " * 20_000)
    long = (home / "long.txt").read_text()
    told = run_here("submit", "--to", "w", "--instructions", "-", "--json", stdin=long).ok().json()
    assert told["context_ref"] and len(told["instructions"]) < 1000


# -- names that are taken, dependencies -----------------------------------------------------------


def test_the_same_name_for_something_else(submit: Submit) -> None:
    submit("--id", "mine", "--idempotency-key", "K")
    words = ("submit", "--to", "worker", "--instructions", "something else")
    refused(5, *words, "--id", "mine", says="another body")
    refused(5, *words, "--idempotency-key", "K", says="another body")
    assert count_tasks() == 1


BULK_LINES = [
    ('{"to": "w", "instructions": "x", "priorty": "high"}', 2, "Did you mean priority?"),
    ('{"to": "w", "instructions": "x", "ttl": "soon"}', 2, "duration"),
    ('{"to": "w", "instructions": "x", "max_attempts": "3"}', 2, "max_attempts"),
    ('{"to": "w", "instructions": 7}', 2, "instructions"),
    ('{"to": "w", "instructions": "x"', 2, "not JSON"),
    ("[1, 2]", 2, "JSON object"),
    ("null", 2, "JSON object"),
    ('{"instructions": "x"}', 2, "role"),
    ('{"to": "w", "instructions": "\\ud800"}', 2, ""),
    ("[" * 5_000, 2, "not JSON"),
    ('{"to": "w", "instructions": "x", "budget_usd": -1}', 2, "budget_usd"),
    (f'{{"to": "w", "instructions": "key {TOKEN}"}}', 2, "secret"),
    ('{"to": "w", "instructions": "x", "after": ["nowhere"]}', 2, "no such task"),
    ('{"to": "w", "file": "gone.md"}', 3, "gone.md"),
    ('{"to": "w", "file": ["a.md"]}', 2, "file"),
    ('{"id": "good", "to": "w", "instructions": "another body"}', 5, "another body"),
]


@pytest.mark.parametrize(("line", "status", "says"), BULK_LINES)
def test_one_bad_line_and_nothing_is_submitted(
    home: Path, line: str, status: int, says: str
) -> None:
    good = '{"id": "good", "to": "w", "instructions": "x"}\n'
    (home / "tasks.jsonl").write_text(f"{good}\n{line}\n{good}")
    refused(status, "submit", "--bulk", "tasks.jsonl", says=says)
    refused(status, "submit", "--bulk", "tasks.jsonl", says="Line 3: ")
    assert count_tasks() == 0


def test_tasks_that_wait_for_each_other(home: Path) -> None:
    lines = [
        f'{{"id": "n{n}", "to": "w", "instructions": "x", "after": "n{(n + 1) % 3}"}}'
        for n in range(3)
    ]
    (home / "cycle.jsonl").write_text("\n".join(lines))
    refused(2, "submit", "--bulk", "cycle.jsonl", says="none could ever start")
    assert count_tasks() == 0


def test_a_later_batch_that_is_refused_says_what_was_submitted(home: Path) -> None:
    run_here("submit", "--to", "w", "--instructions", "x", "--id", "n1500").ok()
    lines = "\n".join(f'{{"id": "n{n}", "to": "w", "instructions": "{n}"}}' for n in range(2_000))
    answer = run_here("submit", "--bulk", "-", stdin=lines).refused(5)
    assert "1000 of 2000 tasks were submitted" in answer.err and "n1500" in answer.err
    assert count_tasks() == 1_001


# -- the ledger ----------------------------------------------------------------------------------


@pytest.mark.beside("looks at the files of the installation")
def test_no_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(3, "list", says="agentq init")
    told = run_here("doctor", "--json").refused(7).json()
    assert told["checks"] == [
        {"name": "settings", "status": "failed"} | dict(list(told["checks"][0].items())[2:])
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("[ledger\n", "TOML"),
        ('[ledger]\nurl = "sqlite:///a.db"\n[legder]\n', "Did you mean ledger?"),
        ("[ledger]\nurl = 7\n", "must be a text"),
        ('[ledger]\nurl = "mysql://x"\n', "sqlite:///"),
        ("[roles.w]\nmax_running = -1\n", "max_running"),
        ("[roles.w]\nmax_runing = 1\n", "Did you mean max_running?"),
        ("roles = 7\n", "roles"),
    ],
)
@pytest.mark.beside("looks at the files of the installation")
def test_bad_settings(home: Path, toml: str, says: str) -> None:
    (home / "agentq.toml").write_text(toml)
    refused(2, "list", says=says)
    refused(2, "init", says=says)
    assert (home / "agentq.toml").read_text() == toml


@pytest.mark.beside("looks at the files of the installation")
def test_a_ledger_that_has_gone_is_not_replaced_by_an_empty_one(home: Path, submit: Submit) -> None:
    submit()
    (home / ".agentq/ledger.db").unlink()
    refused(7, "list", says="There is no ledger at")
    refused(7, "submit", "--to", "w", "--instructions", "x", says="Nothing was created")
    refused(7, "db", "status", says="There is no ledger at")
    assert not (home / ".agentq/ledger.db").exists()
    assert "There is no ledger" in run_here("doctor").refused(7).out
    (home / ".agentq/ledger.db").mkdir()
    refused(7, "list", says="cannot be opened")


@pytest.mark.beside("looks at the files of the installation")
def test_a_ledger_whose_folder_has_gone(home: Path) -> None:
    (home / ".agentq").rename(home / "elsewhere")
    refused(7, "list", says="There is no ledger at")


@pytest.mark.beside("looks at the files of the installation")
def test_a_file_that_is_no_database(home: Path) -> None:
    garbage = os.urandom(8_192)
    (home / ".agentq/ledger.db").write_bytes(garbage)
    refused(8, "list", says="not a readable agentq ledger")
    refused(8, "db", "status", says="not a readable agentq ledger")
    assert "✗ ledger" in run_here("doctor").refused(7).out
    assert (home / ".agentq/ledger.db").read_bytes() == garbage


@pytest.mark.beside("looks at the files of the installation")
def test_a_ledger_that_was_cut_off_is_not_taken_for_a_new_one(home: Path, submit: Submit) -> None:
    submit()
    ledger = home / ".agentq/ledger.db"
    for file in ledger.parent.glob("ledger.db*"):
        if file.is_file():
            file.write_bytes(b"")
    for words in (["list"], ["db", "status"], ["db", "migrate"], ["init"]):
        refused(8, *words, says="a file of 0 bytes")
    assert ledger.read_bytes() == b""
    assert "0 bytes" in run_here("doctor").refused(7).out


@pytest.mark.parametrize("words", [["submit", "--to", "w", "--instructions", "x"], ["list"]])
def test_a_ledger_in_memory_would_forget_what_it_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(2, "--url", "sqlite://:memory:", *words, says="would be forgotten")
    refused(2, "--url", "sqlite://:memory:", "init", says="would be forgotten")
    monkeypatch.setenv("AGENTQ_URL", "sqlite://:memory:")
    refused(2, *words, says="AGENTQ_URL names a ledger in memory")
    refused(2, "init", says="AGENTQ_URL names a ledger in memory")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv("AGENTQ_URL")
    (tmp_path / "agentq.toml").write_text('[ledger]\nurl = "sqlite://:memory:"\n')
    refused(2, *words, says="agentq.toml names a ledger in memory")
    refused(2, "init", says="agentq.toml names a ledger in memory")


def test_no_command_makes_tables_in_a_database_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_postgres_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTQ_URL", fresh_postgres_url)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    submit = ["submit", "--to", "w", "--instructions", "x"]
    for words in (["list"], submit, ["db", "migrate"], ["claim", "--as", "w"]):
        refused(7, *words, says="There is no ledger at postgresql://")
    with psycopg.connect(fresh_postgres_url) as connection:
        [(count,)] = connection.execute(
            "SELECT count(*) FROM pg_class WHERE relnamespace::regnamespace::text NOT LIKE 'pg_%'"
            " AND relnamespace::regnamespace::text <> 'information_schema'"
        ).fetchall()
    assert count == 0


def set_schema(home: Path, version: int) -> None:
    connection = apsw.Connection(str(home / ".agentq/ledger.db"))
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


@pytest.mark.beside("looks at the files of the installation")
def test_a_newer_schema(home: Path, submit: Submit) -> None:
    task = submit()
    current = run_here("db", "status", "--json").ok().json()["schema"]
    set_schema(home, 99)
    for words in (["list"], ["status", task], ["submit", "--to", "w", "--instructions", "x"]):
        refused(7, *words, says="newer agentq")
    refused(7, "db", "migrate", says="newer agentq")
    assert run_here("db", "status", "--json").ok().json()["state"] == "newer"
    assert "99, newer" in run_here("doctor").refused(7).out
    set_schema(home, current)
    assert count_tasks() == 1


# -- disks ---------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installation on a real file system of one megabyte."""
    with machine.small_disk(tmp_path / "disk", "1m") as disk:
        monkeypatch.chdir(disk)
        run_here("init").ok()
        yield disk
        monkeypatch.chdir(tmp_path)


def look_around(task: str) -> None:
    """Everything that only looks, where nothing can be written."""
    for words in (
        ["list"], ["status", task], ["events"], ["explain", task], ["stats"], ["verify"],
        ["replay", task], ["artifacts", "ls", task], ["dlq"], ["limits"], ["db", "status"],
    ):  # fmt: skip
        assert "error" not in run_here(*words).ok().err
    assert run_program("list", "--json").ok().json()["tasks"][0]["task_id"] == task


def test_a_full_disk(small_disk: Path) -> None:
    task = run_here("submit", "--to", "w", "--instructions", "x").ok().out.strip()
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        while True:
            try:
                stream.write(b"x" * 4096)
            except OSError:
                break
    long = "word " * 30_000
    for words in (
        ("submit", "--bulk", "-"),
        ("submit", "--to", "w", "--instructions", "-"),
        ("complete", task, "--from", "w", "--result-file", "-"),
    ):
        line = f'{{"to": "w", "instructions": "{long}"}}' if words[1] == "--bulk" else long
        run_here(*words, stdin=line).refused(7, "disk")
    look_around(task)
    filler.unlink()
    [after] = run_here("list", "--json").ok().json()["tasks"]
    assert (after["task_id"], after["state"], after["epoch"]) == (task, "ready", 0)
    run_here("verify").ok()
    run_here("submit", "--to", "w", "--instructions", "-", stdin=long).ok()


def test_a_read_only_disk(small_disk: Path) -> None:
    task = run_here("submit", "--to", "w", "--instructions", "x").ok().out.strip()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    refused(7, "submit", "--to", "w", "--instructions", "y", says="ledger.db")
    refused(7, "claim", "--as", "w", says="ledger.db")
    refused(7, "cancel", task, says="ledger.db")
    look_around(task)
    assert "✗ writable      The disk of" in run_here("doctor").refused(7).out
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert count_tasks() == 1
    run_here("claim", "--as", "w").ok()


def test_a_ledger_that_may_only_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        shared = Path(folder)
        shared.chmod(0o755)
        monkeypatch.chdir(shared)
        run_here("init").ok()
        words = ("submit", "--to", "w", "--instructions", "x")
        run_here(*words).ok()
        for path in (shared / ".agentq", *(shared / ".agentq").glob("ledger.db*")):
            path.chmod(0o755 if path.is_dir() else 0o644)  # as somebody may want it
        with machine.as_nobody():
            answer = run_here(*words)
        answer.refused(7, "error: ", "ledger.db")
        with machine.as_nobody():
            assert count_tasks() == 1
        assert count_tasks() == 1
        monkeypatch.chdir("/")
