"""Procrastinate: deferred through its synchronous connector, worked with concurrency 10."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import procrastinate
import psycopg
from procrastinate.types import JSONValue

from bench.side import ROLE, Side
from bench.tasks import TaskToDo, number_in

CONCURRENCY = 10


class ProcrastinatePeer(Side):
    def create(self) -> None:
        self.connect()
        self._app.schema_manager.apply_schema()

    def connect(self) -> None:
        self._app = self._make_app(procrastinate.SyncPsycopgConnector(conninfo=self.place.url))
        self._app.open()

    def _make_app(self, connector: procrastinate.BaseConnector) -> procrastinate.App:
        app = procrastinate.App(connector=connector)

        @app.task(name="append", queue=ROLE)
        async def append(instructions: str, **others: str) -> str:
            return self.body.run(number_in(instructions))

        self._append = append
        return app

    def submit_one(self, task: TaskToDo) -> None:
        self._append.defer(**task.fields())

    def submit_batch(self, tasks: Sequence[TaskToDo]) -> bool:
        jobs: list[dict[str, JSONValue]] = [{**task.fields()} for task in tasks]
        self._append.batch_defer(*jobs)
        return True

    def drain(self, count: int, batch: int) -> float:
        with psycopg.connect(self.place.url, autocommit=True) as watcher:
            watcher.execute("analyze")
            self.body.expect(count)

            def unfinished() -> int:
                query = "select count(*) from procrastinate_jobs where status <> 'succeeded'"
                row = watcher.execute(query).fetchone()
                return int(row[0]) if row else 0

            async def work() -> float:
                app = self._make_app(procrastinate.PsycopgConnector(conninfo=self.place.url))
                async with app.open_async():
                    running = asyncio.create_task(
                        app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
                    )
                    seconds = await asyncio.to_thread(self.await_finish, unfinished)
                    running.cancel()
                    await asyncio.wait([running], timeout=5)
                return seconds

            return asyncio.run(work())

    def serve(self) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=self.place.url)
        self._make_app(connector).run_worker(concurrency=CONCURRENCY)
