"""`agentq up` on a ledger that was moved: its loops stop, and go on if the move is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq import Queue
from agentq.ledger.terms import Terms
from tests.daemon.ups import Ups, several_ups
from tests.daemon.watching import until
from tests.doors.conftest import run_here


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
    Queue(url).close()
    return url


def led(url: str) -> set[str]:
    """The loops that somebody may run there."""
    with Queue(url) as queue:
        return {name for name, each in Terms(queue.store).standing().items() if each.holder}


def test_its_loops_stop(home: Path, ups: Ups, old: str) -> None:
    running = ups.start("--url", old, "--term", "1s")
    until(lambda: "prune" in led(old), what="the loops running")
    run_here("--url", old, "move", "--to", f"sqlite:///{home}/new.db").ok()
    # Whoever runs them, and whoever comes too late, says why they stop: once, and goes on waiting.
    late = ups.start("--url", old, "--term", "1s")
    for up in (running, late):
        until(lambda up=up: up.said_of("terms: waits:"), what="being told")  # type: ignore[misc]
        assert f"moved to sqlite:///{home}/new.db" in up.said_of("terms: waits:")[0]
    until(lambda: led(old) == set(), what="the end of the terms")
    assert late.said_of("runs here now") == []
    # A move that is taken back lets them go on,
    run_here("--url", old, "move", "--undo", "--yes").ok()
    until(lambda: "prune" in led(old), 20, "the loops running again")
    for up in (running, late):
        until(lambda up=up: up.said_of("terms: goes on"), 20, "it")  # type: ignore[misc]
        assert len(up.said_of("terms: waits:")) == 1
        assert "Traceback" not in up.said
        assert up.end() == 0


def test_one_that_ends_says_no_more_than_that(home: Path, ups: Ups) -> None:
    old = f"sqlite:///{home}/.agentq/ledger.db"
    run_here("move", "--to", f"sqlite:///{home}/new.db").ok()
    up = ups.start("--url", old)
    until(lambda: up.said_of("terms: waits:"), what="being told")
    assert up.end() == 0
    assert "Traceback" not in up.said and up.said_of("up: ended")
