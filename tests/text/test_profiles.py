"""Agent profiles: what a file says, what is wrong with it, and the organisation they make."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from agentq.core.errors import Invalid, NotFound
from agentq.settings import Settings
from agentq.settings.profiles import (
    Profile,
    agent_of_role,
    all_roles,
    chain_of_command,
    check_organisation,
    list_profiles,
    profiles,
    read_profile,
)
from agentq.settings.roles import RoleSettings, role_settings
from agentq.settings.working_hours import ANY_TIME, check_zone, parse_hours


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "agents"
    found.mkdir()
    return found


def write(folder: Path, name: str, fields: str, body: str = "You do your work.") -> Path:
    path = folder / f"{name}.md"
    path.write_text(f"---\n{fields}\n---\n{body}\n")
    return path


FULL = """description: Keeps the services running
tool: claude
permissions: edit
manager: vp-engineering
skills: [python, sql]
wake: {every: 8h, on: [mention, blocked]}
hours: Mon-Fri 09:00-18:00
zone: Europe/Berlin
budget: {usd: 2, daily_usd: 5}
concurrency: 2
timeout: 30m"""


def test_a_profile_is_a_role_with_a_place_in_the_organisation(folder: Path) -> None:
    write(folder, "backend", FULL, "You own the services.")
    found = read_profile(folder, "backend")
    assert (found.roles, found.manager, found.skills) == (
        ("backend",), "vp-engineering", ("python", "sql"),
    )  # fmt: skip
    assert (found.wake.every_seconds, found.wake.on) == (8 * 3600, ("mention", "blocked"))
    assert found.wake.is_timed and not found.wake.always
    settings, _limits = found.settings, found.settings.limits
    assert (settings.agent, settings.slots, settings.timeout) == ("claude", 2, 1800)
    assert (settings.limits.max_running, settings.limits.daily.usd, settings.budget.usd) == (
        2,
        5,
        2,
    )
    assert settings.instructions == "You own the services."


def test_what_all_agents_of_a_folder_are_told_comes_first(folder: Path) -> None:
    write(folder, "backend", "tool: claude", "You own the services.")
    (folder / "AGENTS.md").write_text("Be brief.\n")
    told = read_profile(folder, "backend").settings.instructions
    assert told == "Be brief.\n\nYou own the services."
    assert [each.name for each in list_profiles(folder)] == ["backend"]


@pytest.mark.parametrize(
    ("fields", "line", "words"),
    [
        ("tool: claude\nmanger: ceo", 3, "Did you mean manager?"),
        ("tool: claude\nzone: Mars/Base", 3, "time zone"),
        ("tool: claude\nzone: Europe/Berlin\nhours: Mon 25:00-26:00", 4, "does not exist"),
        ("tool: claude\nhours: always", 3, "working hours"),
        ("tool: claude\nhours: Mox 09:00-10:00", 3, "names a day"),
        ("tool: claude\nwake: {every: soon}", 3, "soon"),
        ("tool: claude\nwake: {every: 1h, cron: '0 9 * * *'}", 3, "Keep one"),
        ("tool: claude\nwake: {mode: sometimes}", 3, "when-work or always"),
        ("tool: claude\nwake: {on: [weather]}", 3, "mention"),
        ("tool: claude\nwake: {on: 7}", 3, "mention"),
        ("tool: claude\nwake: {when: now}", 3, "every, cron"),
        ("tool: claude\nwake: {cron: 9}", 3, "cron is a text"),
        ("tool: claude\nslots: many", 3, "whole number"),
        ("tool: claude\nbudget: 5", 3, "daily_usd"),
        ("tool: claude\nskills: {a: b}", 3, "list of texts"),
        ("tool: claude\nmanager: [a, b]", 3, "manager is a text"),
        ("tool: claude\nrole: a\nroles: [b]", 4, "Keep one"),
        ("tool: claude\nrole: Not A Role!", 3, "role"),
        ("tool: claude\ntool: codex", 3, "given twice"),
        ("tool: [claude", 3, "cannot be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_names_file_and_line(
    folder: Path, fields: str, line: int, words: str
) -> None:
    path = write(folder, "backend", fields)
    with pytest.raises(Invalid) as caught:
        read_profile(folder, "backend")
    text = f"{caught.value.cause} {caught.value.remedy}"
    assert f"{path}, line {line}" in text and words in text


def test_one_bad_file_does_not_stop_the_others(folder: Path) -> None:
    write(folder, "good", "tool: claude")
    (folder / "plain.md").write_text("no front matter")
    (folder / "bytes.md").write_bytes(b"---\n\xff\n---\n")
    (folder / "Big Name.md").write_text("---\n---\n")
    (folder / "large.md").write_bytes(b"---\n---\n" + b"x" * 200_000)
    found = {each.name: each.error for each in list_profiles(folder)}
    assert [name for name, error in found.items() if not error] == ["good"]
    assert "line 1" in found["plain"] and "UTF-8" in found["bytes"]
    assert "Rename" in found["Big Name"] and "128 KiB" in found["large"]
    with pytest.raises(NotFound):
        read_profile(folder, "nobody")
    assert list_profiles(folder / "missing") == []


def test_managers_that_are_missing_or_go_in_circles(folder: Path) -> None:
    write(folder, "a", "tool: claude\nmanager: b")
    write(folder, "b", "tool: claude\nmanager: c")
    write(folder, "c", "tool: claude\nmanager: a")
    write(folder, "d", "tool: claude\nmanager: nobody")
    write(folder, "e", "tool: claude\nrole: worker")
    problems = "\n".join(check_organisation(list_profiles(folder), ["worker"]))
    assert f"{folder}/a.md, line 3: it would be its own manager: a → b → c → a" in problems
    assert f"{folder}/d.md, line 3: there is no agent 'nobody'" in problems
    assert f"{folder}/e.md, line 3: the tasks of worker are for [roles] of agentq.toml" in problems
    assert chain_of_command(profiles(folder), "a") == ["b", "c"]


def test_two_agents_want_one_role(folder: Path) -> None:
    write(folder, "a", "tool: claude\nroles: [shared, other]")
    write(folder, "b", "tool: claude\nroles: [shared]")
    problems = check_organisation(list_profiles(folder))
    assert problems == [f"{folder}/b.md, line 3: the tasks of shared are for the agent a already."]


def test_roles_come_from_both(folder: Path) -> None:
    write(folder, "vp", "tool: claude\nroles: [vp, planning]")
    settings = Settings(
        "sqlite://", "", str(folder.parent / "agentq.toml"), {"worker": RoleSettings(agent="codex")}
    )
    assert sorted(all_roles(settings)) == ["planning", "vp", "worker"]
    assert role_settings(settings, "planning").agent == "claude"
    assert role_settings(settings, "worker").agent == "codex"
    assert role_settings(settings, "nobody").agent == ""
    found = agent_of_role(folder, "planning")
    assert isinstance(found, Profile) and found.name == "vp"
    assert agent_of_role(folder.parent / "missing", "planning") is None
    write(folder, "broken", "tol: claude")
    with pytest.raises(Invalid, match="Did you mean tool"):
        role_settings(settings, "broken")


def at(text: str, zone: str = "Europe/Berlin") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


@pytest.mark.parametrize(
    ("moment", "opens"),
    [
        ("2026-11-17T10:00", "2026-11-17T10:00"),  # a Tuesday
        ("2026-11-17T08:59", "2026-11-17T09:00"),
        ("2026-11-17T18:00", "2026-11-18T09:00"),
        ("2026-11-20T18:30", "2026-11-23T09:00"),  # over the weekend
        ("2026-10-24T12:00", "2026-10-26T09:00"),  # clocks go back in between
        ("2026-03-28T12:00", "2026-03-30T09:00"),  # and forward
    ],
)
def test_when_an_agent_works_next(moment: str, opens: str) -> None:
    hours = parse_hours(("Mon-Fri 09:00-18:00",), "Europe/Berlin")
    assert hours.next_open(at(moment)) == at(opens)


def test_hours_that_go_on_after_midnight() -> None:
    hours = parse_hours(("Fri 22:00-02:00", "sun 10:00-24:00"), "Europe/Berlin")
    assert hours.is_open(at("2026-11-20T23:00")) and hours.is_open(at("2026-11-21T01:59"))
    assert not hours.is_open(at("2026-11-21T02:00")) and hours.is_open(at("2026-11-22T23:59"))
    assert ANY_TIME.is_open(0) and ANY_TIME.next_open(5) == 5
    assert parse_hours(("08:00-09:00",), "UTC").is_open(at("2026-11-22T08:30", "UTC"))
    with pytest.raises(Invalid):
        check_zone("../../etc/passwd")
