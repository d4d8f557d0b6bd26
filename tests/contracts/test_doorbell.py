"""The doorbell contract: who listens for a topic wakes when it is rung, and sleeps otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from agentq.contracts.doorbell import EVENTS_TOPIC, Doorbell, Waiter, role_topic
from agentq.delivery.local.doorbell import SocketDoorbell
from agentq.delivery.postgres.notify import NotifyDoorbell
from tests.servers.postgres import PostgresServer

ROLE = role_topic("review-worker")


@pytest.fixture(params=["socket", pytest.param("notify", marks=pytest.mark.postgres)])
def doorbell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Doorbell]:
    made: Doorbell
    if request.param == "notify":
        made = NotifyDoorbell(request.getfixturevalue("fresh_postgres_url"))
    else:
        made = SocketDoorbell(tmp_path / "bells")
    yield made
    made.close()


@pytest.fixture
def waiter(doorbell: Doorbell) -> Iterator[Waiter]:
    waiter = doorbell.listen([ROLE, EVENTS_TOPIC])
    yield waiter
    waiter.close()


def test_silence_is_false_after_the_timeout(waiter: Waiter) -> None:
    started = time.monotonic()
    assert not waiter.wait(0.2)
    assert time.monotonic() - started >= 0.19
    assert not waiter.wait(0)
    assert not waiter.wait(-1)


def test_a_ring_before_the_wait_is_not_lost(doorbell: Doorbell, waiter: Waiter) -> None:
    doorbell.ring([ROLE])
    assert waiter.wait(10)
    assert not waiter.wait(0.05)


def test_any_of_its_topics_wakes_it(doorbell: Doorbell, waiter: Waiter) -> None:
    for topics in ([ROLE], [EVENTS_TOPIC], ["role:other", EVENTS_TOPIC], (t for t in [ROLE])):
        doorbell.ring(topics)
        assert waiter.wait(10)


def test_one_may_listen_for_very_many(doorbell: Doorbell) -> None:
    waiter = doorbell.listen([role_topic(f"role-{number}") for number in range(200)])
    for number in (0, 199):
        doorbell.ring([role_topic(f"role-{number}")])
        assert waiter.wait(10)
    doorbell.ring([])
    assert not waiter.wait(0.05)
    waiter.close()


def test_other_topics_do_not(doorbell: Doorbell, waiter: Waiter) -> None:
    doorbell.ring([role_topic("review-worker-2"), role_topic("review")])
    doorbell.ring([])
    assert not waiter.wait(0.2)


def test_many_rings_are_one(doorbell: Doorbell, waiter: Waiter) -> None:
    for _ in range(500):
        doorbell.ring([ROLE])
    assert waiter.wait(10)
    while waiter.wait(0.05):
        pass  # those that were still on their way
    doorbell.ring([ROLE])
    assert waiter.wait(10)


def test_everybody_who_listens_is_woken(doorbell: Doorbell) -> None:
    waiters = [doorbell.listen([ROLE]) for _ in range(5)]
    doorbell.ring([ROLE])
    assert [waiter.wait(10) for waiter in waiters] == [True] * 5
    for waiter in waiters:
        waiter.close()


def test_a_sleeper_wakes_at_once(doorbell: Doorbell, waiter: Waiter) -> None:
    asleep = threading.Event()
    woke: list[float] = []

    def sleep() -> None:
        asleep.set()
        if waiter.wait(30):
            woke.append(time.monotonic())

    thread = threading.Thread(target=sleep)
    thread.start()
    asleep.wait(10)
    rung = time.monotonic()
    doorbell.ring([ROLE])
    thread.join(30)
    assert woke and woke[0] - rung < 5


def test_waiting_costs_no_processor_time(waiter: Waiter) -> None:
    before = time.thread_time()
    waiter.wait(1.0)
    assert time.thread_time() - before < 0.02


def test_a_closed_waiter_disturbs_nobody(doorbell: Doorbell) -> None:
    first, second = doorbell.listen([ROLE]), doorbell.listen([ROLE])
    first.close()
    doorbell.ring([ROLE])
    assert second.wait(10)
    second.close()
    doorbell.ring([ROLE])


def test_more_topics_than_one_message_holds(doorbell: Doorbell, waiter: Waiter) -> None:
    doorbell.ring([*(role_topic(f"{'x' * 100}{n}") for n in range(120)), ROLE])
    assert waiter.wait(10)


class TestNotify:
    def test_a_waiter_outlives_its_server(self, postgres_server: PostgresServer) -> None:
        doorbell = NotifyDoorbell(postgres_server.url)
        waiter = doorbell.listen([ROLE])
        doorbell.ring([ROLE])
        assert waiter.wait(10)
        postgres_server.halt()
        assert not waiter.wait(0.2), "nobody there: silence, no error"
        doorbell.ring([ROLE])
        postgres_server.start()
        assert waiter.wait(30), "connected again: rings may have been missed, so look"
        doorbell.ring([ROLE])
        assert waiter.wait(10)
        waiter.close()
        doorbell.close()

    def test_nobody_there_at_the_start(self, postgres_server: PostgresServer) -> None:
        postgres_server.halt()
        doorbell = NotifyDoorbell(postgres_server.url)
        doorbell.ring([ROLE])
        waiter = doorbell.listen([ROLE])
        assert not waiter.wait(0.1)
        postgres_server.start()
        assert waiter.wait(30)
        waiter.close()
        doorbell.close()

    def test_a_connection_that_is_cut_is_made_again(self, fresh_postgres_url: str) -> None:
        doorbell = NotifyDoorbell(fresh_postgres_url)
        waiter = doorbell.listen([ROLE])
        with psycopg.connect(fresh_postgres_url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert waiter.wait(10), "what was rung meanwhile is unknown, so look"
        doorbell.ring([ROLE])
        assert waiter.wait(10)
        waiter.close()
        doorbell.close()

    def test_one_connection_is_kept_and_hears_nothing_meanwhile(
        self, fresh_postgres_url: str
    ) -> None:
        doorbell = NotifyDoorbell(fresh_postgres_url)
        first, second = doorbell.listen([ROLE]), doorbell.listen([ROLE])
        first.close()
        second.close()
        doorbell.ring([ROLE])
        with doorbell_count(fresh_postgres_url) as count:
            assert count() == 2, "the one that rings, and the one that is kept"
            again = doorbell.listen([ROLE])
            assert not again.wait(0.1)
            doorbell.ring([ROLE])
            assert again.wait(10)
            assert count() == 2
            again.close()
            doorbell.close()
            wait_for_none = time.monotonic() + 10
            while count():
                assert time.monotonic() < wait_for_none

    def test_a_kept_connection_may_be_cut(self, fresh_postgres_url: str) -> None:
        doorbell = NotifyDoorbell(fresh_postgres_url)
        doorbell.listen([ROLE]).close()
        with psycopg.connect(fresh_postgres_url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        waiter = doorbell.listen([ROLE])
        doorbell.ring([ROLE])
        assert waiter.wait(10)
        waiter.close()
        doorbell.close()


@contextmanager
def doorbell_count(url: str) -> Iterator[Callable[[], int]]:
    """How many connections of doorbells the server has."""
    with psycopg.connect(url, autocommit=True) as looking:
        yield lambda: len(
            looking.execute(
                "SELECT 1 FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'agentq-bell'"
            ).fetchall()
        )
