"""The raw limits: plain driver code that keeps the promise and does nothing else.

A task is one row; its state is recorded durably before and after its body ("end these, claim
the next" in one commit). There is no event log, no lease, no fencing, no retry: this is what
the driver and the disk allow, and therefore the yardstick, not a contestant.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

import amqp
import apsw
import psycopg

from bench.servers import broker_of
from bench.side import ROLE, Side
from bench.tasks import TaskToDo, number_in, task_to_do

# In all statements here a task's state is 0 while it waits, 1 while it runs, 2 when it is done.
IDLE_SECONDS = 30.0
#: A raw driver stores what it is given, column by column; it writes no JSON.
INSERT = "insert into task (instructions, title, label, priority) values ({})"
#: Tasks that were run, and what is said of each.
Ended = tuple[list[int], list[str]]

SQLITE_SCHEMA = """
create table if not exists task (id integer primary key, instructions text not null,
  title text not null, label text not null, priority text not null, summary text,
  state integer not null default 0);
create index if not exists waiting on task (id) where state = 0;
"""
POSTGRES_SCHEMA = """
create table if not exists task (id bigint generated always as identity primary key,
  instructions text not null, title text not null, label text not null, priority text not null,
  summary text, state smallint not null default 0)
  with (fillfactor = 70);
