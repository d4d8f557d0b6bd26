"""Who asks, and about what: the access table applied to the tasks that are there.

Only an attempt's rights depend on how it stands to a task. Its relation is found by walking
`spec.parent` upward, with reads of its own: parents never change, so nothing can come in between.
Everybody else is judged by the table alone, and costs nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from agentq.contracts.store import SUBMISSIONS_LANE
from agentq.core.access import ALL, Action, Principal, PrincipalKind, Relation, allowed, refusal
from agentq.core.errors import Conflict, NotFound, Unavailable

if TYPE_CHECKING:
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.contracts.store import Reader, Store
    from agentq.core.task import Task
    from agentq.ledger.ledger import Ledger
    from agentq.ledger.queries import LedgerQueries

#: Keys of claimed tasks that are remembered, so that their holders' calls need no look-up.
_KEYS_MAX = 20_000


class Resources(Protocol):
    """What a service is made of, each part opened when it is first asked for."""

    @property
    def store(self) -> Store: ...
    @property
    def ledger_queries(self) -> LedgerQueries: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def artifacts(self) -> ArtifactStore: ...
    @property
    def four_eyes(self) -> bool:
        """Whether nobody may approve what they submitted themselves."""


class ServiceAccess:
    """What all topics of the embedded service stand on."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._store = resources.store
        self._claimed_keys: dict[str, int] = {}

    @property
    def _queries(self) -> LedgerQueries:
        return self._resources.ledger_queries

    @property
    def _ledger(self) -> Ledger:
        return self._resources.ledger

    @property
    def _artifacts(self) -> ArtifactStore:
        return self._resources.artifacts

    # -- access ----------------------------------------------------------------------------------

    def _check(
        self, who: Principal, action: Action, about: str = "", role: str | None = None
    ) -> None:
        """Check a request that concerns no single task."""
        may = allowed(who, action)
        if may is ALL:
            return
        own_role = role is not None and who.role in ("", role)
        if (Relation.ROLE if own_role else Relation.NONE) not in may:
            raise refusal(who, action, about or role or "")

    def _check_attempt(self, who: Principal, action: Action, task_id: str, epoch: int) -> None:
        """For what the holder of an attempt says. Whoever names the epoch is fenced by it; an
        attempt has no other to name than its own."""
        may = allowed(who, action)
        if may is ALL:
            return
        foreign = who.kind is PrincipalKind.ATTEMPT and (who.task_id, who.epoch) != (task_id, epoch)
        if (Relation.NONE if foreign else Relation.OWN) not in may:
            raise refusal(who, action, task_id)

    def _check_task(self, who: Principal, action: Action, task: Task) -> None:
        """Check a request about one task that is not its holder's."""
        may = allowed(who, action)
        if may is not ALL and (not may or self._relation(who, task) not in may):
            raise refusal(who, action, task.id)

    def _find(self, who: Principal, action: Action, ref: str) -> tuple[int, Task]:
        """The task that is meant and its key, if the principal may do this with it."""
        may = allowed(who, action)
        if not may:
            raise refusal(who, action, ref)
        key, task = self._view(ref)
        if may is not ALL and self._relation(who, task) not in may:
            raise refusal(who, action, task.id)
        return key, task

    def _view(self, ref: str) -> tuple[int, Task]:
        try:
            return self._queries.find(ref)
        except NotFound:
            # Its transaction may have committed, and nobody has decided it yet.
            if not self._decide_deferred():
                raise
            return self._queries.find(ref)

    def _relation(self, who: Principal, task: Task) -> Relation:
        if who.kind is PrincipalKind.ATTEMPT:
            found = self._kinship(who, task)
            if found is not None:
                return found
        return Relation.ROLE if who.role and task.to == who.role else Relation.NONE

    def _kinship(self, who: Principal, task: Task) -> Relation | None:
        """How an attempt's own task is related to this one; None if it is not."""
        if task.id == who.task_id:
            return Relation.OWN
        above, complete = self._ancestors(task)
        if who.task_id in above:
            return Relation.DESCENDANT
        own = self._queries.by_id([who.task_id]).get(who.task_id)
        if own is None:
            return Relation.UNKNOWN
        above_own, complete_own = self._ancestors(own)
        if {task.id, *above} & {own.id, *above_own}:
            return Relation.TREE
        if task.id in own.spec.after:
            return Relation.INPUT
        return None if complete and complete_own else Relation.UNKNOWN

    def _ancestors(self, task: Task) -> tuple[list[str], bool]:
        """Ids of the tasks above this one; and whether that are all: those that are over may be
        pruned before what descends from them."""
        above: list[str] = []
        while task.spec.parent and task.spec.parent not in above:
            above.append(task.spec.parent)
            parent = self._queries.by_id([task.spec.parent]).get(task.spec.parent)
            if parent is None:
                return above, False
            task = parent
        return above, True

    # -- submissions that wait for whoever looks next ----------------------------------------------

    def _decide_deferred(self) -> int:
        """Decide submissions whose transactions have committed; how many tasks came of it. Whoever
        only looks is not kept from it by a ledger that cannot be written."""
        if not self._store.read(has_deferred):
            return 0
        try:
            born = self._ledger.decide_deferred()
        except Unavailable as error:
            import logging

            log = logging.getLogger("agentq.service")
            log.warning("submissions are decided later: %s", error)
            return 0
        self._publish_contexts(born)
        return len(born)

    def _publish_contexts(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if task.spec.context_sha256:
                self._publish_context(task.id, task.spec.context_sha256)

    def _publish_context(self, task_id: str, sha256: str) -> None:
        # The task is accepted whatever happens here: whoever reads its context publishes it first.
        with contextlib.suppress(Unavailable, Conflict):
            self._artifacts.publish_context(task_id, sha256)

    # -- keys ------------------------------------------------------------------------------------

    def _key(self, task_id: str) -> int:
        """The key of a task by its exact id. Of one that was claimed here it is known, and stays
        the right one: should the task be pruned and its id be used again, the old attempt does
        not speak for the new task."""
        key = self._claimed_keys.get(task_id)
        return key if key is not None else self._keys([task_id])[task_id]

    def _keys(self, ids: Sequence[str]) -> dict[str, int]:
        known = {each: self._claimed_keys[each] for each in ids if each in self._claimed_keys}
        unknown = [each for each in ids if each not in known]
        if unknown:
            known |= self._store.read(lambda reader: reader.keys(unknown))
        missing = next((each for each in ids if each not in known), None)
        if missing is not None:
            raise NotFound(
                f"There is no task {missing!r}.", "`agentq list` shows the tasks that are there."
            )
        return known

    def _remember(self, task_id: str, key: int) -> None:
        keys = self._claimed_keys
        if len(keys) >= _KEYS_MAX:
            for oldest in list(keys)[: _KEYS_MAX // 10]:
                keys.pop(oldest, None)
        keys[task_id] = key


def has_deferred(reader: Reader) -> bool:
    return bool(reader.effects(SUBMISSIONS_LANE, 1, due_only=True))
