"""`agentq roles`: how agents are run and what they may do, in words and as a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interfaces.conftest import run_here

ROLES = """
[roles.dev]
agent = "claude"
permissions = "run"
verify = "make test"

[roles.code-review]
agent = "gemini"

[roles.own]
agent = "claude"
command = ["claude", "--dangerously-skip-permissions"]

[roles.mine]
command = "./work.sh"

[roles.boxed]
agent = "codex"
permissions = "read"
sandbox = "bwrap"
network = false

[roles.broken]
agent = "nobody"
"""


@pytest.fixture(autouse=True)
def settings(home: Path) -> None:
    with (home / "agentq.toml").open("a") as file:
        file.write(ROLES)


def test_it_lists_the_roles_with_what_they_may() -> None:
    listed = run_here("roles", "--json").ok().json()["roles"]
    words = {name: role["permissions"] for name, role in listed.items()}
    assert words == {"dev": "run", "code-review": "read", "own": None, "mine": None,
                     "boxed": "read", "broken": None}  # fmt: skip
    shown = run_here("roles").ok().out
    assert "code-review" in shown and "its own" in shown


def test_it_says_what_a_word_means_and_how_the_tool_is_told() -> None:
    found = run_here("roles", "explain", "dev", "--json").ok().json()
    assert found["permissions"] == "run" and found["because"] == "the settings of the role say so"
    assert any("make test" in each for each in found["may"])
    assert "--allowedTools=Bash(make test)" in found["argv"]
    assert found["reported_mode"] == "acceptEdits" and found["checked_with"]
    shown = run_here("roles", "explain", "dev").ok().out
    assert "may not" in shown and "run other commands" in shown
    assert "--permission-mode acceptEdits" in shown and "or it is stopped" in shown
    assert "tested with claude 2." in shown and "needs 1.0.122 or newer" in shown


def test_it_shows_the_files_by_which_a_tool_is_told() -> None:
    found = run_here("roles", "explain", "code-review", "--json").ok().json()
    assert found["because"].startswith("that is the default of a role with `review`")
    assert 'decision = "deny"' in found["files"]["WORKSPACE/.agentq-task/gemini-policy.toml"]
    shown = run_here("roles", "explain", "code-review").ok().out
    assert "WORKSPACE/.agentq-task/gemini-policy.toml says" in shown


def test_it_says_where_nothing_is_said_to_the_tool() -> None:
    own = run_here("roles", "explain", "own", "--json").ok().json()
    assert own["permissions"] == "" and "--dangerously-skip-permissions" in own["because"]
    assert "program of your own" in run_here("roles", "explain", "mine").ok().out


def test_it_tells_of_the_sandbox_and_of_what_cannot_start() -> None:
    boxed = run_here("roles", "explain", "boxed", "--json").ok().json()
    assert boxed["enforced_by"] == "agentq's sandbox"
    assert "it has no network" in boxed["sandbox"]
    assert any(".agentq-task/ in its workspace" in each for each in boxed["sandbox"])
    broken = run_here("roles", "explain", "broken").ok().out
    assert "cannot start" in broken and "no agent called" in broken


def test_a_role_that_is_not_there() -> None:
    answer = run_here("roles", "explain", "nobody")
    assert answer.status == 3 and "[roles.nobody]" in answer.err and "dev" in answer.err
