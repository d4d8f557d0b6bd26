"""PgQueuer over asyncpg, its fastest driver, in batches of 100 (ten times its default)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]
import psycopg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

from bench.body import instructions_for, number_in
from bench.side import ROLE, Side

BATCH = 100
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

    def submit_one(self, number: int) -> None:
        self._run(self._queries.enqueue(ROLE, instructions_for(number).encode()))

    def submit_each(self, count: int) -> float:
        return self._run(self._submit_each(count))

    async def _submit_each(self, count: int) -> float:
        # One coroutine for all, so that no submit pays for entering the event loop again.
        started = self._loop.time()
        for number in range(count):
            await self._queries.enqueue(ROLE, instructions_for(number).encode())
        return self._loop.time() - started

    def submit_batch(self, numbers: range) -> bool:
        payloads: list[bytes | None] = [instructions_for(number).encode() for number in numbers]
        count = len(payloads)
        self._run(self._queries.enqueue([ROLE] * count, payloads, [0] * count))
        return True

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self._loop.run_until_complete(work)

    async def _worker(self) -> PgQueuer:
        driver = AsyncpgDriver(await asyncpg.connect(self.place.url))
        application = PgQueuer(driver)

        @application.entrypoint(ROLE)
        async def append(job: Job) -> None:
            assert job.payload is not None
            self.body.run(number_in(job.payload.decode()))

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
