"""`[roles.NAME]`: what is not said follows from the agent, and what cannot be meant is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.settings import read_file
from agentq.settings.roles import RoleSettings, role_settings


def role_of(folder: Path, *lines: str, before: str = "") -> RoleSettings:
    file = folder / "agentq.toml"
    file.write_text("\n".join((before, "[roles.w]", *lines)) + "\n")
    return role_settings(read_file(file), "w")


@pytest.mark.parametrize("agent", ["acp", "claude", "codex", "gemini", "opencode"])
def test_tools_that_tell_every_step_may_be_silent_for_half_an_hour(
    tmp_path: Path, agent: str
) -> None:
    named = f'agent = "{agent}"', 'command = "tool"'
    assert role_of(tmp_path, *named).silence_seconds == 1800
    assert role_of(tmp_path, *named, "silence = 0").silence_seconds == 0
    assert role_of(tmp_path, *named, 'silence = "2h"').silence_seconds == 7200


@pytest.mark.parametrize("agent", ["command", "python", "warm"])
def test_others_may_think_as_long_as_they_like(tmp_path: Path, agent: str) -> None:
    named = f'agent = "{agent}"', 'command = "tool"'
    assert role_of(tmp_path, *named).silence_seconds == 0
    assert role_of(tmp_path, *named, 'silence = "5m"').silence_seconds == 300
    assert role_of(tmp_path, 'command = "tool"').silence_seconds == 0
