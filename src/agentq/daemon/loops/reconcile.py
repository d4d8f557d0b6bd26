"""Reconciliation: what is ready in the ledger and unheard of at the broker is announced again.

Hints get lost: a queue is purged, a broker comes back without its disk, a worker drops a hint that
it could not follow. So each role is counted now and then: fewer hints than ready tasks, and the
oldest of those that were not said again lately are. Saying one twice costs a refused claim.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from agentq.core.effects import Announce
from agentq.daemon.letters import announcement, message_id
from agentq.daemon.loop import Loop, log
from agentq.ledger.codec import decode_spec, to_task

if TYPE_CHECKING:
    from agentq.contracts.delivery import Message
    from agentq.contracts.store import Reader, TaskRow
    from agentq.core.task import Task
    from agentq.daemon.post import Post
    from agentq.wiring import Parts

EVERY_SECONDS = 30.0
#: What became ready within so long is the relay's to announce.
YOUNG_MS = 5_000
#: A hint is not said again before so long, or before its role's queue is empty.
AGAIN_SECONDS = 120.0
#: Hints per role and round. If more are missing, the next round follows at once.
ROUND_MAX = 2_000
_PAGE = 500
_REMEMBERED_MAX = 100_000
#: While the relay has more than one round of work before it, it is let to finish; for so long.
_BUSY = 200
_LET_SECONDS = 30


class Reconcile(Loop):
    """Compares the depth of each role's queue with the ledger."""

    name = "reconcile"
    term = "reconcile"

    def __init__(
        self, parts: Parts, post: Post, *, every: float = EVERY_SECONDS, young_ms: int = YOUNG_MS
    ) -> None:
        super().__init__()
        self._parts = parts
        self._post = post
        self._every = every
        self._young_ms = young_ms
        #: By role: when each task, in its version, was last said again.
        self._said: dict[str, dict[tuple[int, int], float]] = {}
        self._let = 0

    def run_once(self) -> float:
        store = self._parts.store
        if self._let < _LET_SECONDS and self._relay_is_busy():
            self._let += 1
            return 1.0
        self._let = 0
        ready = store.read(lambda reader: reader.ready_counts())
        more = False
        for role, count in ready.items():
            depth = self._post.depth(role)
            said = self._lately_said(role, empty=not depth)
            if count > depth:
                more = self._say_again(role, count - depth, said) or more
        for role in self._said.keys() - ready.keys():
            del self._said[role]
        return 0.05 if more else self._every

    def _relay_is_busy(self) -> bool:
        lane = Announce.lane
        return len(self._parts.store.read(lambda reader: reader.leaving(lane, _BUSY))) == _BUSY

    def _lately_said(self, role: str, *, empty: bool) -> dict[tuple[int, int], float]:
        before = time.monotonic() - AGAIN_SECONDS
        said = self._said.get(role, {})
        if empty or len(said) > _REMEMBERED_MAX:
            said = {}
        self._said[role] = {mark: at for mark, at in said.items() if at > before}
        return self._said[role]

    def _say_again(self, role: str, missing: int, said: dict[tuple[int, int], float]) -> bool:
        """Announce so many; True if some are left for the next round."""
        tasks = self._unheard(role, min(missing, ROUND_MAX), said)
        now = self._parts.store.now()
        letters: list[tuple[tuple[int, int], Message]] = []
        for key, task in tasks:
            mark = (key, task.version)
            again = message_id(f"{key}.{task.version}.again")
            letter = announcement(task, again, now, self._parts.artifacts)
            if letter is not None:
                letters.append((mark, letter))
        for start in range(0, len(letters), _BUSY):
            some = letters[start : start + _BUSY]
            reasons = self._post.publish([letter for _, letter in some])
            taken = [mark for (mark, _), reason in zip(some, reasons, strict=True) if not reason]
            said.update(dict.fromkeys(taken, time.monotonic()))
            self.tally.add("announced again", len(taken))
            if len(taken) < len(some):
                reason = next(filter(None, reasons))
                log.error("reconcile: the broker did not take hints for %s: %s.", role, reason)
                return False
        return missing > ROUND_MAX and len(tasks) == ROUND_MAX

    def _unheard(
        self, role: str, count: int, said: dict[tuple[int, int], float]
    ) -> list[tuple[int, Task]]:
        """The most urgent ready tasks that nobody has said again lately."""
        store = self._parts.store
        role_id, before = store.role_ids((role,))[role], store.now() - self._young_ms
        found: list[tuple[int, Task]] = []
        priority, key = -1, 0
        while len(found) < count:
            after = partial(
                _page, role=role_id, before=before, count=_PAGE, priority=priority, key=key
            )
            rows = store.read(after)
            for hot, spec in rows:
                task = to_task(hot, decode_spec(spec.body), spec.submitted_at)
                priority, key = task.spec.priority.rank, hot.key
                if (key, task.version) not in said:
                    found.append((key, task))
            if len(rows) < _PAGE:
                break
        return found[:count]


def _page(reader: Reader, **wanted: int) -> list[TaskRow]:
    return reader.ready_after(**wanted)
