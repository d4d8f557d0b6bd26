"""Procrastinate: deferred through its synchronous connector, worked with concurrency 10."""

from __future__ import annotations

import asyncio

import procrastinate
import psycopg
from procrastinate.types import JSONValue

from bench.body import instructions_for, number_in
from bench.side import ROLE, Side

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
        async def append(instructions: str) -> None:
            self.body.run(number_in(instructions))

        self._append = append
        return app

    def submit_one(self, number: int) -> None:
        self._append.defer(instructions=instructions_for(number))

    def submit_batch(self, numbers: range) -> bool:
        jobs: list[dict[str, JSONValue]] = [
            {"instructions": instructions_for(number)} for number in numbers
        ]
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
