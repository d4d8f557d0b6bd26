"""The inbox contract: hints reach a worker that waits, a broker's and a doorbell's alike."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agentq.contracts.delivery import Hint, Inbox, Message
from agentq.contracts.doorbell import Doorbell, holder_topic, role_topic
from agentq.delivery.local.doorbell import SocketDoorbell
from agentq.delivery.local.inbox import DoorbellInbox
from agentq.delivery.postgres.notify import NotifyDoorbell
from agentq.delivery.rabbitmq import RabbitInbox, RabbitPublisher, declare

ROLE, HOLDER = "review-worker", "machine:4711"


@dataclass
class Post:
    """One way to carry hints, and what was opened on it."""

    name: str
    open: Callable[[str, str], Inbox]
    announce: Callable[[str, str], None]
    stop: Callable[[str], None]
    inboxes: list[Inbox] = field(default_factory=list)

    def inbox(self, role: str = ROLE, holder: str = HOLDER) -> Inbox:
        """An inbox that listens already."""
        opened = self.open(role, holder)
        self.inboxes.append(opened)
        assert opened.take(0, 0.01) == []
        return opened


@pytest.fixture(params=["socket", pytest.param("notify", marks=pytest.mark.postgres), "rabbitmq"])
def post(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Post]:
    with ExitStack() as opened:
        if request.param == "rabbitmq":
            made, close = _by_broker(request.getfixturevalue("rabbitmq_url"))
        elif request.param == "notify":
            url = request.getfixturevalue("fresh_postgres_url")
            made, close = _by_doorbell("notify", NotifyDoorbell(url))
        else:
            made, close = _by_doorbell("socket", SocketDoorbell(tmp_path / "bells"))
        opened.callback(close)
        yield made
        for inbox in made.inboxes:
            inbox.close()


def _by_doorbell(name: str, doorbell: Doorbell) -> tuple[Post, Callable[[], None]]:
    post = Post(
        name,
        lambda role, holder: DoorbellInbox(doorbell, role, holder),
        lambda role, _task_id: doorbell.ring([role_topic(role)]),
        lambda holder: doorbell.ring([holder_topic(holder)]),
    )
    return post, doorbell.close


def _by_broker(url: str) -> tuple[Post, Callable[[], None]]:
    declare(url, [ROLE])
    publisher = RabbitPublisher(url)

    def announce(role: str, task_id: str) -> None:
        body = json.dumps({"v": 1, "task_id": task_id, "to": role}).encode()
        assert publisher.publish([Message(f"m-{task_id}", "agentq.tasks", role, body)]) == [""]

    def stop(holder: str) -> None:
        key = f"stop.{holder}"
        message = Message(f"s-{holder}", f"agentq.control.{ROLE}", key, b"{}", mandatory=False)
        assert publisher.publish([message]) == [""]

    open_inbox = lambda role, holder: RabbitInbox(url, role, holder)  # noqa: E731
    return Post("rabbitmq", open_inbox, announce, stop), publisher.close


def test_silence_is_nothing_after_the_timeout(post: Post) -> None:
    inbox = post.inbox()
    started = time.monotonic()
    assert inbox.take(3, 0.2) == []
    assert time.monotonic() - started >= 0.19
    assert inbox.take(3, 0) == []
    assert inbox.take(3, -1) == []
    assert not inbox.control_received


def test_what_is_said_before_the_wait_is_not_lost(post: Post) -> None:
    inbox = post.inbox()
    post.announce(ROLE, "task-1")
    [hint] = inbox.take(3, 10)
    assert hint.task_id == ("task-1" if inbox.names_tasks else "")
    inbox.settle([hint])
    assert inbox.take(3, 0.05) == []


def test_a_sleeper_wakes_at_once(post: Post) -> None:
    inbox = post.inbox()
    assert inbox.take(1, 0.01) == []
    asleep, woke, got = threading.Event(), [], []

    def sleep() -> None:
        asleep.set()
        got.extend(inbox.take(1, 30))
        woke.append(time.monotonic())

    thread = threading.Thread(target=sleep)
    thread.start()
    asleep.wait(10)
    said = time.monotonic()
    post.announce(ROLE, "task-1")
    thread.join(40)
    assert len(got) == 1
    assert woke[0] - said < 5


def test_a_file_that_can_be_read_ends_the_wait(post: Post) -> None:
    inbox = post.inbox()
    reading, writing = os.pipe()
    try:
        started = time.monotonic()
        os.write(writing, b"!")
        assert inbox.take(2, 30, reading) == []
        assert inbox.take(0, 30, reading) == []
        assert time.monotonic() - started < 10
        os.read(reading, 1)
        assert inbox.take(2, 0.05, reading) == []
        post.announce(ROLE, "task-1")
        assert len(inbox.take(2, 10, reading)) == 1, "and it does not get in the way of hints"
    finally:
        os.close(reading)
        os.close(writing)
    post.announce(ROLE, "task-2")
    assert len(inbox.take(2, 10)) == 1, "nor does it once it is closed"


def test_other_roles_and_holders_are_not_heard(post: Post) -> None:
    inbox = post.inbox()
    post.announce(f"{ROLE}-2", "task-1")
    post.stop(f"{HOLDER}0")
    assert inbox.take(5, 0.2) == []
    assert not inbox.control_received


def test_a_word_for_the_holder_wakes_it(post: Post) -> None:
    inbox = post.inbox()
    post.stop(HOLDER)
    started = time.monotonic()
    inbox.take(1, 30)
    assert time.monotonic() - started < 10
    assert [inbox.control_received, inbox.control_received] == [True, False], "it is said once"
    assert inbox.take(1, 0.05) == []


def test_who_has_no_slot_takes_no_hint_and_still_hears(post: Post) -> None:
    inbox = post.inbox()
    post.announce(ROLE, "task-1")
    assert inbox.take(0, 0.2) == []
    assert [inbox.control_received, inbox.control_received][1] is False, (
        "whatever stirred it is told once"
    )
    post.stop(HOLDER)
    assert inbox.take(0, 30) == []
    assert inbox.control_received


def test_never_more_than_asked_for(post: Post) -> None:
    inbox = post.inbox()
    for number in range(7):
        post.announce(ROLE, f"task-{number}")
    seen: list[Hint] = []
    while hints := inbox.take(3, 0.3):
        assert len(hints) <= 3
        inbox.settle(hints)
        seen += hints
    if inbox.names_tasks:
        assert sorted(hint.task_id for hint in seen) == [f"task-{number}" for number in range(7)]
    else:
        assert seen, "many rings are one"


def test_what_is_rejected_does_not_come_again(post: Post) -> None:
    inbox = post.inbox()
    post.announce(ROLE, "task-of-a-stranger")
    inbox.reject(inbox.take(1, 10), "the ledger has no such task")
    inbox.reject([Hint("never-taken", 12345)], "the ledger has no such task")
    inbox.close()
    again = post.inbox()
    assert again.take(1, 0.2) == []


def test_settling_and_closing_forgive(post: Post) -> None:
    inbox = post.inbox()
    post.announce(ROLE, "task-1")
    hints = inbox.take(1, 10)
    assert hints
    inbox.settle([])
    inbox.settle(hints)
    inbox.settle(hints)
    inbox.settle([Hint("never-taken", 12345)])
    # None of it costs the inbox what comes next.
    post.announce(ROLE, "task-2")
    assert inbox.take(1, 10)
    inbox.close()
    inbox.close()


def test_waiting_costs_no_processor_time(post: Post) -> None:
    inbox = post.inbox()
    inbox.take(1, 0.01)
    before = time.thread_time()
    inbox.take(1, 1.0)
    assert time.thread_time() - before < 0.02


def test_a_word_that_nobody_reads_ends_one_wait_only(post: Post) -> None:
    inbox = post.inbox()
    post.stop(HOLDER)
    inbox.take(0, 30)
    started = time.monotonic()
    inbox.take(0, 0.2)
    assert time.monotonic() - started >= 0.19
    assert inbox.control_received
