"""Workers as real processes, with agents that leave traces, and a campaign that kills them."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

from agentq.client.queue import Queue
from agentq.core.states import TERMINAL, State
from tests.eventually import eventually
from tests.processes.warm_parent import AgentqProcess, WarmParent, start_agentq
from tests.ways import Elsewhere

#: An agent that leaves a trace of itself and of a child in a session of its own, then works a bit.
AGENT = """\
import os, subprocess, sys, time
trace = open(os.environ["TRACE"], "a", buffering=1)
orphan = subprocess.Popen(["sleep", "600"], start_new_session=True)
who = os.environ["AGENTQ_TASK_ID"], os.environ["AGENTQ_EPOCH"], os.getpid(), orphan.pid
trace.write("{} {} {} {}\\n".format(*who))
time.sleep(float(os.environ["WORK"]))
print("done")
"""


class WorkerFleet:
    """Workers of one role as processes of their own."""

    def __init__(
        self,
        folder: Path,
        work: float,
        elsewhere: Elsewhere | None = None,
        parent: WarmParent | None = None,
    ) -> None:
        """With `elsewhere` the workers reach the ledger through that server; with a `parent` they
        are forked from it."""
        self.folder = folder
        self._parent = parent
        self.trace = folder / "trace"
        (folder / "agent.py").write_text(AGENT)
        ledger = f'[ledger]\nurl = "{elsewhere.url}"\n' if elsewhere else ""
        (folder / "agentq.toml").write_text(
            ledger
            + '[roles.w]\ncommand = ["'
            + sys.executable
            + '", "'
            + str(folder / "agent.py")
            + '"]\n'
            'slots = 3\nlease = "3s"\ngrace = "1s"\nenvironment = ["TRACE", "WORK"]\n'
        )
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")},
            "TRACE": str(self.trace),
            "WORK": str(work),
            **({"AGENTQ_TOKEN": elsewhere.work_token} if elsewhere else {}),
        }
        self._started = 0

    def start(self) -> AgentqProcess:
        self._started += 1
        log = self.folder / f"worker-{self._started}.log"
        return start_agentq(
            self._parent, "worker", "w", "--grace", "1s", cwd=self.folder, env=self.environment,
            log=log,
        )  # fmt: skip

    def traces(self) -> list[tuple[str, int, int, int]]:
        if not self.trace.exists():
            return []
        rows = [line.split() for line in self.trace.read_text().splitlines()]
        return [(row[0], int(row[1]), int(row[2]), int(row[3])) for row in rows if len(row) == 4]

    def alive(self) -> set[int]:
        pids = {pid for _, _, *both in self.traces() for pid in both}
        return {pid for pid in pids if _runs(pid)}


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def run_worker_kills(
    folder: Path,
    queue: Queue,
    *,
    kills: int,
    tasks: int,
    seed: int,
    elsewhere: Elsewhere | None = None,
    parent: WarmParent | None = None,
    between: Callable[[int], None] = lambda kill: None,
) -> None:
    """Kill workers with `kill -9` while their agents run; then account for every task."""
    chance = random.Random(seed)
    fleet = WorkerFleet(folder, 0.05, elsewhere, parent)
    queue.submit_many({"to": "w", "instructions": f"task {n}"} for n in range(tasks))
    workers = [fleet.start() for _ in range(3)]
    try:
        for kill in range(kills):
            between(kill)
            seen = len(fleet.traces())
            _until_news(fleet, queue, seen)
            victim = chance.randrange(len(workers))
            workers[victim].kill()
            workers[victim].wait()
            workers[victim] = fleet.start()
        eventually(lambda: _open_tasks(queue) == 0, 120)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(30)
    eventually(lambda: not fleet.alive())
    ends: dict[str, int] = {}
    position = 0
    while entries := queue.events(position, limit=1000):
        position = entries[-1].position
        for entry in entries:
            if entry.event.state in TERMINAL:
                ends[entry.task_id] = ends.get(entry.task_id, 0) + 1
    assert len(ends) == tasks and set(ends.values()) == {1}
    assert [problems for _, problems in queue.admin.verify() if problems] == []


def _open_tasks(queue: Queue) -> int:
    queue.admin.tick()
    waiting = tuple(state for state in State if state not in TERMINAL)
    return len(list(queue.tasks(state=waiting)))


def _until_news(fleet: WorkerFleet, queue: Queue, seen: int) -> None:
    """An agent has started since, or there is nothing left to start."""
    eventually(lambda: len(fleet.traces()) > seen or not _open_tasks(queue), what="an agent")
