"""A plain program on psycopg, as one would write it first: a table of tasks and a table of events.

Every change writes the task and its event in one transaction. Nothing is done to make it quick and
nothing is left out that the two rows need, so it shows what PostgreSQL gives to several processes
that do not stand in each other's way.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg

from bench.side import Side
from bench.tasks import TaskToDo, number_in

SCHEMA = """
create table if not exists task (
  id bigint generated always as identity primary key,
  instructions text not null, title text not null, label text not null, priority text not null,
  state text not null default 'ready', summary text);
create index if not exists ready on task (id) where state = 'ready';
create table if not exists event (
  position bigint generated always as identity primary key,
  task bigint not null, at timestamptz not null default now(), kind text not null,
  data text not null);
create index if not exists events_of on event (task);
"""
INSERT = """
    insert into task (instructions, title, label, priority) values (%s, %s, %s, %s) returning id"""
CLAIM = """
    update task set state = 'running' where id = (
      select id from task where state = 'ready' order by id for update skip locked limit 1)
    returning id, instructions"""
COMPLETE = "update task set state = 'complete', summary = %s where id = %s and state = 'running'"
LOG = "insert into event (task, kind, data) values (%s, %s, %s)"


class PlainPostgres(Side):
    def create(self) -> None:
        self.connect()
        self._db.execute(SCHEMA)

    def connect(self) -> None:
        self._db = psycopg.connect(self.place.url, autocommit=True)

    def submit_one(self, task: TaskToDo) -> None:
        with self._db.transaction():
            row = self._db.execute(INSERT, task).fetchone()
            assert row is not None
            self._db.execute(LOG, (row[0], "submitted", ""))

    def submit_batch(self, tasks: Sequence[TaskToDo]) -> bool:
        with self._db.transaction():
            for task in tasks:
                self.submit_one(task)
        return True

    def drain_alone(self, count: int) -> float:
        """Claim and complete so many, one by one, each with two commits."""
        started = time.perf_counter()
        for _ in range(count):
            with self._db.transaction():
                row = self._db.execute(CLAIM).fetchone()
                assert row is not None
                task, instructions = row
                self._db.execute(LOG, (task, "claimed", ""))
            summary = self.body.run(number_in(instructions))
            with self._db.transaction():
                self._db.execute(COMPLETE, (summary, task))
                self._db.execute(LOG, (task, "completed", summary))
        return time.perf_counter() - started

    def drain(self, count: int, batch: int) -> float:
        return self.drain_alone(count)

    def serve(self) -> None:
        raise RuntimeError("a plain program does not wait: it is measured by what it drains")
