"""Resources in the ledger: who may hold a place of one now, and what limits them.

Decided under the lock of the resource's limits. One without limits has no row to lock, and one
place: of two who want it, one cannot insert its hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.doorbell import ROOM_TOPIC, role_topic
from agentq.contracts.limit_rows import ResourceRow
from agentq.contracts.service_values import KeyStanding
from agentq.contracts.store import Changes, Store, Tx
from agentq.core.errors import Invalid
from agentq.core.limits import KeyLimits
from agentq.core.rates import checked
from agentq.core.task import Task
from agentq.ledger.buckets import ANY, empty_in_words, next_token_at, set_rate, take, tokens_of
from agentq.ledger.circuits import dated
from agentq.ledger.codec import key_limits_of
from agentq.ledger.system_log import resource_note, system_rows
from agentq.ledger.unit_of_work import UnitOfWork
from agentq.protocol.spec_validation import check_resource

HELD_MAX = 1_000_000


class WantedResources:
    """The resources that the tasks of one claim need, locked; counted on as they are taken."""

    def __init__(self, work: UnitOfWork, tasks: Iterable[Task]) -> None:
        self._work = work
        names = sorted({name for task in tasks for name in task.spec.resources})
        self._rows = {row.name: row for row in work.tx.resources(names)}

    def lack(self, task: Task) -> tuple[str, str]:
        """What keeps the task from its resources, in words, and a code; empty if nothing does."""
        now = self._work.now
        for row in self._wanted(task):
            if row.rate:
                self._note(take(row, 0, now), only_if_set_back=True)
            if len(row.holders) >= row.max_held:
                return full_in_words(row), "resource_held"
            if why := empty_in_words(row, now):
                return why, "limit"
        return "", ""

    def take(self, key: int, task: Task) -> bool:
        """Take a place of each, and a token; False if there is none, or others are faster."""
        if any(self.lack(task)):
            return False
        rows = self._wanted(task)
        places = [_free_place(row) for row in rows]
        names = [row.name for row in rows]
        if not self._work.tx.hold_resources(key, list(zip(names, places, strict=True))):
            return False
        for row, place in zip(rows, places, strict=True):
            held = row._replace(holders=(*row.holders, (place, task.id)))
            self._rows[row.name] = held
            if row.rate:
                self._note(take(held, 1, self._work.now))
        return True

    def _wanted(self, task: Task) -> list[ResourceRow]:
        return [self._rows[name] for name in sorted(set(task.spec.resources))]

    def _note(self, row: ResourceRow, *, only_if_set_back: bool = False) -> None:
        if only_if_set_back and row.level_at >= self._rows[row.name].level_at:
            return
        self._rows[row.name] = row
        self._work.resources[row.name] = row


def _free_place(row: ResourceRow) -> int:
    taken = {place for place, _ in row.holders}
    return next(place for place in range(len(taken) + 1) if place not in taken)


def full_in_words(row: ResourceRow) -> str:
    """Who has all the places of a resource."""
    holders = ", ".join(task_id for _, task_id in row.holders)
    most = f", and at most {row.max_held} may hold it" if row.max_held > 1 else ""
    return f"resource {row.name} is held by {holders}{most}"


def standing(row: ResourceRow, now: int) -> KeyStanding:
    free, tokens = max(row.max_held - len(row.holders), 0), tokens_of(row, now)
    return KeyStanding(
        key_limits_of(row),
        tuple(task_id for _, task_id in row.holders),
        free if tokens == ANY else min(free, tokens),
        next_token_at(row, now),
    )


def set_key_limits(
    store: Store, key: str, limits: KeyLimits, audit: AuditRow | None = None
) -> None:
    """Set how many tasks may hold a resource and how often they start; from the next claim on."""
    check_resource(key)
    if type(limits.max_held) is not int or not 1 <= limits.max_held <= HELD_MAX:
        raise Invalid(f"max_held: expected 1 to {HELD_MAX}, got {limits.max_held!r}.")
    checked(limits.rate)

    def change(tx: Tx) -> None:
        (held,) = tx.resources([key])
        row = set_rate(held._replace(max_held=limits.max_held), limits.rate, tx.now())
        if row == held:
            return
        # Tasks of any role may need it, and there may be room for them now.
        topics = (ROOM_TOPIC, *(role_topic(role.name) for role in tx.roles()))
        noted = system_rows(tx, [resource_note(row)])
        tx.save(Changes(resources=(row,), system=noted, topics=topics, audit=dated(audit, tx)))

    store.write(change)
