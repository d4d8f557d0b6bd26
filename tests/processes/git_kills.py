"""Workers with git roles, killed again and again: no file that any attempt wrote may be lost."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agentq.client.queue import Queue
from agentq.core.states import TERMINAL, State
from agentq.worker.workspace_cleanup import Cleaner
from agentq.worker.workspaces import Workspaces
from tests.eventually import eventually
from tests.processes.warm_parent import AgentqProcess, WarmParent, start_agentq
from tests.worker.repositories import Repo, new_repo

#: Says what it finds, takes it away, and writes files of its own: some are committed, most are not.
#: A file is named to the trace only after it was written.
AGENT = """\
import json, os, subprocess, sys, time
task, epoch = os.environ["AGENTQ_TASK_ID"], int(os.environ["AGENTQ_EPOCH"])
def say(kind, names):
    with open(os.environ["TRACE"], "a") as trace:
        trace.write(json.dumps([task, epoch, kind, names, os.getcwd()]) + "\\n")
def git(*words):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=False)
say("found", sorted(name for name in os.listdir() if name.startswith("work-")))
for name in os.listdir():
    if name.startswith("work-") and not name.startswith("work-%d-" % epoch):
        os.unlink(name)
for number in range(6):
    name = "work-%d-%d.txt" % (epoch, number)
    with open(name, "w") as file:
        file.write(name)
    say("wrote", [name])
    if number == 2:
        git("add", "--all")
        git("commit", "-qm", "half")
    time.sleep(0.02)
sys.exit(75 if epoch == 1 else 0)
"""


@dataclass
class Trace:
    """What agents have found and written, by task and attempt."""

    found: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    wrote: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    folders: dict[tuple[str, int], str] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> Trace:
        trace = cls()
        for line in file.read_text().splitlines() if file.exists() else ():
            task, epoch, kind, names, folder = json.loads(line)
            into = trace.found if kind == "found" else trace.wrote
            into.setdefault((task, epoch), set()).update(names)
            trace.folders[task, epoch] = folder
        return trace


class GitFleet:
    """Workers of one git role as processes of their own."""

    def __init__(self, folder: Path, repo: Repo, parent: WarmParent | None) -> None:
        self._parent = parent
        self.folder, self.trace = folder, folder / "trace"
        (folder / "agent.py").write_text(AGENT)
        command = json.dumps([sys.executable, str(folder / "agent.py")])
        (folder / "agentq.toml").write_text(
            f'[roles.w]\ncommand = {command}\nworkspace = "git"\nrepo = "{repo.path}"\n'
            'slots = 3\nlease = "3s"\ngrace = "1s"\nenvironment = ["TRACE"]\n'
        )
        outside = {k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")}
        self.environment = {**outside, "HOME": str(repo.home), "TRACE": str(self.trace)}
        self._started = 0

    def start(self) -> AgentqProcess:
        self._started += 1
        log = self.folder / f"worker-{self._started}.log"
        return start_agentq(
            self._parent, "worker", "w", "--grace", "1s", cwd=self.folder, env=self.environment,
            log=log,
        )  # fmt: skip


def run_git_kills(
    folder: Path,
    queue: Queue,
    *,
    kills: int,
    tasks: int,
    seed: int,
    parent: WarmParent | None = None,
    between: Callable[[int], None] = lambda kill: None,
) -> None:
    """Kill workers while their agents write; then account for every file and every tree."""
    chance = random.Random(seed)
    repo = new_repo(folder / "code")
    fleet = GitFleet(folder, repo, parent)
    queue.submit_many({"to": "w", "instructions": f"task {n}"} for n in range(tasks))
    workers = [fleet.start() for _ in range(2)]
    try:
        for kill in range(kills):
            between(kill)
            size = _size(fleet.trace)
            # At any moment: while a tree is made, while an agent writes, while it is kept.
            wanted = size + chance.randrange(2000)
            _until(fleet, queue, wanted)
            victim = chance.randrange(len(workers))
            workers[victim].kill()
            workers[victim].wait()
            workers[victim] = fleet.start()
        eventually(lambda: _open_tasks(queue) == 0, 1200)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(30)
    account(folder, queue, repo, Trace.read(fleet.trace))


def account(folder: Path, queue: Queue, repo: Repo, trace: Trace) -> None:
    """Every file is under a ref of its attempt, and of killed attempts nothing else is left."""
    known = Workspaces(folder / ".agentq" / "workspaces", lock_seconds=0)
    client = queue._client
    eventually(lambda: Cleaner(known, client.service, client.who).clean_up() >= 0)
    lost = {
        (task, epoch, name)
        for (task, epoch), names in trace.wrote.items()
        for name in names - kept_files(repo, task, epoch)
    }
    assert lost == set(), f"{len(lost)} files are lost: {sorted(lost)[:5]}"
    trees = [str(kept.path) for kept in known.all() if "missing" not in kept.flags]
    assert trees == [], f"{len(trees)} trees are left: {trees[:3]}"
    for name in (".aside", ".scratch"):
        left = list((known.root / name).iterdir()) if (known.root / name).is_dir() else []
        assert left == [], f"{name} holds {len(left)} leftovers"
    # Who worked at the path of the task found what the attempt before had written there.
    for (task, epoch), found in trace.found.items():
        before = trace.wrote.get((task, epoch - 1), set())
        same = trace.folders.get((task, epoch - 1)) == trace.folders[task, epoch]
        assert not same or before <= found, f"attempt {epoch} of {task} lacks {before - found}"
    assert [problems for _, problems in queue.admin.verify() if problems] == []


def kept_files(repo: Repo, task: str, epoch: int) -> set[str]:
    """The files under the refs of this attempt."""
    refs = (f"refs/agentq/{task}/{epoch}", f"refs/heads/agentq/{task}-{epoch}")
    found: set[str] = set()
    for ref in refs:
        found |= set(repo.git("ls-tree", "-r", "--name-only", ref, check=False).split("\n"))
    return found


def _until(fleet: GitFleet, queue: Queue, wanted: int) -> None:
    """Agents have written so much to the trace, or there is nothing left to do."""
    eventually(lambda: _size(fleet.trace) >= wanted or not _open_tasks(queue), 120)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _open_tasks(queue: Queue) -> int:
    queue.admin.tick()
    waiting = tuple(state for state in State if state not in TERMINAL)
    return len(list(queue.tasks(state=waiting)))
