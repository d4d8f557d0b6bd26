"""A password in an address is warned about, and shown nowhere: neither by errors nor by answers."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from agentq.cli.log_lines import JsonLines, TextLines
from agentq.settings import addresses
from tests.interfaces.conftest import Answer, doctor_checks, run_here, run_program

PASSWORD = "hunter-2-hunter"
AWAY = f"postgresql://ann:{PASSWORD}@127.0.0.1:9/db"
BROKER_AWAY = f"amqp://ann:{PASSWORD}@127.0.0.1:9/"


def quiet(answer: Answer) -> Answer:
    assert PASSWORD not in answer.out + answer.err
    return answer


@pytest.fixture
def with_password(fresh_postgres_url: str) -> Iterator[tuple[str, str]]:
    """An address with a password that the server knows, and the same without it."""
    user = f"ann_{os.getpid()}"
    database = fresh_postgres_url.split("@/")[1].split("?", maxsplit=1)[0]
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{PASSWORD}'".encode())
    folder = fresh_postgres_url.split("host=")[1]
    yield (
        f"postgresql://{user}:{PASSWORD}@/{database}?host={folder}",
        f"postgresql://{user}@/{database}?host={folder}",
    )
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        connection.execute(f"REASSIGN OWNED BY {user} TO postgres".encode())
        connection.execute(f"DROP OWNED BY {user}".encode())
        connection.execute(f"DROP ROLE {user}".encode())


COMMANDS = (
    ["status"], ["list"], ["doctor"], ["doctor", "--json"], ["db", "status"], ["db", "status",
    "--json"], ["init"], ["init", "--json"], ["events"], ["verify"], ["stats"], ["explain", "x"],
    ["submit", "--to", "w", "--instructions", "x"], ["submit", "--to", "w", "--json"],
)  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        AWAY,
        f"postgresql://ann@127.0.0.1:9/db?password={PASSWORD}",
        f"postgresql://ann:{PASSWORD}/more@127.0.0.1:9/db",
        f"postgresql://ann:{PASSWORD}",
        f"postgres:{PASSWORD}@host",
        f"http://ann:{PASSWORD}@127.0.0.1:9/",
        f"http://ann:{PASSWORD}",
        f"mysql://ann:{PASSWORD}@h/db",
    ],
)
def test_errors(home: Path, url: str) -> None:
    for words in COMMANDS[:8]:
        answer = quiet(run_here("--url", url, *words))
        assert answer.status not in (0, 1), f"{words}: refused, and not by something unexpected"


@pytest.mark.parametrize(
    "url",
    [
        BROKER_AWAY,
        f"amqp://ann:{PASSWORD}",
        f"amqp://ann:{PASSWORD}/x@h/",
        f"amqp://ann:{PASSWORD}@h:x/",
        f"amqp://ann:{PASSWORD}@h/?cacertfile=x",
        f"amqps://ann:{PASSWORD}@h/?password={PASSWORD}",
        f"ampq://ann:{PASSWORD}@h/",
    ],
)
def test_errors_about_the_broker(home: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for words in (["init", "--broker", url], ["init", "--broker", url, "--json"]):
        assert quiet(run_here(*words)).status not in (0, 1)
    assert PASSWORD not in (home / "agentq.toml").read_text(), "nothing is kept of it either"
    monkeypatch.setenv("AGENTQ_BROKER", url)
    for words in (["doctor"], ["dlq"], ["status"], ["doctor", "--json"]):
        assert quiet(run_here(*words)).status != 1


def test_an_argument_that_is_no_text(home: Path) -> None:
    word = os.fsdecode(f"postgresql://ann:{PASSWORD}@h\xff".encode("latin-1"))
    quiet(run_program("--url", word, "status")).refused(2, "not text in UTF-8")


class TestPlainInTheSettings:
    def test_doctor_and_init_warn_and_git_ignores_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / ".git").mkdir()
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("AGENTQ_URL", raising=False)
        text = f'[roles.w]\ncommand = "true"\npush = "https://ann:{PASSWORD}@host/x.git"\n'
        (tmp_path / "agentq.toml").write_text(text)
        (tmp_path / "agentq.toml").chmod(0o644)
        answer = quiet(run_here("init").ok())
        assert "holds a password in plain text (push in [roles.w])" in answer.err
        assert 'url = "env:NAME"' in answer.err
        assert "/agentq.toml*" in (tmp_path / ".gitignore").read_text()
        found = doctor_checks()["passwords"]
        assert found["status"] == "warning" and "push in [roles.w]" in found["detail"]
        quiet(run_here("doctor"))

    def test_without_one_nobody_is_warned(self, home: Path) -> None:
        assert doctor_checks()["passwords"]["status"] == "ok"


class TestOnAServer:
    def test_answers_of_every_kind(
        self, with_password: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url, shown = with_password
        here = tmp_path / "here"
        here.mkdir()
        monkeypatch.chdir(here)
        monkeypatch.delenv("AGENTQ_URL", raising=False)
        answer = quiet(run_here("--url", url, "init", "--json").ok())
        assert answer.json()["url"] == shown
        assert "holds a password in plain text (url in [ledger])" in answer.err
        assert stat.S_IMODE((here / "agentq.toml").stat().st_mode) == 0o600
        for words in COMMANDS:
            quiet(run_here(*words))
        found = doctor_checks()["passwords"]
        assert found["status"] == "warning"
        quiet(run_here("doctor"))

    def test_a_move_names_an_address_that_can_be_used(
        self, home: Path, with_password: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Given a ledger that is moved to an address from a variable,
        url, shown = with_password
        monkeypatch.setenv("NEW_LEDGER", url)
        old = f"sqlite:///{home}/.agentq/ledger.db"
        answer = quiet(run_here("move", "--to", "env:NEW_LEDGER", "--json").ok())
        # then the settings refer to it, and nothing says its password,
        assert 'url = "env:NEW_LEDGER"' in (home / "agentq.toml").read_text()
        assert answer.json()["target"] == shown
        quiet(run_here("list").ok())
        # and what the old ledger says can be typed as it is.
        refused = run_here("--url", old, "submit", "--to", "w", "--instructions", "x")
        assert shown in quiet(refused).err
        run_here("--url", shown, "list").ok()

    def test_programs_that_are_started_get_it_in_a_file(
        self, with_password: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A pg_dump that tells how it was called, and what it was given.
        tool = tmp_path / "bin" / "pg_dump"
        tool.parent.mkdir()
        told = tmp_path / "told.json"
        tool.write_text(
            f"#!{sys.executable}\nimport json, os, sys\n"
            "kept = os.environ.get('PGSERVICEFILE', '')\n"
            "passfile = [w for w in sys.argv[3].split() if 'passfile=' in w]\n"
            "passfile = passfile[0].split('=', 1)[1].strip(chr(39)) if passfile else ''\n"
            "found = [(open(f).read(), oct(os.stat(f).st_mode)) for f in (passfile, kept) if f]\n"
            f"json.dump([sys.argv, found], open({str(told)!r}, 'w'))\n"
        )
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
        url = f"{with_password[0]}&sslpassword=key-{PASSWORD}"
        run_here("--url", url, "db", "backup", str(tmp_path / "copy"))
        arguments, files = json.loads(told.read_text())
        assert PASSWORD not in " ".join(arguments)
        assert [PASSWORD in text for text, _ in files] == [True, True]
        assert [mode for _, mode in files] == ["0o100600", "0o100600"]


def test_logs_hide_what_settings_hold(home: Path) -> None:
    addresses.remember_passwords(AWAY)
    try:
        raise OSError(f"cannot reach {AWAY}")
    except OSError:
        told = sys.exc_info()
    record = logging.LogRecord(
        "agentq", 30, "x", 1, "server says %s\n\x1b[2Jfake line", (PASSWORD,), told
    )
    for shown in (JsonLines().format(record), TextLines("%(message)s").format(record)):
        assert PASSWORD not in shown and "\x1b" not in shown
        assert "server says " in shown
    assert "\nfake" not in TextLines("%(message)s").format(record)
