"""A settings file that changes under a worker: read when it has changed, used when it is good."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agentq.core.values import replace
from agentq.settings import Settings, read_file, reloading
from agentq.settings.reloading import RoleSettingsFile, settings_digest
from agentq.settings.roles import RoleSettings, role_settings

GOOD = '[roles.w]\ncommand = "one"\ntimeout = "5m"\n'


def opened(folder: Path, text: str = GOOD, **chosen: Any) -> tuple[Path, RoleSettingsFile]:
    file = folder / "agentq.toml"
    file.write_text(text)
    settings = replace(role_settings(read_file(file), "w"), **chosen)
    return file, RoleSettingsFile(str(file), "w", settings, chosen)


def test_only_what_has_changed_is_named(tmp_path: Path) -> None:
    file, watched = opened(tmp_path)
    assert watched.refresh() == ()
    file.write_text(GOOD.replace("one", "two").replace("5m", "7m"))
    assert watched.refresh() == ("command", "timeout")
    assert (watched.settings.command, watched.settings.timeout) == (("two",), 420)
    assert watched.refresh() == ()
    file.write_text(file.read_text() + "# a remark\n")
    assert watched.refresh() == ()


def test_a_file_that_nobody_changed_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, watched = opened(tmp_path)
    reads = []

    def read(path: Path) -> Settings:
        reads.append(path)
        return read_file(path)

    monkeypatch.setattr(reloading, "read_file", read)
    for _ in range(100):
        watched.refresh()
    assert reads == []
    os.utime(file)
    watched.refresh()
    watched.refresh()
    assert reads == [file]


def test_what_the_command_line_says_stays(tmp_path: Path) -> None:
    file, watched = opened(tmp_path, command=("mine",))
    file.write_text(GOOD.replace("one", "two").replace("5m", "7m"))
    assert watched.refresh() == ("timeout",)
    assert watched.settings.command == ("mine",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[roles.w\n", "cannot be read as TOML"),
        ('[roles.w]\ncommand = "two"\nslots = 0\n', "slots of"),
        ('[roles.w]\ncomand = "two"\n', "unknown setting"),
        ('[roles.other]\ncommand = "two"\n', "Nothing in"),
        ("", "Nothing in"),
    ],
)
def test_a_broken_file_keeps_the_last_good_settings(tmp_path: Path, text: str, words: str) -> None:
    file, watched = opened(tmp_path)
    file.write_text(text)
    assert watched.refresh() == ()
    assert watched.settings.command == ("one",) and words in watched.problem
    # And one that is mended counts again.
    file.write_text(GOOD.replace("one", "three"))
    assert watched.refresh() == ("command",)
    assert watched.settings.command == ("three",) and watched.problem == ""


def test_a_file_that_is_gone_or_replaced(tmp_path: Path) -> None:
    file, watched = opened(tmp_path)
    file.unlink()
    assert watched.refresh() == () and "cannot read the settings" in watched.problem
    other = tmp_path / "new.toml"
    other.write_text(GOOD.replace("one", "two"))
    other.replace(file)  # as editors do
    assert watched.refresh() == ("command",) and watched.problem == ""


def test_settings_from_no_file_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    watched = RoleSettingsFile("argument", "w", RoleSettings(command=("one",)), {})
    (tmp_path / "argument").write_text(GOOD)
    (tmp_path / "agentq.toml").write_text(GOOD.replace("one", "two"))
    assert watched.path is None and watched.refresh() == ()
    assert watched.settings.command == ("one",)


def test_the_digest_tells_settings_apart_and_nothing_else(tmp_path: Path) -> None:
    prices = "[prices.codex]\ninput = 1\noutput = 2\n"
    of_file = [opened(tmp_path, prices + GOOD)[1].settings for _ in range(2)]
    assert settings_digest(of_file[0]) == settings_digest(of_file[1])
    changes: list[dict[str, Any]] = [
        {"command": ("two",)}, {"options": {"a": [1, {"b": 2}]}}, {"silence": 0}, {"prices": {}},
    ]  # fmt: skip
    others = [replace(of_file[0], **change) for change in changes]
    assert len({settings_digest(each) for each in (*of_file, *others)}) == 5
