"""A holder stopped past its lease wakes up: every verb of its old attempt is refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from agentq.client.queue import Queue
from agentq.core.states import State
from tests.processes.forkserver import Forkserver
from tests.processes.programs import _every_verb


def test_a_zombie_writes_nothing(url: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    with Queue.create(url) as queue, Forkserver(tmp_path) as forkserver:
        # Given a worker that holds a task with a lease of one second
        task = queue.submit(to="slow", instructions="take your time")
        zombie = forkserver.bear("zombie", url=url, role="slow", go=str(go))
        queue.wait(task.id, timeout=30, until=(State.IN_PROGRESS,))
        # When it is stopped until its lease has ended and somebody else has the task
        forkserver.send(zombie, signal.SIGSTOP)
        successor = queue.claim("slow", wait=30, holder="successor", lease=600)
        assert successor is not None and successor.epoch == 2
        # And then goes on with every verb it knows
        forkserver.send(zombie, signal.SIGCONT)
        go.write_text("go")
        assert forkserver.wait(zombie) == 0, forkserver.errors()
        lines = [words for words in forkserver.lines("zombie") if words[0] != "claimed"]
        # Then each was refused as stale
        verbs = set(_every_verb(queue, successor))
        assert {words[1] for words in lines if words[0] == "refused"} == verbs, lines
        # And left nothing but the evidence that late reports came
        kinds = [entry.event.kind for entry in queue.history(task.id)]
        assert kinds == ["submitted", "claimed", "lease_ended", "claimed", *["report_refused"] * 3]
        assert queue.artifacts(task.id) == []
        assert queue.task(task.id).holder == "successor"
        # And the successor ends it as if nothing had been
        successor.complete(summary="done properly")
        assert queue.result(task.id).text() == "done properly"
        assert [problems for _, problems in queue.admin.verify() if problems] == []
