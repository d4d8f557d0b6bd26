"""Tests of a program that uses agentq need no server and wait for nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from newsroom.async_watch import translate
from newsroom.coordinator import collect, commission
from newsroom.workers import register

from agentq import AsyncQueue, State
from agentq.testing import MemoryQueue


def test_an_article_is_researched_written_and_checked(agentq_queue: MemoryQueue) -> None:
    register(agentq_queue)
    tasks = commission(agentq_queue, "Ferries", "They cross every ten minutes. There are two.")
    agentq_queue.run(idle=0)
    article = collect(agentq_queue, tasks, timedelta(0))
    assert "ten minutes" in article.text and "draft.md" in article.evidence
    assert agentq_queue.task(tasks[2]).summary == "2 numbers checked: ten, two"


def test_a_rumour_fails_all_that_follows(agentq_queue: MemoryQueue) -> None:
    register(agentq_queue)
    tasks = commission(agentq_queue, "Trams", "A rumour.")
    agentq_queue.run(idle=0)
    assert {agentq_queue.task(each).state for each in tasks} == {State.FAILED}


def test_nobody_works_on_yesterdays_news(agentq_queue: MemoryQueue) -> None:
    tasks = commission(agentq_queue, "Buses", "They are late.")
    agentq_queue.advance("25h")
    assert agentq_queue.task(tasks[0]).state is State.EXPIRED


def test_coroutines_work_alike() -> None:
    async def work() -> str:
        async with AsyncQueue.create("sqlite://:memory:") as queue:
            task = await queue.submit("translator", "hello")
            await queue.serve("translator", translate, idle=0)
            return (await queue.result(task)).text()

    assert asyncio.run(work()) == "HELLO"
