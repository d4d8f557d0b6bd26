"""`agentq init --broker` and `agentq dlq` with a real broker behind them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from agentq import Queue
from agentq.contracts.delivery import DEAD, INGEST, STATUS, Message, role_queue
from agentq.delivery.rabbitmq import RabbitConsumer, RabbitPublisher
from tests.interfaces.conftest import run_here


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_the_broker_down_and_declares(rabbitmq_url: str) -> None:
    said = run_here("init", "--broker", rabbitmq_url).ok()
    assert "exchange agentq.tasks (topic)" in said.out and "guest:guest" not in said.out
    assert "rabbitmqctl add_user agentq-up" in said.out
    assert "queue results.coordinator" in said.out
    again = run_here("init", "--broker", rabbitmq_url, "--json").ok().json()
    assert again["users"] and "guest@" in again["broker"]
    assert again["changed"] == []
    assert "nothing to change" in run_here("init", "--broker", rabbitmq_url).ok().out
    assert run_here("init", "--broker", rabbitmq_url.replace("/test-", "/other-")).status == 5


def test_a_role_of_the_settings_has_its_queue(rabbitmq_url: str, in_folder: Path) -> None:
    run_here("init").ok()
    file = in_folder / "agentq.toml"
    file.write_text(file.read_text() + '[roles.builder]\ncommand = ["true"]\n')
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


def test_a_broker_beside_a_ledger_of_the_environment(
    rabbitmq_url: str, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a ledger that AGENTQ_URL names, so that no file is written,
    monkeypatch.setenv("AGENTQ_URL", f"sqlite:///{in_folder}/ledger.db")
    said = run_here("init", "--broker", rabbitmq_url).ok()
    # then the broker is prepared, and the user hears what others need to find it.
    assert "exchange agentq.tasks (topic)" in said.out and "add_user agentq-up" in said.out
    assert "AGENTQ_BROKER" in said.err and "guest:guest" not in said.out + said.err
    assert not (in_folder / "agentq.toml").exists()
    monkeypatch.setenv("AGENTQ_BROKER", rabbitmq_url)
    again = run_here("init", "--broker", rabbitmq_url).ok()
    assert "nothing to change" in again.out and "AGENTQ_BROKER" not in again.err
    other = rabbitmq_url.replace("/test-", "/other-")
    run_here("init", "--broker", other).refused(5, "AGENTQ_BROKER")
    run_here("init", "--artifacts", "elsewhere").refused(5, "AGENTQ_ARTIFACTS_ROOT")


def test_a_file_is_not_written_for_a_broker_that_will_not_count(
    rabbitmq_url: str, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTQ_BROKER", "amqp://elsewhere/")
    run_here("init", "--broker", rabbitmq_url).refused(5, "AGENTQ_BROKER", "elsewhere")
    assert not (in_folder / "agentq.toml").exists()
    file = in_folder / "agentq.toml"
    file.write_text('[ledger]\nurl = "sqlite:///l.db"\n')
    before = file.read_text(), file.stat().st_mode
    run_here("init", "--broker", rabbitmq_url).refused(5, "AGENTQ_BROKER")
    assert (file.read_text(), file.stat().st_mode) == before


_LEDGER = '[ledger]\nurl = "sqlite:///.agentq/l.db"\n'


@pytest.mark.parametrize(
    "text",
    [
        f"{_LEDGER}[broker]\n",
        f"[broker]   # to come\n\n{_LEDGER}",
        f'{_LEDGER}[roles.coder]\nagent = "claude"\n\n  [ broker ]',
        f"broker = {{}}\n{_LEDGER}",
        f"# mine\n{_LEDGER}",
    ],
)
def test_an_empty_table_for_the_broker_is_filled(
    rabbitmq_url: str, in_folder: Path, text: str
) -> None:
    file = in_folder / "agentq.toml"
    file.write_text(text)
    run_here("init", "--broker", rabbitmq_url).ok()
    assert file.stat().st_mode & 0o077 == 0, "it holds a password now"
    assert tomllib.loads(file.read_text())["broker"] == {"url": rabbitmq_url}
    run_here("list").ok()


@pytest.mark.parametrize("odd", ['"broker".x = 1\n', 'broker = "x"\n', '[broker]\nurl = ""\n'])
def test_settings_that_are_wrong_are_left_alone(
    rabbitmq_url: str, in_folder: Path, odd: str
) -> None:
    file = in_folder / "agentq.toml"
    file.write_text(f"{odd}{_LEDGER}")
    before = file.read_text(), file.stat().st_mode
    assert run_here("init", "--broker", rabbitmq_url).status in (2, 5)
    assert (file.read_text(), file.stat().st_mode) == before


def test_where_results_cannot_go_is_said_when_they_are_asked_for(
    rabbitmq_url: str, in_folder: Path
) -> None:
    words = ["submit", "--to", "w", "--instructions", "try", "--reply-to"]
    run_here("init").ok()
    run_here(*words, "foo").refused(2, "results.<coordinator>", "'foo'")
    run_here("init", "--broker", rabbitmq_url).ok()
    run_here(*words, "foo").refused(2, "results.<coordinator>", "'foo'")
    run_here(*words, "results.ann").ok()
    lines = [{"to": "w", "instructions": "try", "reply_to": to} for to in ("results.a", "bar")]
    bulk = in_folder / "bulk"
    bulk.write_text("\n".join(map(json.dumps, lines)))
    run_here("submit", "--bulk", str(bulk)).refused(2, "Line 2", "'bar'")
    assert run_here("stats", "--json").ok().json()["totals"]["ready"] == 1


def test_outcomes_go_to_the_coordinator_unless_told_otherwise(
    rabbitmq_url: str, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submitted(*more: str) -> str | None:
        words = ("submit", "--to", "w", "--instructions", "try", "--json", *more)
        reply_to: str | None = run_here(*words).ok().json()["reply_to"]
        return reply_to

    run_here("init").ok()
    assert submitted() is None, "without a broker nobody carries outcomes"
    run_here("init", "--broker", rabbitmq_url).ok()
    assert submitted("--id", "task-parent") == "results.coordinator"
    assert submitted("--id", "task-parent") == "results.coordinator", "the same task again"
    assert submitted("--from", "ann") == "results.coordinator"
    assert submitted("--reply-to", "results.ann") == "results.ann"
    (in_folder / "then.md").write_text("---\nto: w\n---\nThen this.\n")
    with Queue() as queue:
        assert queue.submit("w", "from a program").spec.reply_to == "results.coordinator"
        (next_one,) = queue.submit("w", "first", next=["then.md"]).spec.next
        assert next_one.reply_to == "results.coordinator"
        claim = queue.claim_task("task-parent")
    # What an attempt submits is its own affair.
    monkeypatch.setenv("AGENTQ_TASK_ID", claim.id)
    monkeypatch.setenv("AGENTQ_EPOCH", str(claim.epoch))
    assert submitted() is None


# -- dead letters ----------------------------------------------------------------------------------


def reject_a_report(url: str, body: bytes = b"{ no json", identity: str = "m-1") -> None:
    """Have a message in the dead letters that `agentq up` could not read."""
    publisher = RabbitPublisher(url)
    assert publisher.publish([Message(identity, STATUS, "w", body, reply_to="answers")]) == [""]
    publisher.close()
    reader = RabbitConsumer(url, INGEST)
    (message,) = reader.take(1, 10)
    reader.reject(message.tag, "it is no JSON")
    reader.close()


def test_unreadable_messages_are_dead_letters(rabbitmq_url: str) -> None:
    run_here("init", "--broker", rabbitmq_url).ok()
    reject_a_report(rabbitmq_url)
    run_here("submit", "--to", "w", "--instructions", "try", "--id", "task-1").ok()
    run_here("fail", "task-1", "--from", "w", "--kind", "refused", "--reason", "never").ok()

    shown = run_here("dlq").ok().out
    assert "task-1" in shown and "it is no JSON" in shown
    (letter,) = run_here("dlq", "--json").ok().json()["messages"]
    assert letter["body"] == "{ no json" and letter["queue"] == INGEST
    assert letter["certain"] and not letter["stuck"]
    assert "it is no JSON" in run_here("dlq", "show", letter["key"]).ok().out
    assert "never" in run_here("dlq", "show", "task-1").ok().out

    said = run_here("dlq", "requeue", letter["key"], "task-1", "--by", "kim").ok().out
    assert "sent to agentq.ingest again" in said and "task-1 is ready" in said
    reader = RabbitConsumer(rabbitmq_url, INGEST)
    (message,) = reader.take(1, 10)
    assert message.body == b"{ no json"
    assert (message.routing_key, message.reply_to) == ("w", "answers")
    reader.reject(message.tag, "still none")
    reader.close()

    assert run_here("dlq", "purge").status == 2
    assert run_here("dlq", "purge", "task-1").status == 2
    assert run_here("dlq", "show", "nobody").status == 3
    assert run_here("dlq", "purge", "--all", "--json").ok().json() == {"purged": 1}
    assert run_here("dlq", "--json").ok().json()["messages"] == []


def test_a_beginning_names_a_message_for_all_three(rabbitmq_url: str) -> None:
    run_here("init", "--broker", rabbitmq_url).ok()
    for number in range(3):
        reject_a_report(rabbitmq_url, b"junk %d" % number)
    letters = run_here("dlq", "--json").ok().json()["messages"]
    by_body = {each["body"]: each["key"] for each in letters}
    run_here("dlq", "show", by_body["junk 0"][:8]).ok()
    run_here("dlq", "requeue", by_body["junk 1"][:8]).ok()
    said = run_here("dlq", "purge", by_body["junk 2"][:8], "--json").ok()
    assert said.json() == {"purged": 1}
    (left,) = run_here("dlq", "--json").ok().json()["messages"]
    assert left["body"] == "junk 0"
    run_here("dlq", "purge", "f" * 12).refused(3)


def test_a_task_is_found_first_and_without_the_broker(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message, and a task that is called as it begins,
    run_here("init", "--broker", rabbitmq_url).ok()
    reject_a_report(rabbitmq_url)
    (letter,) = run_here("dlq", "--json").ok().json()["messages"]
    for name in (letter["key"][:3], "build-7"):
        run_here("submit", "--to", "w", "--instructions", "try", "--id", name).ok()
        run_here("fail", name, "--from", "w", "--kind", "refused", "--reason", "never").ok()
    # then the name is the task's, and more of it, which begins no task, the message's.
    assert "never" in run_here("dlq", "show", letter["key"][:3]).ok().out
    assert "it is no JSON" in run_here("dlq", "show", letter["key"][:4]).ok().out
    run_here("dlq", "show", letter["key"][:2]).refused(2, "several")
    said = run_here("dlq", "requeue", letter["key"][:3]).ok().out
    assert "is ready" in said and "sent to" not in said
    # Without the broker, or let in by nobody there, tasks are there all the same.
    for away in ("amqp://127.0.0.1:1/", rabbitmq_url.replace("guest:guest", "guest:secret")):
        monkeypatch.setenv("AGENTQ_BROKER", away)
        assert "never" in run_here("dlq", "show", "build-7").ok().out
        shown = run_here("dlq").ok()
        assert "build-7" in shown.out and "not shown" in shown.err
        assert "secret" not in shown.out + shown.err and "tried again" not in shown.err


def test_what_a_stranger_says_is_shown_as_that(rabbitmq_url: str) -> None:
    run_here("init", "--broker", rabbitmq_url).ok()
    publisher = RabbitPublisher(rabbitmq_url)
    headers = {"x-agentq-reason": "oops \x1b[2J", "x-agentq-queue": "results.coordinator"}
    publisher.publish([Message("m", DEAD, "", b"{}", headers=headers)])
    publisher.close()
    listed = run_here("dlq").ok().out
    assert "results.coordinator?" in listed and "\x1b" not in listed
    (letter,) = run_here("dlq", "--json").ok().json()["messages"]
    shown = run_here("dlq", "show", letter["key"]).ok().out
    assert "is said to have come to results.coordinator" in shown and "\x1b" not in shown
    assert "cannot be sent again" in shown
    run_here("dlq", "requeue", letter["key"]).refused(4, "cannot be sent again", "dlq purge")
    run_here("dlq", "purge", letter["key"]).ok()