create index if not exists waiting on task (id) where state = 0;
"""


class RawSqlite(Side):
    """apsw: WAL, synchronous=FULL, BEGIN IMMEDIATE; a datagram socket as the doorbell."""

    def create(self) -> None:
        self._db = apsw.Connection(str(self.place.sqlite_file))
        self._db.set_busy_timeout(10_000)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.execute(SQLITE_SCHEMA)
        self._doorbell_path = str(self.place.folder / "bell")
        self._ringer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    def submit_one(self, task: TaskToDo) -> None:
        self._insert([task])
        self._ring()

    def submit_batch(self, tasks: Sequence[TaskToDo]) -> bool:
        self._insert(tasks)
        return True

    def _insert(self, tasks: Sequence[TaskToDo]) -> None:
        with self._transaction():
            self._db.executemany(INSERT.format("?, ?, ?, ?"), tasks)

    def _ring(self) -> None:
        try:
            self._ringer.sendto(b"!", self._doorbell_path)
        except (FileNotFoundError, ConnectionRefusedError):
            return  # nobody waits: the row is enough

    def _end_and_claim(self, ended: list[tuple[str, int]], batch: int) -> list[tuple[int, str]]:
        """Record what ended and take the next waiting tasks, in one commit."""
        with self._transaction():
            if ended:
                self._db.executemany("update task set state = 2, summary = ? where id = ?", ended)
            claimed = list(
                self._db.execute(
                    "select id, instructions from task where state = 0 order by id limit ?",
                    (batch,),
                )
            )
            if claimed:
                self._db.executemany(
                    "update task set state = 1 where id = ?",
                    [(row[0],) for row in claimed],
                )
        return claimed

    def drain(self, count: int, batch: int) -> float:
        self.body.expect(count)
        ended: list[tuple[str, int]] = []
        done = 0
        while done < count:
            claimed = self._end_and_claim(ended, min(batch, count - done))
            ended = [(self.body.run(number_in(words)), task) for task, words in claimed]
            done += len(claimed)
        self._end_and_claim(ended, 0)
        return self.body.seconds_since_first()

    def make_history(self, count: int) -> int:
        with self._transaction():
            self._db.execute(
                "with recursive n (i) as (select 1 union all select i + 1 from n where i < ?1) "
                "insert into task (instructions, title, label, priority, state) "
                "select ?2, ?3, ?4, ?5, 2 from n",
                (count, *task_to_do(0)),
            )
        return count

    def serve(self) -> None:
        doorbell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        doorbell.bind(self._doorbell_path)
        doorbell.settimeout(IDLE_SECONDS)
        ended: list[tuple[str, int]] = []
        while True:
            claimed = self._end_and_claim(ended, 1)
            ended = [(self.body.run(number_in(words)), task) for task, words in claimed]
            if not claimed:
                try:
                    doorbell.recv(16)
                except TimeoutError:
                    continue


class RawPostgres(Side):
    """psycopg: prepared statements, `unnest` for batches, SKIP LOCKED, LISTEN/NOTIFY."""

    INSERT = INSERT.format("%s, %s, %s, %s")
    INSERT_AND_NOTIFY = """
        with made as (
          insert into task (instructions, title, label, priority) values (%s, %s, %s, %s)
          returning 1)
        select pg_notify('task', '') from made"""
    CLAIM = """
        with picked as materialized (
          select id from task where state = 0 order by id
          for update skip locked limit %s)
        update task set state = 1 from picked where task.id = picked.id
        returning task.id, task.instructions"""
    END = """
        update task set state = 2, summary = said.summary
        from unnest(%s::bigint[], %s::text[]) as said (id, summary) where task.id = said.id"""

    def create(self) -> None:
        self._db = psycopg.connect(self.place.url, autocommit=True, prepare_threshold=0)
        self._db.execute(POSTGRES_SCHEMA, prepare=False)
        self._announce = False

    def submit_one(self, task: TaskToDo) -> None:
        statement = self.INSERT_AND_NOTIFY if self._announce else self.INSERT
        self._db.execute(statement, task, binary=True)

    def submit_stamped(self, number: int) -> int:
        self._announce = True
        return super().submit_stamped(number)

    def submit_batch(self, tasks: Sequence[TaskToDo]) -> bool:
        self._db.execute(
            "insert into task (instructions, title, label, priority) "
            "select * from unnest(%b::text[], %b::text[], %b::text[], %b::text[])",
            [list(column) for column in zip(*tasks, strict=True)],
        )
        return True

    def _run(self, claimed: list[tuple[int, str]]) -> Ended:
        """Run the bodies; the tasks, and what is said of each."""
        said = [self.body.run(number_in(words)) for _, words in claimed]
        return [task for task, _ in claimed], said

    def _end_and_claim(self, ended: Ended, batch: int) -> list[tuple[int, str]]:
        with self._db.transaction():
            if ended[0]:
                self._db.execute(self.END, ended)
            return self._db.execute(self.CLAIM, (batch,), binary=True).fetchall()

    def drain(self, count: int, batch: int) -> float:
        # A freshly filled table has no statistics until autovacuum comes by; every PostgreSQL
        # side is given them before its drain.
        self._db.execute("analyze", prepare=False)
        self.body.expect(count)
        ended: Ended = ([], [])
        done = 0
        while done < count:
            claimed = self._end_and_claim(ended, min(batch, count - done))
            ended = self._run(claimed)
            done += len(claimed)
        self._db.execute(self.END, ended)
        return self.body.seconds_since_first()

    def make_history(self, count: int) -> int:
        self._db.execute(
            "insert into task (instructions, title, label, priority, state) "
            "select %s, %s, %s, %s, 2 from generate_series(1, %s)",
            (*task_to_do(0), count),
        )
        self._db.execute("vacuum analyze task", prepare=False)
        return count

    def serve(self) -> None:
        self._db.execute("listen task", prepare=False)
        while True:
            claimed = self._db.execute(self.CLAIM, (1,), binary=True).fetchall()
            if claimed:
                self._db.execute(self.END, self._run(claimed))
            if not claimed:
                for _ in self._db.notifies(timeout=IDLE_SECONDS, stop_after=1):
                    break


class RawRabbit(RawPostgres):
    """A ledger row, then a confirmed publish; the worker claims the rows it got word of, then acks.

    In that order, one after the other: what a queue without an outbox has to do to keep a ledger.
    """

    RECORD = f"{RawPostgres.INSERT} returning id"
    CLAIM_NAMED = """
        update task set state = 1 where id = any(%s) and state = 0 returning id, instructions"""
    PREFETCH = 200

    def create(self) -> None:
        super().create()
        address = urlsplit(broker_of(self.place))
        self._connection = amqp.Connection(
            f"{address.hostname}:{address.port}", address.username, address.password,
            virtual_host=unquote(address.path[1:]), confirm_publish=True,
        )  # fmt: skip
        self._connection.connect()
        self._channel = self._connection.channel()
        self._channel.queue_declare(ROLE, durable=True, auto_delete=False)

    def submit_one(self, task: TaskToDo) -> None:
        row = self._db.execute(self.RECORD, task, binary=True).fetchone()
        assert row is not None
        message = amqp.Message(str(row[0]), delivery_mode=2)
        self._channel.basic_publish(message, routing_key=ROLE)

    def submit_batch(self, tasks: Sequence[TaskToDo]) -> bool:
        return False

    def _consume(self, batch: int) -> Iterator[tuple[list[int], int]]:
        """Ids of tasks by up to so many, as they come, with the receipt of the last of them."""
        came: list[tuple[int, int]] = []
        self._channel.basic_qos(0, min(batch * 2, self.PREFETCH), False)
        self._channel.basic_consume(
            ROLE, callback=lambda got: came.append((int(got.body), got.delivery_tag))
        )
        while True:
            while len(came) < batch:
                try:
                    self._connection.drain_events(timeout=IDLE_SECONDS if not came else 0.001)
                except TimeoutError:
                    if came:
                        break
            some, came[:] = came[:batch], came[batch:]
            yield [task for task, _ in some], some[-1][1]

    def drain(self, count: int, batch: int) -> float:
        self._db.execute("analyze", prepare=False)
        self.body.expect(count)
        ended: Ended = ([], [])
        done = 0
        for ids, receipt in self._consume(batch):
            with self._db.transaction():
                self._db.execute(self.END, ended)
                claimed = self._db.execute(self.CLAIM_NAMED, (ids,), binary=True).fetchall()
            self._channel.basic_ack(receipt, multiple=True)
            ended = self._run(claimed)
            done += len(claimed)
            if done >= count:
                break
        self._db.execute(self.END, ended)
        return self.body.seconds_since_first()

    def serve(self) -> None:
        for ids, receipt in self._consume(1):
            claimed = self._db.execute(self.CLAIM_NAMED, (ids,), binary=True).fetchall()
            self._channel.basic_ack(receipt)
            self._db.execute(self.END, self._run(claimed))
