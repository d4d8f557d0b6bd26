"""The dashboard that agents read, and the file that it is written to."""

from __future__ import annotations

from pathlib import Path

from agentq.core.access import SYSTEM
from agentq.core.task import Usage
from agentq.organisation.dashboard import dashboard_text, is_wanted, write_dashboard
from agentq.settings.profiles import profiles
from agentq.testing import MemoryQueue


def test_it_tells_what_is_to_be_decided_and_what_went_wrong(tmp_path: Path) -> None:
    (tmp_path / "ceo.md").write_text("---\ntool: claude\ncopy: [dashboard.md]\n---\n")
    (tmp_path / "engineer.md").write_text("---\ntool: claude\nmanager: ceo\n---\n")
    known = profiles(tmp_path)
    assert is_wanted(known.values()) and not is_wanted([known["engineer"]])
    with MemoryQueue() as queue:
        service = queue._client.service
        assert "Nobody has anything to do." in dashboard_text(service, SYSTEM, known)
        queue.submit(to="engineer", id="asked", instructions="x")
        queue.submit(to="engineer", id="lost", instructions="x", max_attempts=1)
        first, second = queue.claim("engineer"), queue.claim("engineer")
        assert first is not None and second is not None
        first.block("which\n| `branch`?")
        second.fail("broken " * 40, cost=Usage(usd=1.5, tokens=1000))
        text = dashboard_text(service, SYSTEM, known)
    assert "| engineer | ceo | 0 | 0 | 0 | 0 | 1 | $1.50 |" in text
    assert "- asked (engineer, question, for 0s): which / 'branch'?" in text
    assert "- lost (engineer, failed): " in text and "…" in text
    assert "- engineer: $1.50, 1,000 tokens" in text
    assert "## Held back" not in text


def test_it_is_written_whole_and_only_when_it_says_something_new(tmp_path: Path) -> None:
    assert write_dashboard(tmp_path, "one")
    assert not write_dashboard(tmp_path, "one")
    assert write_dashboard(tmp_path, "two")
    assert [file.name for file in tmp_path.iterdir()] == ["dashboard.md"]
    assert (tmp_path / "dashboard.md").read_text() == "two"
