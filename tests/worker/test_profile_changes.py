"""Profiles that come, change and go under a process that works for their agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.settings.profile_changes import ProfileChange, ProfileFolder, ProfileSettings
from agentq.settings.roles import RoleSettings

NOTHING = ProfileChange()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "agents"
    made.mkdir()
    return made


def write(folder: Path, name: str, *lines: str, words: str = "You work.") -> None:
    lines = lines or ('command: ["true"]',)
    made = folder / f".{name}.new"
    made.write_text("\n".join(("---", *lines, "---", words)) + "\n")
    made.rename(folder / f"{name}.md")


def confined(word: str = "true") -> tuple[str, ...]:
    return (f'command: ["{word}"]', "sandbox: bwrap")


def test_agents_that_come_change_and_go(folder: Path) -> None:
    write(folder, "one")
    looking = ProfileFolder(folder)
    assert looking.look() == ProfileChange(added=("one",))
    assert looking.look() == NOTHING, "each is told once"
    write(folder, "two")
    write(folder, "one", words="You work well.")
    assert looking.look() == ProfileChange(added=("two",), changed=("one",))
    assert looking.profiles["one"].settings.instructions == "You work well."
    (folder / "one.md").unlink()
    assert looking.look() == NOTHING, "it may be just being replaced"
    assert looking.look() == ProfileChange(removed=("one",))
    assert list(looking.agents) == ["two"]


def test_one_that_is_back_at_the_next_look_was_never_gone(folder: Path) -> None:
    write(folder, "one")
    looking = ProfileFolder(folder)
    looking.look()
    (folder / "one.md").rename(folder / "kept")
    assert looking.look() == NOTHING
    (folder / "kept").rename(folder / "one.md")
    assert looking.look() == looking.look() == NOTHING


def test_a_file_that_cannot_be_used_changes_nothing_and_is_listed(folder: Path) -> None:
    write(folder, "good")
    write(folder, "bad", "tool: [")
    looking = ProfileFolder(folder)
    looking.look()
    assert list(looking.profiles) == ["good"] and "bad.md" in looking.problems["bad"]
    write(folder, "good", "manager: 7")
    assert looking.look() == NOTHING
    assert "manager" in looking.problems["good"] and "good" in looking.agents
    write(folder, "good")
    looking.look()
    assert list(looking.problems) == ["bad"]


def test_an_agent_without_a_tool_works_for_nobody(folder: Path) -> None:
    write(folder, "one", "description: somebody")
    looking = ProfileFolder(folder)
    looking.look()
    assert looking.agents == {} and "tool" in looking.problems["one"]


def test_who_does_the_tasks_of_a_role(folder: Path) -> None:
    write(folder, "a", 'command: ["true"]', "roles: [a, b, shared, of-toml]")
    write(folder, "b")
    write(folder, "c", 'command: ["true"]', "roles: [shared]")
    looking = ProfileFolder(folder, taken={"of-toml"})
    looking.look()
    found = {role: profile.name for role, profile in looking.agents.items()}
    assert found == {"a": "a", "b": "b", "shared": "a"}


def test_what_all_are_told_changes_all(folder: Path) -> None:
    write(folder, "one")
    looking = ProfileFolder(folder)
    looking.look()
    (folder / "AGENTS.md").write_text("Be brief.")
    assert looking.look() == ProfileChange(changed=("one",))
    assert looking.profiles["one"].settings.instructions == "Be brief.\n\nYou work."


class TestAgentsWithoutASandbox:
    """They can write these files, and must not widen by that what they may."""

    def test_before_one_has_run_everything_is_followed(self, folder: Path) -> None:
        write(folder, "one")
        looking = ProfileFolder(folder)
        looking.look()
        write(folder, "one", 'command: ["true"]', "may: [answer]")
        write(folder, "new")
        assert looking.look() == ProfileChange(added=("new",), changed=("one",))
        assert looking.profiles["one"].settings.may

    def test_after_that_what_holds_agents_stays(self, folder: Path) -> None:
        write(folder, "one")
        write(folder, "two", *confined())
        looking = ProfileFolder(folder)
        looking.look()
        looking.note_run(looking.profiles["two"].settings)
        assert looking.is_exposed is False, "a sandbox keeps its agents from the files"
        looking.note_run(looking.profiles["one"].settings)
        assert bool(looking.is_exposed)
        write(
            folder, "one", 'command: ["echo"]', "may: [answer]", "roles: [one, two-a]",
            "budget: {daily_usd: 1000}", "concurrency: 3", words="New words.",
        )  # fmt: skip
        write(folder, "two", 'command: ["true"]', "sandbox: none")
        write(folder, "evil")
        looking.look()
        one, two = looking.profiles["one"], looking.profiles["two"]
        assert one.settings.may == frozenset() and one.roles == ("one",)
        assert one.settings.limits == RoleSettings().limits
        assert (one.settings.command, one.settings.instructions) == (("echo",), "New words.")
        assert two.settings.sandbox == "bwrap"
        assert "evil" not in looking.profiles
        assert "may, limits, roles count from the next start" in looking.problems["one"]
        assert "sandbox" in looking.problems["two"] and "next start" in looking.problems["evil"]

    def test_plain_roles_without_one_count_from_the_start(self, folder: Path) -> None:
        write(folder, "one")
        looking = ProfileFolder(folder, is_exposed=True)
        assert looking.look() == ProfileChange(added=("one",)), "what is there at the start is ours"
        write(folder, "new")
        assert looking.look() == NOTHING


def test_the_settings_of_a_worker_are_the_newest_in_force(folder: Path) -> None:
    write(folder, "one", *confined())
    looking = ProfileFolder(folder)
    looking.look()
    source = ProfileSettings(looking, looking.profiles["one"], {})
    assert source.refresh() == ()
    write(folder, "one", *confined("echo"), words="Other words.")
    assert source.refresh() == ("command", "instructions"), "without waiting for the next look"
    assert looking.look() == NOTHING
    (folder / "one.md").write_text("nothing")
    assert source.refresh() == () and "one.md" in source.problem
    assert source.settings.command == ("echo",)
