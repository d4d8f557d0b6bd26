"""`agentq up` as real processes: several at once, killed, told to end; its workers killed too."""

from __future__ import annotations

import http.client
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from agentq.client.queue import Queue
from agentq.contracts.store import LeaseRow
from agentq.core.states import State
from agentq.settings import Settings
from tests.daemon.ups import Ups, runs, several_ups
from tests.eventually import eventually
from tests.processes.warm_parent import AgentqProcess
from tests.servers.postgres import PostgresServer

#: The loops of an installation without a broker.
NAMES = {
    "due", "hooks", "numbers", "prune", "results", "runs", "schedules", "seal", "wakes",
    "webhooks",
}  # fmt: skip


#: Where the database makes no difference.
ONE_STORE = pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)


@pytest.fixture
def settings(ledger_url: str, tmp_path: Path) -> Settings:
    (tmp_path / "agentq.toml").write_text(
        f'[ledger]\nurl = "{ledger_url}"\n[artifacts]\nroot = "files"\n'
    )
    return Settings(ledger_url, str(tmp_path / "files"), "the test")


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[Ups]:
    with several_ups(tmp_path) as made:
        yield made


def with_worker(folder: Path, *lines: str) -> None:
    """Let the installation have a worker `w` that runs these lines of Python."""
    program = folder / "agent.py"
    program.write_text("\n".join(lines) + "\n")
    with (folder / "agentq.toml").open("a") as settings:
        settings.write(f'[roles.w]\ncommand = ["{sys.executable}", "{program}"]\nlease = "3s"\n')


def leaders(queue: Queue) -> dict[str, LeaseRow]:
    store = queue._client.installation.store
    rows, now = store.read(lambda reader: (reader.leader_leases(), reader.now()))
    return {row.name: row for row in rows if row.holder and row.expires_at > now}


def all_led_by(queue: Queue, pid: int) -> bool:
    held = leaders(queue)
    return held.keys() == NAMES and all(f":{pid}:" in each.holder for each in held.values())


@pytest.mark.long
class TestSeveral:
    def test_each_loop_runs_in_one_and_moves_on_when_that_is_killed(
        self, queue: Queue, ups: Ups
    ) -> None:
        term = 2.0
        first = ups.start("--term", "2s")
        eventually(lambda: all_led_by(queue, first.process.pid), what="the first leading")
        second = ups.start("--term", "2s")
        eventually(lambda: "up: as" in second.said, what="the second being up")
        started = time.monotonic()
        # It asks for them all the while, and does not get them: longer than one term.
        eventually(lambda: time.monotonic() - started > term * 1.2)
        assert all_led_by(queue, first.process.pid)
        assert {each.term for each in leaders(queue).values()} == {1}
        assert second.said_of("runs here now") == []
        first.kill()
        killed = time.monotonic()
        eventually(lambda: all_led_by(queue, second.process.pid), what="the other taking over")
        assert time.monotonic() - killed < term + 0.5
        assert {each.term for each in leaders(queue).values()} == {2}
        # And it works: a lease that somebody left behind ends.
        task = queue.submit(to="w", instructions="x")
        queue._client.installation.ledger.claim("w", 1, "a holder that died", 100)
        eventually(
            lambda: queue.task(task.id).state is not State.IN_PROGRESS, what="the lease's end"
        )
        assert second.end() == 0

    @ONE_STORE
    def test_one_that_ends_in_good_order_leaves_at_once(self, queue: Queue, ups: Ups) -> None:
        first = ups.start("--term", "60s")
        eventually(lambda: all_led_by(queue, first.process.pid), what="the first leading")
        second = ups.start("--term", "60s")
        eventually(lambda: "up: as" in second.said, what="the second being up")
        assert first.end() == 0
        ended = time.monotonic()
        assert first.said_of("up: ended")
        eventually(lambda: all_led_by(queue, second.process.pid), what="the other taking over")
        assert time.monotonic() - ended < 15
        assert second.end() == 0
        assert leaders(queue) == {}

    @ONE_STORE
    def test_one_that_was_stopped_for_long_notices(self, queue: Queue, ups: Ups) -> None:
        first = ups.start("--term", "1s")
        eventually(lambda: all_led_by(queue, first.process.pid), what="the first leading")
        eventually(lambda: stopped_outside_a_write(queue, first.process), what="a good moment")
        second = ups.start("--term", "1s")
        eventually(lambda: all_led_by(queue, second.process.pid), what="the other taking over")
        first.process.send_signal(signal.SIGCONT)
        eventually(lambda: len(first.said_of("runs at")) == len(NAMES), what="the first noticing")
        assert all_led_by(queue, second.process.pid)
        assert (first.end(), second.end()) == (0, 0)


