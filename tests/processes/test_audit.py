"""kill -9 of people who decide: no decision without its entry, and no entry without a decision."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.contracts.service_values import AuditEntry, AuditOutcome
from agentq.core.states import State
from tests.eventually import eventually
from tests.processes.forkserver import Forkserver

TASKS = 400


def whole_log(queue: Queue) -> list[AuditEntry]:
    found: list[AuditEntry] = []
    cursor = 0
    while True:
        page = queue.admin.audit(cursor=cursor, limit=1000)
        found += page.entries
        cursor = page.cursor
        if not cursor:
            return found


def _has_said(forkserver: Forkserver, wanted: int) -> bool:
    return len(forkserver.lines("canceller")) >= wanted


@pytest.mark.parametrize("kills", [5, pytest.param(25, marks=pytest.mark.long)])
def test_a_decision_and_its_entry_are_one(
    url: str, tmp_path: Path, session_seed: int, kills: int
) -> None:
    # Given tasks that somebody cancels one after the other, and is killed while at it
    chance = random.Random(session_seed)
    with Queue.create(url) as queue:
        ids = [f"task-{number}" for number in range(TASKS * (1 + kills // 10))]
        queue.submit_many([{"id": each, "to": "w", "instructions": "x"} for each in ids])
        with Forkserver(tmp_path) as forkserver:
            for number in range(kills):
                begun = len(forkserver.lines("canceller"))
                pid = forkserver.bear("canceller", url=url, ids=ids[begun:], name=f"c{number}")
                wanted = begun + chance.randrange(1, 6)
                eventually(partial(_has_said, forkserver, wanted), what="some cancels")
                forkserver.kill(pid)
            said = {words[1] for words in forkserver.lines("canceller")}
        # Then what is cancelled and what the log says are the same, task by task
        cancelled = [each.id for each in queue.tasks(state=State.CANCELLED)]
        log = [each.subject for each in whole_log(queue) if each.outcome is AuditOutcome.DONE]
    assert len(log) == len(set(log)), "each was decided once"
    assert set(log) == set(cancelled) >= said
    assert len(said) >= kills
