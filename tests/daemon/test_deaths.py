"""Loops that die of something nobody thought of: noticed each time, told, and started again."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentq.cli.log_lines import JsonLines
from agentq.client.queue import Queue
from agentq.core.errors import Invalid
from agentq.daemon import loop as loops
from agentq.daemon.loop import Loop, Runner
from agentq.daemon.up import Daemon, Options
from tests.eventually import eventually

DEATHS = 400


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    """The database makes no difference here."""
    return f"sqlite:///{tmp_path}/ledger.db"


class Dying(Loop):
    """Dies in every round, each time of something else, so many times; then it lives."""

    name = "dying"

    def __init__(self, deaths: int) -> None:
        super().__init__()
        self.left = deaths
        self.lived = threading.Event()

    @property
    def topics(self) -> frozenset[str]:  # type: ignore[override]
        if self.left and self.left % 4 == 0:
            self.left -= 1
            raise LookupError("before its round")
        return frozenset()

    def run_once(self) -> float:
        if self.left:
            self.left -= 1
            raise (ValueError("a bug"), SystemExit(3), MemoryError())[self.left % 3]
        self.lived.set()
        return 60.0


class Mortal(Daemon):
    """With one loop of ours beside the leader, and nothing else."""

    def __init__(self, queue: Queue, mine: Loop, **options: Path) -> None:
        self._mine = mine
        said = Options(**options)  # type: ignore[arg-type]
        super().__init__(queue._client.installation, queue._client.holder, options=said)

    def _make_loops(self, holder: str) -> list[Loop]:
        return [self._mine]


@contextmanager
def running(daemon: Daemon) -> Iterator[None]:
    thread = threading.Thread(target=daemon.run)
    thread.start()
    try:
        yield
    finally:
        daemon.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_hundreds_of_deaths_and_none_is_missed(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a loop that dies again and again, and next to no pause between,
    monkeypatch.setattr(loops, "_REVIVE_SECONDS", 0.0)
    dying = Dying(DEATHS)
    with caplog.at_level(logging.INFO, "agentq.daemon"), running(Mortal(queue, dying)):
        # when all of it is over, then it lives; one death that nobody noticed would have taken
        # longer than all of this.
        assert dying.lived.wait(4), f"{dying.left} of {DEATHS} were left"
    told = [record for record in caplog.records if "dying: died" in record.getMessage()]
    assert len(told) == DEATHS
    assert all(record.exc_info and record.levelno == logging.ERROR for record in told)


def test_the_pause_grows_and_a_long_life_forgives(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "_REVIVE_SECONDS", 100.0)
    monkeypatch.setattr(loops, "_REVIVE_SECONDS_MAX", 300.0)
    ended = threading.Event()
    runner = Runner(Dying(4), queue._client.installation.doorbell, ended=ended.set)
    pauses = []
    for _ in range(4):
        runner.start()
        assert ended.wait(5)
        ended.clear()
        # Whoever is told finds it dead, though its thread may not have ended yet.
        assert not runner.alive
        pauses.append(runner.revive())
    assert [pause // 10 for pause in pauses] == [9, 19, 29, 29]
    monkeypatch.setattr(loops, "_STEADY_SECONDS", 0.0)
    assert runner._put_off() == 100.0


def test_a_thread_that_cannot_be_had_is_asked_for_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "_REVIVE_SECONDS", 0.01)
    living = Dying(0)
    runner = Runner(living, queue._client.installation.doorbell)
    with monkeypatch.context() as full:

        def refuse(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        full.setattr(threading.Thread, "start", refuse)
        runner.start()
        assert not runner.alive
    eventually(lambda: runner.revive() > 1.0, what="a thread for it")
    assert living.lived.wait(5)
    runner.stop()
    assert runner.join(5)


def test_a_health_file_that_cannot_be_touched_ends_nothing(
    queue: Queue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    living = Dying(0)
    daemon = Mortal(queue, living, health=tmp_path / "no" / "folder")
    with caplog.at_level(logging.INFO, "agentq.daemon"), running(daemon):
        assert living.lived.wait(5)
        eventually(lambda: "health file cannot be touched" in caplog.text)
    assert "up: ended" in caplog.text


@pytest.mark.parametrize("term", [2 * 3600.0, 0.01])
def test_a_term_that_the_ledger_does_not_grant_is_refused_at_the_start(
    queue: Queue, term: float
) -> None:
    with pytest.raises(Invalid, match=r"--term.*1 hour"):
        Daemon(queue._client.installation, queue._client.holder, options=Options(term=term))


def test_a_death_is_one_line_of_json() -> None:
    try:
        raise ValueError("a bug")
    except ValueError as error:
        about = (type(error), error, error.__traceback__)
    record = logging.LogRecord("agentq", logging.ERROR, "", 0, "x: died", (), about)
    line = JsonLines().format(record)
    assert "\n" not in line
    said = json.loads(line)
    assert said["message"] == "x: died" and said["traceback"].endswith("ValueError: a bug")
