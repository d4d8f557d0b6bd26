"""A move that is killed, undone, overtaken or written around at each of its steps.

Whatever happens, there are never two ledgers that can be written, every task that was accepted is
in the one that counts, and running the same move again completes it.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from agentq import Queue
from agentq.client.moving import STEPS, move
from agentq.client.moving_files import tasks_of
from agentq.client.moving_settings import replaced
from agentq.client.moving_undo import undo
from agentq.core.errors import AgentqError, Conflict, Refused, Unavailable
from agentq.settings import Settings, load_settings
from agentq.wiring import open_copy, open_installation
from tests.interfaces.conftest import clean_environment, run_here

#: Steps after which only the new ledger counts.
DECIDED = ("moved", "open")


@dataclass
class Ledgers:
    """Both ends of a move, and all that either has ever acknowledged."""

    old: Settings
    new: Settings
    acknowledged: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def move(self, step: Callable[[str], None] = lambda done: None) -> None:
        parts = open_installation(self.old)
        try:
            move(parts, self.new, force_release=True, step=step)
        finally:
            parts.close()

    def submit(self, settings: Settings) -> bool:
        """Whether a task was accepted there."""
        name = f"task-{next(self.numbers)}"
        with Queue(installation=open_installation(settings)) as queue:
            try:
                queue.submit(to="builder", instructions="x", id=name)
            except Unavailable:
                return False
        self.acknowledged.add(name)
        return True

    def claim(self) -> None:
        """What may be claimed in the old one is in progress from now on."""
        with Queue(installation=open_installation(self.old)) as queue, suppress(Unavailable):
            queue.claim("builder", holder="ada")

    def ids(self, settings: Settings) -> set[str]:
        with Queue(installation=open_installation(settings)) as queue:
            return {task.id for task, _ in tasks_of(queue.service)}

    def is_open(self, settings: Settings) -> bool:
        copy = open_copy(settings)
        try:
            return copy.fence() is None
        finally:
            copy.close()

    def check(self) -> Settings:
        """At most one that can be written, and all is in it. An empty database is no ledger yet."""
        copied = self.ids(self.new)
        opened = [
            each
            for each in (self.old, self.new)
            if self.is_open(each) and (each is self.old or copied)
        ]
        assert len(opened) <= 1, "both can be written"
        counts = opened[0] if opened else self.old
        assert self.acknowledged <= self.ids(counts), "an accepted task is not where work goes on"
        return counts

    def completes(self) -> None:
        """Run again until nobody interferes: then it is over, and everything has arrived."""
        self.move()
        assert self.check() is self.new
        assert not self.submit(self.old) and self.submit(self.new)
        with Queue(installation=open_installation(self.new)) as queue:
            assert all(found == [] for _, found in queue.installation.ledger_queries.verify())


SERVER = pytest.param("postgres", marks=pytest.mark.postgres)
FROM_SERVER = pytest.param("from postgres", marks=pytest.mark.postgres)


@pytest.fixture(params=["sqlite", SERVER, FROM_SERVER])
def ledgers(request: pytest.FixtureRequest, home: Path) -> Ledgers:
    new = f"sqlite:///{home}/new.db"
    if request.param == "postgres":
        new = request.getfixturevalue("fresh_postgres_url")
    elif request.param == "from postgres":
        file = home / "agentq.toml"
        server = {"url": request.getfixturevalue("fresh_postgres_url")}
        file.write_text(replaced(file.read_text(), "ledger", server))
        run_here("init").ok()
    old = load_settings()
    made = Ledgers(old, replace(old, url=new))
    assert made.submit(old) and made.submit(old)
    return made


def undo_old(ledgers: Ledgers) -> None:
    with suppress(Refused):
        undo(ledgers.old)


def undo_new(ledgers: Ledgers) -> None:
    with suppress(Refused):
        undo(ledgers.new)


def move_too(ledgers: Ledgers) -> None:
    ledgers.move()


def undo_and_move(ledgers: Ledgers) -> None:
    undo_old(ledgers)
    ledgers.submit(ledgers.old)
    ledgers.move()


def move_too_and_die(ledgers: Ledgers) -> None:
    """Another run comes, gets as far as it has the ledger, and goes no further for now."""
    killed("closed", ledgers)


def only_work(ledgers: Ledgers) -> None:
    """Nobody but those who work."""


INTERFERENCES = [only_work, undo_old, undo_new, move_too, undo_and_move]


class TestInterference:
    @pytest.mark.parametrize("step", STEPS)
    @pytest.mark.parametrize("interfere", INTERFERENCES)
    @pytest.mark.parametrize("ledgers", ["sqlite"], indirect=True)
    def test_at_each_step(
        self, ledgers: Ledgers, step: str, interfere: Callable[[Ledgers], None]
    ) -> None:
        interfered(ledgers, step, interfere)

    @pytest.mark.parametrize("step", ["files", "closed", "copied", "sealed", "moved"])
    @pytest.mark.parametrize(
        ("ledgers", "interfere"),
        [("postgres", move_too), ("from postgres", undo_old)],
        indirect=["ledgers"],
    )
    def test_on_a_server(
        self, ledgers: Ledgers, step: str, interfere: Callable[[Ledgers], None]
    ) -> None:
        interfered(ledgers, step, interfere)

    @pytest.mark.parametrize("step", ["files", "closed", "copied", "sealed"])
    @pytest.mark.parametrize("ledgers", ["sqlite"], indirect=True)
    def test_a_run_that_died_since_does_not_undo_the_other(
        self, ledgers: Ledgers, step: str
    ) -> None:
        interfered(ledgers, step, move_too_and_die)


def interfered(ledgers: Ledgers, step: str, interfere: Callable[[Ledgers], None]) -> None:
    """Somebody interferes after that step, work is offered to the old ledger, the move goes on."""

    def hook(done: str) -> None:
        if done == step:
            interfere(ledgers)
            if ledgers.is_open(ledgers.old):
                assert ledgers.submit(ledgers.old), "open is open"
                ledgers.claim()
            else:
                assert not ledgers.submit(ledgers.old)
            ledgers.check()

    given_up = None
    try:
        ledgers.move(hook)
    except Conflict as error:
        given_up = error
    assert given_up is None or (step not in DECIDED and given_up.remedy)
    ledgers.check()
    ledgers.completes()


#: Moves in a process of its own that dies, without a word, after a step, or instead of a call.
DIES = """
import os, signal, sys
from dataclasses import replace
from agentq.client import moving
from agentq.settings import load_settings
from agentq.stores import copying_postgres, copying_sqlite
from agentq.wiring import open_installation

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def step(done):
    if done == sys.argv[1]:
        die()
    if done == sys.argv[3]:
        raise KeyboardInterrupt

