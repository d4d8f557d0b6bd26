"""Two attempts on two machines: the second has the work of the first.

Each machine is a network namespace of its own, with its own clone of the repository, its own home
and its own workspaces. They share the server of the ledger, and at most a git remote.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from agentq.server.serving import LOOPBACK_NAMES
from tests.eventually import eventually
from tests.servers.missing import go_without
from tests.servers.network_namespace import IslandUnavailable, NetworkNamespace
from tests.ways import Elsewhere, served
from tests.worker.repositories import Repo, new_repo

pytestmark = pytest.mark.long

#: The first attempt works on both, then is killed or fails; the second hands in what it found.
AGENT = """\
import os, subprocess, sys, time
def git(*words):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)
if os.environ["AGENTQ_EPOCH"] == "1":
    open("committed.txt", "w").write("one")
    git("add", ".")
    git("commit", "-qm", "one")
    open("left.txt", "w").write("two")
    open("readme.txt", "a").write("three")
    sys.exit(75)
found = [name for name in ("committed.txt", "left.txt") if os.path.exists(name)]
status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True).stdout
print(found, status.split(), sys.stdin.read())
"""


class Machine:
    """A namespace, a home, a clone, and the settings of a worker there."""

    def __init__(self, folder: Path, source: Repo, remote: str, space: NetworkNamespace) -> None:
        self.folder, self.space = folder, space
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.repo = Repo(folder / "repo", self.home)
        source.git("clone", "--quiet", "--no-local", str(source.path), str(self.repo.path))
        (folder / "agent.py").write_text(AGENT)
        self._push = f'push = "{remote}"\n' if remote else ""

    def work(self, elsewhere: Elsewhere) -> None:
        """Let a worker do one task."""
        port = self.space.forward(("127.0.0.1", urlsplit(elsewhere.url).port or 0))
        command = json.dumps([sys.executable, str(self.folder / "agent.py")])
        (self.folder / "agentq.toml").write_text(
            f'[ledger]\nurl = "http://{self.space.host}:{port}"\n'
            f'[roles.w]\ncommand = {command}\nworkspace = "git"\nrepo = "{self.repo.path}"\n'
            f'lease = "5s"\n{self._push}'
        )
        outside = {k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")}
        words = [sys.executable, "-m", "agentq", "worker", "w", "--tasks", "1"]
        done = subprocess.run(
            self.space.words(words),
            cwd=self.folder,
            env={**outside, "HOME": str(self.home), "AGENTQ_TOKEN": elsewhere.work_token},
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr).decode()


@pytest.fixture
def namespaces() -> Iterator[tuple[NetworkNamespace, NetworkNamespace]]:
    with ExitStack() as stack:
        try:
            both = [stack.enter_context(NetworkNamespace()) for _ in range(2)]
        except IslandUnavailable as reason:
            go_without("network namespaces", reason)
        yield both[0], both[1]


@pytest.mark.parametrize("through", ["remote", "evidence"])
def test_the_second_has_the_work_of_the_first(
    tmp_path: Path,
    queue: Queue,
    namespaces: tuple[NetworkNamespace, NetworkNamespace],
    through: str,
) -> None:
    source = new_repo(tmp_path / "source")
    bare = tmp_path / "remote.git"
    source.git("clone", "--quiet", "--bare", str(source.path), str(bare))
    remote = str(bare) if through == "remote" else ""
    first, second = (
        Machine(tmp_path / f"machine-{number}", source, remote, space)
        for number, space in enumerate(namespaces, 1)
    )
    hosts = (*LOOPBACK_NAMES, *(space.host for space in namespaces))
    with served(queue._client.installation.settings, hosts=hosts) as elsewhere:
        task = queue.submit(to="w", instructions="work")
        first.work(elsewhere)
        eventually(lambda: _is_ready(queue, task.id))
        second.work(elsewhere)
        assert queue.task(task.id).state is State.COMPLETE
    said = queue.result(task.id).text()
    assert "['committed.txt', 'left.txt']" in said
    assert "['M', 'readme.txt', '??', 'left.txt']" in said
    assert "This workspace holds the work of attempt 1;" in said
    names = {each.name for each in queue.artifacts(task.id)}
    assert ("agentq/snapshot.bundle" in names) is (through == "evidence")
    in_remote = source.at(bare).git("for-each-ref", "--format=%(refname)", "refs/agentq").split()
    assert (f"refs/agentq/{task.id}/1" in in_remote) is (through == "remote")


def _is_ready(queue: Queue, task_id: str) -> bool:
    queue.admin.tick()
    return queue.task(task_id).state is State.READY
