"""`agentq roles check` and what `agentq doctor` says of roles: can their agents work here?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from agentq.worker import preflight
from agentq.worker.agent_access import launcher
from agentq.worker.task_folder import LAUNCHER
from tests.interfaces.conftest import run_here

TOOL = """#!/bin/sh
case "$1" in
  --version) echo "2.1.325 (Claude Code)" ;;
  auth) echo '{answer}'; exit {code} ;;
esac
"""


def write_settings(folder: Path, text: str) -> None:
    file = folder / "agentq.toml"
    file.write_text(file.read_text() + text)


def tool(folder: Path, answer: str, code: int) -> Path:
    program = folder / "claude"
    program.write_text(TOOL.replace("{answer}", answer).replace("{code}", str(code)))
    program.chmod(0o755)
    return program


def checks(role: str, *more: str, status: int = 0) -> dict[str, dict[str, str]]:
    answered = run_here("roles", "check", role, "--json", *more)
    assert answered.status == status, answered.out + answered.err
    answer = answered.json()
    assert answer["ok"] == (status == 0)
    return {each["name"]: each for each in answer["roles"][role]["checks"]}


@pytest.mark.long
def test_a_role_that_can_work(home: Path) -> None:
    write_settings(home, '[roles.build]\ncommand = ["sh", "-c", "true"]\nverify = "sh -n x"\n')
    found = checks("build")
    assert {name: each["status"] for name, each in found.items()} == {
        "program": "ok", "workspace": "ok", "verify": "ok",
    }  # fmt: skip
    assert "build can work" in run_here("roles", "check").ok().out


def test_a_launcher_that_a_starting_process_holds_open_is_tried_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between fork and exec, what another thread starts has it open for writing as well."""
    write_settings(home, '[roles.build]\ncommand = ["sh", "-c", "true"]\n')
    held: list[IO[bytes]] = []
    plain = launcher

    def held_open(*words: Any) -> str:
        folder = next(home.rglob(".preflight-*"))
        held.append((folder / LAUNCHER).open("ab"))
        return plain(*words)

    monkeypatch.setattr(preflight, "launcher", held_open)
    monkeypatch.setattr("agentq.worker.preflight.time.sleep", lambda _: held[0].close())
    assert checks("build")["workspace"]["status"] == "ok"
    assert held[0].closed, "it was never busy"


def test_what_is_missing_is_named_with_what_to_do(home: Path) -> None:
    write_settings(
        home,
        '[roles.build]\ncommand = ["no-such-agent"]\nworkspace = "git"\nrepo = "code"\n'
        'verify = "A=1 no-such-check --all"\n',
    )
    found = checks("build", status=7)
    failed = {name: each for name, each in found.items() if each["status"] == "failed"}
    assert set(failed) == {"program", "repository", "verify"}
    assert "no-such-agent" in failed["program"]["detail"]
    assert "no-such-check" in failed["verify"]["detail"]
    assert all(each["remedy"] for each in failed.values())
    shown = run_here("roles", "check", "build").refused(7).out
    assert "cannot work: 3 checks failed" in shown
    doctor = run_here("doctor").refused(7).out
    assert "role build" in doctor and "no-such-agent" in doctor


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [
        ("1.0.30", "failed", 'claude 1.0.30 is too old for permissions = "edit"'),
        pytest.param("2.9.0", "ok", "newer than 2.1.325, which agentq", marks=pytest.mark.long),
        pytest.param("2.1.325", "ok", "2.1.325 (Claude Code)", marks=pytest.mark.long),
    ],
)
def test_the_release_of_a_tool(home: Path, version: str, status: str, words: str) -> None:
    program = tool(home, '{"loggedIn": true, "authMethod": "api_key"}', 0)
    program.write_text(program.read_text().replace("2.1.325", version))
    write_settings(home, f'[roles.dev]\nagent = "claude"\ncommand = ["{program}"]\n')
    found = checks("dev", status=7 if status == "failed" else 0)["program"]
    assert found["status"] == status and words in found["detail"]
    if status == "failed":
        assert "--setting-sources" in found["detail"] and "npm install -g" in found["remedy"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "code", "status"),
    [
        ('{"loggedIn": true, "authMethod": "oauth_token"}', 0, "ok"),
        ('{"loggedIn": false, "authMethod": "none"}', 1, "failed"),
        ("unknown command auth", 1, "unknown"),
        ("[1]", 0, "unknown"),
    ],
)
def test_the_login_of_a_tool(home: Path, answer: str, code: int, status: str) -> None:
    program = tool(home, answer, code)
    write_settings(home, f'[roles.build]\nagent = "claude"\ncommand = ["{program}"]\n')
    found = checks("build", status=7 if status == "failed" else 0)
    assert found["login"]["status"] == status
    assert "2.1.325" in found["program"]["detail"]


@pytest.mark.long
def test_a_live_check_asks_a_model(home: Path) -> None:
    script = home / "script.yaml"
    command = [sys.executable, "-m", "agentq", "fake-agent", "--dialect", "claude",
               "--script", str(script)]  # fmt: skip
    write_settings(home, f'[roles.build]\nagent = "claude"\ncommand = {json.dumps(command)}\n')
    script.write_text("steps: [{result: OK}]")
    assert checks("build", "--live")["live"]["status"] == "ok"
    script.write_text("steps: [{api-error: {status: 401, message: bad key}}]")
    live = checks("build", "--live", status=7)["live"]
    assert live["status"] == "failed" and "bad key" in live["detail"]
    script.write_text("steps: [{api-error: 529}]")
    assert checks("build", "--live")["live"]["status"] == "unknown"


@pytest.mark.long
def test_a_role_that_nobody_described(home: Path) -> None:
    run_here("roles", "check", "nobody").refused(3, "do not say how agents of nobody are run")
    run_here("roles", "check").refused(3, "nothing to check")


def test_the_roles_are_listed(home: Path) -> None:
    assert "no roles" in run_here("roles").ok().err
    write_settings(home, '[roles.build]\nagent = "codex"\n')
    assert "codex" in run_here("roles").ok().out
    assert run_here("roles", "--json").ok().json()["roles"]["build"]["agent"] == "codex"


def test_a_reviewer_that_nobody_here_plays_is_named(home: Path) -> None:
    write_settings(
        home,
        '[roles.build]\ncommand = ["sh", "-c", "true"]\nreviewer = "critic"\nmin_score = 80\n'
        "review = true\n",
    )
    found = checks("build")["reviewer"]
    assert found["status"] == "unknown" and "[roles.critic]" in found["remedy"]
    told = run_here("roles", "explain", "build").ok().out
    assert "critic must accept it, with a score of at least 80" in told
    assert "after 3 rounds a person decides" in told and "a person must accept it" in told
    write_settings(home, '[roles.critic]\ncommand = ["sh", "-c", "true"]\n')
    assert checks("build")["reviewer"]["status"] == "ok"
