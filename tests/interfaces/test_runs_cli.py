"""Workflows and their runs by commands: checked, drawn, started, shown, retried, cancelled."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentq.cli.init_template import TEMPLATES, template_files
from agentq.settings import load_settings
from agentq.wiring import open_installation
from agentq.workflows.runner import advance_runs
from tests.daemon.ups import Ups, several_ups
from tests.eventually import eventually
from tests.interfaces.conftest import Answer, run_here

SHIP = """\
---
description: Build and ship.
inputs: {branch: {default: main}}
steps:
  - {id: build, role: builder, instructions: "Build {{ inputs.branch }}."}
  - {id: ship, role: builder, after: build, instructions: Ship it.}
---
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    run_here("init", "--agent", "none").ok()
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "ship.md").write_text(SHIP)
    return tmp_path


def advance() -> None:
    settings = load_settings()
    with closing(open_installation(settings)) as installation:
        while advance_runs(installation.service, settings.workflows_folder, "a test"):
            pass


def finish(role: str, *words: str) -> Answer:
    claimed = run_here("claim", "--as", role, "--json").ok().json()
    return run_here(
        *(words or ("complete",)), claimed["task_id"], "--epoch", str(claimed["epoch"])
    ).ok()


def test_a_run_is_started_shown_and_brought_to_its_end(folder: Path) -> None:
    run_here("run", "ship", "--input", "branch=dev", "--id", "run-1").ok()
    advance()
    shown = run_here("runs", "show", "run-1", "--json").ok().json()
    assert [(step["id"], step["state"]) for step in shown["steps"]] == [
        ("build", "open"), ("ship", "waiting"),
    ]  # fmt: skip
    assert shown["steps"][0]["tasks"][0]["instructions"] == "Build dev."
    for _ in range(2):
        finish("builder")
        advance()
    assert "run-1 (ship) is complete: 2 complete" in run_here("runs", "show", "run-1").ok().out
    listed = run_here("runs", "--json").ok().json()["runs"]
    assert [(each["task_id"], each["state"], each["workflow"]) for each in listed] == [
        ("run-1", "complete", "ship")
    ]
    assert "run-1" in run_here("runs").ok().out


def test_a_failed_run_is_retried_and_one_that_is_not_wanted_cancelled(folder: Path) -> None:
    run_here("run", "ship", "--id", "run-1").ok()
    advance()
    finish("builder", "fail", "--kind", "invalid", "--reason", "no")
    advance()
    run_here("runs", "retry", "run-1", "--by", "ann").ok()
    advance()
    assert ["build", "ready"] in [
        line.split()[:2] for line in run_here("runs", "show", "run-1").ok().out.splitlines()
    ]
    run_here("runs", "retry", "run-1").refused(4, "a run that has failed can be retried")
    run_here("runs", "cancel", "run-1", "--reason", "enough").ok()
    states = {
        each["task_id"]: each["state"] for each in run_here("list", "--json").ok().json()["tasks"]
    }
    assert states == {
        "run-1": "cancelled", "run-1.build": "failed", "run-1.build.retry-2": "cancelled",
    }  # fmt: skip


def test_a_dry_run_draws_and_starts_nothing(folder: Path) -> None:
    drawn = run_here("run", "ship", "--dry-run").ok().out
    assert "build" in drawn and "after build" in drawn
    assert run_here("runs", "--json").ok().json() == {"runs": []}
    plain = run_here("run", "ship", "--dry-run", "--json").ok().json()
    assert [step["id"] for step in plain["steps"]] == ["build", "ship"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("run", "shop"), 3, "Did you mean ship?"),
        (("run", "../ship"), 2, ""),
        (("run", "ship", "--input", "branch"), 2, "NAME=VALUE"),
        (("run", "ship", "--input", "brunch=x"), 2, "Did you mean branch?"),
        (("run", "ship", "-i", "branch=a", "-i", "branch=b"), 2, "given twice"),
        (("runs", "show", "task-none"), 3, ""),
        (("runs", "retry", "task-none"), 3, ""),
        (("workflows", "check", "shop"), 2, "There is no workflow"),
        (("init", "--template", "quartet"), 2, "trio"),
    ],
)
def test_slips_change_nothing(folder: Path, words: tuple[str, ...], status: int, said: str) -> None:
    run_here(*words).refused(status, said)
    assert run_here("runs", "--json").ok().json() == {"runs": []}


