"""Bugs of the chain of digests and of the system stream."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from agentq.ledger import chain, codec, ledger, log_codec, pruning, unit_of_work
from tests.simulation.planted import breaks
from tests.simulation.violation import REPLAY


@breaks(REPLAY)
def a_digest_forgets_the_event_before() -> AbstractContextManager[Any]:
    """An event could be left out, and those after it would not show it."""

    def forgetful(content: tuple[object, ...], rest: str = "") -> str:
        return chain.event_digest(("", *content[1:]), rest)

    return patch.object(log_codec, "event_digest", forgetful)


@breaks(REPLAY)
def a_digest_forgets_what_was_said() -> AbstractContextManager[Any]:
    """The words of a comment could be changed."""

    def forgetful(content: tuple[object, ...], rest: str = "") -> str:
        return chain.event_digest(content)

    return patch.object(log_codec, "event_digest", forgetful)


@breaks(REPLAY)
def a_row_keeps_the_digest_it_had() -> AbstractContextManager[Any]:
    """The next event is chained to one that is not the last."""
    real = codec.to_hot

    def stale(key: int, task: Any, details: str, flags: int, digest: str) -> Any:
        return real(key, task, details, flags, "" if task.version == 2 else digest)

    return patch.object(unit_of_work, "to_hot", stale)


@breaks(REPLAY)
def a_limit_leaves_no_event() -> AbstractContextManager[Any]:
    """Nobody could tell whether people have set it."""
    return patch.object(ledger, "system_rows", lambda tx, notes: [])


@breaks(REPLAY)
def a_deleted_task_leaves_nothing() -> AbstractContextManager[Any]:
    """Nobody could tell whether it was deleted by agentq or by a hand in the database."""
    return patch.object(pruning, "system_rows", lambda *said: [])
