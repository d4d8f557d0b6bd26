"""Agents that plugins bring, by the name that roles give."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.core.errors import Invalid
from agentq.plugins.agents import agent_of
from agentq.plugins.builtin.agents import agent
from tests.plugins.strangers import install_strangers


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_strangers(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def test_agents_are_found_among_ours_and_among_plugins() -> None:
    assert agent_of("command").name == "command"
    assert agent_of("robot").name == "robot"
    built_in = agent("claude")
    assert built_in is not None
    assert built_in.name == "claude"
    assert agent("robot") is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody", "There is no agent called 'nobody'"),
        ("raiser", "The plugin raiser brings no agent. Its hooks: notify"),
        ("agents", "The plugin agents knows no agent of that name"),
        ("stray", "unknown hook 'telepathy'"),
    ],
    ids=["unknown", "another hook", "another name", "bad plugin"],
)
def test_what_is_no_agent_is_named(name: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        agent_of(name)
