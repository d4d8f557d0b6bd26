"""Requests that come again under the same key, because their answer was lost.

What was done under a key, and what was answered, the ledger knows: it was written in the same
transaction, so it does not matter which server is asked, or how often it was killed meanwhile (see
`ledger.request_keys`). Here is only what no ledger can know: which requests are under way in this
very process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from agentq.core.access import Principal, key_reused
from agentq.server.api import Response

UnderWay: TypeAlias = tuple[str, asyncio.Future[Response]]


class Repeats:
    """The requests under way, by who asks and the key they gave."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[Principal, str], UnderWay] = {}

    async def once(self, who: Principal, act: Callable[[], Awaitable[Response]]) -> Response:
        """Act, or wait for the answer to the same request if that is under way."""
        if who.request is None:
            return await act()
        key = (who, who.request.key)
        while (known := self._under_way.get(key)) is not None:
            if known[0] != who.request.digest:
                raise key_reused()
            try:
                return await asyncio.shield(known[1])
            except asyncio.CancelledError:
                if not known[1].cancelled():
                    raise  # it is this request that ends
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._under_way[key] = (who.request.digest, future)
        try:
            future.set_result(await act())
        finally:
            del self._under_way[key]
            future.cancel()  # if it came to nothing: then another one acts
        return future.result()