def test_a_check_names_file_and_line_of_everything(folder: Path) -> None:
    (folder / "workflows" / "bad.md").write_text(SHIP.replace("after: build", "after: built"))
    (folder / "workflows" / "worse.md").write_text("no front matter")
    found = run_here("workflows", "check").refused(2, "bad.md, line 6", "worse.md, line 1")
    assert "ship.md" not in found.out
    listed = run_here("workflows", "--json").ok().json()["workflows"]
    assert {each["name"]: bool(each["error"]) for each in listed} == {
        "bad": False, "ship": False, "worse": True,
    }  # fmt: skip
    run_here("run", "bad").refused(2, "bad.md, line 6")


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_a_template_is_sound_and_never_overwrites(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "notify.md").write_text(SHIP)
    plain = run_here("init", "--template", template, "--agent", "fake", "--json").ok().json()
    names = {file.stem for file in template_files(template)}
    kept = sorted({"notify"} & names)
    assert plain["template"]["kept"] == kept
    assert {*plain["template"]["written"], *kept} == names
    assert (tmp_path / "workflows" / "notify.md").read_text() == SHIP
    (tmp_path / "workflows" / "notify.md").unlink()
    run_here("init", "--template", template, "--agent", "fake").ok()
    found = run_here("workflows", "check", "--json").ok().json()
    assert (set(found["checked"]), found["problems"]) == (names, [])
    if TEMPLATES[template].agents:
        run_here("agents", "check").ok()
        number = 33 if template == "organisation" else 1
        assert len(plain["template"]["agents"]) == number


# -- as a new user would type it -------------------------------------------------------------------


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[Ups]:
    with several_ups(tmp_path) as made:
        yield made


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTQ_AGENT", raising=False)
    (tmp_path / "README.md").write_text("hello\n")
    who = ("-c", "user.name=ann", "-c", "user.email=ann@localhost")
    for words in (("init", "--quiet"), ("add", "."), (*who, "commit", "--quiet", "-m", "first")):
        subprocess.run(("git", *words), cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.long
def test_trio_runs_to_its_end(repository: Path, ups: Ups) -> None:
    run_here("init", "--template", "trio", "--agent", "fake", "--yes").ok()
    run_here("roles", "check").ok()
    ups.start("--no-http")
    run_here("run", "coordinate", "--input", "goal=Say hello", "--id", "run-1", "--wait").ok()
    shown = run_here("runs", "show", "run-1", "--json").ok().json()
    assert shown["run"]["state"] == "complete"
    work = next(step for step in shown["steps"] if step["id"] == "work")
    assert [task["score"] for task in work["tasks"]] == [90, 90]
    for task in work["tasks"]:
        run_here("diff", task["task_id"], "--stat").ok()
    run_here("stats", "overhead", "--run", "run-1").ok()
    assert json.loads(run_here("stats", "quality", "--json").ok().out)
    run_here("verify").ok()


@pytest.mark.long
def test_kanban_runs_to_its_end_with_one_approval(repository: Path, ups: Ups) -> None:
    run_here("init", "--template", "kanban", "--agent", "fake", "--yes").ok()
    ups.start("--no-http")
    run_here("run", "card", "--input", "card=Say hello", "--id", "run-1").ok()

    def asked() -> bool:
        return "run-1.merge" in run_here("approvals").ok().out

    eventually(asked, 120, "the question for an approval")
    run_here("approve", "run-1.merge", "--by", "lead").ok()
    run_here("wait", "run-1", "--timeout", "120s", "--check").ok()
    run_here("apply", "run-1.work").ok()
    assert (repository / "fake-agent" / "run-1.work.md").exists()
    run_here("verify").ok()


@pytest.mark.long
def test_the_organisation_runs_at_once(repository: Path, ups: Ups) -> None:
    """33 agents and one process for them; a mention wakes the ceo, and nobody else."""
    run_here("init", "--template", "organisation", "--agent", "fake", "--yes").ok()
    assert "/dashboard.md" in (repository / ".gitignore").read_text()
    run_here("agents", "check").ok()
    ups.start("--no-http")
    run_here("submit", "-t", "ceo", "--id", "task-a", "Decide what comes first").ok()
    run_here("submit", "-t", "backend-engineer", "--id", "task-b", "Mend the import").ok()
    run_here("wait", "task-a", "task-b", "--timeout", "120s").ok()
    assert _wakes() == []
    run_here("comment", "task-b", "@ceo look at this", "--by", "bob").ok()
    wakes = eventually(_wakes, 60)
    assert [each["to"] for each in wakes] == ["ceo"]
    run_here("wait", wakes[0]["task_id"], "--timeout", "120s").ok()
    assert "# Dashboard" in (repository / "dashboard.md").read_text()


def _wakes() -> list[dict[str, str]]:
    found: list[dict[str, str]] = run_here("list", "--json", "--type", "wake").ok().json()["tasks"]
    return found


@pytest.mark.long
def test_nightly_looks_back_and_proposes(repository: Path, ups: Ups) -> None:
    run_here("init", "--template", "nightly", "--agent", "fake", "--yes").ok()
    run_here("agents", "check").ok()
    run_here("schedules", "check").ok()
    listed = run_here("schedules", "--json").ok().json()["schedules"]
    assert [each["name"] for each in listed] == ["nightly"]
    ups.start("--no-http")
    run_here("run", "learn", "--wait").ok()
