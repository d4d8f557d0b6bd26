"""Answers that are given again instead of acting twice.

A client whose answer was lost sends its request again under the same key. As long as this process
lives it gets the same answer; after a restart the ledger's own rules hold (a claim whose answer was
lost ends with its lease, a report that was accepted is accepted again).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from agentq.core.access import Principal
from agentq.server.api import Response

Key: TypeAlias = tuple[Principal, str]

_KEEP_SECONDS = 600.0
_KEPT_MAX = 10_000
#: Larger answers are not kept: whoever asks again finds the task as it is.
_ANSWER_BYTES_MAX = 1 << 20


class Repeats:
    """Remembers answers by who asked and the key they gave."""

    def __init__(self) -> None:
        self._answers: dict[Key, tuple[float, asyncio.Future[Response]]] = {}

    async def once(self, key: Key, act: Callable[[], Awaitable[Response]]) -> Response:
        """The answer of the first request under this key; later ones wait for it."""
        self._forget()
        known = self._answers.get(key)
        if known is not None:
            return await asyncio.shield(known[1])
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._answers[key] = (time.monotonic(), future)
        try:
            answer = await act()
        except BaseException:
            self._answers.pop(key, None)
            future.cancel()
            raise
        future.set_result(answer)
        if answer.status >= 500 or not isinstance(answer.body, bytes) or (
            len(answer.body) > _ANSWER_BYTES_MAX
        ):  # fmt: skip
            self._answers.pop(key, None)
        return answer

    def _forget(self) -> None:
        old = time.monotonic() - _KEEP_SECONDS
        for key, (at, future) in list(self._answers.items()):
            if at > old and len(self._answers) <= _KEPT_MAX:
                return
            if future.done():
                del self._answers[key]

    def clear(self) -> None:
        self._answers.clear()