if len(sys.argv) > 4:
    setattr(copying_sqlite.SqliteCopy, sys.argv[4], die)
old = load_settings()
moving.move(open_installation(old), replace(old, url=sys.argv[2]), step=step)
"""


def killed(step: str, ledgers: Ledgers, fails: str = "", call: str = "") -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIES, step, ledgers.new.url, fails, *([call] if call else [])],
        env=clean_environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr


class TestKilled:
    @pytest.mark.parametrize("step", STEPS)
    @pytest.mark.parametrize("ledgers", [SERVER], indirect=True)
    def test_running_it_again_completes_it(self, ledgers: Ledgers, step: str) -> None:
        killed(step, ledgers)
        counts = ledgers.check()
        # It is open, or says what to do.
        if not ledgers.submit(counts):
            run_here("submit", "--to", "b", "--instructions", "x").refused(7, "move")
        ledgers.completes()

    @pytest.mark.parametrize("step", STEPS)
    @pytest.mark.parametrize("ledgers", ["sqlite"], indirect=True)
    def test_or_it_is_given_up(self, ledgers: Ledgers, step: str) -> None:
        killed(step, ledgers)
        if step in DECIDED:
            run_here("move", "--undo").refused(4, "--yes")
        else:
            run_here("move", "--undo").ok()
            assert ledgers.submit(ledgers.old)
        ledgers.check()
        if step == "sealed":
            # The copy is whole, and of another time: nobody deletes it without being asked.
            with pytest.raises(Conflict, match="whole copy") as refused:
                ledgers.move()
            assert "move --undo --yes" in refused.value.remedy
            run_here("--url", ledgers.new.url, "move", "--undo").refused(4, "--yes")
            run_here("--url", ledgers.new.url, "move", "--undo", "--yes").ok()
        ledgers.completes()

    @pytest.mark.parametrize("fails", ["closed", "copied", "sealed"])
    @pytest.mark.parametrize("call", ["lift_fence", "clear"])
    @pytest.mark.parametrize("ledgers", ["sqlite"], indirect=True)
    def test_while_it_puts_things_back(self, ledgers: Ledgers, fails: str, call: str) -> None:
        killed("", ledgers, fails, call)
        ledgers.check()
        ledgers.completes()

    @pytest.mark.parametrize(
        "steps",
        [("closed", "sealed"), ("copied", "copied"), ("sealed", "closed"), ("sealed", "sealed")],
    )
    @pytest.mark.parametrize("ledgers", ["sqlite"], indirect=True)
    def test_twice(self, ledgers: Ledgers, steps: tuple[str, str]) -> None:
        """What the second run inherits from the first, the third inherits too."""
        for step in steps:
            killed(step, ledgers)
            ledgers.check()
        ledgers.completes()


class TestWhatIsLeft:
    """Ledgers that were moved, to one that is not as it was left."""

    @pytest.mark.parametrize("ledgers", ["sqlite"], indirect=True)
    def test_the_new_one_was_emptied(self, ledgers: Ledgers) -> None:
        killed("moved", ledgers)
        assert undo(ledgers.new, even_if_moved=True)
        with pytest.raises(Conflict, match="does not hold what was moved") as refused:
            ledgers.move()
        assert "move --undo --yes" in refused.value.remedy
        undo(ledgers.old, even_if_moved=True)
        ledgers.completes()

    @pytest.mark.parametrize("ledgers", ["sqlite"], indirect=True)
    def test_the_old_one_was_opened_before_the_new_one(self, ledgers: Ledgers) -> None:
        def hook(done: str) -> None:
            if done == "moved":
                undo(ledgers.old, even_if_moved=True)
                assert ledgers.submit(ledgers.old)

        with pytest.raises(Conflict, match="is the one that counts"):
            ledgers.move(hook)
        assert ledgers.check() is ledgers.old

    @pytest.mark.parametrize("ledgers", ["sqlite"], indirect=True)
    def test_another_ledger_of_the_same_name(self, ledgers: Ledgers) -> None:
        """On another machine, say: what was moved from there is nobody's leftover."""
        killed("moved", ledgers)
        for path in Path(ledgers.old.sqlite_path).parent.glob("ledger.db*"):
            if path.is_file():
                path.unlink()
        there = ledgers.acknowledged
        ledgers.acknowledged = set()
        open_installation(ledgers.old, create=True).close()
        assert ledgers.submit(ledgers.old)
        with pytest.raises(Conflict, match="whole copy"):
            ledgers.move()
        assert ledgers.check() is ledgers.old
        assert there <= ledgers.ids(ledgers.new)


