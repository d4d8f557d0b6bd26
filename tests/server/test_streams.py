"""Streams of events and of live logs, and the threads beside the event loop."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from agentq.contracts.artifacts import LivePart
from agentq.core.access import SYSTEM
from agentq.core.errors import Refused, Unavailable
from agentq.server import event_feed, streams
from agentq.server.live_log import whole_characters
from agentq.server.threads import Threads
from tests.eventually import eventually
from tests.server.conftest import ANN, Served

EVENTS = "/api/v1/events"


@contextmanager
def opened(
    served: Served, path: str, last: int | None = None
) -> Iterator[http.client.HTTPResponse]:
    connection = served.connection()
    headers = {"authorization": f"Bearer {served.tokens.of(ANN)}", "accept": "text/event-stream"}
    if last is not None:
        headers["last-event-id"] = str(last)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    try:
        yield answer
    finally:
        answer.close()
        connection.close()


def events(answer: http.client.HTTPResponse) -> Iterator[tuple[int, str, Any]]:
    """What comes, by id and kind, until the stream ends."""
    found: dict[str, str] = {}
    while line := answer.readline().decode():
        name, colon, value = line.rstrip("\n").partition(": ")
        if colon and name:
            found[name] = value
        elif "data" in found:
            yield int(found.get("id", "0")), found.get("event", ""), json.loads(found["data"])
            found = {}


def take(answer: http.client.HTTPResponse, count: int) -> list[tuple[int, str, Any]]:
    each = events(answer)
    return [next(each) for _ in range(count)]


def submit_many(served: Served, count: int) -> list[str]:
    made = served.queue().submit_many([{"to": "w", "instructions": str(n)} for n in range(count)])
    return [task.id for task in made]


class TestEvents:
    def test_one_that_is_far_behind_catches_up(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(event_feed, "_KEPT_BYTES", 4000)
        with opened(served, EVENTS) as ahead, opened(served, EVENTS, 0) as behind:
            made = [*submit_many(served, 700), *submit_many(served, 700)]
            assert [data["task_id"] for _, _, data in take(ahead, 1400)] == made
            assert [position for position, _, _ in take(behind, 1400)] == list(range(1, 1401))
        with opened(served, EVENTS, 300) as again:
            assert [data["task_id"] for _, _, data in take(again, 1100)] == made[300:]

    def test_many_followers_ask_the_ledger_once(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        service = served.installation.service
        asked: list[int] = []
        real = service.events_after

        def counted(*arguments: Any) -> Any:
            asked.append(arguments[1])
            return real(*arguments)

        monkeypatch.setattr(service, "events_after", counted)
        with ExitStack() as stack:
            all_of_them = [stack.enter_context(opened(served, EVENTS)) for _ in range(20)]
            made = submit_many(served, 5)
            for answer in all_of_them:
                assert [data["task_id"] for _, _, data in take(answer, 5)] == made
        # From each position on it was asked for what follows, not by each follower.
        assert len(asked) < 20

    def test_a_stream_ends_with_its_token(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streams, "QUIET_SECONDS", 0.05)
        monkeypatch.setattr(streams, "TRUST_SECONDS", 0.05)
        with opened(served, EVENTS) as answer:
            assert answer.readline() == b"retry: 1000\n"
            eventually(lambda: b"still here" in answer.readline(), what="a sign of life")
            monkeypatch.setattr(served.tokens, "_principals", {})
            assert list(events(answer)) == []

    def test_a_ledger_that_fails_ends_the_stream(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(*_: Any) -> Any:
            raise Unavailable("The ledger is away.")

        with opened(served, EVENTS) as answer:
            monkeypatch.setattr(served.installation.service, "events_after", away)
            submit_many(served, 1)
            assert list(events(answer)) == []
        monkeypatch.undo()
        with opened(served, EVENTS, 0) as answer:
            assert len(take(answer, 1)) == 1

    def test_whoever_may_not_read_follows_nothing(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any) -> Any:
            raise Refused("Not for you.", code="not_permitted")

        monkeypatch.setattr(served.installation.service, "last_position", refuse)
        with opened(served, EVENTS) as answer:
            assert answer.status == 403


class TestLiveLogs:
    @pytest.fixture
    def task(self, served: Served) -> str:
        queue = served.queue()
        task_id = queue.submit(to="w", instructions="x").id
        claim = queue.claim("w")
        assert claim is not None
        self.say(served, task_id, b"first\n")
        return task_id

    def say(self, served: Served, task_id: str, data: bytes) -> None:
        served.installation.artifacts.live_append(task_id, 1, data, keep_bytes=1 << 20)

    def test_as_it_is_said(self, served: Served, task: str) -> None:
        path = f"/api/v1/tasks/{task}/attempts/1/log"
        with opened(served, path) as answer:
            assert take(answer, 1) == [(6, "output", {"text": "first\n", "dropped": 0})]
            self.say(served, task, "ä".encode()[:1])
            self.say(served, task, "ä".encode()[1:])
            assert take(answer, 1) == [(8, "output", {"text": "ä", "dropped": 0})]
            served.installation.service.cancel(SYSTEM, task, "enough")
            served.installation.service.stopped(SYSTEM, task, 1)
            assert [kind for _, kind, _ in events(answer)] == ["end"]

    def test_from_where_one_was(self, served: Served, task: str) -> None:
        path = f"/api/v1/tasks/{task}/attempts/1/log"
        self.say(served, task, b"second\n")
        with opened(served, path, 6) as answer:
            assert take(answer, 1)[0][2]["text"] == "second\n"
        with opened(served, f"{path}?position=13") as answer:
            self.say(served, task, b"third\n")
            assert take(answer, 1) == [(19, "output", {"text": "third\n", "dropped": 0})]

    def test_one_that_is_over(self, served: Served, task: str) -> None:
        served.installation.service.cancel(SYSTEM, task, "enough")
        served.installation.service.stopped(SYSTEM, task, 1)
        served.installation.artifacts.live_end(task, 1)
        with opened(served, f"/api/v1/tasks/{task}/attempts/1/log") as answer:
            assert (answer.status, answer.read()) == (204, b"")

    def test_one_of_a_task_that_is_not_there(self, served: Served) -> None:
        with opened(served, "/api/v1/tasks/nobody/attempts/1/log") as answer:
            assert answer.status == 404

    @pytest.mark.parametrize(
        ("data", "whole"),
        [
            (b"abc", b"abc"),
            ("aä".encode(), "aä".encode()),
            ("aä".encode()[:-1], b"a"),
            ("€".encode()[:2], b""),
            ("x🦉".encode()[:-1], b"x"),
            (b"\x80\x80\x80\x80\x80", b"\x80\x80\x80\x80\x80"),
            (b"a\xff", b"a\xff"),
        ],
    )
    def test_pieces_end_between_characters(self, data: bytes, whole: bytes) -> None:
        found = whole_characters(LivePart(data, 100), over=False)
        assert (found.data, found.position) == (whole, 100 - len(data) + len(whole))
        assert whole_characters(LivePart(data, 100), over=True).data == data


class TestManyThatWait:
    def test_one_task_is_looked_for_once(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        service = served.installation.service
        asked: list[str] = []
        real = service.claim

        def counted(*arguments: Any, **more: Any) -> Any:
            asked.append(arguments[0].name)
            return real(*arguments, **more)

        monkeypatch.setattr(service, "claim", counted)
        wanted = {"role": "w", "count": 1, "lease_ms": 60000, "wait_seconds": 20}

        def claim(number: int) -> list[str]:
            body = {**wanted, "holder": f"worker-{number}"}
            found = served.ask("POST", "/api/v1/claims", body)
            return [each["spec"]["id"] for each in found.json["value"]]

        with ThreadPoolExecutor(12) as pool:
            waiting = [pool.submit(claim, number) for number in range(12)]
            eventually(lambda: len(asked) == 12, what="all of them to wait")
            first = submit_many(served, 1)
            eventually(lambda: any(each.done() for each in waiting), what="one to get it")
            # The one that got it called two others, which found nothing.
            eventually(lambda: len(asked) == 15, what="the others to look")
            made = first + submit_many(served, 11)
            taken = [task_id for each in waiting for task_id in each.result(20)]
        assert sorted(taken) == sorted(made)


class TestThreads:
    def test_what_is_raised_comes_back(self) -> None:
        async def main() -> None:
            threads = Threads(2, "t")
            assert await threads.run(divmod, 7, 2) == (3, 1)
            with pytest.raises(ZeroDivisionError):
                await threads.run(divmod, 7, 0)
            threads.stop()
            with pytest.raises(Unavailable, match="ended"):
                await threads.run(divmod, 7, 2)

        asyncio.run(main())

    def test_the_last_that_was_used_is_used_again(self) -> None:
        async def main() -> set[int]:
            threads = Threads(4, "t")
            used = {await threads.run(threading.get_ident) for _ in range(20)}
            threads.stop()
            return used

        assert len(asyncio.run(main())) == 1

    def test_more_than_there_are_threads_wait_their_turn(self) -> None:
        async def main() -> list[int]:
            threads = Threads(2, "t")
            met = threading.Barrier(2)
            both = [threads.run(met.wait, 20) for _ in range(6)]
            found = await asyncio.gather(*both)
            threads.stop()
            return found

        assert sorted(asyncio.run(main())) == [0, 0, 0, 1, 1, 1]

    def test_a_caller_that_went_disturbs_nobody(self) -> None:
        async def main() -> None:
            threads = Threads(1, "t")
            begun, go = threading.Event(), threading.Event()

            def slow() -> None:
                begun.set()
                go.wait(20)

            asking = asyncio.ensure_future(threads.run(slow))
            await asyncio.to_thread(begun.wait, 20)
            asking.cancel()
            go.set()
            assert await threads.run(divmod, 7, 2) == (3, 1)
            threads.stop()

        asyncio.run(main())
