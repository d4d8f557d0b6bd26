"""Programs that submit in transactions of their own: killed, or open for as long as they like."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from agentq.client.queue import Queue
from agentq.core.states import State

OPEN = 50
WORKERS, ROUNDS = 3, 40


@pytest.fixture
def url(fresh_postgres_url: str) -> str:
    with psycopg.connect(fresh_postgres_url) as connection:
        connection.execute("CREATE TABLE orders (number int PRIMARY KEY)")
    return fresh_postgres_url


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A program of `tests.processes.callers` that has said it is ready."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.processes.callers", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            yield program
        finally:
            program.kill()


def orders(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM orders").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("ending", ["open", "commit"])
def test_a_caller_that_is_killed(url: str, ending: str) -> None:
    # Given a program that is killed in its transaction, or just after its commit
    with Queue.create(url) as queue:
        with running("hold", url, "1", "", ending) as caller:
            caller.kill()
            caller.wait()
        # Then its order and its task are both there, or neither is and their names are free
        if ending == "commit":
            claim = queue.claim("packer")
            assert claim is not None
            assert claim.id == "task-0"
            claim.complete()
        else:
            queue.submit(
                "packer", "Something else.", id="task-0"
            )  # waits for the server's rollback
        assert orders(url) == (1 if ending == "commit" else 0)
        assert [problems for _, problems in queue._client.verify() if problems] == []


def test_nobody_waits_for_transactions_that_stay_open(url: str) -> None:
    # Given fifty open transactions, each with a task that shall come after one and the same
    with Queue.create(url) as queue:
        parent = queue.submit("builder", "Build.")
        with running("hold", url, str(OPEN), parent.id, "open") as caller:
            # When others submit, claim and complete, end that very task, and open a lane
            seconds = work_beside(url)
            claim = queue.claim("builder")
            assert claim is not None
            claim.heartbeat()
            claim.complete(summary="built")
            queue._client.service.open_lanes(queue.who, ["webhook"])
            queue._client.installation.ledger.close_lanes("webhook")
            assert queue._client.last_position() > 0
            assert queue._client.prune("1h") == 0
            # Then they all come to an end, though not one of the fifty has
            assert len(seconds) == WORKERS
            assert orders(url) == 0
            # And once the fifty commit, their tasks can be claimed
            outs, _ = caller.communicate("")
            assert outs == "committed\n"
        claims = queue.claim_many("packer", OPEN)
        assert {claim.id for claim in claims} == {f"task-{number}" for number in range(OPEN)}
        assert queue.complete_many([(claim, "packed") for claim in claims]) == []
        assert orders(url) == OPEN
        assert queue.task("task-0").state is State.COMPLETE
        assert [problems for _, problems in queue._client.verify() if problems] == []


def work_beside(url: str) -> list[float]:
    """Let processes submit, claim and complete; how many seconds each took."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.processes.callers", "work", url, f"w{n}", str(ROUNDS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for n in range(WORKERS)
    ]  # fmt: skip
    said = [program.communicate("go\n")[0].split() for program in programs]
    return [float(words[1]) for words in said]
