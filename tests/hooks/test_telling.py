"""Webhooks out: every event that a target wants, in order, signed, until it has taken it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from agentq.client.queue import Queue
from agentq.contracts.hook_values import WebhookTarget
from agentq.core.access import SYSTEM
from agentq.core.errors import Invalid
from agentq.core.values import replace
from agentq.daemon.loop import Runner
from agentq.daemon.loops.webhooks import WebhooksLoop
from agentq.hooks.posting import PostAnswer
from agentq.hooks.telling import FAILURES_MAX, Teller, send
from agentq.settings import read_file
from agentq.settings.webhooks import WebhookSettings, WebhooksFile
from tests.eventually import eventually
from tests.hooks.receiver import Receiver, receiving

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
NOW = 1_700_000_000


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT_SECRET", SECRET)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


class _Then(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.fromtimestamp(NOW, tz)


def target(url: str, name: str = "ops", **fields: Any) -> WebhookSettings:
    return WebhookSettings(name, url, "env:OUT_SECRET", Path(), allow_private=True, **fields)


def teller(queue: Queue, sending: Any = send) -> Teller:
    return Teller(queue._client.service, lambda: NOW, lambda: 0.5, sending=sending)


def finish(queue: Queue, **fields: Any) -> str:
    """Have a task done; its id."""
    task = queue.submit(instructions="do it", **{"to": "w", **fields})
    claim = queue.claim(task.to)
    assert claim is not None
    claim.complete("done")
    return task.id


def sent(receiver: Receiver) -> list[tuple[str, str]]:
    bodies = [json.loads(each.body) for each in receiver.received]
    return [(each["data"]["task_id"], each["type"]) for each in bodies]


def test_what_happened_is_sent_in_order_and_verified_by_the_client_library(
    queue: Queue, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = finish(queue, title="the title", labels={"a": "b"})
    after = teller(queue).tell(target(receiver.url), WebhookTarget("ops", 0))
    assert sent(receiver) == [
        (task_id, "task.submitted"), (task_id, "task.claimed"), (task_id, "task.completed"),
    ]  # fmt: skip
    assert (after.sent, after.failures, after.position) == (3, 0, queue.admin.stats().last_position)
    # The library has a clock of its own.
    monkeypatch.setattr("standardwebhooks.webhooks.datetime", _Then)
    for each in receiver.received:
        Webhook(SECRET).verify(each.body, each.headers)
    first = json.loads(receiver.received[0].body)
    assert first["data"]["role"] == "w" and first["data"]["labels"] == {"a": "b"}
    assert first["timestamp"].endswith("Z")
    ids = [each.headers["webhook-id"] for each in receiver.received]
    assert len(set(ids)) == 3
    log = queue._client.service.hook_deliveries(SYSTEM, "ops", out=True)
    assert [each.id for each in reversed(log)] == ids
    assert {each.state for each in log} == {"done"} and log[0].tasks == (task_id,)


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        pytest.param({"events": ("completed",)}, ["task.completed"], id="by what happened"),
        pytest.param({"states": ("complete", "failed")}, ["task.completed"], id="by state"),
        pytest.param({"roles": ("nobody",)}, [], id="by another role"),
        pytest.param({"roles": ("w",), "events": ("commented",)}, ["task.commented"], id="by both"),
        pytest.param({}, ["task.submitted", "task.claimed", "task.completed"], id="all"),
    ],
)
def test_a_target_gets_what_it_wants(
    queue: Queue, receiver: Receiver, fields: Mapping[str, Any], kinds: list[str]
) -> None:
    task_id = finish(queue)
    queue.comment(task_id, "ann", "well done")
    teller(queue).tell(target(receiver.url, **fields), WebhookTarget("ops", 0))
    assert [kind for _, kind in sent(receiver)] == kinds


def test_what_was_not_taken_is_sent_again_under_the_same_id(
    queue: Queue, receiver: Receiver
) -> None:
    finish(queue)
    receiver.statuses = [204, 500]
    receiver.answer_body = b"no\x1b"
    told = teller(queue)
    failed = told.tell(target(receiver.url), WebhookTarget("ops", 0))
    assert (failed.sent, failed.failures, failed.position) == (1, 1, 1)
    assert "answered 500" in failed.error
    assert queue._client.service.webhook_targets(SYSTEM) == [failed]
    # 5 s, spread by chance, then twice as long.
    first_pause = failed.due_at - queue.admin.now()
    assert 3_000 < first_pause <= 5_000
    receiver.statuses = [503]
    again = told.tell(target(receiver.url), failed)
    assert again.failures == 2 and again.due_at - failed.due_at > 4_000
    # Another process goes on where this one was.
    done = teller(queue).tell(target(receiver.url), again)
    assert (done.failures, done.sent, done.error) == (0, 3, "")
    ids = [each.headers["webhook-id"] for each in receiver.received]
    assert ids[1] == ids[2] == ids[3] and len(set(ids)) == 3
    log = queue._client.service.hook_deliveries(SYSTEM, "ops", out=True)
    assert [(each.state, each.attempts) for each in log] == [("done", 1), ("done", 3), ("done", 1)]


def test_a_target_that_fails_for_days_is_disabled_and_goes_on_when_enabled(queue: Queue) -> None:
    finish(queue)
    calls: list[bytes] = []

    def broken(target: WebhookSettings, headers: Mapping[str, str], body: bytes) -> PostAnswer:
        calls.append(body)
        return PostAnswer(500)

    told, standing = teller(queue, broken), WebhookTarget("ops", 0)
    for _ in range(FAILURES_MAX):
        assert not standing.disabled_at
        standing = told.tell(target("http://x/"), standing)
    assert standing.disabled_at and len(calls) == FAILURES_MAX
    pause = (standing.due_at - queue.admin.now()) / 3_600_000
    assert 2 < pause < 4
    enabled = queue._client.service.enable_webhook(SYSTEM, "ops", skip=True)
    after = teller(queue, lambda *_: PostAnswer(200)).tell(target("http://x/"), enabled)
    assert (after.sent, after.failures) == (2, 0)


def test_a_target_that_is_gone_is_disabled_at_once(queue: Queue, receiver: Receiver) -> None:
    finish(queue)
    receiver.statuses = [410]
    after = teller(queue).tell(target(receiver.url), WebhookTarget("ops", 0))
    assert after.failures == 1 and after.disabled_at


def test_private_addresses_and_missing_secrets_are_failures_in_words(
    queue: Queue, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(queue)
    private = replace(target(receiver.url), allow_private=False)
    after = teller(queue).tell(private, WebhookTarget("ops", 0))
    assert "private network" in after.error and "allow_private" in after.error
    monkeypatch.delenv("OUT_SECRET")
    after = teller(queue).tell(target(receiver.url), after)
    assert "OUT_SECRET, which is not set" in after.error and after.failures == 2
    assert receiver.received == []


def test_what_nobody_wanted_is_passed_without_writing(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentq.hooks import telling

    quiet = target("http://x/", events=("nothing",))
    told, start = teller(queue), WebhookTarget("ops", 0)
    finish(queue)
    assert told.tell(quiet, start) == start
    assert queue._client.service.webhook_targets(SYSTEM) == []
    monkeypatch.setattr(telling, "_PASSED_MAX", 2)
    moved = told.tell(quiet, start)
    assert moved.position == 3
    assert queue._client.service.webhook_targets(SYSTEM) == [moved]


def test_one_broken_target_delays_nobody(queue: Queue, receiver: Receiver) -> None:
    with receiving() as hanging:
        hanging.answering.clear()
        targets = {
            "hangs": target(hanging.url, "hangs"),
            "works": target(receiver.url, "works", events=("submitted",)),
        }
        loop = WebhooksLoop(queue._client.service, lambda: targets)
        runner = Runner(loop, queue._client.installation.doorbell)
        runner.start()
        try:
            eventually(lambda: len(queue._client.service.webhook_targets(SYSTEM)) == 2)
            for number in range(5):
                queue.submit(to="w", instructions="do it", id=f"task-{number}")
            eventually(lambda: len(receiver.received) == 5)
            assert len(hanging.received) == 1
            hanging.answering.set()
            eventually(lambda: len(hanging.received) == 5, what="those that had waited")
        finally:
            runner.stop()
            assert runner.join(20)
    assert [task_id for task_id, _ in sent(receiver)] == [f"task-{n}" for n in range(5)]
    # What was before the target was there is not told.
    assert [task_id for task_id, _ in sent(hanging)] == [f"task-{n}" for n in range(5)]


@pytest.mark.parametrize(
    ("after", "told"),
    [
        pytest.param("new", ["task-5"], id="it is removed, and another one begins"),
        pytest.param("ops", [f"task-{n}" for n in range(1, 6)], id="it moves, and goes on there"),
    ],
)
def test_who_is_no_target_any_more_hears_nothing_of_what_has_piled_up(
    queue: Queue, receiver: Receiver, after: str, told: list[str]
) -> None:
    service = queue._client.service
    with receiving() as elsewhere:
        targets = {"ops": target(receiver.url, events=("submitted",))}
        receiver.answering.clear()
        loop = WebhooksLoop(service, lambda: targets)
        runner = Runner(loop, queue._client.installation.doorbell)
        runner.start()
        try:
            eventually(lambda: service.webhook_targets(SYSTEM))
            for number in range(5):
                queue.submit(to="w", instructions="do it", id=f"task-{number}")
            eventually(lambda: receiver.received, what="the first, which is not answered yet")
            targets = {after: target(elsewhere.url, after, events=("submitted",))}
            receiver.answering.set()
            eventually(lambda: after in {each.name for each in service.webhook_targets(SYSTEM)})
            queue.submit(to="w", instructions="do it", id="task-5")
            eventually(lambda: sent(elsewhere)[-1:] == [("task-5", "task.submitted")])
        finally:
            runner.stop()
            assert runner.join(20)
        assert [task_id for task_id, _ in sent(receiver)] == ["task-0"]
        assert [task_id for task_id, _ in sent(elsewhere)] == told


def test_without_targets_nobody_is_woken(queue: Queue) -> None:
    loop = WebhooksLoop(queue._client.service, dict)
    assert loop.run_once() > 1
    assert loop.topics == frozenset()
    loop.close()
    loop.alarm.close()


TOML = """
[webhooks.ops]
url = "https://ops.example/in"
secret = "env:OUT_SECRET"
events = ["completed"]
roles = ["w"]
states = ["complete"]
"""


def test_targets_in_the_settings_are_read_again_when_they_change(tmp_path: Path) -> None:
    file = tmp_path / "agentq.toml"
    file.write_text(TOML)
    settings = read_file(file)
    assert settings.webhooks["ops"] == WebhookSettings(
        "ops", "https://ops.example/in", "env:OUT_SECRET", tmp_path, ("completed",), ("w",),
        ("complete",),
    )  # fmt: skip
    reader = WebhooksFile(str(file), settings.webhooks)
    assert reader.targets() == settings.webhooks
    file.write_text("[webhooks.ops]\n")
    assert reader.targets() == settings.webhooks  # it cannot be used: nothing changes
    file.write_text(TOML.replace("ops]", "more]"))
    assert list(reader.targets()) == ["more"]
    assert WebhooksFile("AGENTQ_URL", {}).targets() == {}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("https://ops.example/in", "ftp://ops.example", "starts with https://"),
        ("https://ops.example/in", "http://ops.example", "not encrypted"),
        ("https://ops.example/in", "https://ann:pw@ops.example", "holds a password"),
        ("https://ops.example/in", "https://[::1", "cannot be read"),
        ("https://ops.example/in", "https://ops.example:port", "cannot be read"),
        ("https://ops.example/in", "https://ünï.example", "is an address"),
        ("https://ops.example/in", "https://", "starts with https://"),
        ("env:OUT_SECRET", "hunter2", "names where the secret is"),
        ('["completed"]', '"completed"', "list of words"),
        ('["completed"]', '["Completed!"]', "list of words"),
        ('["complete"]', '["finished"]', "no state 'finished'"),
        ("roles", "role", "unknown setting 'role'"),
        ("webhooks.ops", 'webhooks."a b"', "is named by"),
        ('states = ["complete"]', "allow_private = 1", "true or false"),
    ],
)
def test_bad_targets(tmp_path: Path, before: str, after: str, said: str) -> None:
    file = tmp_path / "agentq.toml"
    file.write_text(TOML.replace(before, after))
    with pytest.raises(Invalid, match="webhooks") as caught:
        read_file(file)
    assert said in caught.value.cause
    assert "hunter2" not in str(caught.value)
