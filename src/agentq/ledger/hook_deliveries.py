"""Deliveries of webhooks in the ledger: taken once, turned into tasks once, and kept for a while.

A delivery is known by the id its sender gave it. That memory is a dedup record, named after the
hook and the id, with a lifetime of its own: nothing that is pruned opens the door again.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence

import msgspec

from agentq.contracts import hook_values as h
from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.doorbell import HOOKS_TOPIC, TARGETS_TOPIC
from agentq.contracts.hook_rows import (
    IN,
    OUT,
    WAITS,
    HookBacklogFilter,
    HookCountFilter,
    HookFilter,
    HookOutcomeRow,
    HookRow,
    LockedHookFilter,
    WaitingHookFilter,
    WebhookTargetFilter,
    WebhookTargetRow,
)
from agentq.contracts.store import Changes, DedupRow, Store, Tx
from agentq.core.errors import Invalid, NotFound
from agentq.core.limits import shorten
from agentq.core.values import replace

#: By the number a store keeps for it.
STATES = (h.HookState.RECEIVED, h.HookState.DONE, h.HookState.IGNORED, h.HookState.FAILED)
CODES = {state: code for code, state in enumerate(STATES)}
PAGE_MAX = 1000
_ERROR_CHARS_MAX = 2000

_plain = msgspec.json.decode


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class HookLedger:
    """The webhooks of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # -- coming in ---------------------------------------------------------------------------------

    def take(self, deliveries: Sequence[h.IncomingDelivery]) -> list[h.Intake]:
        """Store these, but for those that are known or too many; what became of each."""

        def change(tx: Tx) -> list[h.Intake]:
            now = tx.now()
            names = [f"hook:{each.hook}:{each.id}" for each in deliveries]
            found = tx.dedup_records(names).items()
            known = {name for name, record in found if record.expires_at > now}
            room = _room(tx, deliveries)
            rows: list[HookRow] = []
            records: list[DedupRow] = []
            outcomes = []
            for name, each in zip(names, deliveries, strict=True):
                if name in known:
                    outcomes.append(h.Intake.DUPLICATE)
                elif room[each.hook] <= 0:
                    outcomes.append(h.Intake.BACKLOG)
                else:
                    room[each.hook] -= 1
                    known.add(name)
                    rows.append(_new_row(each, now))
                    records.append(DedupRow(name, "", "", 0, now + each.remember_ms))
                    outcomes.append(h.Intake.STORED)
            if rows:
                tx.save(Changes(hook_deliveries=rows, dedup=records, topics={HOOKS_TOPIC}))
            return outcomes

        return self._store.write(change)

    def waiting(self, limit: int) -> list[h.HookDelivery]:
        """Deliveries that wait to be turned into tasks, the oldest first."""
        wanted = WaitingHookFilter(IN, limit)
        return [_delivery(row) for row in self._store.read(lambda reader: reader.records(wanted))]

    def settle(self, delivery: h.HookDelivery, error: str) -> None:
        """Write down that no task came of a delivery, unless it was decided meanwhile."""

        def change(tx: Tx) -> None:
            if is_undecided(tx, delivery):
                tx.save(Changes(hook_outcomes=[outcome(delivery, (), error)]))

        self._store.write(change)

    def replay(self, hook: str, delivery_id: str, audit: AuditRow) -> h.HookDelivery:
        """Let a delivery wait again; raises `NotFound` if it is not kept."""

        def change(tx: Tx) -> h.HookDelivery:
            rows = tx.records(HookFilter(IN, hook, delivery_id, limit=1))
            if not rows:
                raise NotFound(
                    f"There is no delivery {delivery_id[:80]!r} of the hook {hook[:80]!r}. Nothing"
                    " was changed.",
                    f"`agentq hooks log {hook[:80]}` lists those that are kept.",
                )
            found = _delivery(rows[0])
            again = HookOutcomeRow(found.number, WAITS, found.attempts, "", rows[0].tasks)
            noted = audit._replace(at=tx.now())
            tx.save(Changes(hook_outcomes=[again], audit=[noted], topics={HOOKS_TOPIC}))
            return replace(found, state=h.HookState.RECEIVED, error="")

        return self._store.write(change)

    # -- looking -----------------------------------------------------------------------------------

    def listed(
        self, way: str, hook: str, delivery_id: str, state: str, before: int, limit: int,
        *, bodies: bool,
    ) -> list[h.HookDelivery]:  # fmt: skip
        """Deliveries, the newest first; raises `Invalid` for what no page can be."""
        if not 1 <= limit <= PAGE_MAX:
            raise Invalid(f"A page has 1 to {PAGE_MAX} deliveries, got {limit}.")
        if state and state not in set(h.HookState):
            known = ", ".join(h.HookState)
            raise Invalid(f"There is no state {state[:80]!r} of deliveries.", f"Known: {known}.")
        code = CODES[h.HookState(state)] if state else -1
        wanted = HookFilter(way, hook, delivery_id, code, before, bodies, limit)
        return [_delivery(row) for row in self._store.read(lambda reader: reader.records(wanted))]

    def counts(self, way: str) -> list[h.HookCounts]:
        """How many deliveries there are, by hook."""
        counts: dict[str, dict[str, int]] = {}
        last: dict[str, int] = {}
        for row in self._store.read(lambda reader: reader.records(HookCountFilter(way))):
            counts.setdefault(row.hook, {})[STATES[row.state]] = row.deliveries
            last[row.hook] = max(last.get(row.hook, 0), row.last_at)
        return [h.HookCounts(hook, counts[hook], last[hook]) for hook in sorted(counts)]

    # -- going out ---------------------------------------------------------------------------------

    def targets(self) -> list[h.WebhookTarget]:
        rows = self._store.read(lambda reader: reader.records(WebhookTargetFilter()))
        return [h.WebhookTarget(*row) for row in rows]

    def save_target(self, target: h.WebhookTarget, delivery: h.HookDelivery | None) -> None:
        """Write down how far a target was told, and the delivery that was tried."""
        rows = () if delivery is None else (_sent_row(delivery),)
        changes = Changes(webhook_targets=[_target_row(target)], hook_deliveries=rows)
        self._store.write(lambda tx: tx.save(changes))

    def enable(self, name: str, audit: AuditRow, *, skip: bool) -> h.WebhookTarget:
        """Let a target be told again; raises `NotFound` for one that never was."""

        def change(tx: Tx) -> h.WebhookTarget:
            found = {row.name: row for row in tx.records(WebhookTargetFilter())}
            if name not in found:
                raise NotFound(
                    f"There is no webhook {name[:80]!r} that was told of anything. Nothing was"
                    " changed.",
                    "`agentq webhooks` lists those that are there.",
                )
            before = found[name]
            # Whoever asks twice, as the first answer was lost, skips one event and no more.
            position = before.position + (skip and before.failures > 0)
            row = before._replace(failures=0, due_at=0, disabled_at=0, position=position)
            noted = audit._replace(at=tx.now())
            tx.save(Changes(webhook_targets=[row], audit=[noted], topics={TARGETS_TOPIC}))
            return h.WebhookTarget(*row)

        return self._store.write(change)


