"""`agentq agents`, `inbox` and `reassign` as people type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq import Queue
from tests.interfaces.conftest import run_here

pytestmark = pytest.mark.both_ways


def profile(name: str, fields: str, body: str = "You work.") -> None:
    folder = Path("agents")
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text(f"---\n{fields}\n---\n{body}\n")


@pytest.fixture
def staff(queue: Queue) -> Queue:
    """A lead and an engineer, in the folder of the installation."""
    profile("lead", "command: [cat]\ndescription: Leads\nwake: {every: 8h, on: blocked}")
    profile("engineer", "command: [cat]\nmanager: lead\nroles: [engineer, api]")
    return queue


@pytest.mark.usefixtures("staff")
def test_agents_are_listed_and_drawn() -> None:
    table = run_here("agents").ok().out
    assert "8h, blocked" in table and "[engineer, api]" in table and "READY" not in table
    assert run_here("agents", "--tree").ok().out.splitlines() == ["lead  Leads", "└ engineer"]
    found = {each["name"]: each for each in run_here("--json", "agents").ok().json()["agents"]}
    assert found["engineer"]["manager"] == "lead" and found["lead"]["manager"] is None
    assert found["engineer"]["roles"] == ["engineer", "api"]


@pytest.mark.usefixtures("staff")
def test_a_bad_profile_is_named_and_the_others_go_on() -> None:
    run_here("agents", "check", "--files-only").ok()
    assert run_here("--json", "agents", "check").ok().json()["ok"] is True
    profile("broken", "tol: claude")
    profile("idle", "manager: nobody")
    found = run_here("agents", "check", "--files-only").refused(
        2, "broken.md, line 2", "Did you mean tool?", "idle.md, line 2", "no agent 'nobody'",
        "nothing says which tool",
    )  # fmt: skip
    assert "Traceback" not in found.err
    assert "Did you mean tool?" in run_here("agents").ok().out
    run_here("agents", "check", "nobody").refused(3, "There is no agent")


def test_a_question_reaches_the_manager_and_goes_to_another_role(staff: Queue) -> None:
    staff.submit("engineer", "Mend it.", id="task-1")
    with staff.claim_task("task-1") as claim:
        claim.block("Which branch?")
    staff.comment("task-1", "bob", "@lead do you know?")
    items = run_here("--json", "inbox", "--as", "lead").ok().json()["items"]
    assert [(each["kind"], each["task_id"]) for each in items] == [
        ("blocked", "task-1"), ("mention", "task-1"),
    ]  # fmt: skip
    assert items[0]["decide_with"] == ["answer", "reassign", "cancel"]
    assert "Which branch?" in run_here("inbox", "--as", "lead").ok().out
    run_here("reassign", "task-1", "--to", "expert").ok()
    task = staff.task("task-1")
    assert (task.state, task.to) == ("ready", "expert")
    assert "nothing waits for engineer" in run_here("inbox", "--as", "engineer").ok().err
    run_here("reassign", "task-9", "--to", "expert").refused(3)


def test_the_same_words_are_one_comment(staff: Queue) -> None:
    staff.submit("engineer", "Mend it.", id="task-1")
    for _ in range(2):
        run_here("comment", "task-1", "ping").ok()
    kinds = [each.event.kind for each in staff.history("task-1")]
    assert kinds.count("commented") == 1
