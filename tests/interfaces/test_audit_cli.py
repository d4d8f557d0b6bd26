"""`agentq audit`: who decided what and who was refused, by command and by SDK alike."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentq import Queue
from agentq.settings import KEEP_AUDIT_SECONDS, read_file
from agentq.testing import MemoryQueue
from tests.interfaces.conftest import run_here


def test_who_did_what(queue: Queue) -> None:
    assert "nothing was decided or refused" in run_here("audit").ok().err
    assert run_here("audit", "--json").ok().json() == {"entries": [], "next": None}
    for name in ("task-a", "task-b"):
        run_here("submit", "--to", "w", "--id", name, "--instructions", "x").ok()
    run_here("cancel", "task-a", "--reason", "no need", "--by", "bob").ok()
    run_here("requeue", "task-b").refused(4)
    done, refused = run_here("audit", "--json").ok().json()["entries"][::-1]
    assert (done["who"], done["action"], done["about"], done["outcome"]) == (
        "bob", "cancel", "task-a", "done",
    )  # fmt: skip
    assert done["from"] == f"uid {os.geteuid()} on {os.uname().nodename}"
    assert done["how"].startswith("local user ") and done["detail"] == "no need"
    assert done["at"] < refused["at"] and done["number"] < refused["number"]
    assert (refused["who"], refused["outcome"], refused["about"]) == ("alice", "refused", "task-b")
    shown = run_here("audit").ok().out
    assert shown.index("task-b") < shown.index("task-a"), "the newest first"
    assert "no need" in shown and "refused" in shown
    # The SDK sees the same.
    assert [each.subject for each in queue.admin.audit().entries] == ["task-b", "task-a"]


def test_what_is_looked_for(queue: Queue) -> None:
    for name in ("task-a", "task-b", "task-c"):
        run_here("submit", "--to", "w", "--id", name, "--instructions", "x").ok()
        run_here("cancel", name, "--by", "bob" if name == "task-b" else "kim").ok()
    run_here("cancel", "task-a").refused(4)

    def about(*words: str) -> list[str]:
        return [
            each["about"] for each in run_here("audit", "--json", *words).ok().json()["entries"]
        ]

    assert about() == ["task-a", "task-c", "task-b", "task-a"]
    assert about("--refused") == ["task-a"]
    assert about("--by", "kim") == ["task-c", "task-a"]
    assert about("--task", "task-a") == ["task-a", "task-a"]
    assert about("--task", "b") == ["task-b"], "as every command names a task"
    assert about("--task", "nowhere") == []
    assert about("--since", "2h") == about()
    first = run_here("audit", "--limit", "3")
    assert "--before" in first.ok().err
    page = run_here("audit", "--limit", "3", "--json").ok().json()
    assert about("--before", str(page["next"])) == ["task-a"]
    assert [each.subject for each in queue.admin.audit(refused=True, since="2h").entries] == about(
        "--refused"
    )


@pytest.mark.parametrize(
    "words",
    [("--limit", "0"), ("--limit", "1001"), ("--since", "soon"), ("--before", "x"), ("--by", ""),
     ("--task", ""), ("--by",), ("--before", "0")],
)  # fmt: skip
def test_slips(home: Path, words: tuple[str, ...]) -> None:
    run_here("audit", *words).refused(2)


def test_it_is_kept_longer_than_tasks_and_not_for_ever() -> None:
    with MemoryQueue() as queue:
        task = queue.submit(to="w", instructions="x")
        queue.cancel(task.id, by="ann")
        queue.advance("100d")
        assert queue.admin.prune("1d") == 1
        assert [each.action for each in queue.admin.audit().entries] == ["prune", "cancel"]
        queue.advance(KEEP_AUDIT_SECONDS - 100 * 86400)
        queue.admin.prune("1d")
        assert len(queue.admin.audit().entries) == 2, "to the last moment"
        queue.advance(1)
        queue.admin.prune("1d")
        assert [each.action for each in queue.admin.audit().entries] == ["prune"]


def test_how_long_is_a_setting(tmp_path: Path) -> None:
    file = tmp_path / "agentq.toml"
    file.write_text('[retention]\naudit = "90d"\n')
    assert (read_file(file).keep_audit, read_file(file).keep) == (90 * 86400, 0)
    file.write_text('[retention]\nkeep = "30d"\n')
    assert (read_file(file).keep_audit, read_file(file).keep) == (400 * 86400, 30 * 86400)
    file.write_text('[retention]\naudit = "soon"\n')
    with pytest.raises(Exception, match="audit in"):
        read_file(file)


def test_a_backup_has_it(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_here("submit", "--to", "w", "--id", "task-a", "--instructions", "x").ok()
    run_here("cancel", "task-a").ok()
    before = run_here("audit", "--json").ok().json()
    backup = tmp_path / "backup.db"
    run_here("db", "backup", str(backup)).ok()
    monkeypatch.setenv("AGENTQ_URL", f"sqlite:///{backup}")
    assert run_here("audit", "--json").ok().json() == before
    run_here("verify").ok()
