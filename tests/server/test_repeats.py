"""Requests under one key that are under way at the same time in one server."""

from __future__ import annotations

import asyncio

import pytest

from agentq.core.access import RequestKey
from agentq.core.errors import Conflict
from agentq.core.values import replace
from agentq.server.api import Response
from agentq.server.repeats import Repeats
from tests.server.conftest import ANN

ASKED = replace(ANN, request=RequestKey("a", "asked"))


class Acting:
    """What a request does: it begins, and ends when the test says how."""

    def __init__(self) -> None:
        self.begun = 0
        self.begins = asyncio.Event()
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> Response:
        self.begun += 1
        self.begins.set()
        return await asyncio.shield(self.answer)


async def begun(acting: Acting, count: int = 1) -> None:
    while acting.begun < count:
        acting.begins.clear()
        await acting.begins.wait()


def test_the_second_waits_for_the_first() -> None:
    async def check() -> None:
        repeats, acting = Repeats(), Acting()
        both = [asyncio.ensure_future(repeats.once(ASKED, acting)) for _ in range(2)]
        await begun(acting)
        with pytest.raises(Conflict):
            await repeats.once(replace(ANN, request=RequestKey("a", "else")), acting)
        acting.answer.set_result(Response(200, b"done"))
        assert [each.body for each in await asyncio.gather(*both)] == [b"done", b"done"]
        assert acting.begun == 1
        # What was answered is forgotten here: the ledger knows it.
        assert (await repeats.once(ASKED, acting)).body == b"done"
        assert acting.begun == 2

    asyncio.run(check())


def test_without_a_key_each_acts() -> None:
    async def check() -> None:
        repeats, acting = Repeats(), Acting()
        both = [asyncio.ensure_future(repeats.once(ANN, acting)) for _ in range(2)]
        await begun(acting, 2)
        acting.answer.set_result(Response(200))
        await asyncio.gather(*both)

    asyncio.run(check())


def test_one_that_ends_early_leaves_its_place_to_the_next() -> None:
    async def check() -> None:
        repeats, acting = Repeats(), Acting()
        first, second, third = (
            asyncio.ensure_future(repeats.once(ASKED, acting)) for _ in range(3)
        )
        await begun(acting)
        third.cancel()  # it only waits
        first.cancel()  # its client is gone
        await begun(acting, 2)
        acting.answer.set_result(Response(200, b"done"))
        assert (await second).body == b"done"
        assert first.cancelled()
        assert third.cancelled()
        assert acting.begun == 2

    asyncio.run(check())
