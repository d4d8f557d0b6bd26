"""The loop that seals: what is proved is sealed, and what is not is said once."""

from __future__ import annotations

import logging

import pytest

from agentq import Queue
from agentq.daemon.loops.seal import EVERY_SECONDS, SealLoop
from agentq.stores.sqlite.store import SqliteStore


def test_what_has_changed_is_sealed(queue: Queue) -> None:
    loop = SealLoop(queue._client.service)
    assert loop.run_once() == EVERY_SECONDS and queue.admin.last_seal() is None
    for number in range(2):
        queue.submit("build", f"build {number}")
        assert loop.run_once() == EVERY_SECONDS
    seal = queue.admin.last_seal()
    assert seal is not None and (seal.position, seal.tasks) == (2, 1)
    assert loop.run_once() == EVERY_SECONDS and queue.admin.last_seal() == seal


@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
def test_what_cannot_be_proved_is_not_sealed(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.submit("build", "build it")
    store = queue._client.installation.store
    assert isinstance(store, SqliteStore)
    loop = SealLoop(queue._client.service)
    store._writer.execute("UPDATE tasks SET holder = 'eve'")
    with caplog.at_level(logging.ERROR):
        assert loop.run_once() == loop.run_once() == EVERY_SECONDS
    assert queue.admin.last_seal() is None
    assert len([each for each in caplog.messages if "Nothing was sealed" in each]) == 1
    store._writer.execute("UPDATE tasks SET holder = ''")
    loop.run_once()
    assert queue.admin.last_seal() is not None
