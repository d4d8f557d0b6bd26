"""A worker on a machine whose network is cut: others take over, and it may say nothing more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from agentq.settings import read_file
from agentq.wiring import WiredInstallation
from tests.eventually import eventually
from tests.servers.missing import go_without
from tests.servers.network_namespace import IslandUnavailable, NetworkNamespace
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.long

#: The first attempt never ends by itself; its process shows where it runs.
PROGRAM = 'echo $$ > "$PIDS/$AGENTQ_EPOCH"; [ "$AGENTQ_EPOCH" = 1 ] && sleep 600; echo done'


@pytest.fixture
def network_namespace() -> Iterator[NetworkNamespace]:
    try:
        with NetworkNamespace() as made:
            yield made
    except IslandUnavailable as reason:
        go_without("network namespaces", reason)


class Place:
    """One machine's installation of what both share."""

    def __init__(self, folder: Path, shared: Path, url: str, broker: str) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "agentq.toml").write_text(
            f'[ledger]\nurl = "{url}"\n[broker]\nurl = "{broker}"\n[artifacts]\nroot = "{shared}"\n'
            f"[roles.w]\ncommand = ['/bin/sh', '-c', '{PROGRAM}']\nlease = \"4s\"\ngrace = \"1s\"\n"
            'environment = ["PIDS"]\n'
        )
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")},
            "PIDS": str(shared.parent / "pids"),
        }

    def run(
        self, *words: str, network_namespace: NetworkNamespace | None = None
    ) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "agentq", *words]
        with (self.folder / f"{words[0]}.log").open("ab") as said:
            return subprocess.Popen(
                network_namespace.words(argv) if network_namespace else argv,
                cwd=self.folder, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip


def test_a_cut_worker_is_replaced_and_fenced_out(
    tmp_path: Path,
    shared_postgres: PostgresServer,
    shared_rabbitmq: RabbitServer,
    network_namespace: NetworkNamespace,
) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    with shared_postgres.fresh_database() as url, shared_rabbitmq.fresh_host() as broker:
        database, host = urlsplit(url).path, urlsplit(broker).path
        far_database = network_namespace.forward(f"{shared_postgres.folder}/.s.PGSQL.5432")
        far_broker = network_namespace.forward(("127.0.0.1", shared_rabbitmq.port))
        here = Place(tmp_path / "here", tmp_path / "shared", url, broker)
        there = Place(
            tmp_path / "there", tmp_path / "shared",
            f"postgresql://postgres@{network_namespace.host}:{far_database}{database}",
            f"amqp://guest:guest@{network_namespace.host}:{far_broker}{host}",
        )  # fmt: skip
        assert here.run("init").wait(30) == 0, (here.folder / "init.log").read_text()
        queue = Queue(installation=WiredInstallation(read_file(here.folder / "agentq.toml")))
        running = [
            here.run("up", "--no-workers"),
            there.run("worker", "w", network_namespace=network_namespace),
        ]
        try:
            task = queue.submit(to="w", instructions="work")
            eventually((pids / "1").exists, what="the first attempt")
            network_namespace.cut()
            running.append(here.run("worker", "w"))
            eventually(
                lambda: queue.task(task.id).state is State.COMPLETE, 60, "the second attempt"
            )
            agent = Path("/proc") / (pids / "1").read_text().strip()
            network_namespace.mend()
            eventually(lambda: not agent.exists(), what="the end of the agent that was cut off")
            kinds = [entry.event.kind for entry in queue.history(task.id)]
            assert kinds.count("completed") == 1 and queue.task(task.id).epoch == 2
            assert [problems for _, problems in queue.admin.verify() if problems] == []
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(30)
            queue.close()
