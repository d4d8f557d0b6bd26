"""Answers that are lost on their way: what a client that never got its answer may do again.

The server remembers nothing of what it has answered, so it may as well be another one, started when
the first was killed: what was done under the key of a request, the ledger knows.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentq import Queue
from agentq.core.errors import Conflict, Unavailable
from agentq.core.states import State
from agentq.remote import calls
from agentq.remote.calls import Caller
from agentq.remote.installation import RemoteInstallation
from agentq.remote.transport import Transport
from agentq.settings import Settings
from tests.server.conftest import ANN, Served
from tests.server.lost_answers import LosingProxy


@dataclass
class Losing:
    """A client, and which of its next answers are lost."""

    served: Served
    queue: Queue
    proxy: LosingProxy
    next_lost: list[bool]

    def lose(self, *answers: bool) -> None:
        self.next_lost[:] = answers


@pytest.fixture
def losing(served: Served, tmp_path: Path) -> Iterator[Losing]:
    lost: list[bool] = []
    with LosingProxy(served.url, lambda: bool(lost) and lost.pop(0)) as proxy:
        home = str(tmp_path / "elsewhere")
        token = served.tokens.of(ANN)
        settings = Settings(proxy.url, home, "the test", local=home, token=token)
        with Queue(installation=RemoteInstallation(settings)) as queue:
            queue.admin.stats()  # a server that was reached is waited for
            yield Losing(served, queue, proxy, lost)


def test_whoever_waits_is_told_what_for_and_once(
    losing: Losing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    losing.lose(True, True)
    losing.queue.admin.stats()
    assert caplog.text == "", "not of a moment"
    monkeypatch.setattr(calls, "QUIET_SECONDS", 0.0)
    losing.lose(True, True)
    losing.queue.admin.stats()
    (said,) = caplog.messages
    assert losing.proxy.url in said and "asked again for up to 7" in said
    losing.lose(True)
    losing.queue.admin.stats()
    assert len(caplog.messages) == 2, "and again the next time"


def kinds(losing: Losing, task_id: str) -> list[str]:
    history = losing.served.installation.service.history(ANN, task_id)
    return [entry.event.kind for entry in history]


class TestSubmit:
    @pytest.mark.parametrize(
        "fields", [{"id": "task-1"}, {"idempotency_key": "order-7"}, {}],
        ids=["an id", "a key", "neither"],
    )  # fmt: skip
    def test_nothing_is_submitted_twice(self, losing: Losing, fields: dict[str, str]) -> None:
        losing.lose(True, True)
        task = losing.queue.submit(to="w", instructions="x", **fields)  # type: ignore[arg-type]
        assert losing.proxy.lost == 2
        assert [each.id for each in losing.queue.tasks()] == [task.id]
        assert kinds(losing, task.id) == ["submitted"]

    def test_another_body_under_the_same_key_is_refused(self, losing: Losing) -> None:
        losing.lose(True)
        losing.queue.submit(to="w", instructions="x", idempotency_key="order-7")
        with pytest.raises(Conflict):
            losing.queue.submit(to="w", instructions="y", idempotency_key="order-7")

    @pytest.mark.long
    def test_by_chance(self, losing: Losing, session_seed: int) -> None:
        """A third of all answers is lost, in batches and one by one, with and without keys."""
        chance, expected = random.Random(session_seed), set[str]()
        for number in range(25):
            losing.lose(*(chance.random() < 1 / 3 for _ in range(6)))
            keyed = {"idempotency_key": f"key-{number}"} if chance.random() < 0.5 else {}
            if chance.random() < 0.5:
                made = [losing.queue.submit(to="w", instructions=str(number), **keyed)]  # type: ignore[arg-type]
            else:
                many = [{"to": "w", "instructions": str(each)} for each in range(3)]
                made = losing.queue.submit_many(many)
            expected |= {task.id for task in made}
        assert losing.proxy.lost > 3
        losing.lose()
        assert {task.id for task in losing.queue.tasks()} == expected


class TestReports:
    def test_a_completion_counts_once(self, losing: Losing) -> None:
        task = losing.queue.submit(to="w", instructions="x")
        claim = losing.queue.claim_task(task.id)
        losing.lose(True, True)
        claim.complete(summary="well", result="the result")
        assert losing.proxy.lost == 2
        assert kinds(losing, task.id).count("completed") == 1
        assert losing.queue.task(task.id).state is State.COMPLETE

    def test_evidence_is_there_once(self, losing: Losing) -> None:
        task = losing.queue.submit(to="w", instructions="x")
        claim = losing.queue.claim_task(task.id)
        losing.lose(True, True)
        claim.put("a.txt", "the same")
        assert [each.name for each in losing.queue.artifacts(task.id)] == ["a.txt"]

    def test_a_failure_counts_once(self, losing: Losing) -> None:
        task = losing.queue.submit(to="w", instructions="x")
        claim = losing.queue.claim_task(task.id)
        losing.lose(True)
        claim.fail("no luck")
        assert losing.proxy.lost == 1
        assert kinds(losing, task.id) == ["submitted", "claimed", "retrying"]

    def test_a_renewal_is_no_loss(self, losing: Losing) -> None:
        task = losing.queue.submit(to="w", instructions="x")
        claim = losing.queue.claim_task(task.id)
        losing.lose(True, True)
        claim.heartbeat()
        assert not claim.cancel_token.cancelled


class TestClaims:
    def test_a_claim_is_one_attempt(self, losing: Losing) -> None:
        """The same tasks come again, though others are ready: none waits for the end of a lease
        that nobody knows of."""
        tasks = losing.queue.submit_many({"to": "w", "instructions": str(n)} for n in range(3))
        losing.lose(True, True)
        claim = losing.queue.claim("w", lease=60)
        assert claim is not None
        assert (claim.id, claim.epoch) == (tasks[0].id, 1)
        assert kinds(losing, tasks[0].id) == ["submitted", "claimed"]
        assert kinds(losing, tasks[1].id) == ["submitted"]


class TestStrangers:
    """Servers that have never answered this client."""

    def test_a_first_request_that_was_taken_in_is_sent_again(
        self, losing: Losing, tmp_path: Path
    ) -> None:
        """As of a command that does one thing: its first answer is its only one."""
        task = losing.queue.submit(to="w", instructions="x")
        losing.lose(True)
        settings = Settings(
            losing.proxy.url, str(tmp_path), "the test", token=losing.served.tokens.of(ANN)
        )
        with Queue(installation=RemoteInstallation(settings)) as new:
            new.comment(task.id, "ann", "hello")
        assert losing.proxy.lost == 1
        assert kinds(losing, task.id) == ["submitted", "commented"]

    @pytest.mark.parametrize("call", ["comment", "task"])
    def test_nobody_is_told_that_nothing_was_changed(self, call: str) -> None:
        """The server that took a request in is gone for good."""
        listener = socket.create_server(("127.0.0.1", 0))
        caller = Caller(
            Transport(f"http://127.0.0.1:{listener.getsockname()[1]}"), lambda _: "t", 0.5
        )

        def take_one() -> None:
            connection, _ = listener.accept()
            with connection, listener:
                connection.recv(1 << 16)

        taking = threading.Thread(target=take_one)
        taking.start()
        with pytest.raises(Unavailable) as away:
            caller.value(
                object, call, ANN, ref="task-1", **({"text": "x"} if call == "comment" else {})
            )
        taking.join()
        assert "is not known" in str(away.value)
        assert "Nothing was changed" not in str(away.value)

    def test_another_program_is_told_apart_at_once(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        caller = Caller(Transport(f"http://127.0.0.1:{listener.getsockname()[1]}"), lambda _: "t")

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"SSH-2.0-other\r\n")

        greeting = threading.Thread(target=greet)
        greeting.start()
        with listener, pytest.raises(Unavailable, match="does not speak HTTP"):
            caller.value(object, "comment", ANN, ref="task-1", text="x")
        greeting.join()
