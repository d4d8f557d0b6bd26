"""`agentq plugins` and `agentq notify`: what is there, who is told, and whether it arrives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentq import Queue
from agentq.core.access import SYSTEM
from agentq.plugins.carrier import PluginHealth
from agentq.plugins.health import write_health
from agentq.settings import load_settings
from tests.interfaces.conftest import run_here
from tests.plugins.strangers import install_strangers

pytestmark = pytest.mark.usefixtures("queue")


@pytest.fixture
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose settings tell a file, and whose Python has plugins of strangers."""
    for name, value in install_strangers(home).items():
        if name == "PYTHONPATH":
            monkeypatch.setenv(name, value)
    text = '[notify.targets.log]\nplugin = "file"\npath = "told"\nevents = ["blocked"]\n'
    with (home / "agentq.toml").open("a") as file:
        file.write(text)
    return home


def add(home: Path, text: str) -> None:
    with (home / "agentq.toml").open("a") as file:
        file.write(text)


def test_plugins_are_listed_with_their_hooks(here: Path) -> None:
    found = run_here("plugins", "--json").ok().json()
    by_name = {each["name"]: each for each in found["plugins"]}
    assert {"apprise", "command", "file"} <= set(by_name)
    assert by_name["file"]["hooks"] == ["notify"]
    assert by_name["file"]["package"] == "agentq-orchestrator"
    (used,) = found["in_use"]
    assert (used["lane"], used["plugin"], used["backlog"]) == ("notify:log", "file", 0)
    assert (used["breaker"], used["last_error"], used["failed_at"]) == ("closed", None, None)
    shown = run_here("plugins", "--no-load").ok().out
    assert "apprise" in shown and "notify:log" in shown


def test_health_and_backlog_are_shown(here: Path, queue: Queue) -> None:
    queue._client.service.carry_lanes(SYSTEM, "notify", ["log", "gone"])
    queue.submit("worker", "Deploy.", approval=True)
    bad = PluginHealth(7, 7, 7, "no way", 1_700_000_000_000, 0, 1_700_000_060_000)
    write_health(load_settings().home, "notify", {"log": bad})
    log, gone = run_here("plugins", "--no-load", "--json").ok().json()["in_use"]
    assert (log["backlog"], log["breaker"], log["last_error"]) == (1, "open", "no way")
    assert log["failed_at"].startswith("2023-11-14T")
    assert (gone["lane"], gone["backlog"]) == ("notify:gone", 1)
    assert "name nobody" in gone["problem"]
    assert "no way" in run_here("plugins", "--no-load").ok().out


def test_a_message_can_be_tried(here: Path) -> None:
    sent = run_here("notify", "test", "--text", "Hello.", "--json").ok().json()
    assert sent == {"log": {"sent": True, "error": None}}
    (told,) = [json.loads(line) for line in (here / "told").read_text().splitlines()]
    assert (told["kind"], told["text"]) == ("test", "Hello.")
    assert "yes" in run_here("notify", "test", "log").ok().out


def test_what_keeps_a_message_from_arriving_is_said(here: Path) -> None:
    add(here, '[notify.targets.bad]\nplugin = "nobody"\n[notify.targets.slip]\nurl = "x"\n')
    answer = run_here("notify", "test", "--json").refused(7, "Not sent to bad, slip")
    said, _ = json.JSONDecoder().raw_decode(answer.out)  # the error follows
    assert said["log"] == {"sent": True, "error": None}
    assert "No plugin called 'nobody' is installed" in said["bad"]["error"]
    assert "must not stand there itself" in said["slip"]["error"]
    run_here("notify", "test", "pigeon").refused(3, "no target 'pigeon'", "log, bad, slip")


def test_targets_are_listed(here: Path) -> None:
    found = run_here("notify", "--json").ok().json()
    (log,) = found["targets"]
    assert (log["name"], log["plugin"], log["events"]) == ("log", "file", ["blocked"])
    assert "log" in run_here("notify").ok().out
    add(here, '[notify.targets."two words"]\nplugin = "file"\n')
    assert "cannot be called" in run_here("notify").ok().err


def test_without_targets_it_says_how_to_name_one(home: Path) -> None:
    assert "names no targets" in run_here("notify").ok().err
    run_here("notify", "test").refused(2, "names no targets", "[notify.targets]")
    assert "uses none of them" in run_here("plugins", "--no-load").ok().err
