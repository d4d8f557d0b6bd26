"""Dramatiq on RabbitMQ: confirmed publishing, eight threads. It keeps no results.

So nothing but the bodies says that its tasks have ended, and its clock stops at the last of them.
"""

from __future__ import annotations

import threading

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from bench.servers import broker_of
from bench.side import ROLE, Side
from bench.tasks import TaskToDo, number_in

THREADS = 8


class DramatiqPeer(Side):
    def create(self) -> None:
        self._broker = RabbitmqBroker(url=broker_of(self.place), confirm_delivery=True)

        @dramatiq.actor(broker=self._broker, queue_name=ROLE)
        def append(instructions: str, **others: str) -> None:
            self.body.run(number_in(instructions))

        self._append = append

    def submit_one(self, task: TaskToDo) -> None:
        self._append.send(**task.fields())

    def drain(self, count: int, batch: int) -> float:
        self.body.expect(count)
        worker = dramatiq.Worker(self._broker, worker_threads=THREADS)
        worker.start()
        seconds = self.await_finish(lambda: 0)
        worker.stop()
        return seconds

    def serve(self) -> None:
        dramatiq.Worker(self._broker, worker_threads=THREADS).start()
        threading.Event().wait()
