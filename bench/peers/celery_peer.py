"""Celery on RabbitMQ, durable: late acks, confirmed publishing, results kept in PostgreSQL.

Two forked children, since threads make its result store connect anew for every result. The worker
is the program `celery` itself, so the body's file is the only witness of when bodies began.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
from celery import Celery  # type: ignore[import-untyped]

from bench.body import Body, count_runs, read_starts
from bench.servers import broker_of
from bench.side import FINISH_POLL_SECONDS, GIVE_UP_SECONDS, ROLE, Place, Side
from bench.tasks import TaskToDo, number_in

CHILDREN = 2
#: Messages taken ahead by each child: its default. 1, 16 and 64, tried twice each, differed from it
#: by less than their own two tries did.
PREFETCH = 4
FOLDER, URL = "BENCH_CELERY_FOLDER", "BENCH_CELERY_URL"
PR_SET_PDEATHSIG = 1
UNFINISHED = "select %s - count(*) from celery_taskmeta where status = 'SUCCESS'"


def make_app(place: Place) -> Celery:
    app = Celery(ROLE, broker=broker_of(place), set_as_current=False)
    app.conf.update(
        result_backend=place.url.replace("postgresql://", "db+postgresql+psycopg://", 1),
        result_expires=None,
        task_default_queue=ROLE,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        broker_transport_options={"confirm_publish": True},
        worker_prefetch_multiplier=PREFETCH,
        broker_connection_retry_on_startup=True,
    )
    body = Body(place.body_file)

    @app.task(name="append")  # type: ignore[untyped-decorator]
    def append(instructions: str, **others: str) -> str:
        return body.run(number_in(instructions))

    return app


class CeleryPeer(Side):
    def create(self) -> None:
        self._app = make_app(self.place)
        self._append = self._app.tasks["append"]

    def submit_one(self, task: TaskToDo) -> None:
        self._append.delay(**task.fields())

    def drain(self, count: int, batch: int) -> float:
        worker = self._start_worker()
        try:
            return self._await_results(count, worker)
        finally:
            worker.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(5)
            worker.kill()
            worker.wait()

    def _await_results(self, count: int, worker: subprocess.Popen[bytes]) -> float:
        deadline = time.monotonic() + GIVE_UP_SECONDS

        def pause() -> None:
            if worker.poll() is not None:
                raise RuntimeError(f"the worker ended with exit code {worker.returncode}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"tasks not recorded as done in {GIVE_UP_SECONDS:.0f} s")
            # Counting is not free, and this worker needs seconds: look less often.
            time.sleep(10 * FINISH_POLL_SECONDS)

        while count_runs(self.place.body_file) < count:
            pause()
        with psycopg.connect(self.place.url, autocommit=True) as watcher:
            while watcher.execute(UNFINISHED, (count,)).fetchone() != (0,):
                pause()
        ended = time.monotonic_ns()
        return (ended - min(read_starts(self.place.body_file).values())) / 1e9

    def serve(self) -> None:
        self._start_worker().wait()

    def _start_worker(self) -> subprocess.Popen[bytes]:
        command = [
            *(sys.executable, "-m", "celery", "-A", "bench.peers.celery_peer:worker_app"),
            *("worker", "--pool", "prefork", "--concurrency", str(CHILDREN)),
            *("--loglevel", "WARNING", "--without-gossip", "--without-mingle"),
        ]
        told = {FOLDER: str(self.place.folder), URL: self.place.url}
        return subprocess.Popen(
            command,
            env=os.environ | told,
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  (no threads here yet)
        )


def _die_with_parent() -> None:
    """The children of a Celery worker end when it does; it ends when its side does."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if FOLDER in os.environ:
    #: What the program `celery` is pointed at.
    worker_app = make_app(Place(Path(os.environ[FOLDER]), os.environ[URL]))
