"""Submitting in a transaction of an async psycopg connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from agentq.contracts.service_values import LoopConnection

T = TypeVar("T")


async def on_loop(connection: object, submit: Callable[[LoopConnection], T]) -> T:
    """Run `submit` in a thread, with this async connection as its `connection` argument.

    `await on_loop(conn, lambda c: q.submit("worker", "Look.", connection=c))`. Statements on the
    connection run on the event loop of the caller, one by one. If the caller is cancelled, what was
    begun on its connection ends first: a connection is never left to two users.
    """
    bound = LoopConnection(connection, asyncio.get_running_loop())
    running = asyncio.ensure_future(asyncio.to_thread(submit, bound))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):  # once is enough
                await asyncio.wait([running])
        raise
