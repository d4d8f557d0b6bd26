"""huey on SQLite: WAL, fsync on, one worker thread (the best of those tried), results kept."""

from __future__ import annotations

from huey import SqliteHuey  # type: ignore[import-untyped]
from huey.consumer import Consumer  # type: ignore[import-untyped]

from bench.side import ROLE, Side
from bench.tasks import TaskToDo, number_in


class HueyPeer(Side):
    def create(self) -> None:
        self._huey = SqliteHuey(ROLE, filename=str(self.place.sqlite_file), fsync=True)

        # huey finds a task by the name of its module and function, in every process alike.
        @self._huey.task()  # type: ignore[untyped-decorator]
        def append(task: dict[str, str]) -> str:
            # A result that is not None is stored, which is huey's record that the task ended.
            return self.body.run(number_in(task["instructions"]))

        self._append = append

    def submit_one(self, task: TaskToDo) -> None:
        self._append(task.fields())

    def drain(self, count: int, batch: int) -> float:
        self.body.expect(count)
        storage = self._huey.storage
        ended_before = storage.result_store_size()
        consumer = Consumer(self._huey, workers=1, periodic=False)
        consumer.start()
        seconds = self.await_finish(lambda: int(storage.result_store_size() - ended_before < count))
        consumer.stop(graceful=True)
        return seconds

    def serve(self) -> None:
        Consumer(self._huey, workers=1, periodic=False).run()
