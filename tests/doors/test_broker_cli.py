"""`agentq init --broker` and `agentq dlq` with a real broker behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.contracts.delivery import INGEST, STATUS, Message, role_queue
from agentq.delivery.rabbitmq import RabbitConsumer, RabbitPublisher
from tests.doors.conftest import run_here


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_the_broker_down_and_declares(rabbitmq_url: str) -> None:
    said = run_here("init", "--broker", rabbitmq_url).ok()
    assert "exchange agentq.tasks (topic)" in said.out and "guest:guest" not in said.out
    assert "rabbitmqctl add_user agentq-up" in said.out
    again = run_here("init", "--broker", rabbitmq_url, "--json").ok().json()
    assert again["users"] and "guest@" in again["broker"]
    assert run_here("init", "--broker", rabbitmq_url.replace("/test-", "/other-")).status == 5


def test_a_role_of_the_settings_has_its_queue(rabbitmq_url: str, in_folder: Path) -> None:
    run_here("init").ok()
    file = in_folder / "agentq.toml"
    file.write_text(file.read_text() + '[roles.builder]\nagent = "claude"\n')
    assert f"queue {role_queue('builder')}" in run_here("init", "--broker", rabbitmq_url).ok().out
    assert "broker" in run_here("doctor").ok().out


def test_a_broker_that_is_not_there_changes_nothing(in_folder: Path) -> None:
    refused = run_here("init", "--broker", "amqp://guest:secret@127.0.0.1:9/")
    assert refused.status == 7 and "secret" not in refused.err + refused.out
    assert not (in_folder / "agentq.toml").exists()
    assert run_here("init", "--broker", "http://broker").status == 2
    assert not (in_folder / "agentq.toml").exists()
    run_here("init").ok()
    before = (in_folder / "agentq.toml").read_text()
    assert run_here("init", "--broker", "--broker").status == 2
    assert run_here("init", "--broker", "amqp://guest:secret@127.0.0.1:9/").status == 7
    assert (in_folder / "agentq.toml").read_text() == before


def test_unreadable_messages_are_dead_letters(rabbitmq_url: str) -> None:
    run_here("init", "--broker", rabbitmq_url).ok()
    publisher = RabbitPublisher(rabbitmq_url)
    assert publisher.publish([Message("m-1", STATUS, "w", b"{ no json")]) == [""]
    publisher.close()
    reader = RabbitConsumer(rabbitmq_url, INGEST)
    (message,) = reader.take(1, 10)
    reader.reject(message.tag, "it is no JSON")
    reader.close()
    run_here("submit", "--to", "w", "--instructions", "try", "--id", "task-1").ok()
    run_here("fail", "task-1", "--from", "w", "--kind", "refused", "--reason", "never").ok()

    shown = run_here("dlq").ok().out
    assert "task-1" in shown and "it is no JSON" in shown
    (letter,) = run_here("dlq", "--json").ok().json()["messages"]
    assert letter["body"] == "{ no json" and letter["queue"] == INGEST
    assert "it is no JSON" in run_here("dlq", "show", letter["key"]).ok().out
    assert "never" in run_here("dlq", "show", "task-1").ok().out

    said = run_here("dlq", "requeue", letter["key"], "task-1", "--by", "kim").ok().out
    assert "sent to agentq.ingest again" in said and "task-1 is ready" in said
    reader = RabbitConsumer(rabbitmq_url, INGEST)
    (message,) = reader.take(1, 10)
    assert message.body == b"{ no json"
    reader.reject(message.tag, "still none")
    reader.close()

    assert run_here("dlq", "purge").status == 2
    assert run_here("dlq", "purge", "task-1").status == 2
    assert run_here("dlq", "show", "nobody").status == 3
    assert run_here("dlq", "purge", "--all", "--json").ok().json() == {"purged": 1}
    assert run_here("dlq", "--json").ok().json()["messages"] == []
