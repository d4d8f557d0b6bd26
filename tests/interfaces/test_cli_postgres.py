"""The same commands on PostgreSQL."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agentq import Queue
from tests.interfaces.conftest import run_here


def test_the_same_commands_on_postgres(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_postgres_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    # Given an installation on a server: settings name it, and hold no password for others to see.
    made = run_here("init", "--url", fresh_postgres_url, "--json").ok().json()
    assert made["schema"] > 0
    assert (tmp_path / "agentq.toml").stat().st_mode & 0o077 == 0 or "@" not in fresh_postgres_url
    # When work is submitted, claimed and done,
    (tmp_path / "task-1.md").write_text("---\nto: worker\nexpect: [log]\n---\nBuild it.\n")
    assert run_here("submit", "--file", "task-1.md").ok().out == "task-1\n"
    told = run_here("claim", "--as", "worker", "--json").ok().json()
    assert (told["task_id"], told["epoch"], told["context"]) == ("task-1", 1, "Build it.\n")
    (tmp_path / "log.txt").write_text("built\n")
    run_here("artifacts", "put", "task-1", "log.txt").ok()
    run_here("complete", "task-1", "--result-file", "log.txt", "--summary", "built").ok()
    # then every interface shows it, and the proof holds.
    assert run_here("result", "task-1").ok().out == "built\n"
    assert run_here("list", "--json").ok().json()["tasks"][0]["state"] == "complete"
    assert run_here("stats", "--json").ok().json()["totals"]["complete"] == 1
    assert run_here("replay", "task-1", "--json").ok().json()["proved"]
    assert run_here("verify", "--json").ok().json()["ok"]
    assert run_here("doctor", "--json").ok().json()["ok"]
    assert run_here("db", "status", "--json").ok().json()["state"] == "current"
    assert run_here("db", "migrate", "--json").ok().json()["applied"] == []
    # And whoever knows only the address works on the same task and the same files.
    assert run_here("--url", fresh_postgres_url, "result", "task-1").ok().out == "built\n"


def test_waiting_on_postgres(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_postgres_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("AGENTQ_URL", fresh_postgres_url)
    run_here("init").ok()
    with Queue() as queue:
        later = threading.Timer(0.3, lambda: queue.submit(to="w", instructions="x", id="late"))
        later.start()
        told = run_here("claim", "--as", "w", "--wait", "30s", "--json").ok().json()
        later.join()
        assert told["task_id"] == "late"
        ending = threading.Timer(0.3, lambda: queue.cancel("late", "bob"))
        ending.start()
        assert "is cancelled" in run_here("wait", "late", "--timeout", "30s").ok().out
        ending.join()


def test_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = "postgresql://somebody:hunter2hunter2@127.0.0.1:9/none"
    answer = run_here("--url", url, "list").refused(7, "error: ")
    assert "hunter2" not in answer.err
    told = run_here("--url", url, "--json", "doctor").refused(7).json()
    assert [check["status"] for check in told["checks"]][:2] == ["ok", "failed"]
    run_here("--url", url, "init").refused(7)
    assert not (tmp_path / "agentq.toml").exists()
