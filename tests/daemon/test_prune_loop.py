"""The loop that prunes: files that cannot be removed now are tried again soon, not at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.errors import NotFound
from agentq.daemon.loops.prune import AGAIN_SECONDS, EVERY_SECONDS, Prune
from tests.eventually import eventually


def test_files_that_cannot_be_removed_are_tried_again(
    queue: Queue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("task-1", "task-2"):
        queue.submit(to="w", instructions="x", id=name)
        queue.claim_task(name).complete(summary="done", result=b"# Done\n")
    result = tmp_path / "files/results/task-1.md"
    result.unlink()
    result.mkdir()
    loop = Prune(queue._client.installation.service, keep=1)
    eventually(lambda: loop.run_once() and loop.tally.counts == {"tasks deleted": 2})
    assert loop.run_once() == AGAIN_SECONDS
    with pytest.raises(NotFound):
        queue.task("task-2")
    said = [line for line in caplog.messages if "task-1" in line]
    assert len(said) == 1, "it is said once, not every time"
    result.rmdir()
    assert loop.run_once() == EVERY_SECONDS
    assert loop.tally.counts == {"tasks deleted": 2}
    assert not (tmp_path / "files/artifacts/task-1").exists()
