"""Letting go of what ended long ago: first the rows of a task, then its files.

The transaction that deletes a task writes down, in the outbox, that its files are to be removed.
Whoever prunes next carries that out, as often as it takes: a process may die and a file store be
away at any point, and nothing stays behind that nobody knows of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from agentq.contracts.store import EffectRow, OutboxRow, Reader, Store, Tx
from agentq.core.errors import AgentqError, Unavailable
from agentq.core.states import TERMINAL, State
from agentq.core.task import Spec
from agentq.ledger.codec import STATES, SpecCache, decode_plain, encode
from agentq.ledger.costs import LABEL, day_of

#: No decision makes these effects, so this lane is neither opened nor closed.
LANE = "forget"

Forget = Callable[[str], None]

_PAGE = 5000
#: PostgreSQL commits tasks in another order than it numbers them: how far apart, at the very most.
_OVERLAP = 1000
#: A store that fails so often in a row is away: asking it once more for each task would take hours.
_FAILURES_MAX = 3
#: So many names are looked up before the files of the first are removed.
_LOOK_AHEAD = 20


class FilesLeft(Unavailable):
    """Tasks were deleted, and some of their files are still there. The ledger knows which."""

    deleted = 0
    why = ""


class Named:
    """What tasks that are not over name in their own words: no row ties the two together."""

    def __init__(self) -> None:
        #: Parents, tasks to come, and the tasks that those will come after.
        self.ids: set[str] = set()
        #: Of tasks to come, the ids, and (id, digest) of contexts, which are staged already.
        self.coming: set[str] = set()
        self.contexts: set[tuple[str, str]] = set()
        self._last_key = 0

    def look(self, reader: Reader) -> None:
        """Take in what was submitted since the last look."""
        after_key = max(self._last_key - _OVERLAP, 0)
        while True:
            rows = reader.naming(after_key, _PAGE)
            for row in rows:
                self._take_in(decode_plain(row.body))
            if rows:
                after_key = rows[-1].key
                self._last_key = max(self._last_key, after_key)
            if len(rows) < _PAGE:
                return

    def _take_in(self, spec: Mapping[str, Any]) -> None:
        """Defaults are left out of it, and there may be very many: no need for whole specs."""
        if "parent" in spec:
            self.ids.add(spec["parent"])
        for child in spec.get("next", ()):
            self.ids.update((child["id"], *child.get("after", ())))
            self.coming.add(child["id"])
            self.contexts.add((child["id"], child.get("context_sha256", "")))
            self._take_in(child)


class Pruner:
    """Prunes one store, once; `forget` removes the files of a task and may raise."""

    def __init__(self, store: Store, specs: SpecCache, forget: Forget) -> None:
        self._store = store
        self._specs = specs
        self._forget = forget
        self._named = Named()
        self._deleted = 0
        #: How far the outbox was read.
        self._sequence = 0
        self._failed: dict[str, AgentqError] = {}
        self._in_a_row = 0

    def prune(self, before: int, limit: int) -> int:
        """Delete what ended before that moment, `limit` tasks at a time; how many."""
        self._store.read(self._named.look)
        self._clear()
        after_key = 0
        while not self._is_away:
            # Looked for outside of the transaction: where little may go, this reads every task.
            keys = self._store.read(
                partial(_prunable, before=before, after_key=after_key, limit=limit)
            )
            if keys:
                self._deleted += self._store.write(partial(self._delete, before=before, keys=keys))
                self._clear()
            if len(keys) < limit:
                break
            after_key = keys[-1]
        self._store.write(lambda tx: tx.forget_dedup(tx.now()))
        # What roles spent is kept, a row a day; of labels there may be as many as tasks.
        self._store.write(lambda tx: tx.forget_spending(LABEL, day_of(before)))
        if self._failed:
            raise self._files_left()
        return self._deleted

    # -- rows ------------------------------------------------------------------------------------

    def _delete(self, tx: Tx, before: int, keys: Sequence[int]) -> int:
        """Delete those of these tasks that may still go, and note that their files shall."""
        tx.lock(keys)
        self._named.look(tx)
        # Asked again under lock: somebody may have opened one again, or submitted what follows it.
        still = set(tx.prunable(before, keys[0] - 1, len(keys)))
        rows = tx.tasks([key for key in keys if key in still])
        ids = {row.hot.key: str(decode_plain(row.spec.body)["id"]) for row in rows}
        going = {key: each for key, each in ids.items() if each not in self._named.ids}
        if going:
            tx.delete(list(going))
            tx.save([], [], [_order(min(going), 0, list(going.values()))])
            self._specs.drop(list(going))
        return len(going)

    # -- files -----------------------------------------------------------------------------------

    @property
    def _is_away(self) -> bool:
        return self._in_a_row >= _FAILURES_MAX

    def _clear(self) -> None:
        """Remove the files of deleted tasks: of those just now, and of what others left."""
        while not self._is_away:
            rows = self._store.read(partial(_outbox_after, sequence=self._sequence))
            if not rows:
                return
            for row in rows:
                self._sequence = row.sequence
                self._carry_out(row)

    def _carry_out(self, row: OutboxRow) -> None:
        ids = decode_plain(row.payload)["task_ids"]
        left: list[str] = []
        for start in range(0, len(ids), _LOOK_AHEAD):
            some = ids[start : start + _LOOK_AHEAD]
            # A new task may have the name by now. Its files are there as well, and go when it goes.
            taken = set() if self._is_away else self._store.read(partial(_keys, ids=some))
            left += [each for each in some if each not in taken and not self._remove(each)]
        if len(left) == len(ids):
            return

        def settle(tx: Tx) -> None:
            tx.relax()  # lost with a machine, it is done again
            tx.ack_effects([row.sequence])
            if left:
                key, _, number = map(int, row.effect_id.split("."))
                tx.save([], [], [_order(key, number + 1, left)])

        self._store.write(settle)

    def _remove(self, task_id: str) -> bool:
        """Whether the files of a deleted task are gone."""
        if self._is_away or task_id in self._failed:
            return False
        if task_id in self._named.coming:
            return False  # its name is that of a task to come, whose context may be there already
        try:
            self._forget(task_id)
        except AgentqError as error:
            self._failed[task_id] = error
            self._in_a_row += 1
            return False
        self._in_a_row = 0
        return True

    def _files_left(self) -> FilesLeft:
        first = next(iter(self._failed.values()))
        why = first.cause.removesuffix(" Nothing was changed.")
        left = FilesLeft(
            f"{self._deleted} tasks were deleted, but not all files of deleted tasks could be"
            f" removed. {why} What is left is written down, and removed by the next prune.",
            f"{first.remedy} Then prune again; `agentq up` does so by itself.".lstrip(),
        )
        left.deleted, left.why = self._deleted, why
        return left


def _order(key: int, number: int, ids: Sequence[str]) -> EffectRow:
    """The effect that the files of these tasks are removed; one for many, since it is a queue that
    every claim and report writes to."""
    return EffectRow(key, 0, number, LANE, encode({"effect": "Forget", "task_ids": ids}).decode())


def _prunable(reader: Reader, before: int, after_key: int, limit: int) -> list[int]:
    return reader.prunable(before, after_key, limit)


def _outbox_after(reader: Reader, sequence: int) -> list[OutboxRow]:
    return reader.outbox_after(LANE, sequence, 10)


def _keys(reader: Reader, ids: Sequence[str]) -> set[str]:
    return set(reader.keys(ids))


# -- what is not there any more ------------------------------------------------------------------


class Gone(NamedTuple):
    """What a task shall come after and is not there: how each ended, and the same in words."""

    ended: tuple[tuple[str, State], ...]
    words: str


NOTHING_GONE = Gone((), "")


def gone_dependencies(tx: Tx, family: Mapping[str, Spec]) -> dict[str, Gone]:
    """By task of a family to be, what it shall come after and is not there.

    What nobody remembers counts as failed: a task that asked to come after another must not run as
    if all were well, and says itself what it does otherwise (`on_dependency_failure`).
    """
    asked = {each for child in family.values() for each in child.after} - family.keys()
    gone = asked - tx.keys(asked).keys() if asked else asked
    if not gone:
        return {}
    known = tx.recall([f"id:{each}" for each in sorted(gone)])
    outcomes = {row.task_id: STATES[row.state] for row in known.values()}
    ended = {each: outcomes[each] for each in gone if outcomes.get(each) in TERMINAL}
    found = {}
    for child in family.values():
        lost = [each for each in child.after if each in gone]
        if lost:
            words = ", ".join(f"{each} ({ended.get(each, 'unknown')})" for each in lost)
            found[child.id] = Gone(
                tuple((each, ended.get(each, State.FAILED)) for each in lost), words
            )
    return found