@ONE_STORE
def test_a_term_without_end_is_refused(queue: Queue, ups: Ups) -> None:
    up = ups.start("--term", "2h")
    assert up.process.wait(20) == 2
    assert "--term" in up.said and "1 hour" in up.said and "Traceback" not in up.said


@ONE_STORE
@pytest.mark.long
def test_it_serves_under_the_names_it_is_given(queue: Queue, ups: Ups) -> None:
    up = ups.start("--no-workers", "--port", "0", "--allow-host", "queue.example")
    eventually(lambda: up.said_of("serves on"), what="the server")
    port = int(up.said_of("serves on")[0].partition("http://127.0.0.1:")[2].partition(";")[0])

    def status_as(name: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/api/v1/clock", headers={"host": name})
        status = connection.getresponse().status
        connection.close()
        return status

    assert [status_as(name) for name in ("localhost", "queue.example", "evil.example")] == [
        401, 401, 421,
    ]  # fmt: skip
    assert up.end() == 0


def stopped_outside_a_write(queue: Queue, process: AgentqProcess) -> bool:
    """Stop it, unless it is just writing: nobody else can write to a file that is locked."""
    process.send_signal(signal.SIGSTOP)
    looking = apsw.Connection(queue._client.installation.settings.sqlite_path)
    try:
        looking.execute("BEGIN IMMEDIATE; ROLLBACK")
    except apsw.BusyError:
        process.send_signal(signal.SIGCONT)
        return False
    finally:
        looking.close()
    return True


@pytest.mark.parametrize("ledger_url", ["postgres"], indirect=True)
@pytest.mark.long
def test_it_outlives_a_crash_of_the_database(
    queue: Queue, ups: Ups, postgres_server: PostgresServer
) -> None:
    up = ups.start("--term", "2s")
    eventually(lambda: all_led_by(queue, up.process.pid), what="it leading")
    late = queue.submit(to="w", instructions="later", delay="1s")
    postgres_server.restart("immediate")
    eventually(lambda: queue.task(late.id).state is State.READY, what="the end of the delay")
    assert up.end() == 0
    assert up.said_of("died") == [] and "Traceback" not in up.said


@ONE_STORE
class TestWorkers:
    def test_workers_work_and_are_started_again(
        self, queue: Queue, ups: Ups, tmp_path: Path
    ) -> None:
        with_worker(tmp_path, "print('done')")
        up = ups.start("--grace", "1s")
        first = queue.submit(to="w", instructions="one")
        assert queue.wait(first.id, timeout=120).state is State.COMPLETE
        os.kill(up.worker_pids("w")[0], signal.SIGKILL)
        eventually(lambda: len(up.worker_pids("w")) == 2, what="a worker in its place")
        second = queue.submit(to="w", instructions="two")
        assert queue.wait(second.id, timeout=120).state is State.COMPLETE
        assert up.end() == 0
        assert not any(runs(pid) for pid in up.worker_pids("w"))
        order = [up.said.index(words) for words in ("worker w: ended (exit", "up: ended")]
        assert order == sorted(order)

    def test_a_signal_without_a_name_ends_one_worker_only(
        self, queue: Queue, ups: Ups, tmp_path: Path
    ) -> None:
        with_worker(tmp_path, "print('done')")
        up = ups.start("--grace", "1s")
        eventually(lambda: up.worker_pids("w"), what="a worker")
        os.kill(up.worker_pids("w")[0], signal.SIGRTMIN + 1)
        eventually(lambda: len(up.worker_pids("w")) == 2, what="a worker in its place")
        assert up.said_of(f"worker w: ended (signal {signal.SIGRTMIN + 1})")
        assert up.end() == 0

    def test_no_worker_outlives_it(self, queue: Queue, ups: Ups, tmp_path: Path) -> None:
        with_worker(tmp_path, "import time", "time.sleep(600)")
        up = ups.start("--grace", "1s")
        task = queue.submit(to="w", instructions="long")
        queue.wait(task.id, timeout=120, until={State.IN_PROGRESS})
        (pid,) = up.worker_pids("w")
        up.kill()
        # It gives its task back: nobody has to wait for the end of a lease.
        eventually(lambda: not runs(pid), what="the end of the worker")
        given_back = queue.task(task.id)
        assert given_back.holder == "" and given_back.details.crashes == 0

    def test_a_second_signal_ends_it_at_once(self, queue: Queue, ups: Ups, tmp_path: Path) -> None:
        with_worker(tmp_path, "import time", "time.sleep(600)")
        up = ups.start("--grace", "10m")
        task = queue.submit(to="w", instructions="long")
        queue.wait(task.id, timeout=120, until={State.IN_PROGRESS})
        up.process.send_signal(signal.SIGTERM)
        beat = time.monotonic()
        eventually(lambda: time.monotonic() - beat > 0.3)
        assert up.process.poll() is None
        assert up.end(20) == 0
        assert queue.task(task.id).holder == ""
