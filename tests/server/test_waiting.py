"""Requests that wait: claims, events, wake-ups."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentq.core.errors import Stale
from agentq.remote.transport import Pending, Transport
from tests.eventually import eventually
from tests.server.conftest import ANN, Served, serving_ledger

CLAIM = {"role": "w", "count": 1, "holder": "me", "wait_seconds": 20}


class TestClaims:
    def test_it_waits_until_there_is_something(self, served: Served) -> None:
        found: list[Any] = []
        asking = threading.Thread(
            target=lambda: found.append(served.ask("POST", "/api/v1/claims", CLAIM))
        )
        asking.start()
        task = served.queue().submit(to="w", instructions="x")
        asking.join(20)
        assert [each["spec"]["id"] for each in found[0].json["value"]] == [task.id]

    def test_nothing_is_taken_for_a_client_that_left(self, served: Served) -> None:
        connection = served.connection()
        headers = {"authorization": f"Bearer {served.tokens.of(ANN)}"}
        connection.request("POST", "/api/v1/claims", json.dumps(CLAIM), headers)
        busy = served.installation.service
        eventually(lambda: threading.active_count() > 1, what="the request to arrive")
        connection.close()
        queue = served.queue()
        task = queue.submit(to="w", instructions="x")
        # Whoever asks next gets it: the one that left has taken nothing, or gave nothing up.
        taken = eventually(
            lambda: (
                served.ask("POST", "/api/v1/claims", {**CLAIM, "wait_seconds": 0}).json["value"]
                or busy.task(ANN, task.id).holder
            ),
            what="the task to be taken",
        )
        assert taken


@contextmanager
def stream(served: Served, **headers: str) -> Iterator[http.client.HTTPResponse]:
    connection = served.connection()
    headers |= {"authorization": f"Bearer {served.tokens.of(ANN)}", "accept": "text/event-stream"}
    connection.request("GET", "/api/v1/events", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.getheader("content-type") == "text/event-stream"
    try:
        yield answer
    finally:
        answer.close()
        connection.close()


def read_events(answer: http.client.HTTPResponse, count: int) -> list[tuple[int, dict[str, Any]]]:
    """The next events, by position."""
    found: list[tuple[int, dict[str, Any]]] = []
    position = 0
    while len(found) < count:
        line = answer.readline().decode().rstrip("\n")
        if line.startswith("id: "):
            position = int(line[4:])
        elif line.startswith("data: "):
            found.append((position, json.loads(line[6:])))
    return found


class TestEvents:
    def test_in_order_without_gaps_from_wherever_one_left(self, served: Served) -> None:
        queue = served.queue()
        queue.submit(to="w", instructions="x", id="before")
        with stream(served, **{"last-event-id": "0"}) as answer:
            assert read_events(answer, 1)[0][1]["task_id"] == "before"
            made = queue.submit_many([{"to": "w", "instructions": str(n)} for n in range(30)])
            seen = read_events(answer, 10)
        with stream(served, **{"last-event-id": str(seen[-1][0])}) as answer:
            seen += read_events(answer, 20)
        assert [position for position, _ in seen] == list(range(2, 32))
        assert [event["task_id"] for _, event in seen] == [task.id for task in made]

    def test_from_now_on(self, served: Served) -> None:
        queue = served.queue()
        queue.submit(to="w", instructions="x", id="before")
        with stream(served) as answer:
            queue.submit(to="w", instructions="x", id="after")
            assert read_events(answer, 1)[0][1]["task_id"] == "after"

    def test_a_position_that_is_none(self, served: Served) -> None:
        headers = {"accept": "text/event-stream", "last-event-id": "yesterday"}
        found = served.ask("GET", "/api/v1/events", headers=headers)
        assert (found.status, found.error["code"]) == (400, "invalid")

    def test_a_server_that_ends_ends_its_streams(self, tmp_path: Path) -> None:
        with serving_ledger(tmp_path) as served, stream(served) as answer:
            served.stop()
            assert b"retry" in answer.read(), "to its end, which has come"


class TestTheSdk:
    def test_whoever_is_refused_does_not_storm_the_server(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As with a token that was revoked: asked again now and then, not as fast as it goes."""
        asked, real = list[str](), Transport.begin

        def begin(self: Transport, method: str, target: str, headers: dict[str, str]) -> Pending:
            asked.append(target)
            return real(self, method, target, headers | {"authorization": "Bearer wrong"})

        monkeypatch.setattr(Transport, "begin", begin)
        doorbell = served.queue()._client.installation.doorbell
        with closing(doorbell.listen(("role:w",))) as waiter:
            assert not waiter.wait(0.7)
        assert 2 <= len(asked) <= 4

    def test_a_cancel_is_heard_over_http(self, served: Served) -> None:
        queue, elsewhere = served.queue(), served.queue()
        task = queue.submit(to="w", instructions="x")
        claim = queue.claim("w")
        assert claim is not None
        claim.__enter__()
        elsewhere.cancel(task.id, by="ann", reason="enough")
        assert claim.cancel_token.wait(20)
        with pytest.raises(Stale):
            claim.__exit__(None, None, None)
        kinds = [entry.event.kind for entry in queue.history(task.id)]
        assert kinds[:3] == ["submitted", "claimed", "cancelled"]
        assert queue.wait(task.id, timeout=20).is_terminal

    def test_whoever_waits_is_woken_over_http(self, served: Served) -> None:
        queue, worker = served.queue(), served.queue()
        done: list[str] = []

        def work() -> None:
            claim = worker.claim("w", wait=20)
            assert claim is not None
            with claim:
                claim.put("notes.md", "seen")
                claim.complete(summary="well", result="the result")
            done.append(claim.id)

        working = threading.Thread(target=work)
        working.start()
        task = queue.submit(to="w", instructions="x")
        assert queue.wait(task.id, timeout=20).summary == "well"
        working.join(20)
        assert done == [task.id]
        assert queue.result(task.id).read() == b"the result"
        assert {each.name for each in queue.artifacts(task.id)} == {"notes.md", "result.md"}