def _room(tx: Tx, deliveries: Sequence[h.IncomingDelivery]) -> dict[str, int]:
    """How many more deliveries each hook may have waiting."""
    limits = {each.hook: each.backlog for each in deliveries}
    return {
        hook: limit - tx.records(HookBacklogFilter(IN, hook, limit))[0].deliveries
        for hook, limit in limits.items()
    }


def is_undecided(tx: Tx, delivery: h.HookDelivery) -> bool:
    """Whether a delivery still waits as it did when it was read: a process that was paused since
    then may have been overtaken. It stays so until the transaction ends."""
    read = (WAITS, delivery.attempts, delivery.received_at)
    rows = tx.records(LockedHookFilter(delivery.number))
    return [(row.state, row.attempts, row.received_at) for row in rows] == [read]


def outcome(delivery: h.HookDelivery, tasks: Sequence[str], error: str) -> HookOutcomeRow:
    """What is written of a delivery that was turned into these tasks."""
    state = h.HookState.IGNORED
    if error:
        state = h.HookState.FAILED
    elif tasks:
        state = h.HookState.DONE
    # What a replay did not make again has come of it all the same.
    every = list(dict.fromkeys((*delivery.tasks, *tasks)))
    said = shorten(error, _ERROR_CHARS_MAX)
    return HookOutcomeRow(
        delivery.number, CODES[state], delivery.attempts + 1, said, _json(every) if every else ""
    )


def _new_row(each: h.IncomingDelivery, now: int) -> HookRow:
    body = b64encode(each.body).decode()
    return HookRow(IN, each.hook, each.id, now, WAITS, 0, "", "", _json(each.headers), body)


def _sent_row(sent: h.HookDelivery) -> HookRow:
    return HookRow(
        OUT, sent.hook, sent.id, sent.received_at, CODES[sent.state], sent.attempts,
        shorten(sent.error, _ERROR_CHARS_MAX), _json(sent.tasks), _json(sent.headers),
        b64encode(sent.body).decode(),
    )  # fmt: skip


def _target_row(target: h.WebhookTarget) -> WebhookTargetRow:
    return WebhookTargetRow(
        target.name, target.position, target.failures, target.due_at, target.disabled_at,
        target.sent, target.last_at, shorten(target.error, _ERROR_CHARS_MAX),
    )  # fmt: skip


def _delivery(row: HookRow) -> h.HookDelivery:
    return h.HookDelivery(
        row.number,
        row.hook,
        row.delivery_id,
        row.received_at,
        STATES[row.state],
        row.attempts,
        row.error,
        tuple(_plain(row.tasks or "[]")),
        _plain(row.headers or "{}"),
        b64decode(row.body),
    )
