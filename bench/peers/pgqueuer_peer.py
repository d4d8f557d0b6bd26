"""PgQueuer over asyncpg, its fastest driver, in batches of 100 (ten times its default)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]
import psycopg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

from bench.side import ROLE, Side
from bench.tasks import PRIORITIES, TaskToDo, number_in_json

BATCH = 100
#: Its highest number goes first.
RANK = {priority: -rank for rank, priority in enumerate(PRIORITIES)}
Answer = TypeVar("Answer")


class PgqueuerPeer(Side):
    def create(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open(install=True))

    def connect(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open(install=False))

    async def _open(self, *, install: bool) -> None:
        self._queries = Queries(AsyncpgDriver(await asyncpg.connect(self.place.url)))
        if install:
            await self._queries.install()

    def submit_one(self, task: TaskToDo) -> None:
        self._run(self._enqueue(task))

    async def _enqueue(self, task: TaskToDo) -> None:
        await self._queries.enqueue(ROLE, task.as_json().encode(), RANK[task.priority])

    def submit_each(self, count: int) -> float:
        return self._run(self._submit_each(self.new_tasks(count)))

    async def _submit_each(self, tasks: Sequence[TaskToDo]) -> float:
        # One coroutine for all, so that no submit pays for entering the event loop again.
        started = self._loop.time()
        for task in tasks:
            await self._enqueue(task)
        return self._loop.time() - started

    def submit_batch(self, tasks: Sequence[TaskToDo]) -> bool:
        payloads: list[bytes | None] = [task.as_json().encode() for task in tasks]
        ranks = [RANK[task.priority] for task in tasks]
        self._run(self._queries.enqueue([ROLE] * len(payloads), payloads, ranks))
        return True

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self._loop.run_until_complete(work)

    async def _worker(self) -> PgQueuer:
        driver = AsyncpgDriver(await asyncpg.connect(self.place.url))
        application = PgQueuer(driver)

        @application.entrypoint(ROLE)
        async def append(job: Job) -> None:
            assert job.payload is not None
            self.body.run(number_in_json(job.payload))

        return application

    def drain(self, count: int, batch: int) -> float:
        with psycopg.connect(self.place.url, autocommit=True) as watcher:
            watcher.execute("analyze")
            self.body.expect(count)

            def unfinished() -> int:
                row = watcher.execute("select count(*) from pgqueuer").fetchone()
                return int(row[0]) if row else 0

            async def work() -> float:
                application = await self._worker()
                running = asyncio.create_task(application.run(batch_size=BATCH))
                seconds = await asyncio.to_thread(self.await_finish, unfinished)
                application.shutdown.set()
                await asyncio.wait([running], timeout=5)
                return seconds

            return self._run(work())

    def serve(self) -> None:
        async def work() -> None:
            application = await self._worker()
            await application.run(batch_size=BATCH)

        self._run(work())
