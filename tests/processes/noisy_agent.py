"""An agent that talks for gigabytes, through a real worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from agentq.client.queue import Queue
from agentq.core.states import State

#: What a worker may need at most, however much is said.
PEAK_MEGABYTES_MAX = 60
LINE = "so it went on and on, and nobody could remember how it had begun"


@dataclass(frozen=True)
class Heard:
    """What became of it."""

    state: State
    log_bytes: int
    peak_mb: float
    disk_bytes: int
    seconds: float


def run_noisy_agent(folder: Path, count: int, patience: float) -> Heard:
    """Let a worker run an agent that says so many bytes."""
    url = f"sqlite:///{folder}/.agentq/ledger.db"
    (folder / ".agentq").mkdir()
    program = f"yes {LINE} | head -c {count}; echo; echo end"
    (folder / "agentq.toml").write_text(
        f'[roles.noisy]\ncommand = ["/bin/sh", "-c", "{program}"]\n'
    )
    started = time.monotonic()
    with Queue.create(url) as queue:
        task = queue.submit(to="noisy", instructions="tell me everything")
        worker = subprocess.Popen(
            [sys.executable, "-m", "agentq", "worker", "noisy"], cwd=folder,
            env={k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            queue.wait(task.id, patience)
            peak_mb = _peak_megabytes(worker.pid)
        finally:
            worker.terminate()
            worker.wait(30)
        logs = [row.size for row in queue.artifacts(task.id) if row.name == "output.log"]
        state = queue.task(task.id).state
    on_disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return Heard(state, sum(logs), peak_mb, on_disk, time.monotonic() - started)


def _peak_megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
