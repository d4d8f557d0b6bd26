"""Workers elsewhere whose server or network is away for a while: what they hold, they keep."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from agentq.core.task import Task
from tests.eventually import eventually, pause
from tests.processes.server_process import ServerProcess, new_ledger
from tests.servers.missing import go_without
from tests.servers.network_namespace import IslandUnavailable, NetworkNamespace

pytestmark = pytest.mark.long

#: The agent shows where it runs, and ends when it is told to.
AGENT = (
    'echo $$ > "$HERE/pid-$AGENTQ_EPOCH"; until [ -e "$HERE/go" ]; do sleep 0.1; done; echo done'
)
#: A minute without a server.
OUTAGE_SECONDS = 60
#: Longer than a connection lasts on which nothing is heard (20 s).
CUT_SECONDS = 30


@pytest.fixture
def network_namespace() -> Iterator[NetworkNamespace]:
    try:
        with NetworkNamespace() as made:
            yield made
    except IslandUnavailable as reason:
        go_without("network namespaces", reason)


@contextmanager
def worker(
    server: ServerProcess,
    token: str,
    folder: Path,
    words: list[str],
    network_namespace: NetworkNamespace | None = None,
) -> Iterator[Path]:
    """A process elsewhere that knows an address and a token; the file of what it says."""
    folder.mkdir()
    said = folder / "said"
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")},
        "AGENTQ_URL": server.url, "AGENTQ_TOKEN": token, "AGENTQ_HOME": str(folder / "home"),
        "HERE": str(folder), "PYTHONPATH": str(Path.cwd()),
    }  # fmt: skip
    argv = [sys.executable, *words]
    with said.open("wb") as out:
        process = subprocess.Popen(
            network_namespace.words(argv) if network_namespace else argv,
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        yield said
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def agentq_worker(folder: Path) -> list[str]:
    agent = f'HERE="{folder}"; {AGENT}'
    return ["-m", "agentq", "worker", "w", "--grace", "1s", "--", "/bin/sh", "-c", agent]


def assert_done_once(queue: Queue, task: Task, epoch: int) -> None:
    kinds = [entry.event.kind for entry in queue.history(task.id)]
    assert kinds.count("completed") == 1, kinds
    assert kinds.count("claimed") == epoch, kinds
    assert queue.task(task.id).epoch == epoch
    assert [problems for _, problems in queue.admin.verify() if problems] == []


def work_token(queue: Queue) -> str:
    return queue.admin.create_token("elsewhere", ["work:w"])[1]


def test_a_minute_without_a_server_costs_no_attempt(tmp_path: Path) -> None:
    """The agent of a worker ends while the server is away; its work counts when it is back."""
    with new_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path) as (settings, queue, _):
        there = tmp_path / "there"
        with (
            ServerProcess(settings, tmp_path) as server,
            worker(server, work_token(queue), there, agentq_worker(there)) as said,
        ):
            task = queue.submit(to="w", instructions="work")
            eventually((there / "pid-1").exists, what="the agent")
            server.kill()
            pause(OUTAGE_SECONDS / 2)
            (there / "go").touch()
            pause(OUTAGE_SECONDS / 2)
            queue.admin.tick()  # by the ledger's clock, nothing has ended
            server.start()
            done = eventually(lambda: queue.task(task.id).state is State.COMPLETE, what="the end")
            assert done, said.read_text()
        assert_done_once(queue, task, 1)


def test_a_worker_that_was_started_before_its_server(tmp_path: Path) -> None:
    """It must know whose agents it starts; it waits for that as long as it takes."""
    with new_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path) as (settings, queue, _):
        there, server = tmp_path / "there", ServerProcess(settings, tmp_path)
        task = queue.submit(to="w", instructions="work")
        with ExitStack() as ends:
            ends.push(server)  # ended last
            running = worker(server, work_token(queue), there, agentq_worker(there))
            said = ends.enter_context(running)
            eventually(lambda: "It is waited for" in said.read_text(), what="what it waits for")
            (there / "go").touch()
            server.start()
            eventually(lambda: queue.task(task.id).state is State.COMPLETE, what="the end")
        assert said.read_text().count("It is waited for") == 1
        assert_done_once(queue, task, 1)


def test_packets_that_are_lost_cost_no_attempt(
    tmp_path: Path, network_namespace: NetworkNamespace
) -> None:
    """Nobody is told that a cable was pulled. The worker finds out, and reports when it can."""
    with new_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path) as (settings, queue, _):
        there, host = tmp_path / "there", network_namespace.host
        with (
            ServerProcess(settings, tmp_path, host=host) as server,
            worker(server, work_token(queue), there, agentq_worker(there), network_namespace),
        ):
            task = queue.submit(to="w", instructions="work")
            eventually((there / "pid-1").exists, what="the agent")
            network_namespace.lose_packets()
            (there / "go").touch()
            pause(CUT_SECONDS)
            assert queue.task(task.id).state is State.IN_PROGRESS
            network_namespace.mend()
            # On the old connection TCP would try again after another 20 s.
            eventually(lambda: queue.task(task.id).state is State.COMPLETE, 15, "the end")
            # And it hears of new work as before.
            second = queue.submit(to="w", instructions="more")
            eventually(lambda: queue.task(second.id).state is State.COMPLETE, what="more")
        assert_done_once(queue, task, 1)


def test_a_lease_that_ends_meanwhile_is_lost_for_good(
    tmp_path: Path, network_namespace: NetworkNamespace
) -> None:
    """Somebody else has done the work since: whoever comes back is told, and changes nothing."""
    with new_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path) as (settings, queue, _):
        there, host = tmp_path / "there", network_namespace.host
        holder = ["-m", "tests.processes.remote_holder", "w", "4", str(there / "go")]
        with (
            ServerProcess(settings, tmp_path, host=host) as server,
            worker(server, work_token(queue), there, holder, network_namespace) as said,
        ):
            task = queue.submit(to="w", instructions="work")
            eventually(lambda: "claimed" in said.read_text(), what="the first attempt")
            network_namespace.cut()
            claim = eventually(lambda: queue.claim("w", wait=1), what="the end of the lease")
            assert claim is not None
            claim.complete(summary="done here")
            network_namespace.mend()
            eventually(lambda: "refused" in said.read_text(), what="word of it")
            assert "lost" in said.read_text()
            assert queue.task(task.id).summary == "done here"
        assert_done_once(queue, task, 2)
