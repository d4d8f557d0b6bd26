"""The service interface over a ledger in this process (see `contracts.service`).

It is put together by topic: `service_access` decides whether the principal may, `service_queries`
looks, `service_custody` submits, hands out and takes in, `service_decisions` is for whoever decides
from outside, and here is what the loops of an installation need.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agentq.contracts.store import READY, Filter, Order
from agentq.core.access import Action, Principal
from agentq.ledger.service_decisions import DecisionService

if TYPE_CHECKING:
    from agentq.contracts.inbound_messages import InboundMessage, IntakeResult
    from agentq.contracts.service_values import (
        Capacity,
        LeaderLease,
        OutboundEffect,
        PublishedResults,
        RoleStanding,
    )
    from agentq.contracts.store import Reader, RoleRow, TaskRow
    from agentq.core.task import Task

_PAGE = 500


class EmbeddedService(DecisionService):
    """Implements `contracts.service.Service` with the ledger and artifact store of this process."""

    # -- time ------------------------------------------------------------------------------------

    def tick(self, who: Principal) -> int:
        self._check(who, Action.TICK)
        born = self._ledger.decide_deferred()
        self._publish_contexts(born)
        changed = self._ledger.tick() + len(born)
        self._try_to_publish()
        return changed

    def check_writable(self, who: Principal) -> None:
        self._check(who, Action.OPERATE)
        self._store.write(lambda tx: tx.next_wake())

    # -- leader leases -----------------------------------------------------------------------------

    def hold_leader_leases(
        self, who: Principal, names: Sequence[str], holder: str, length_ms: int
    ) -> dict[str, LeaderLease]:
        from agentq.ledger.leader_leases import LeaderLeases

        self._check(who, Action.OPERATE)
        return LeaderLeases(self._store).hold(names, holder, length_ms)

    def give_up_leader_leases(self, who: Principal, names: Sequence[str], holder: str) -> list[str]:
        from agentq.ledger.leader_leases import LeaderLeases

        self._check(who, Action.OPERATE)
        return LeaderLeases(self._store).give_up(names, holder)

    def leader_leases(self, who: Principal) -> dict[str, LeaderLease]:
        from agentq.ledger.leader_leases import LeaderLeases

        self._check(who, Action.READ, "who runs the loops")
        return LeaderLeases(self._store).standing()

    # -- effects -----------------------------------------------------------------------------------

    def outbox_batch(
        self, who: Principal, lane: str, count: int, *, evidence: bool = False
    ) -> list[OutboundEffect]:
        from agentq.ledger.outbox import Outbox

        self._check(who, Action.OPERATE)
        return Outbox(self._store).batch(lane, count, evidence=evidence)

    def settle_outbox(
        self,
        who: Principal,
        done: Sequence[OutboundEffect],
        failed: Sequence[OutboundEffect] = (),
    ) -> None:
        from agentq.ledger.outbox import Outbox

        self._check(who, Action.OPERATE)
        Outbox(self._store).settle(done, failed)

    def publish_results(self, who: Principal, count: int = 100) -> PublishedResults:
        self._check(who, Action.OPERATE)
        return self._publish_waiting(count)

    # -- roles -------------------------------------------------------------------------------------

    def roles(self, who: Principal) -> list[RoleStanding]:
        from agentq.contracts.service_values import RoleStanding
        from agentq.ledger.codec import limits_of

        self._check(who, Action.READ, "the roles")
        rows = self._store.read(lambda reader: reader.roles())
        return [
            RoleStanding(row.name, limits_of(row), row.is_limited, row.provider, row.seen_at)
            for row in rows
        ]

    def ready_counts(self, who: Principal) -> dict[str, int]:
        self._check(who, Action.READ, "the counts of all tasks")
        rows = self._store.read(lambda reader: reader.counts(live_only=True))
        return {row.role: row.tasks for row in rows if row.state == READY}

    def most_urgent_ready(
        self,
        who: Principal,
        role: str,
        count: int,
        before_ms: int,
        passed_over: Collection[tuple[str, int]] = (),
    ) -> list[Task]:
        from agentq.ledger.codec import decode_spec, to_task

        self._check(who, Action.READ, "the list of tasks")
        role_id = self._store.role_ids((role,))[role]
        found: list[Task] = []
        size = min(count + len(passed_over), _PAGE)
        page = Filter(role=role_id, updated_before=before_ms + 1, order=Order.URGENT, limit=size)
        while len(found) < count:
            rows = self._store.read(partial(_listed, wanted=page))
            for hot, spec in rows:
                task = to_task(hot, decode_spec(spec.body), spec.submitted_at)
                page = replace(page, priority=task.spec.priority.rank, key=hot.key)
                if (task.id, task.version) not in passed_over:
                    found.append(task)
            if len(rows) < size:
                break
        return found[:count]

    def capacity(self, who: Principal, role: str) -> Capacity:
        self._check(who, Action.READ, "the limits of roles")
        self._store.role_ids((role,))

        def look(reader: Reader) -> Capacity:
            return _capacity(reader, next(row for row in reader.roles() if row.name == role))

        return self._store.read(look)

    def resource_holders(self, who: Principal, resources: Sequence[str]) -> dict[str, str]:
        self._check(who, Action.READ, "who holds resources")
        return self._store.read(lambda reader: reader.holders_of(resources)) if resources else {}

    # -- messages ----------------------------------------------------------------------------------

    def judge_messages(
        self, who: Principal, inbound_messages: Sequence[InboundMessage]
    ) -> list[IntakeResult]:
        from agentq.ledger.ingest import judge

        self._check(who, Action.OPERATE)
        return judge(self._ledger, inbound_messages)

    def store_message_files(self, who: Principal, inbound: InboundMessage, epoch: int) -> None:
        from agentq.ledger.message_intake import store_files

        self._check(who, Action.OPERATE)
        store_files(self._artifacts, inbound, epoch)

    def discard_message_files(self, who: Principal, inbound: InboundMessage) -> None:
        from agentq.ledger.message_intake import discard_unrecorded

        self._check(who, Action.OPERATE)
        discard_unrecorded(self._queries, self._artifacts, inbound)


def _listed(reader: Reader, wanted: Filter) -> list[TaskRow]:
    return reader.list_tasks(wanted)


def _capacity(reader: Reader, row: RoleRow) -> Capacity:
    """How many more tasks the limits of a role allow at this moment."""
    from agentq.contracts.service_values import Capacity
    from agentq.core.task import NO_USAGE
    from agentq.ledger.codec import limits_of
    from agentq.ledger.costs import spent_today

    limits, today = limits_of(row), NO_USAGE
    free = limits.room(*reader.occupancy(row.id)[:2])[0] if row.is_limited else -1
    if free and limits.daily != NO_USAGE:
        today = spent_today(reader, row.name, reader.now())
        if limits.used_up(today):
            free = 0
    return Capacity(free, today)
