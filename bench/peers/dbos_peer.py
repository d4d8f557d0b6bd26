"""DBOS on PostgreSQL with its defaults: a queue without limits, polled once a second."""

from __future__ import annotations

import threading

import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

from bench.body import instructions_for, number_in
from bench.side import ROLE, Side

VERSION = "bench"
UNFINISHED = "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')"


class DbosPeer(Side):
    def create(self) -> None:
        self._launch()
        # The worker must be down while tasks are submitted, or it would take them at once.
        DBOS.destroy(destroy_registry=True)
        self.connect()

    def connect(self) -> None:
        self._client = DBOSClient(system_database_url=self.place.url)
        address = self.place.url.replace("postgresql://", "postgresql+psycopg://", 1)
        self._engine = sqlalchemy.create_engine(address)
        self._options: EnqueueOptions = {
            "workflow_name": "append",
            "queue_name": ROLE,
            "app_version": VERSION,
        }

    def _launch(self) -> None:
        config: DBOSConfig = {
            "name": ROLE,
            "system_database_url": self.place.url,
            "application_version": VERSION,
            "log_level": "ERROR",
        }
        DBOS(config=config)

        @DBOS.workflow(name="append")
        def append(instructions: str) -> None:
            self.body.run(number_in(instructions))

        DBOS.launch()
        DBOS.register_queue(ROLE)

    def submit_one(self, number: int) -> None:
        self._client.enqueue(self._options, instructions_for(number))

    def submit_batch(self, numbers: range) -> bool:
        # DBOS has no bulk call; many enqueues in one transaction come nearest.
        with self._engine.begin() as transaction:
            for number in numbers:
                self._client.enqueue_in_transaction(
                    transaction, self._options, instructions_for(number)
                )
        return True

    def drain(self, count: int, batch: int) -> float:
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher:
            watcher.execute(sqlalchemy.text("analyze"))
            self.body.expect(count)
            self._launch()
            seconds = self.await_finish(
                lambda: int(watcher.execute(sqlalchemy.text(UNFINISHED)).scalar_one())
            )
        DBOS.destroy(destroy_registry=True)
        return seconds

    def serve(self) -> None:
        self._launch()
        threading.Event().wait()
