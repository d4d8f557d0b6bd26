"""Large files through a server: no more of them in memory than a few blocks, at either end."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.processes.server_process import ServerProcess, new_ledger
from tests.server.hostile import memory_kb

pytestmark = pytest.mark.long

SIZE = 300 << 20
GROWTH_KB_MAX = 40_000
_EVERY_SECONDS = 0.02


class Watched:
    """The most memory that processes had within `with`, beyond what they had before."""

    def __init__(self, *pids: int) -> None:
        self._before = {pid: memory_kb(pid) for pid in pids}
        self._most = dict(self._before)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY_SECONDS):
            for pid, most in self._most.items():
                self._most[pid] = max(most, memory_kb(pid))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def growth_kb(self) -> list[int]:
        return [self._most[pid] - before for pid, before in self._before.items()]


def test_up_and_down_with_flat_memory(tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 10) * (1 << 10))
    with (
        new_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path) as (settings, _, token),
        ServerProcess(settings, tmp_path) as server,
        server.queue(token) as there,
    ):
        task = there.submit(to="w", instructions="x")
        claim = there.claim_task(task.id)
        service = there._client.service
        claim.put("small.bin", b"x" * (4 << 20))  # both have imported what they need
        service.open_artifact(there.who, task.id, "small.bin")[2].close()
        watched = Watched(server.pid, os.getpid())
        with watched:
            stored = claim.put("large.bin", large)
            opened = service.open_artifact(there.who, task.id, "large.bin")[2]
        with opened:
            assert opened.seek(0, os.SEEK_END) == stored.size == SIZE
        assert max(watched.growth_kb) < GROWTH_KB_MAX, f"server, client: {watched.growth_kb} kB"
