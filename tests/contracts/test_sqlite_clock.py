"""Processes on one SQLite ledger agree on the time, and one with a false clock harms nobody."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from agentq.settings import Settings
from agentq.stores.sqlite.clock import CONFIRM_MS, STALE_MS, AgreedClock, ledger_clock
from agentq.wiring import WiredInstallation

HOUR_MS = 3600 * 1000
NOON = 1_800_000_000_000


@dataclass
class Machine:
    """One that was started some time ago; its processes read its clocks, some of them wrongly."""

    file: Path
    boot_ms: int = 5_000_000
    set_by_ms: int = NOON
    name: str = "first-start"

    def process(self, ahead_ms: int = 0) -> AgreedClock:
        return AgreedClock(
            self.file,
            machine=self.name,
            wall_ms=lambda: self.true_ms + ahead_ms,
            boot_ms=lambda: self.boot_ms,
        )

    @property
    def true_ms(self) -> int:
        return self.boot_ms + self.set_by_ms

    def passes(self, ms: int, *confirming: Callable[[], int]) -> None:
        """Time goes by, and these use the ledger all the while."""
        for _ in range(0, ms, 1000):
            self.boot_ms += 1000
            for process in confirming:
                process()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "ledger.db.clock")


def test_processes_with_the_clock_of_the_machine_use_it(machine: Machine) -> None:
    first, second = machine.process(), machine.process(ahead_ms=300)
    assert (first(), second()) == (machine.true_ms, machine.true_ms + 300)
    machine.passes(HOUR_MS, first)
    assert (first(), second()) == (machine.true_ms, machine.true_ms + 300)


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, -2 * HOUR_MS, 5_000])
def test_one_with_another_clock_takes_that_of_the_others(
    machine: Machine, ahead_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    right = machine.process()
    right()
    wrong = machine.process(ahead_ms)
    assert wrong() == machine.true_ms
    machine.passes(3 * STALE_MS, right, wrong)
    assert (right(), wrong()) == (machine.true_ms, machine.true_ms)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1 and "the clock of this process" in said[0], "it says so, once"


def test_a_clock_that_jumps_while_the_process_runs(machine: Machine) -> None:
    ahead = 0
    right = machine.process()
    jumping = AgreedClock(
        machine.file, machine=machine.name, wall_ms=lambda: machine.true_ms + ahead,
        boot_ms=lambda: machine.boot_ms,
    )  # fmt: skip
    right(), jumping()
    ahead = 2 * HOUR_MS
    assert jumping() == machine.true_ms, "at the very next look"
    machine.passes(STALE_MS, right)
    assert jumping() == machine.true_ms
    ahead = 0
    assert jumping() == machine.true_ms


def test_who_confirms_at_least_so_often_is_believed(machine: Machine) -> None:
    """A holder that renews a lease of half an hour, and does nothing else, looks every ten min."""
    holder = machine.process()
    holder()
    wrong = machine.process(2 * HOUR_MS)
    for _ in range(20):
        machine.passes(10 * 60 * 1000, wrong)
        assert wrong() == machine.true_ms
        holder()


def test_a_machine_whose_clock_is_set_is_followed_after_a_while(machine: Machine) -> None:
    """As on one that starts in 1970 and then asks a time server."""
    machine.set_by_ms = 0
    before = machine.process()
    wrong_time = before()
    machine.set_by_ms = NOON
    after = machine.process()
    assert before() == after() == wrong_time, "all go on at the time they agreed on"
    machine.passes(STALE_MS, before, after)
    assert before() == after() == machine.true_ms
    machine.passes(CONFIRM_MS, before, after)
    assert machine.process()() == machine.true_ms


def test_a_restart_of_the_machine_begins_anew(machine: Machine) -> None:
    machine.process(2 * HOUR_MS)()
    machine.name, machine.boot_ms = "second-start", 1_000
    machine.set_by_ms += 5_000_000
    assert machine.process()() == machine.true_ms


@pytest.mark.parametrize("words", ["", "first-start", "first-start a b", "\xff\xfe", "x" * 5000])
def test_a_note_that_cannot_be_read_counts_for_nothing(machine: Machine, words: str) -> None:
    machine.file.write_text(words, "latin-1")
    assert machine.process()() == machine.true_ms
    assert machine.process(2 * HOUR_MS)() == machine.true_ms, "it was written anew"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    clock = Machine(tmp_path / "not" / "there").process()
    assert clock() == clock()


def test_a_note_that_cannot_be_put_in_place_leaves_nothing_behind(machine: Machine) -> None:
    machine.file.mkdir()
    assert machine.process()() == machine.true_ms
    assert list(machine.file.parent.iterdir()) == [machine.file]


def test_in_memory_there_is_nobody_to_agree_with() -> None:
    assert not isinstance(ledger_clock(":memory:"), AgreedClock)


#: A process with a false clock that does all it can to get at the task of somebody else.
RAIDER = """
import json, sys, time
real, ahead = time.time_ns, int(sys.argv[2]) * 1_000_000
time.time_ns = lambda: real() + ahead
from agentq.client.queue import Queue
from agentq.settings import Settings
from agentq.wiring import WiredInstallation
settings = Settings(f"sqlite:///{sys.argv[1]}/ledger.db", f"{sys.argv[1]}/files", "")
with Queue(installation=WiredInstallation(settings)) as queue:
    ended = queue.admin.tick()
    claim = queue.claim("w")
    queue.submit("other", "its own work still gets done")
    done = queue.claim("other").complete("done").state
    print(json.dumps([ended, claim is not None, str(done)]))
"""


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, -2 * HOUR_MS])
def test_a_process_with_a_clock_hours_ahead_ends_no_live_lease(
    tmp_path: Path, ahead_ms: int
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with Queue(
        installation=WiredInstallation(
            Settings(url, str(tmp_path / "files"), "the test"), create=True
        )
    ) as queue:
        task = queue.submit("w", "takes a while")
        claim = queue.claim("w", lease=60)
        assert claim is not None
        raided = subprocess.run(
            [sys.executable, "-c", RAIDER, str(tmp_path), str(ahead_ms)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert raided.returncode == 0, raided.stderr
        assert json.loads(raided.stdout) == [0, False, "complete"]
        assert "the clock of this process" in raided.stderr
        held = queue.task(task.id)
        assert (held.state, held.epoch) == (State.IN_PROGRESS, 1)
        claim.complete("done")
