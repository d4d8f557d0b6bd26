"""What a schedule file may say; what it may not is named with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.contracts.schedule_values import Overlap
from agentq.core.errors import Invalid
from agentq.protocol.occurrences import CatchUp, Timing, read_moment
from agentq.schedules.model import Schedule
from agentq.schedules.parsing import SCHEDULE_BYTES_MAX, parse_schedule

FILE = Path("schedules/nightly.md")


def parse(front_matter: str, body: str = "Do it.\n") -> Schedule:
    return parse_schedule(f"---\n{front_matter}\n---\n{body}".encode(), "nightly", FILE)


def problem(front_matter: str, body: str = "Do it.\n") -> str:
    with pytest.raises(Invalid) as caught:
        parse(front_matter, body)
    return caught.value.cause


def test_a_task_by_cron() -> None:
    schedule = parse(
        "cron: 0 8 * * mon-fri\nzone: Europe/Berlin\nrole: reporter\ntitle: Report of"
        " {{ occurrence }}\npriority: high\nbudget: 2\nretry: 2\nlabels: {team: a}\n"
        "timeout: 15m\nuntil: 2027-01-01T00:00\ndescription: Each morning",
        "Write it.\n\n",
    )
    until = read_moment("2027-01-01T00:00", "Europe/Berlin")
    assert schedule.timing == Timing("0 8 * * MON-FRI", "Europe/Berlin", until_at=until)
    assert (schedule.role, schedule.workflow) == ("reporter", "")
    assert schedule.instructions == "Write it."
    assert (schedule.catch_up, schedule.overlap) == (CatchUp.ONE, Overlap.SKIP)
    assert schedule.fields == {
        "priority": "high", "budget": {"usd": 2}, "timeout_seconds": 900, "max_attempts": 2,
    }  # fmt: skip
    assert schedule.at_line("role") == "schedules/nightly.md, line 4"


def test_an_interval_and_once_and_a_run() -> None:
    assert parse("every: 8h\nto: ceo").timing == Timing(every_ms=8 * 3600 * 1000)
    started = parse("every: 90s\nstart: 2026-12-01T08:00\nto: ceo\nname: nightly").timing
    assert started == Timing(every_ms=90_000, start_at=read_moment("2026-12-01T08:00", "UTC"))
    once = parse("at: 2026-12-01T08:00\nzone: America/New_York\nto: ceo")
    assert once.timing.at == read_moment("2026-12-01T13:00", "UTC")
    run = parse("every: 1d\nworkflow: ship\ninputs: {branch: main}\ncatch_up: all", "")
    assert (run.workflow, run.inputs, run.overlap) == ("ship", {"branch": "main"}, Overlap.QUEUE)
    assert parse("every: 1d\nto: x\ncatch_up: all\noverlap: skip").overlap is Overlap.SKIP
    asked = parse("every: 1d\nto: x\napproval: {timeout: 2d, on_timeout: reject}")
    assert asked.fields["requires_approval"] is True


@pytest.mark.parametrize(
    ("front_matter", "line", "words"),
    [
        ("role: x\ncron: 61 * * * *", 3, "has a bad minute"),
        ("role: x\ncron: '* *'", 3, "five fields"),
        ("role: x\ncron: 0 8 * * *\nzone: Mars/Olympus", 4, "no time zone 'Mars/Olympus'"),
        ("role: x\nat: 2026-02-30T08:00", 3, "no date and time"),
        ("role: x\nat: 2027-03-28T02:30\nzone: Europe/Berlin", 3, "does not exist"),
        ("role: x\nevery: soon", 3, "expected a duration"),
        ("role: x\nevery: 5m\nuntil: later", 4, "no date and time"),
        ("role: x\nevery: 5m\ncron: 0 8 * * *", 3, "cron and every"),
        ("role: x", 1, "does not say when"),
        ("role: x\nat: 2026-12-01T08:00\nstart: 2026-12-01T08:00", 4, "a start is for `every`"),
        ("every: 5m", 1, "does not say who"),
        ("every: 5m\nrole: x\nworkflow: y", 4, "role and workflow say who does it"),
        ("every: 5m\nrole: x\ncatch_up: most", 4, "catch_up is one of skip, one, all"),
        ("every: 5m\nrole: x\noverlap: [1]", 4, "overlap is one of skip, queue; got a list"),
        ("every: 5m\nrole: x\nprority: high", 4, "no field 'prority'"),
        ("every: 5m\nrole: x\nxyzzy: high", 4, "no field 'xyzzy'"),
        ("every: 5m\nrole: 5", 3, "role is a text"),
        ("every: 5m\nrole: x\nretry: 0", 4, "retry is a whole number"),
        ("every: 5m\nrole: x\ntimeout: soon", 4, "timeout"),
        ("every: 5m\nrole: x\ntitle: '{{ nothing.here }}'", 4, "nothing"),
        ("every: 5m\nrole: x\nname: other", 4, "calls itself 'other'"),
        ("every: 5m\nrole: x\ninstructions: y", 4, "in the front matter and below it"),
        ("every: 5m\nrole: not a role", 3, "role"),
        ("every: 5m\nrole: x\nrole: y", 4, "given twice"),
        ("every: 5m\nworkflow: y", 5, "a run of y has no instructions"),
        ("every: 5m\nworkflow: y\nverify: make", 4, "a run of y has no verify"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(front_matter: str, line: int, words: str) -> None:
    said = problem(front_matter)
    assert said.startswith(f"schedules/nightly.md, line {line}: "), said
    assert words in said


def test_what_is_no_schedule_at_all() -> None:
    for content, words in (
        (b"no front matter", "line 1: a schedule starts with"),
        (b"---\nevery: 5m\n", "never closed"),
        (b"---\n- a\n---\n", "expected `field: value` lines"),
        (b"\xff", "UTF-8"),
        (b"a\0b", "NUL"),
        (b"x" * (SCHEDULE_BYTES_MAX + 1), "256 KiB"),
    ):
        with pytest.raises(Invalid, match=words):
            parse_schedule(content, "nightly", FILE)
    assert "what is to be done" in problem("every: 5m\nrole: x", "")
    assert parse("every: 5m\nrole: x\ntitle: Sweep", "").title == "Sweep"
