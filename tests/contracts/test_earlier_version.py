"""What the version before wrote still opens: a ledger, messages and settings.

The files of `earlier_version/` were written by the code of commit 00ca85b, before its classes were
renamed. The ledger holds every kind of trigger; `tasks.jsonl` and `messages.jsonl` are what that
code said of its tasks. They are never written again: a change that cannot read them needs a
migration, not another fixture.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentq.client.broker_results import read_outcome
from agentq.contracts.inbound_messages import InboundMessage, Incoming, IntakeStatus, opened
from agentq.contracts.service_values import Wanted
from agentq.contracts.store import (
    NEEDS_APPROVAL,
)
from agentq.contracts.task_filter import Filter
from agentq.core.access import Action
from agentq.core.schedule import awaits_approval
from agentq.core.states import DEAD_LETTERS, State
from agentq.core.task import Usage
from agentq.core.triggers import TRIGGERS, Release, Trigger, trigger_name
from agentq.core.values import fields_of
from agentq.ledger.codec import encode_details
from agentq.ledger.ingest import judge
from agentq.ledger.ledger import Ledger
from agentq.ledger.log_codec import encode_trigger
from agentq.ledger.replay import replay
from agentq.ledger.system_log import adopt
from agentq.protocol.envelope import task_to_dict
from agentq.protocol.messages import encode, read_message, result_envelope, task_envelope
from agentq.settings import read_file
from agentq.settings.roles import NAMES
from agentq.stores.sqlite.store import SqliteStore

FILES = Path(__file__).parent / "earlier_version"
#: The time of that ledger's clock when it was closed.
CLOSED_AT = 1_700_007_354_000
#: What a task has since then, as it stands for one of that time; and what a role has.
FIELDS_SINCE: dict[str, Any] = {
    "denied": 0, "messages": [], "applied": None, "asked_of": None, "children": [], "data": None,
    "ended_children": {}, "review_task": None, "score": None, "signals": [], "held": None,
}  # fmt: skip
#: Triggers that have come since.
TRIGGERS_SINCE = {
    "Edit", "Applied", "Tell", "TakeMessages", "ReviewFailed", "Yield", "ChildrenSubmitted",
    "Signal", "Hold", "Dispatch",
}  # fmt: skip
SETTINGS_SINCE = (
    "snapshot_bytes", "min_score", "max_rounds", "permissions", "commands", "rate", "burst",
    "default", "pull_request",
)  # fmt: skip


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FILES / name).read_text("utf-8").splitlines()]


def plain(text: str) -> Any:
    """What a column says; nothing stands for an empty object."""
    return json.loads(text or "{}")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The ledger as it was, in a file of its own."""
    path = tmp_path / "ledger.db"
    connection = sqlite3.connect(path)
    connection.executescript((FILES / "ledger.sql").read_text("utf-8"))
    connection.close()
    return path


@pytest.fixture
def ledger(file: Path) -> Iterator[Ledger]:
    """As `agentq db migrate` leaves it."""
    store = SqliteStore(str(file), clock=lambda: CLOSED_AT, check_schema=False)
    assert store.migrate() == [
        "0006_tokens",
        "0007_audit",
        "0008_ledger_id",
        "0009_circuits_of_failures",
        "0010_overview",
        "0011_rates",
        "0012_schedules",
        "0013_hooks",
        "0014_mentions",
        "0015_samples",
        "0016_chain",
    ]
    adopt(store)
    yield Ledger(store, lambda: 0.5)
    store.close()


def test_the_fixture_holds_every_kind_of_trigger(ledger: Ledger) -> None:
    entries = ledger.queries.events_after(0, 1000)
    held = {trigger_name(entry.event.trigger) for entry in entries}
    assert held == set(TRIGGERS) - TRIGGERS_SINCE
    assert set(TRIGGERS.values()) == set(Trigger.__args__)


def test_an_earlier_ledger_verifies_and_replays_to_the_same_tasks(ledger: Ledger) -> None:
    assert [problem for _, found in ledger.queries.verify() for problem in found] == []
    for before in lines("tasks.jsonl"):
        key, task = ledger.queries.find(before["task_id"])
        assert json.loads(json.dumps(task_to_dict(task))) == before | FIELDS_SINCE
        *_, (_, replayed) = replay([entry.event for entry in ledger.queries.history(key)])
        assert (replayed.state, replayed.epoch, replayed.details) == (
            task.state, task.epoch, task.details,
        )  # fmt: skip


