"""Taskiq on RabbitMQ through aio-pika, with its results kept in PostgreSQL; a hundred at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import psycopg
from taskiq.api import run_receiver_task
from taskiq_aio_pika import AioPikaBroker
from taskiq_pg.psycopg import PsycopgResultBackend

from bench.servers import broker_of
from bench.side import Side
from bench.tasks import TaskToDo, number_in

AT_ONCE = 100
Answer = TypeVar("Answer")


class TaskiqPeer(Side):
    def create(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._run(self._open(worker=False))

    async def _open(self, *, worker: bool) -> AioPikaBroker:
        results: PsycopgResultBackend = PsycopgResultBackend(dsn=self.place.url)
        broker = AioPikaBroker(broker_of(self.place), qos=AT_ONCE).with_result_backend(results)

        @broker.task(task_name="append")
        async def append(task: dict[str, str]) -> str:
            return self.body.run(number_in(task["instructions"]))

        broker.is_worker_process = worker
        await broker.startup()
        if not worker:
            self._append = append
        return broker

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self._loop.run_until_complete(work)

    def submit_one(self, task: TaskToDo) -> None:
        self._run(self._submit(task))

    async def _submit(self, task: TaskToDo) -> None:
        await self._append.kiq(task.fields())

    def submit_each(self, count: int) -> float:
        return self._run(self._submit_each(self.new_tasks(count)))

    async def _submit_each(self, tasks: Sequence[TaskToDo]) -> float:
        # One coroutine for all, so that no submit pays for entering the event loop again.
        started = self._loop.time()
        for task in tasks:
            await self._submit(task)
        return self._loop.time() - started

    def drain(self, count: int, batch: int) -> float:
        self.body.expect(count)
        with psycopg.connect(self.place.url, autocommit=True) as watcher:

            def unfinished() -> int:
                row = watcher.execute("select count(*) from taskiq_results").fetchone()
                return count - int(row[0]) if row else count

            async def work() -> float:
                broker = await self._open(worker=True)
                running = asyncio.create_task(self._receive(broker))
                seconds = await asyncio.to_thread(self.await_finish, unfinished)
                running.cancel()
                await asyncio.wait([running], timeout=5)
                await broker.shutdown()
                return seconds

            return self._run(work())

    @staticmethod
    async def _receive(broker: AioPikaBroker) -> None:
        await run_receiver_task(broker, max_async_tasks=AT_ONCE)

    def serve(self) -> None:
        async def work() -> None:
            await self._receive(await self._open(worker=True))

        self._run(work())
