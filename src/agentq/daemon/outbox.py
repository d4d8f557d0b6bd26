"""Effects on their way out: looked at without hiding them, acked once somebody else has them.

Only a loop that runs alone may do it so (see `ledger.terms`). Two that do it at once carry some
effects out twice, under the same id, which everybody must bear anyway. In return nothing has to be
committed before an effect leaves, and only the ack is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from agentq.contracts.store import ArtifactRow, OutboxRow, Reader, Store, TaskRow, Tx
from agentq.core.task import Task
from agentq.ledger.codec import decode_spec, to_task

#: How long what could not be carried out waits for its next try: doubled each time, to this.
_POSTPONE_MS, _POSTPONE_MS_MAX = 1000, 5 * 60 * 1000


class Leaving(NamedTuple):
    """One effect, with what it says and its task as that stands now."""

    sequence: int
    id: str
    kind: str
    said: dict[str, Any]
    task: Task
    tries: int
    artifacts: Sequence[ArtifactRow] = ()


class Outbox:
    """The outbox of one ledger, for loops that run alone."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def look(self, lane: str, count: int, *, evidence: bool = False) -> list[Leaving]:
        """The oldest effects of a lane that are due; with `evidence` also what is recorded of their
        tasks' artifacts."""

        def look(reader: Reader) -> list[Leaving]:
            effects = reader.effects(lane, count, due_only=True)
            tasks = {row.hot.key: row for row in reader.tasks(sorted({e.key for e in effects}))}
            return [
                _leaving(
                    effect, tasks[effect.key], reader.artifacts_of(effect.key) if evidence else ()
                )
                for effect in effects
                if effect.key in tasks
            ]

        return self._store.read(look)

    def settle(self, done: Sequence[Leaving], failed: Sequence[Leaving] = ()) -> None:
        """Forget what was carried out; what was not comes again, later each time."""
        if not done and not failed:
            return

        def change(tx: Tx) -> None:
            if done:
                tx.ack_effects([each.sequence for each in done])
            now = tx.now() if failed else 0
            for tries in sorted({each.tries for each in failed}):
                some = [each.sequence for each in failed if each.tries == tries]
                tx.postpone_effects(some, now + _postponed_ms(tries))

        # If this is lost with a machine, the effects leave once more.
        self._store.write(change, durable=False)


def _postponed_ms(tries: int) -> int:
    return min(_POSTPONE_MS << min(tries, 20), _POSTPONE_MS_MAX)


def _leaving(effect: OutboxRow, row: TaskRow, artifacts: Sequence[ArtifactRow]) -> Leaving:
    said = msgspec.json.decode(effect.payload)
    kind = str(said.pop("effect", ""))
    task = to_task(row.hot, decode_spec(row.spec.body), row.spec.submitted_at)
    return Leaving(effect.sequence, effect.effect_id, kind, said, task, effect.tries, artifacts)
