"""DBOS on PostgreSQL with its defaults: a queue without limits, polled once a second."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

from bench.side import ROLE, Side
from bench.tasks import TaskToDo, number_in

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
        def append(task: dict[str, str]) -> str:
            return self.body.run(number_in(task["instructions"]))

        DBOS.launch()
        DBOS.register_queue(ROLE)

    def submit_one(self, task: TaskToDo) -> None:
        self._client.enqueue(self._options, task.fields())

    def submit_batch(self, tasks: Sequence[TaskToDo]) -> bool:
        # DBOS has no bulk call; many enqueues in one transaction come nearest.
        with self._engine.begin() as transaction:
            for task in tasks:
                self._client.enqueue_in_transaction(transaction, self._options, task.fields())
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
