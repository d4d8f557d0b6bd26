"""Services started while PostgreSQL is away: they wait for it. People at a command do not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from agentq.settings import Settings
from agentq.wiring import WiredInstallation
from tests.daemon.ups import PROGRAM, Ups, several_ups
from tests.eventually import eventually
from tests.servers.postgres import PostgresServer


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[Ups]:
    with several_ups(tmp_path) as made:
        yield made


def installation(folder: Path, url: str) -> None:
    (folder / "agentq.toml").write_text(
        f'[ledger]\nurl = "{url}"\n[artifacts]\nroot = "files"\n'
        f'[roles.w]\ncommand = ["{sys.executable}", "-c", "print(1)"]\n'
    )


@pytest.mark.parametrize("words", [("worker", "w"), ("up",)], ids=["worker", "up"])
def test_it_waits_for_the_server_and_works(
    postgres_server: PostgresServer,
    fresh_postgres_url: str,
    tmp_path: Path,
    ups: Ups,
    words: tuple[str, ...],
) -> None:
    installation(tmp_path, fresh_postgres_url)
    settings = Settings(fresh_postgres_url, str(tmp_path / "files"), "the test")
    with Queue(installation=WiredInstallation(settings, create=True)) as queue:
        task = queue.submit("w", "count")
    command, *rest = words
    postgres_server.halt()
    try:
        service = ups.start(*rest, command=command)
        eventually(lambda: "It is waited for" in service.said or service.process.poll() is not None)
        assert service.process.poll() is None, service.said
    finally:
        postgres_server.start()
    with Queue(installation=WiredInstallation(settings)) as queue:
        assert queue.wait(task.id, 60).state is State.COMPLETE
    assert service.end() == 0
    assert service.said.count("It is waited for") <= 3, "each reason is told once"


@pytest.mark.long
def test_it_can_be_told_to_end_while_it_waits(
    postgres_server: PostgresServer, fresh_postgres_url: str, tmp_path: Path, ups: Ups
) -> None:
    installation(tmp_path, fresh_postgres_url)
    postgres_server.halt()
    try:
        worker = ups.start("w", command="worker")
        eventually(lambda: "It is waited for" in worker.said)
        assert worker.end(5) != 0
    finally:
        postgres_server.start()


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )


def test_a_wrong_address_is_told_at_once(
    postgres_server: PostgresServer, fresh_postgres_url: str, tmp_path: Path
) -> None:
    """Typed at any command; and at a service, where the server is there and says no."""
    nobody = "postgresql://localhost:1/none"
    installation(tmp_path, nobody)
    assert run(tmp_path, "list").returncode == 7
    typed = run(tmp_path, "worker", "w", "--url", nobody, "--", "true")
    assert typed.returncode == 7 and "cannot be reached" in typed.stderr
    installation(tmp_path, postgres_server.url_of("no-such-database"))
    refused = run(tmp_path, "worker", "w")
    assert refused.returncode == 7 and "does not exist" in refused.stderr
