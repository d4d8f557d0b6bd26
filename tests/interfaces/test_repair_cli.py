"""`agentq repair`: first what it would write, then what it has written, and what is left."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from tests.interfaces.conftest import Submit, run_here

pytestmark = pytest.mark.beside("damages the files of the installation")


def damage(home: Path, statement: str) -> None:
    ledger = apsw.Connection(str(home / ".agentq" / "ledger.db"))
    ledger.execute(statement)
    ledger.close()


def test_what_the_log_implies_is_written_again(home: Path, submit: Submit) -> None:
    task = submit()
    assert "nothing to repair" in run_here("repair").ok().out
    damage(home, "UPDATE tasks SET priority = 9")
    shown = run_here("repair").ok().out
    assert f"{task}: tasks.priority" in shown and "agentq repair --apply" in shown
    repair, summary = map(json.loads, run_here("repair", "--json").ok().out.splitlines())
    assert repair["subject"] == task and repair["was"] == '{"tasks.priority":9}'
    assert summary == {"ok": True, "applied": False, "repairs": 1, "left": 0}
    run_here("verify").refused(8)
    assert "1 repair made" in run_here("repair", "--apply").ok().out
    run_here("verify").ok()
    assert "repaired tasks.priority" in run_here("audit").ok().out


def test_a_result_is_published_again(home: Path, submit: Submit) -> None:
    task = submit()
    run_here("complete", task, "--from", "worker", "--result-file", "-", stdin="evidence").ok()
    result = home / ".agentq" / "results" / f"{task}.md"
    result.unlink()
    assert f"results/{task}.md" in run_here("repair", "--apply").ok().out
    assert result.read_text() == "evidence"


def test_what_is_left_needs_a_backup(home: Path, submit: Submit) -> None:
    submit()
    damage(home, "UPDATE events SET at = at + 1")
    for options in ([], ["--apply"]):
        run_here("repair", *options).refused(8, "cannot be repaired from the log", "backup")
        summary = json.loads(run_here("repair", *options, "--json").refused(8).out)
        assert (summary["ok"], summary["repairs"], summary["left"] > 0) == (False, 0, True)