class TestAtOnce:
    def test_two_moves(self, ledgers: Ledgers) -> None:
        words = [sys.executable, "-m", "agentq", "move", "--to", ledgers.new.url]
        runs = [
            subprocess.Popen(
                words, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for _ in range(2)
        ]
        said = [run.communicate(timeout=60)[1].decode() for run in runs]
        assert {run.returncode for run in runs} <= {0, 5, 7}, said
        assert not any("Traceback" in words for words in said)
        ledgers.check()
        ledgers.completes()

    def test_those_who_submit_all_the_while(self, ledgers: Ledgers) -> None:
        """Each is accepted, and moves, or is refused."""
        begun, stop = threading.Semaphore(0), threading.Event()
        accepted: set[str] = set()
        trouble: list[AgentqError] = []

        def submit_on(name: str) -> None:
            with Queue(installation=open_installation(ledgers.old)) as queue:
                for number in itertools.count():
                    task_id = f"{name}-{number}"
                    try:
                        queue.submit(to="builder", instructions="x", id=task_id)
                    except Unavailable as error:
                        trouble.append(error)
                        return
                    accepted.add(task_id)
                    begun.release()
                    if stop.is_set():
                        return

        threads = [threading.Thread(target=submit_on, args=[name]) for name in ("a", "b")]
        for each in threads:
            each.start()
        try:
            for _ in range(10):
                assert begun.acquire(timeout=30)
            ledgers.move()
        finally:
            stop.set()
            for each in threads:
                each.join(30)
        assert len(trouble) == 2 and all("move" in error.cause for error in trouble)
        ledgers.acknowledged |= accepted
        assert ledgers.check() is ledgers.new
        assert ledgers.ids(ledgers.new) == ledgers.acknowledged
