"""Steps of an approval policy are taken by whichever `agentq up` runs when they fall due."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.client.queue import Queue
from tests.daemon.ups import several_ups
from tests.eventually import eventually

pytestmark = pytest.mark.long


def steps(queue: Queue) -> list[str]:
    """Whom each step of the policy has asked, in the order of the log."""
    found = queue.admin.replay("task-1").steps
    return [left.details.asked_of for entry, left in found if entry.event.kind == "escalated"]


def test_every_step_is_taken_once_whatever_becomes_of_daemons(tmp_path: Path) -> None:
    """One is killed after a step, the next one ends in good order, as in a deploy. What fell due
    while none ran is made up for, in its order."""
    url = f"sqlite:///{tmp_path}/.agentq/ledger.db"
    (tmp_path / "agentq.toml").write_text(f'[ledger]\nurl = "{url}"\n')
    escalate = [{"after": 2 * n, "to": name} for n, name in enumerate(("lead", "boss", "ceo"), 1)]
    with Queue.create(url) as queue, several_ups(tmp_path) as ups:
        first = ups.start("--no-http")
        eventually(lambda: first.said_of("due: runs here now"))
        queue.submit(
            "deployer", "Deploy.", id="task-1", requires_approval=True,
            approval={"escalate": escalate},
        )  # fmt: skip
        eventually(lambda: steps(queue))
        first.kill()

        second = ups.start("--no-http")
        eventually(lambda: len(steps(queue)) >= 2)
        assert second.end() == 0

        ups.start("--no-http")
        eventually(lambda: len(steps(queue)) == 3)
        assert steps(queue) == ["lead", "boss", "ceo"]
        waiting = queue.admin.approvals(asked_of="ceo").decisions
        assert [(each.escalation, each.escalations) for each in waiting] == [(3, 3)]
        assert [found for _, found in queue.admin.verify() if found] == []
