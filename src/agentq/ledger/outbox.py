"""The outbox: effects are read without hiding them, and acked once they were carried out.

Two that do it at once carry some effects out twice, under the same id, which everybody must bear
anyway. In return nothing has to be committed before an effect leaves, and only the ack is written.
A loop that does it all the time runs alone (see `ledger.leader_leases`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.service_values import ArtifactInfo, OutboundEffect
from agentq.contracts.store import (
    ArtifactRow,
    OutboxRow,
    Reader,
    Store,
    TaskRow,
    Tx,
)
from agentq.core.effects import is_lane
from agentq.core.errors import Invalid
from agentq.core.states import State
from agentq.core.task import NO_DETAILS, Spec, Task
from agentq.ledger.circuits import dated
from agentq.ledger.codec import decode_spec, to_task
from agentq.ledger.queries import artifacts_by_task
from agentq.ledger.system_log import save_lanes

#: How long what could not be carried out waits for its next try: doubled each time, to this.
_POSTPONE_MS, _POSTPONE_MS_MAX = 1000, 5 * 60 * 1000
#: Effects that are dropped at once.
_DROPPED = 1000


class Outbox:
    """The outbox of one ledger."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def batch(self, lane: str, count: int, *, evidence: bool = False) -> list[OutboundEffect]:
        """Return the oldest effects of a lane that are due; with `evidence` also what is recorded
        of their tasks' artifacts."""

        def look(reader: Reader) -> list[OutboundEffect]:
            rows = reader.effects(lane, count, due_only=True)
            keys = sorted({row.key for row in rows})
            tasks = {row.hot.key: row for row in reader.tasks(keys)}
            artifacts = artifacts_by_task(reader, keys) if evidence else {}
            return [
                _effect(row, tasks.get(row.key), artifacts.get(row.key, ()))
                for row in rows
                if row.key in tasks or not row.key
            ]

        return self._store.read(look)

    def carry(self, domain: str, names: Sequence[str], audit: AuditRow | None = None) -> bool:
        """Keep a lane of this domain for each of these, and none for others; whether that is new.

        What waits for those who have gone is dropped: nobody will ever carry it out."""
        wanted = frozenset(f"{domain}:{name}" for name in names)
        if unknown := sorted(each for each in wanted if not is_lane(each)):
            raise Invalid(f"{', '.join(unknown)} cannot be the name of a lane.")

        def gone(known: frozenset[str]) -> set[str]:
            return {each for each in known if each.startswith(f"{domain}:")} - wanted

        def change(tx: Tx) -> None:
            known = tx.lanes()
            save_lanes(tx, (known - gone(known)) | wanted, dated(audit, tx))
            for lane in sorted(gone(known)):
                while rows := tx.effects(lane, _DROPPED):
                    tx.settle_effects([row.sequence for row in rows])

        there = self._store.read(lambda reader: reader.lanes())
        if wanted <= there and not gone(there):
            return False
        self._store.write(change)
        return True

    def settle(
        self,
        done: Sequence[OutboundEffect],
        failed: Sequence[OutboundEffect] = (),
        until_ms: int = 0,
    ) -> None:
        """Forget what was carried out; what was not comes again, later each time, or then."""
        if not done and not failed:
            return

        def change(tx: Tx) -> None:
            if done:
                tx.settle_effects([each.sequence for each in done])
            now = tx.now() if failed else 0
            for tries in sorted({each.tries for each in failed}):
                some = [each.sequence for each in failed if each.tries == tries]
                tx.settle_effects(some, until_ms or now + _postponed_ms(tries))

        # If this is lost with a machine, the effects leave once more.
        self._store.write(change, durable=False)


def _postponed_ms(tries: int) -> int:
    return min(_POSTPONE_MS << min(tries, 20), _POSTPONE_MS_MAX)


def _effect(
    effect: OutboxRow, row: TaskRow | None, artifacts: Sequence[ArtifactRow]
) -> OutboundEffect:
    data = msgspec.json.decode(effect.payload)
    kind = str(data.pop("effect", ""))
    if row is None:  # about a role
        at = int(data["at"])
        task = Task(Spec("", str(data["role"])), State.PENDING, 0, 0, at, at, 0, "", NO_DETAILS)
    else:
        task = to_task(row.hot, decode_spec(row.spec.body), row.spec.submitted_at)
    files = tuple(ArtifactInfo(*each[1:]) for each in artifacts)
    return OutboundEffect(effect.sequence, effect.effect_id, kind, data, task, effect.tries, files)
