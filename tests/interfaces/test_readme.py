"""The README is true: what it says is there, is there; what it says is not, is not."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest

import agentq
from agentq.agents.registry import AGENT_NAMES
from agentq.cli.main import COMMANDS
from tests.architecture.files import ROOT

README = (ROOT / "README.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NAMES = {name for section in COMMANDS.values() for name in section}


def section(title: str) -> str:
    """The text below a heading, up to the next one of its level."""
    found = re.search(
        rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL
    )
    assert found, f"README.md has no section {title!r}"
    return found[1]


def first_column(text: str) -> set[str]:
    return set(re.findall(r"^\| `([a-z0-9]+)` \|", text, re.MULTILINE))


def test_the_distribution_and_its_extras_are_named_as_they_are() -> None:
    install = section("Install")
    assert f"`{PROJECT['name']}`" in install
    assert first_column(install) == set(PROJECT["optional-dependencies"])
    for extras in re.findall(r"\.\[([a-z0-9,]+)\]", README):
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def test_every_command_it_names_exists() -> None:
    spoken = set(re.findall(r"`agentq ([a-z-]+)", README))
    shown = set(re.findall(r"^\$ agentq ([a-z-]+)", README, re.MULTILINE))
    assert shown and spoken
    assert spoken | shown <= NAMES


def test_the_tools_it_names_are_those_that_a_role_may_have() -> None:
    (workers,) = [line for line in section("What is there, and what is not").splitlines()
                  if line.startswith("| workers |")]  # fmt: skip
    named = {word.lower() for word in re.findall(r"claude|codex|gemini|opencode|ACP", workers)}
    assert named == set(AGENT_NAMES) - {"command", "python", "warm"}


@pytest.mark.parametrize(
    ("claimed", "module"),
    [
        ("an S3 bucket", "agentq.artifacts.s3"),
        ("RabbitMQ", "agentq.delivery.rabbitmq"),
        ("NOTIFY on PostgreSQL", "agentq.delivery.postgres"),
        ("SQLite", "agentq.stores.sqlite"),
        ("PostgreSQL", "agentq.stores.postgres"),
    ],
)
def test_what_is_there_is_there(claimed: str, module: str) -> None:
    here, _, _ = section("What is there, and what is not").partition("Not yet:")
    assert claimed in here
    assert (ROOT / "src" / module.replace(".", "/")).is_dir()


@pytest.mark.parametrize("package", ["mcp_server"])
def test_what_is_not_yet_is_not_there(package: str) -> None:
    # Whoever adds one of these says so in the README, and takes it out of this list.
    _, _, missing = section("What is there, and what is not").partition("Not yet:")
    assert "agent protocols" in missing
    assert not (ROOT / "src" / "agentq" / package).exists()


# -- other systems ---------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_the_command_says_that_it_needs_linux(system: str) -> None:
    program = (
        # click is there on every system, and asks at its import which one this is.
        f"import click, sys; sys.platform = {system!r}; sys.argv = ['agentq', 'init']\n"
        "from agentq.cli.main import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 7
    assert f"agentq runs on Linux only, and this is {system}" in done.stderr
    assert "container" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_the_sdk_says_that_it_needs_linux(system: str) -> None:
    program = (
        f"import sys; sys.platform = {system!r}\n"
        "from agentq import Unavailable\n"
        "try:\n    from agentq import Queue\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"this is {system}" in done.stdout
    assert agentq.NEEDS_LINUX_REMEDY in done.stdout
