"""Schedules by commands: listed, checked, foreseen, paused, resumed, run now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.daemon.ups import several_ups
from tests.eventually import eventually
from tests.interfaces.conftest import run_here

NIGHTLY = """\
---
cron: 0 2 * * *
zone: Europe/Berlin
role: worker
description: Sweeps the floor
---
Sweep.
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    run_here("init", "--agent", "none").ok()
    (tmp_path / "schedules").mkdir()
    (tmp_path / "schedules/nightly.md").write_text(NIGHTLY)
    return tmp_path


def test_they_are_listed_with_their_next_times(folder: Path) -> None:
    (folder / "schedules/bad.md").write_text(NIGHTLY.replace("0 2", "61 2"))
    (folder / "schedules/past.md").write_text(
        "---\nat: 2020-01-01T08:00\nrole: worker\n---\nToo late.\n"
    )
    listed = run_here("schedules").ok().out
    assert "not seen by `agentq up` yet" in listed
    assert f"{folder}/schedules/bad.md, line 2: the cron expression '61 2 * * *'" in listed
    shown = run_here("schedules", "--json").ok().json()
    assert shown["folder"] == str(folder / "schedules")
    bad, nightly, past = shown["schedules"]
    assert "bad minute" in bad["problem"]
    assert nightly["next"].endswith(("T02:00:00+01:00", "T02:00:00+02:00"))
    assert nightly["description"] == "Sweeps the floor"
    assert (past["next"], past["problem"]) == (None, None)
    assert "over" in listed


def test_they_are_checked_with_file_and_line(folder: Path) -> None:
    assert "1 checked, no problems: nightly" in run_here("schedules", "check").ok().out
    (folder / "schedules/bad.md").write_text(NIGHTLY.replace("Europe/Berlin", "Mars/Olympus"))
    (folder / "schedules/BAD.md").write_text(NIGHTLY)
    answer = run_here("schedules", "check")
    assert answer.status == 2
    assert f"{folder}/schedules/bad.md, line 3: there is no time zone" in answer.out
    found = run_here("schedules", "check", "BAD", "bad", "nobody", "--json")
    named = [each["schedule"] for each in json.JSONDecoder().raw_decode(found.out)[0]["problems"]]
    assert named == ["bad", "nobody"]
    (folder / "schedules/bad.md").write_text(NIGHTLY)
    assert "there is a schedule called BAD already" in run_here("schedules", "check").out


def test_the_next_times_are_foreseen(folder: Path) -> None:
    (folder / "schedules/hourly.md").write_text("---\nevery: 1h\nrole: worker\n---\nLook.\n")
    shown = run_here("schedules", "next", "nightly", "-n", "3", "--json").ok().json()
    assert len(shown["next"]) == 3 and shown["zone"] == "Europe/Berlin"
    assert len(run_here("schedules", "next", "hourly").ok().out.splitlines()) == 5
    (folder / "schedules/past.md").write_text("---\nat: 2020-01-01\nrole: worker\n---\nLate.\n")
    assert run_here("schedules", "next", "past").ok().out == "never again\n"
    missing = run_here("schedules", "next", "nihtly")
    assert missing.status == 3 and "Did you mean nightly?" in missing.err


def test_one_is_paused_resumed_and_run(folder: Path) -> None:
    assert run_here("schedules", "pause", "nightly").ok().out == "paused nightly\n"
    assert run_here("schedules", "--json").ok().json()["schedules"][0]["paused"] is True
    assert "paused" in run_here("schedules").ok().out
    ran = run_here("schedules", "run", "nightly", "--json").ok().json()
    (task,) = ran["tasks"]
    assert task.startswith("task-nightly-") and ran["fired"] == 1
    assert run_here("status", task, "--json").ok().json()["state"] == "ready"
    assert run_here("schedules", "run", "nightly").ok().out.startswith("submitted task-nightly-")
    assert run_here("schedules", "resume", "nightly", "--json").ok().json()["paused"] is False
    for word in ("pause", "run"):
        missing = run_here("schedules", word, "nihtly")
        assert missing.status == 3 and "Did you mean nightly?" in missing.err
    (folder / "schedules/nightly.md").write_text(NIGHTLY.replace("role", "rolle"))
    broken = run_here("schedules", "run", "nightly")
    assert broken.status == 4 and "line 4" in broken.err


@pytest.mark.long
def test_what_is_due_is_submitted_by_up(folder: Path) -> None:
    (folder / "schedules/often.md").write_text(
        "---\nevery: 1s\nrole: worker\noverlap: queue\n---\nLook.\n"
    )
    with several_ups(folder) as ups:
        ups.start("--no-workers", "--no-http")
        eventually(lambda: len(run_here("list", "--json").ok().json()["tasks"]) >= 2)
    assert "often" in run_here("schedules").ok().out
