"""Secrets in settings by reference: what is found, what is refused, and what is never shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentq.core.errors import AgentqError, Invalid, Unavailable
from agentq.settings import load_settings, read_file
from agentq.settings.addresses import hide_secrets, passwords_in, remember_passwords
from agentq.settings.references import plain_secrets

URL = "postgresql://u:s3cr%40t@h/db"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENTQ_URL", "AGENTQ_BROKER", "AGENTQ_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def toml(folder: Path, text: str) -> Path:
    file = folder / "agentq.toml"
    file.write_text(text)
    return file


class TestFound:
    def test_in_a_variable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LEDGER", URL)
        monkeypatch.setenv("RABBIT", " amqp://u:hidden@h/ \n")
        text = '[ledger]\nurl = "env:LEDGER"\n[broker]\nurl = "env:RABBIT"\n'
        found = read_file(toml(tmp_path, text))
        assert (found.url, found.broker) == (URL, "amqp://u:hidden@h/")
        assert plain_secrets(tmp_path / "agentq.toml") == []

    @pytest.mark.parametrize("written", ["file:url.txt", "file:{}/url.txt", "file://{}/url.txt"])
    def test_in_a_file(self, tmp_path: Path, written: str) -> None:
        (tmp_path / "url.txt").write_text(f"{URL}\n")
        found = read_file(toml(tmp_path, f'[ledger]\nurl = "{written.format(tmp_path)}"\n'))
        assert found.url == URL and found.secret_files == (str(tmp_path / "url.txt"),)

    def test_for_the_command_line_and_variables(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "url.txt").write_text(URL)
        monkeypatch.chdir(tmp_path)
        named = load_settings("file:url.txt")
        assert named.url == URL and named.url_written == f"file:{tmp_path}/url.txt"
        monkeypatch.setenv("LEDGER", "sqlite:///x.db")
        monkeypatch.setenv("AGENTQ_URL", "env:LEDGER")
        monkeypatch.setenv("AGENTQ_BROKER", "env:RABBIT")
        monkeypatch.setenv("RABBIT", "amqp://u:hidden@h/")
        assert load_settings().sqlite_path == str(tmp_path / "x.db")
        assert load_settings().broker == "amqp://u:hidden@h/"

    def test_credentials_of_an_object_store(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ID", "key-id")
        (tmp_path / "secret").write_text("key-secret\n")
        text = '[artifacts]\nroot = "s3://b/p"\naccess_key_id = "env:ID"\n'
        found = read_file(toml(tmp_path, text + 'secret_access_key = "file:secret"\n'))
        assert found.artifacts_credentials == {
            "access_key_id": "key-id", "secret_access_key": "key-secret",
        }  # fmt: skip
        assert found.artifacts_options == {}, "those go to agents and into other files"
        assert "key-secret" not in repr(found) and hide_secrets("a key-secret b") == "a … b"

    def test_a_broker_that_a_variable_overrides_is_not_looked_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AGENTQ_BROKER", "amqp://h/")
        assert read_file(toml(tmp_path, '[broker]\nurl = "env:MISSING_ONE"\n')).broker


class TestRefused:
    @pytest.mark.parametrize(
        ("written", "words"),
        [
            ("env:NOT_SET_HERE", "NOT_SET_HERE, which is not set"),
            ("env:", "which is no name"),
            ("env:A B", "which is no name"),
            ("file:missing", "cannot read: no such file"),
            ("file:.", "is a directory"),
            ("file:empty", "is empty"),
            ("file:two-lines", "more than one line"),
            ("file:latin", "no text in UTF-8"),
            ("file:chain", "refers to something else again"),
        ],
    )
    def test_with_the_reason(self, tmp_path: Path, written: str, words: str) -> None:
        (tmp_path / "empty").write_text(" \n")
        (tmp_path / "two-lines").write_text("hidden-one\nhidden-two\n")
        (tmp_path / "latin").write_bytes(b"hidden\xff")
        (tmp_path / "chain").write_text("env:HOME")
        with pytest.raises(AgentqError) as refused:
            read_file(toml(tmp_path, f'[ledger]\nurl = "{written}"\n'))
        shown = f"{refused.value.cause} {refused.value.remedy}"
        assert words in shown and "url in [ledger]" in shown and "hidden" not in shown

    def test_a_pipe_holds_nobody_up(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(Invalid, match="is empty"):
            read_file(toml(tmp_path, '[ledger]\nurl = "file:pipe"\n'))

    def test_what_is_found_must_still_be_an_address(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LEDGER", "just-the-password")
        with pytest.raises(Invalid) as refused:
            read_file(toml(tmp_path, '[ledger]\nurl = "env:LEDGER"\n'))
        assert "just-the-password" not in str(refused.value)
        monkeypatch.setenv("AGENTQ_BROKER", "env:LEDGER")
        with pytest.raises(Invalid) as refused:
            load_settings("sqlite:///x.db")
        assert "just-the-password" not in str(refused.value)

    @pytest.mark.parametrize("name", ["access_key_id", "secret_access_key", "session_token"])
    def test_credentials_that_stand_there_themselves(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(Invalid, match="must not stand there itself") as refused:
            read_file(toml(tmp_path, f'[artifacts]\n{name} = "hidden"\n'))
        assert "hidden" not in str(refused.value)

    @pytest.mark.parametrize(
        "text",
        [
            'ledger = "postgresql://u:hidden@h/db"',
            '[ledger]\nurl = ["postgresql://u:hidden@h/db"]',
            '[ledger]\nurl = "postgresql://u:hidden\\u0000@h/db"',
            '[ledger]\nurl = "postgresqll://u:hidden@h/db"',
            '[broker]\nurl = "ampq://u:hidden@h/"',
            '[broker]\nurl = {password = "amqp://u:hidden@h/"}',
        ],
    )
    def test_slips_do_not_show_what_is_beside_them(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(AgentqError) as refused:
            read_file(toml(tmp_path, text))
        assert "hidden" not in f"{refused.value.cause} {refused.value.remedy}"


def test_unreadable_for_this_user(tmp_path: Path) -> None:
    from tests.servers.machine import as_nobody

    (tmp_path / "secret").write_text(URL)
    (tmp_path / "secret").chmod(0o600)
    with as_nobody(), pytest.raises(Unavailable):
        load_settings(f"file:{tmp_path}/secret")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (URL, ("s3cr%40t", "s3cr@t")),
        ("postgresql://u@h/db?%70assword=abcd&sslpassword=efgh", ("abcd", "efgh")),
        ("amqp://:abcd@h", ("abcd",)),
        ("postgresql://u@h/db", ()),
        ("sqlite:///a:b@c", ()),
        ("s3://a:b@c", ()),
        ("no address: a@b", ()),
    ],
)
def test_passwords_are_found(url: str, found: tuple[str, ...]) -> None:
    assert passwords_in(url) == found


def test_plain_passwords_are_named_wherever_they_stand(tmp_path: Path) -> None:
    text = (
        '[ledger]\nurl = "postgresql://u:p@h/db"\n[broker]\nurl = "amqp://u@h/"\n'
        '[roles.w]\npush = "https://me:tok@git/x"\ncommand = ["x", "--db=amqp://a:b@h"]\n'
    )
    assert plain_secrets(toml(tmp_path, text)) == [
        "url in [ledger]", "push in [roles.w]", "command in [roles.w]",
    ]  # fmt: skip


def test_what_was_read_is_hidden_from_then_on(tmp_path: Path) -> None:
    read_file(toml(tmp_path, f'[ledger]\nurl = "{URL}"\n'))
    assert hide_secrets("server said s3cr@t and s3cr%40t") == "server said … and …"
    assert "s3cr" not in repr(read_file(tmp_path / "agentq.toml"))
    remember_passwords("amqp://guest:guest@h/")
    assert hide_secrets("user guest") == "user guest", "what everybody knows is no secret"
