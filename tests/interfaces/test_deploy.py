"""The files in deploy/ say what agentq understands."""

from __future__ import annotations

import re
import shlex
from typing import Any

import click
import pytest
import yaml

from agentq.cli.main import cli
from tests.architecture.files import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())[
    "services"
]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "agentq"}


def check_words(words: list[str]) -> None:
    """There is such a command, and it takes these options."""
    context = click.Context(cli)
    command = cli.get_command(context, words[0])
    assert command is not None, words[0]
    command.make_context(words[0], list(words[1:]), parent=context, resilient_parsing=True)
    known = {name for option in command.params for name in option.opts}
    assert {word for word in words[1:] if word.startswith("--")} <= known


@pytest.mark.parametrize("name", OURS)
def test_containers_are_started_with_words_that_exist(name: str) -> None:
    check_words(OURS[name]["command"])


@pytest.mark.parametrize("name", OURS)
def test_containers_are_given_settings_that_exist(name: str) -> None:
    known = set(re.findall(r"`(AGENTQ_\w+)`", (ROOT / "docs/reference/settings.md").read_text()))
    given = {each for each in OURS[name]["environment"] if each.startswith("AGENTQ_")}
    assert given <= known


def test_what_a_container_waits_for_is_there() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= set(SERVICES)


def test_one_service_builds_the_image() -> None:
    """Built by several it differs by their labels, and the next `up` replaces what runs."""
    assert [name for name, service in SERVICES.items() if "build" in service] == ["init"]


def test_volumes_of_containers_can_be_written() -> None:
    """A new volume belongs to root, unless the image has its folder."""
    made = re.search(r"install -d -o agentq (.+)", (DEPLOY / "Dockerfile").read_text())
    mounts = [mount for service in OURS.values() for mount in service.get("volumes", ())]
    named = [mount for mount in mounts if isinstance(mount, str)]
    assert made and named
    assert {mount.split(":")[1] for mount in named} <= set(made[1].split())


def test_files_that_are_missing_are_not_made_as_folders() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", ())]
    for mount in mounts:
        if isinstance(mount, str):
            assert not mount.startswith((".", "/")), mount
        else:
            assert mount["bind"]["create_host_path"] is False, mount


def test_what_is_filled_in_stays_out_of_the_repository() -> None:
    ignored = (DEPLOY / ".gitignore").read_text().splitlines()
    assert {"/.env", "/agentq.toml"} <= set(ignored)


def test_no_password_is_written_down() -> None:
    text = (DEPLOY / "compose.yaml").read_text() + (DEPLOY / "example.env").read_text()
    for name, value in re.findall(r"^ *(\w*PASSWORD)[:=][ ]*(\S*)", text, re.MULTILINE):
        assert not value or value.startswith("${"), name


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_start_what_exists(unit: Any) -> None:
    (line,) = re.findall(r"^ExecStart=(.+)$", unit.read_text(), re.MULTILINE)
    program, *words = shlex.split(line.replace("%i", "builder"))
    assert program.endswith("/agentq")
    check_words(words)
