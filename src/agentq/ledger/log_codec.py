"""Encodes events and effects as rows of the log and the outbox, and back."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import msgspec

from agentq.contracts.store import EffectRow, EventRow, Tx
from agentq.core.effects import Effect, lanes_of
from agentq.core.states import State
from agentq.core.task import Spec, Task
from agentq.core.triggers import TRIGGERS, Event, LogEntry, Submit, Trigger, trigger_name
from agentq.ledger.chain import event_digest
from agentq.ledger.codec import CODES, STATES, decoder, encode, sparse

#: What fits into a column of four bytes.
INT_MAX = 2**31


def encode_trigger(trigger: Trigger) -> str:
    if type(trigger) is Submit:
        return _encode_submit(trigger)
    text = encode(sparse(trigger)).decode()
    return text if text != "{}" else ""


def _encode_submit(trigger: Submit) -> str:
    """The spec stands in its own row and never changes."""
    if trigger.refused:
        return encode({"refused": trigger.refused}).decode()
    if not (trigger.waiting_on or trigger.ended or trigger.children):
        return ""
    plain: dict[str, object] = {"waiting_on": trigger.waiting_on, "ended": trigger.ended}
    if trigger.children:
        plain["children"] = trigger.children
    return encode(plain).decode()


def trigger_data(trigger: Trigger) -> dict[str, object]:
    """What a trigger carried, as plain data."""
    text = encode_trigger(trigger)
    plain: dict[str, object] = msgspec.json.decode(text) if text else {}
    return plain


def decode_trigger(name: str, data: str, spec: Spec) -> Trigger:
    kind = TRIGGERS[name]
    if kind is Submit:
        plain = msgspec.json.decode(data) if data else {}
        ended = tuple((each, State(outcome)) for each, outcome in plain.get("ended", ()))
        waiting_on, refused = tuple(plain.get("waiting_on", ())), plain.get("refused", "")
        return Submit(spec, waiting_on, ended, refused, tuple(plain.get("children", ())))
    trigger: Trigger = decoder(kind).decode(data or "{}")
    return trigger


def encode_effect(effect: Effect, task: Task) -> str:
    said = msgspec.to_builtins(sparse(effect))
    return encode({"effect": type(effect).__name__, "task_id": task.id, **said}).decode()


def effects_of_role(tx: Tx, role: str, effect: Effect) -> list[EffectRow]:
    """The rows of an effect that is about no task but a role: one for each lane that takes it."""
    lanes = lanes_of(effect.lane, tx.lanes())
    if not lanes:
        return []
    now = tx.now()
    said = {"effect": type(effect).__name__, "role": role, "at": now}
    payload = encode({**said, **msgspec.to_builtins(sparse(effect))}).decode()
    # No task, and so no version, gives it an id: its moment and what it says do.
    version, number = now // 1000 % INT_MAX, zlib.crc32(payload.encode()) % INT_MAX
    return [EffectRow(0, version, number, lane, payload) for lane in lanes]


def to_event_rows(
    events: Iterable[tuple[int, Event, str]], digests: dict[int, str]
) -> list[EventRow]:
    """The rows of events: of which task, what happened, and its trigger encoded.

    `digests` are the last ones of these tasks, and are so again after it. All of a transaction are
    made in one go, because a digest alone, between other work, takes twice as long.
    """
    rows = []
    for key, event, data in events:
        name, state = trigger_name(event.trigger), CODES[event.state]
        said = (event.version, event.at, event.kind, name, state, event.epoch)
        digest = digests[key] = event_digest((digests[key], *said), data)
        rows.append(EventRow(key, *said, data, digest))
    return rows


def to_event(row: EventRow, spec: Spec) -> Event:
    trigger = decode_trigger(row.trigger, row.data, spec)
    return Event(row.version, row.at, row.kind, trigger, STATES[row.state], row.epoch)


def entry_to_plain(entry: LogEntry) -> dict[str, object]:
    """An entry of the log as plain data, from which `entry_from_plain` makes the same again."""
    event = entry.event
    plain: dict[str, object] = {
        "position": entry.position,
        "task_id": entry.task_id,
        "version": event.version,
        "at": event.at,
        "kind": event.kind,
        "trigger": trigger_name(event.trigger),
        "state": event.state,
        "epoch": event.epoch,
        "data": trigger_data(event.trigger),
    }
    if type(event.trigger) is Submit:
        plain["spec"] = event.trigger.spec
    return plain


def entry_from_plain(plain: dict[str, Any]) -> LogEntry:
    spec = msgspec.convert(plain["spec"], Spec) if "spec" in plain else Spec(plain["task_id"], "")
    data = encode(plain["data"]).decode()
    trigger = decode_trigger(plain["trigger"], data, spec)
    event = Event(
        plain["version"], plain["at"], plain["kind"], trigger, State(plain["state"]), plain["epoch"]
    )
    return LogEntry(plain["position"], plain["task_id"], event)
