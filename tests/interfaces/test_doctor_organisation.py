"""`agentq doctor` on an organisation: profiles, schedules, hooks, plugins and webhooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentq.client.queue import Queue
from agentq.core.access import SYSTEM
from agentq.plugins.carrier import FAILURES_TO_OPEN, PluginHealth
from agentq.plugins.health import write_health
from tests.interfaces.conftest import run_here

#: Several installations are made.
pytestmark = pytest.mark.long

_SETTINGS = """
[roles.worker]
command = ["true"]
[notify.targets.ops]
plugin = "file"
path = "told.jsonl"
[kanban.boards.plan]
to = "ann"
[webhooks.out]
url = "https://example.com/"
secret = "env:HOOK_SECRET"
"""
_PROFILE = '---\ncommand: ["true"]\n{more}---\nYou are {name}.\n'
_HOOK = "---\nverify: github\nsecret: env:{secret}\ntask: {{to: {to}, title: x}}\n---\nLook.\n"


def write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


@pytest.fixture
def organisation(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small one, with nothing wrong."""
    monkeypatch.setenv("HOOK_SECRET", "whsec_c2VjcmV0")
    with (home / "agentq.toml").open("a") as file:
        file.write(_SETTINGS)
    for name, more in (("ann", ""), ("bob", "manager: ann\nwake: {cron: '0 9 * * 1-5'}\n")):
        write(home, f"agents/{name}.md", _PROFILE.format(name=name, more=more))
    write(home, "schedules/daily.md", "---\ncron: '@daily'\nrole: ann\n---\nLook.\n")
    write(home, "hooks/issues.md", _HOOK.format(secret="HOOK_SECRET", to="ann"))
    return home


def found(status: int, *names: str) -> list[dict[str, Any]]:
    """The checks of these names."""
    answer = run_here("doctor", "--json")
    assert answer.status == status, answer.out + answer.err
    return [each for each in answer.json()["checks"] if each["name"] in names]


def test_what_is_sound_is_said_to_be(organisation: Path) -> None:
    names = ("agents", "schedules", "hooks", "notify:ops", "kanban:plan", "webhook out")
    checks = found(0, *names)
    assert {each["name"]: each["status"] for each in checks} == dict.fromkeys(names, "ok")
    assert {each["name"]: each["detail"] for each in checks}["agents"].startswith("2 profiles in ")


_WRONG = {
    "agents/a1.md": "---\nnope: 1\n---\n",
    "agents/a2.md": _PROFILE.format(name="a2", more="zone: Mars/X\n"),
    "agents/a3.md": _PROFILE.format(name="a3", more="wake: {cron: 61 * * * *}\n"),
    "agents/a4.md": _PROFILE.format(name="a4", more="manager: a5\n"),
    "agents/a5.md": _PROFILE.format(name="a5", more="manager: a4\n"),
    "agents/a6.md": _PROFILE.format(name="a6", more="manager: nobody\n"),
    "agents/a7.md": _PROFILE.format(name="a7", more="role: worker\n"),
    "agents/a8.md": "---\nmanager: ann\n---\n",
    "agents/Ann.md": _PROFILE.format(name="Ann", more=""),
    "schedules/s1.md": "---\ncron: 0 25 * * *\nrole: ann\n---\nx\n",
    "schedules/s2.md": "---\nevery: 1h\nrole: anna\n---\nx\n",
    "hooks/h1.md": _HOOK.format(secret="NOT_SET", to="ann"),
    "hooks/h2.md": _HOOK.format(secret="HOOK_SECRET", to="anna"),
}
_SAID = {
    "a1.md, line 2: a profile has no field 'nope'": "failed",
    "a2.md, line 3: 'Mars/X' is no time zone": "failed",
    "a3.md, line 3: the cron expression '61 * * * *' has a bad minute": "warning",
    "a4.md, line 3: it would be its own manager: a4 → a5 → a4": "warning",
    "a5.md, line 3: it would be its own manager": "warning",
    "a6.md, line 3: there is no agent 'nobody' that could be its manager": "warning",
    "a7.md, line 3: the tasks of worker are for [roles] of agentq.toml already": "warning",
    "a8.md, line 1: nothing says which tool runs it": "warning",
    "Ann.md: the name of an agent is 1 to 64 small letters": "failed",
    "s1.md, line 2: the cron expression '0 25 * * *' has a bad hour": "failed",
    "s2.md, line 3: there is no role 'anna'. Did you mean ann?": "failed",
    "h1.md refers to the variable NOT_SET, which is not set here": "failed",
    "h2.md, line 4: no role 'anna' is in the settings. Did you mean ann?": "failed",
}


def test_files_that_are_wrong_are_named_with_their_line(organisation: Path) -> None:
    for name, text in _WRONG.items():
        write(organisation, name, text)
    checks = found(7, "agents", "schedules", "hooks")
    said = {f"{each['detail']} {each['remedy']}": each["status"] for each in checks}
    for words, status in _SAID.items():
        assert [each for text, each in said.items() if words in text] == [status], words
    assert len(said) == len(_SAID) and all(each["remedy"] for each in checks)


def test_plugins_and_rules_that_lead_nowhere_are_named(organisation: Path) -> None:
    with (organisation / "agentq.toml").open("a") as file:
        file.write(
            '[notify.targets.x]\nplugin = "nosuch"\n[notify.targets.y]\nplugin = "board"\n'
            '[notify.targets.z]\nplugin = "file"\npath = "z"\nroles = ["no-*"]\n'
            'events = ["run_ended"]\nseverity = "urgent"\n'
        )
    checks = {(each["name"], each["detail"]): each["status"] for each in found(
        7, "notify:ops", "notify:x", "notify:y", "notify:z")}  # fmt: skip
    told = {f"{name}: {detail}": status for (name, detail), status in checks.items()}
    for words, status in {
        "notify:x: No plugin called 'nosuch'": "failed",
        "notify:y: The plugin board has no hook 'notify'": "failed",
        "notify:z: its rules name no-*, and there is no such role": "warning",
        "notify:z: its rules name run_ended, and ask for urgent": "warning",
        "notify:ops: by the plugin file": "ok",
    }.items():
        assert [each for said, each in told.items() if said.startswith(words)] == [status], told
    run_here("doctor").refused(7)  # and people can read it


def test_a_plugin_that_keeps_failing_is_named(organisation: Path) -> None:
    failing = PluginHealth(9, 9, FAILURES_TO_OPEN, "the disk is full")
    write_health(str(organisation / ".agentq"), "notify", {"ops": failing})
    (check,) = found(0, "notify:ops")
    assert check["status"] == "warning" and "the disk is full" in check["detail"]


def test_what_nobody_carries_is_named(organisation: Path) -> None:
    with Queue(f"sqlite:///{organisation}/.agentq/ledger.db") as queue:
        queue._client.service.carry_lanes(SYSTEM, "notify", ["gone"])
        queue.submit("worker", "Choose.")
        claim = queue.claim("worker")
        assert claim is not None
        claim.block("which one?")
    (check,) = found(0, "notify:gone")
    assert check["status"] == "warning" and "1 waiting" in check["detail"]
    assert "[notify]" in check["remedy"]
