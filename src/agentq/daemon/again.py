"""Saying once more that a task is ready. To say it twice costs a refused claim."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from agentq.contracts.store import Filter, Order
from agentq.daemon.letters import announcement, message_id
from agentq.ledger.codec import decode_spec, to_task

if TYPE_CHECKING:
    from agentq.contracts.delivery import Message
    from agentq.contracts.store import Reader, Store, TaskRow
    from agentq.core.task import Task
    from agentq.daemon.post import Post
    from agentq.wiring import Parts

#: A task, as its key, in one version of it.
Mark: TypeAlias = tuple[int, int]
#: Hints in one batch: others publish too, and want their turn.
AT_ONCE = 200
_PAGE = 500


def most_urgent(
    store: Store, role: str, count: int, before: int, passed_over: Collection[Mark] = ()
) -> list[tuple[int, Task]]:
    """Tasks of a role that have been ready since before that moment, but for some."""
    role_id = store.role_ids((role,))[role]
    found: list[tuple[int, Task]] = []
    size = min(count + len(passed_over), _PAGE)
    page = Filter(role=role_id, updated_before=before + 1, order=Order.URGENT, limit=size)
    while len(found) < count:
        rows = store.read(partial(_page, wanted=page))
        for hot, spec in rows:
            task = to_task(hot, decode_spec(spec.body), spec.submitted_at)
            page = replace(page, priority=task.spec.priority.rank, key=hot.key)
            if (hot.key, task.version) not in passed_over:
                found.append((hot.key, task))
        if len(rows) < size:
            break
    return found[:count]


def _page(reader: Reader, wanted: Filter) -> list[TaskRow]:
    return reader.list_tasks(wanted)


def announce_again(
    parts: Parts, post: Post, tasks: Sequence[tuple[int, Task]]
) -> tuple[list[Mark], str]:
    """Those that the broker took; and why it did not take the others, if so."""
    now = parts.store.now()
    letters: list[tuple[Mark, Message]] = []
    for key, task in tasks:
        again = message_id(f"{key}.{task.version}.again")
        letter = announcement(task, again, now, parts.artifacts)
        if letter is not None:
            letters.append(((key, task.version), letter))
    taken: list[Mark] = []
    for start in range(0, len(letters), AT_ONCE):
        some = letters[start : start + AT_ONCE]
        reasons = post.publish([letter for _, letter in some])
        taken += [mark for (mark, _), reason in zip(some, reasons, strict=True) if not reason]
        if any(reasons):
            return taken, next(filter(None, reasons))
    return taken, ""