def test_this_version_would_write_the_same_rows(ledger: Ledger, file: Path) -> None:
    """Names and fields of the log are data: not one of them may follow a renamed class."""
    rows = sqlite3.connect(file)
    stored = {
        (task_id, version): (trigger, data)
        for task_id, version, trigger, data in rows.execute(
            "SELECT s.id, e.version, e.trigger, e.data FROM events e JOIN specs s ON s.key = e.key"
        )
    }
    entries = ledger.queries.events_after(0, 1000)
    assert len(entries) == len(stored) > 50
    for entry in entries:
        trigger, data = stored[entry.task_id, entry.event.version]
        assert trigger_name(entry.event.trigger) == trigger
        assert plain(encode_trigger(entry.event.trigger)) == plain(data)
    details = dict(rows.execute("SELECT s.id, t.memo FROM tasks t JOIN specs s ON s.key = t.key"))
    for task_id, text in details.items():
        assert plain(encode_details(ledger.queries.find(task_id)[1].details)) == plain(text)
    rows.close()


def test_an_earlier_ledger_is_worked_on(ledger: Ledger) -> None:
    (held,) = ledger.claim("worker", 1, "ann")
    assert held.task.id == "ready-1", "the most urgent one"
    assert ledger.fail(held.key, held.task.epoch, "network down").state is State.PENDING
    key, task = ledger.queries.find("held")
    assert ledger.apply(key, Release(task.epoch, "shutdown")).state is State.READY
    assert [problem for _, found in ledger.queries.verify() for problem in found] == []


def test_messages_are_what_they_were(ledger: Ledger) -> None:
    for before in lines("messages.jsonl"):
        task = ledger.queries.find(before["task_id"])[1]
        assert json.loads(encode(task_envelope(task))) == before["task"]
        if "result" in before:
            status, summary = before["result"]["status"], before["result"]["summary"]
            now = encode(result_envelope(task, status, summary))
            assert json.loads(now) == before["result"]
            outcome = read_outcome(json.dumps(before["result"]).encode())
            assert (outcome.task_id, outcome.status) == (task.id, status)


def test_messages_of_workers_are_read(ledger: Ledger) -> None:
    started, progress, heartbeat, completed = (
        read_message(json.dumps(each).encode()) for each in lines("worker_messages.jsonl")
    )
    assert (started.task_id, started.sender, started.lease_seconds) == ("ready-1", "stranger", 90)
    assert (progress.percent, progress.cost) == (40, Usage(usd=0.5, tokens=100))
    assert (heartbeat.epoch, completed.cost) == (1, Usage(usd=0.25, turns=2))
    for each in lines("worker_messages.jsonl"):
        message = opened(Incoming("", json.dumps(each).encode(), "", "worker"))
        assert isinstance(message, InboundMessage)
        (result,) = judge(ledger, [message])
        assert result.outcome is IntakeStatus.ACCEPTED, result
    assert ledger.queries.find("ready-1")[1].state is State.COMPLETE


def test_settings_are_read(tmp_path: Path) -> None:
    text = (FILES / "agentq.toml").read_text("utf-8")
    unnamed = [name for name in NAMES if name not in text]
    assert unnamed == [*SETTINGS_SINCE], "the fixture names every setting of its time"
    path = tmp_path / "agentq.toml"
    path.write_text(text, "utf-8")
    settings = read_file(path)
    assert (settings.keep, settings.four_eyes) == (30 * 86400, True)
    assert settings.broker == "amqp://guest:guest@127.0.0.1:5672/"
    reviewer = settings.workers["reviewer"]
    assert reviewer.budget == Usage(2.5, 100_000, 50, 3600)
    assert reviewer.limits.daily == Usage(20, 1_000_000, 500, 8 * 3600)
    assert (reviewer.limits.max_running, reviewer.limits.max_review) == (3, 4)
    assert reviewer.may == {Action.READ, Action.COMMENT}
    assert (reviewer.lease, reviewer.rotate_tasks, reviewer.options) == (120, 7, {"model": "opus"})
    unset = [
        each.name for each in fields_of(type(reviewer)) if getattr(reviewer, each.name) is None
    ]
    assert unset == [] and settings.workers["builder"].command == ("sh", "-c", "true")


def test_what_waits_for_people_is_found_in_an_earlier_ledger(ledger: Ledger) -> None:
    """The migration marks what needs an approval: an overview finds those that wait for one."""
    tasks = ledger.queries.list_tasks(Wanted(limit=1000)).tasks
    missing = {
        task.id
        for task in tasks
        if task.state is State.PENDING and awaits_approval(task.spec, task.details)
    }
    found = ledger.queries.overview()
    assert {each.task_id for each in found.decisions if each.kind == "approval"} == missing
    dead = [task.id for task in tasks if task.state in DEAD_LETTERS]
    assert found.decision_counts["dead_letter"] == len(dead)
    rows = ledger.store.read(lambda reader: reader.list_tasks(Filter(limit=1000)))
    needing = {row.spec.key for row in rows if row.hot.flags & NEEDS_APPROVAL}
    assert len(needing) == sum(task.spec.needs_approval for task in tasks) > 0
