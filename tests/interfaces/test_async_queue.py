"""The same API, awaited: what differs is that handlers may be coroutines."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentq import AsyncClaim, AsyncQueue, Claim, Fail, Queue, Retry, Stale, State, TimedOut
from agentq.client.admin import Admin
from agentq.client.async_admin import AsyncAdmin
from tests.ways import LEDGERS, ledger_address

PATIENCE = 20.0


@pytest.fixture(params=LEDGERS)
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of a ledger, on each database and behind a server."""
    monkeypatch.setenv("AGENTQ_HOME", str(tmp_path / "home"))
    with ledger_address(request, tmp_path, monkeypatch) as address:
        yield address


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine, which must end in time."""
    asyncio.run(asyncio.wait_for(test, PATIENCE))


async def first(found: AsyncIterator[Any], count: int) -> list[Any]:
    taken = []
    async for each in found:
        taken.append(each)
        if len(taken) == count:
            break
    return taken


def test_it_has_the_members_of_the_queue() -> None:
    here = {name for name in dir(AsyncQueue) if not name.startswith("_")}
    there = {name for name in dir(Queue) if not name.startswith("_")}
    assert there == here
    admin = {name for name in dir(Admin) if not name.startswith("_")}
    assert {name for name in dir(AsyncAdmin) if not name.startswith("_")} == admin
    for name in admin - {"verify"}:
        assert inspect.iscoroutinefunction(getattr(AsyncAdmin, name)), name
    awaited = {name for name in dir(AsyncClaim) if not name.startswith("_")}
    # What the worker and the heartbeats need of a claim is not for coroutines
    inner = {"interrupt", "lease_ms", "lose", "on_lost", "settled"}
    assert {name for name in dir(Claim) if not name.startswith("_")} - awaited <= inner
    for name in ("submit", "claim", "wait", "complete", "result", "cancel"):
        method, plain = getattr(AsyncQueue, name), getattr(Queue, name)
        assert inspect.iscoroutinefunction(method) and method.__doc__
        assert set(inspect.signature(method).parameters) - {"args", "kwargs", "self"} <= set(
            inspect.signature(plain).parameters
        )


def test_it_is_looked_after_without_waiting_for_the_store(url: str) -> None:
    async def test() -> None:
        async with AsyncQueue(url) as queue:
            task = await queue.submit("worker", "x")
            held = await queue.admin.hold(task, "ann", "not today")
            assert held.state is State.PENDING
            assert (await queue.admin.dispatch(task, "ann")).state is State.READY
            assert (await queue.admin.stats()).by_role["worker"] == {"ready": 1}
            looked = [problems async for _, problems in queue.admin.verify()]
            assert looked and not any(looked)

    run(test())


def test_yields_signals_and_trees(url: str) -> None:
    async def test() -> None:
        async with AsyncQueue(url) as queue:
            task = await queue.submit("w", "wait for it")
            claim = await queue.claim("w")
            assert claim is not None
            await claim.submit(to="v", instructions="a child", id="task-child")
            await claim.yield_("all", "go on", signals=["deployed"])
            await queue.signal(task, "ann", "deployed", {"build": 7})
            assert (await queue.cancel("task-child", "ann")).state is State.CANCELLED
            again = await queue.claim_task(task)
            assert {note.kind for note in again.notes} == {"yield", "signal"}
            await again.submit(to="v", instructions="another", id="task-other")
            assert (await queue.yield_(task, "any", epoch=2)).details.yielded == "any"
            await queue.cancel(task, "ann", tree=True)
            assert (await queue.task("task-other")).state is State.CANCELLED
            other = await queue.submit("w", "with data")
            claim = await queue.claim("w")
            assert claim is not None and claim.id == other.id
            done = await queue.complete(other, data=["a.py"], leave_children=True)
            assert done.details.report is not None and done.details.report.data == '["a.py"]'

    run(test())


def test_submit_claim_report_and_look(url: str) -> None:
    async def test() -> None:
        async with AsyncQueue(url) as queue:
            task = await queue.submit("w", "look", ttl="1h", reply_to="results.coordinator")
            assert (await queue.submit_many([{"to": "v", "title": "x"}]))[0].state is State.READY
            claim = await queue.claim("w", wait=5)
            assert claim is not None and claim.id == task.id
            async with claim:
                await claim.progress(40, "reading")
                stored = await claim.put("risks.md", "none")
                assert await stored.read() == b"none" and stored.epoch == 1
                assert await claim.context() == "look"
                child = await claim.submit(to="v", instructions="y")
                await claim.complete("done", stored, leave_children=True)
            assert (await queue.wait(task, "5s")).state is State.COMPLETE
            assert [each.id for each in await queue.wait([task.id], 5)] == [task.id]
            assert (await queue.result(task)).text() == "none"
            (artifact,) = await queue.artifacts(task)
            assert await artifact.text() == "none" and artifact.task_id == task.id
            assert len([each async for each in queue.tasks(role="v")]) == 2
            assert (await queue.cancel(child, by="ann")).state is State.CANCELLED
            kinds = [each.event.kind for each in await first(queue.follow(after=0), 3)]
            assert kinds == ["submitted", "submitted", "claimed"]
            assert [each.event.kind async for each in queue.follow(timeout=0.05)] == []
            (outcome,) = [each async for each in queue.results(wait=0.05)]
            assert (outcome.task_id, outcome.status) == (task.id, "completed")
            with pytest.raises(TimedOut):
                await queue.wait(await queue.submit("w", "x"), timeout=0.05)
            assert await queue.claim("nobody", wait=0.05) is None

    run(test())


def test_coroutines_are_handlers(url: str) -> None:
    async def test() -> None:
        async with AsyncQueue(url) as queue:
            together = asyncio.Barrier(3)

            @queue.handler("meeting", slots=3)
            async def meet(claim: AsyncClaim) -> str:
                await together.wait()
                await claim.progress(50)
                return f"met for {await claim.context()}"

            @queue.handler("plain")
            def plain(claim: Claim) -> str:
                return claim.context().upper()

            @queue.handler("failing")
            async def failing(claim: AsyncClaim) -> None:
                if await claim.context() == "fail":
                    raise Fail("no")
                raise Retry("not yet", delay="1h")

            tasks = await queue.submit_many([{"to": "meeting", "title": str(n)} for n in range(3)])
            loud = await queue.submit("plain", "loud")
            failed, later = (
                await queue.submit("failing", "fail"),
                await queue.submit("failing", "x"),
            )
            await queue.run(idle=0.2)
            for task in tasks:
                assert (await queue.task(task)).state is State.COMPLETE
            assert (await queue.result(loud)).text() == "LOUD"
            assert (await queue.task(failed)).state is State.FAILED
            assert (await queue.task(later)).state is State.PENDING
            assert (meet.__name__, plain.__name__, failing.__name__) == ("meet", "plain", "failing")

    run(test())


def test_a_cancel_cancels_the_coroutine_within_a_second(url: str) -> None:
    async def test() -> None:
        async with AsyncQueue(url) as queue:
            began, ended = asyncio.Event(), asyncio.Event()

            async def work(claim: AsyncClaim) -> None:
                began.set()
                try:
                    await asyncio.sleep(PATIENCE)
                finally:
                    ended.set()

            task = await queue.submit("w", "x", lease="10m")
            serving = asyncio.create_task(queue.serve("w", work))
            await began.wait()
            started = time.monotonic()
            await queue.cancel(task, by="ann")
            await ended.wait()
            assert time.monotonic() - started < 1
            queue.stop()
            await serving
            assert (await queue.task(task)).state is State.CANCELLED

    run(test())


def test_a_cancelled_server_gives_back_what_runs(url: str) -> None:
    async def test() -> None:
        async with AsyncQueue(url) as queue:
            began, cancelled = asyncio.Event(), asyncio.Event()

            async def work(claim: AsyncClaim) -> None:
                began.set()
                try:
                    await asyncio.sleep(PATIENCE)
                except asyncio.CancelledError:
                    cancelled.set()
                    raise

            task = await queue.submit("w", "x")
            serving = asyncio.create_task(queue.serve("w", work, grace=0.1))
            await began.wait()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            await cancelled.wait()
            assert (await queue.task(task)).state is State.READY

    run(test())


def test_a_lost_claim_says_so(url: str) -> None:
    async def test() -> None:
        async with AsyncQueue(url) as queue:
            claim = await queue.claim_task(await queue.submit("w", "x"))
            await queue.cancel(claim.task, by="ann")
            with pytest.raises(Stale):
                await claim.heartbeat()
            assert claim.lost and claim.cancel_token.cancelled

    run(test())


def test_one_that_was_not_opened_says_how(url: str) -> None:
    async def test() -> None:
        with pytest.raises(RuntimeError, match="async with"):
            await AsyncQueue(url).submit("w", "x")

    run(test())
