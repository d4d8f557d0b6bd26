"""Steps of an approval policy are taken by whichever `agentq up` runs when they fall due."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from agentq.core.triggers import trigger_name
from tests.daemon.ups import several_ups
from tests.eventually import eventually

pytestmark = pytest.mark.long


def kinds(queue: Queue) -> list[tuple[str, str]]:
    entries = [entry.event for entry in queue.history("task-1")]
    return [(event.kind, trigger_name(event.trigger)) for event in entries]


def test_every_step_is_taken_once_although_each_daemon_is_killed_after_one(tmp_path: Path) -> None:
    """One dies right after an escalation, another while it waits for the next; then a new version
    is deployed, as far as a policy can tell."""
    url = f"sqlite:///{tmp_path}/.agentq/ledger.db"
    (tmp_path / "agentq.toml").write_text(f'[ledger]\nurl = "{url}"\n')
    policy = {
        "escalate": [{"after": 2, "to": "lead"}, {"after": 4, "to": "boss"}],
        "timeout": 6,
        "on_timeout": "reject",
    }
    with Queue.create(url) as queue, several_ups(tmp_path) as ups:
        first = ups.start("--no-http")
        queue.submit("deployer", "Deploy.", id="task-1", requires_approval=True, approval=policy)
        eventually(lambda: ("escalated", "Tick") in kinds(queue))
        assert queue.task("task-1").details.asked_of == "lead"
        first.kill()

        second = ups.start("--no-http")
        eventually(lambda: kinds(queue).count(("escalated", "Tick")) == 2)
        assert queue.task("task-1").details.asked_of == "boss"
        assert second.end() == 0

        ups.start("--no-http")
        eventually(lambda: queue.task("task-1").state is State.FAILED)
        assert kinds(queue) == [
            ("submitted", "Submit"),
            ("escalated", "Tick"),
            ("escalated", "Tick"),
            ("approval_timed_out", "Tick"),
        ]
        assert [found for _, found in queue.admin.verify() if found] == []
