"""The agent CLIs of `make test-agents` are pinned exactly, by hash, and to no registry."""

from __future__ import annotations

import json
import re

import pytest

from tests.architecture.files import ROOT
from tests.real_agents.installed import Entry, not_pinned
from tests.real_agents.pin import complete

FOLDER = ROOT / "tests" / "real_agents"


def test_every_agent_cli_is_pinned_to_one_version() -> None:
    pins = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    assert [pin for pin in pins.values() if not re.fullmatch(r"\d+\.\d+\.\d+", pin)] == []


def locked() -> dict[str, Entry]:
    lock = json.loads((FOLDER / "package-lock.json").read_text())
    return {name: fields for name, fields in lock["packages"].items() if name}


def test_the_lock_file_has_hashes_and_names_no_registry() -> None:
    packages = locked()
    assert packages, "the lock file pins nothing"
    assert [name for name, fields in packages.items() if "resolved" in fields] == []
    without = {name: fields for name, fields in packages.items() if "integrity" not in fields}
    # What a registry does not have for other platforms has no hash; nobody can install it either.
    assert [name for name, fields in without.items() if not fields.get("optional")] == []
    here = [
        name
        for name, fields in without.items()
        if "linux" in fields["os"]
        and "x64" in fields["cpu"]
        and "musl" not in fields.get("libc", ())
    ]
    assert here == []


def test_the_lock_file_is_complete_as_npm_ci_wants_it() -> None:
    """`npm ci` refuses a lock that lacks a package for any platform, also for others."""
    assert complete(locked()) == locked()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"integrity": "sha512-other"}, "has another hash"),
        ({"version": "9.9.9"}, "package-lock.json has 2.1"),
        (None, "has no hash for it"),
    ],
)
def test_a_package_that_is_not_the_pinned_one_is_named(
    change: dict[str, str] | None, said: str
) -> None:
    place, lock = "node_modules/@anthropic-ai/claude-code", locked()
    installed = {place: lock[place]}
    assert not_pinned(lock, installed) == []
    if change is None:
        lock = {place: {"version": lock[place]["version"]}}
    else:
        installed = {place: {**lock[place], **change}}
    [sentence] = not_pinned(lock, installed)
    assert said in sentence


def test_a_package_that_nobody_pinned_is_named() -> None:
    [sentence] = not_pinned(locked(), {"node_modules/left-pad": {"version": "1.0.0"}})
    assert "package-lock.json has no left-pad" in sentence
