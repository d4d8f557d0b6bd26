"""`agentq up` and `agentq worker` on a ledger that moves: they wait, and end once it has moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq import Queue
from agentq.contracts.copying import Fence
from agentq.core.states import State
from agentq.ledger.leader_leases import LeaderLeases
from agentq.settings import load_settings
from agentq.wiring import open_copy
from tests.daemon.ups import Ups, several_ups
from tests.eventually import eventually
from tests.interfaces.conftest import run_here

pytestmark = pytest.mark.long


@pytest.fixture
def ups(home: Path) -> Iterator[Ups]:
    with several_ups(home) as made:
        yield made


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def old(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The ledger that will have moved."""
    if request.param == "sqlite":
        return f"sqlite:///{home}/.agentq/ledger.db"
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    url = str(request.getfixturevalue("fresh_postgres_url"))
    Queue.create(url).close()
    return url


def led(url: str) -> set[str]:
    """The loops that somebody may run there."""
    with Queue(url) as queue:
        return {
            name
            for name, each in LeaderLeases(queue.installation.store).standing().items()
            if each.holder
        }


def close_for_a_move(url: str) -> None:
    copy = open_copy(load_settings(url))
    copy.set_fence(Fence("moving", "sqlite:////new.db"))
    copy.close()


def test_while_it_moves_the_loops_wait(ups: Ups, old: str) -> None:
    running = ups.start("--url", old, "--term", "1s")
    eventually(lambda: "prune" in led(old), what="the loops running")
    close_for_a_move(old)
    # Whoever runs them, and whoever comes too late, says why they stop: once, and goes on waiting.
    late = ups.start("--url", old, "--term", "1s")
    for up in (running, late):
        eventually(lambda up=up: up.said_of("terms: waits:"), what="being told")  # type: ignore[misc]
        assert "being moved to sqlite:////new.db" in up.said_of("terms: waits:")[0]
    eventually(lambda: led(old) == set(), what="the end of the terms")
    assert late.said_of("runs here now") == []
    # A move that is taken back lets them go on,
    run_here("--url", old, "move", "--undo").ok()
    eventually(lambda: "prune" in led(old), what="the loops running again")
    for up in (running, late):
        eventually(lambda up=up: up.said_of("terms: goes on"))  # type: ignore[misc]
        assert len(up.said_of("terms: waits:")) == 1
        assert "Traceback" not in up.said
        assert up.end() == 0


def test_once_it_is_moved_they_end(home: Path, ups: Ups, old: str) -> None:
    running = ups.start("--url", old, "--term", "1s")
    eventually(lambda: "prune" in led(old), what="the loops running")
    run_here("--url", old, "move", "--to", f"sqlite:///{home}/new.db").ok()
    late = ups.start("--url", old)
    for up in (running, late):
        assert up.process.wait(30) == 7
        # The last line says where to go; whoever starts it again there needs no more.
        assert f"was moved to sqlite:///{home}/new.db" in up.said.splitlines()[-2]
        assert up.said.splitlines()[-1].endswith("Use the ledger that is named there.")
        assert "Traceback" not in up.said
    assert led(old) == set()


def test_a_worker_waits_and_ends_likewise(home: Path, ups: Ups, old: str) -> None:
    task = run_here("--url", old, "submit", "--to", "w", "--instructions", "x").ok().out.strip()
    close_for_a_move(old)
    worker = ups.start("--url", old, "w", "--", "cat", command="worker")
    eventually(lambda: "being moved to" in worker.said, what="being told")
    run_here("--url", old, "move", "--undo").ok()
    with Queue(old) as queue:
        eventually(lambda: queue.task(task).state is State.COMPLETE, what="the task")
    # One that is ready only later is still there when the move is over.
    run_here("--url", old, "submit", "--to", "w", "--instructions", "x", "--delay", "5s").ok()
    run_here("--url", old, "move", "--to", f"sqlite:///{home}/new.db").ok()
    assert worker.process.wait(30) == 7
    assert f"was moved to sqlite:///{home}/new.db" in worker.said
    assert "Traceback" not in worker.said
