"""What a role's word asks of the release of its tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentq.agents.registry import agent_named
from agentq.agents.tool_releases import KNOWN, is_older, note_on_release, too_old, version_in
from agentq.contracts.agent import OtherPermissions
from agentq.contracts.permissions import Permissions
from agentq.core.values import replace
from tests.agents.jobs import a_job, play

PACKAGES = Path(__file__).parents[1] / "real_agents" / "package.json"


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("2.1.325 (Claude Code)", "2.1.325"),
        ("codex-cli 0.166.0", "0.166.0"),
        ("0.61.0-nightly.20261101", "0.61.0"),
        ("v1.18.33", "1.18.33"),
        ("local build", ""),
        ("2.1", ""),
        ("10.0.0.1", ""),
        ("", ""),
    ],
)
def test_how_tools_name_their_release(words: str, version: str) -> None:
    assert version_in(words) == version


def test_releases_are_compared_by_number() -> None:
    assert is_older("2.0.9", "2.0.44") and not is_older("2.0.44", "2.0.44")
    assert is_older("0.99.9", "1.0.0") and not is_older("2.1.0", "2.0.44")
    assert not is_older("", "2.0.44"), "what is not known is used as the tested one is"


@pytest.mark.parametrize("tool", sorted(KNOWN))
def test_the_tested_release_has_all_that_is_said(tool: str) -> None:
    tested = KNOWN[tool].tested
    for word in (None, *Permissions):
        assert too_old(tool, tested, word) == too_old(tool, "", word) == ("", "")
        assert too_old(tool, "999.0.0", word) == ("", ""), "a newer one is used"
    assert note_on_release(tool, tested) == note_on_release(tool, "") == ""
    assert note_on_release(tool, "999.0.0") == f"newer than {tested}, which agentq is tested with"
    pinned = json.loads(PACKAGES.read_text())["dependencies"]
    assert pinned[KNOWN[tool].package] == tested, "it is the one of `make test-agents`"


def test_what_an_older_release_lacks_depends_on_the_word() -> None:
    cause, remedy = too_old("gemini", "0.34.0", Permissions.EDIT)
    assert cause == (
        'gemini 0.34.0 is too old for permissions = "edit": it has no --admin-policy (since 0.35.0)'
    )
    assert "Install 0.35.0 or newer" in remedy and "@google/gemini-cli" in remedy
    assert too_old("gemini", "0.34.0", Permissions.FULL) == ("", "")
    cause, _ = too_old("gemini", "0.5.0", None)
    assert "too old for the role" in cause and "stream-json" in cause
    cause, remedy = too_old("claude", "1.0.41", Permissions.READ)
    assert "--permission-mode" in cause and "--setting-sources" in cause
    assert too_old("claude", "1.0.41", None) == ("", ""), "it is told nothing"
    assert too_old("acp", "0.0.1", Permissions.READ) == ("", ""), "nothing is known of it"
    assert note_on_release("claude", "2.0.50").startswith("older than") and not note_on_release(
        "acp", "1.0.0"
    )


def test_an_older_claude_is_told_in_its_own_word() -> None:
    """It has no `dontAsk`, and says `default` of the mode that comes to the same."""
    job = replace(a_job(), permissions=Permissions.READ, version="2.0.42")
    argv = agent_named("claude").launch(job).argv
    assert argv[argv.index("--permission-mode") + 1] == "default"
    init = {"type": "system", "subtype": "init", "permissionMode": "default"}
    assert not play(agent_named("claude"), [init], job=job).only(OtherPermissions)
    assert play(agent_named("claude"), [{**init, "permissionMode": "plan"}], job=job).only(
        OtherPermissions
    )
    newer = agent_named("claude").launch(replace(job, version="2.0.44")).argv
    assert newer[newer.index("--permission-mode") + 1] == "dontAsk"
