"""The raw limits: plain driver code that keeps the promise and does nothing else.

A task is one row; its state is recorded durably before and after its body ("end these, claim
the next" in one commit). There is no event log, no lease, no fencing, no retry: this is what
the driver and the disk allow, and therefore the yardstick, not a contestant.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

import amqp
import apsw
import psycopg

from bench.body import instructions_for
from bench.servers import broker_of
from bench.side import ROLE, Side

# In all statements here a task's state is 0 while it waits, 1 while it runs, 2 when it is done.
IDLE_SECONDS = 30.0

SQLITE_SCHEMA = """
create table if not exists task (id integer primary key, number integer not null,
  instructions text not null, state integer not null default 0);
create index if not exists waiting on task (id) where state = 0;
"""
POSTGRES_SCHEMA = """
create table if not exists task (id bigint generated always as identity primary key,
  number bigint not null, instructions text not null, state smallint not null default 0)
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
        self._bell_path = str(self.place.folder / "bell")
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

    def submit_one(self, number: int) -> None:
        self._insert(range(number, number + 1))
        self._ring()

    def submit_batch(self, numbers: range) -> bool:
        self._insert(numbers)
        return True

    def _insert(self, numbers: range) -> None:
        rows = [(number, instructions_for(number)) for number in numbers]
        with self._transaction():
            self._db.executemany("insert into task (number, instructions) values (?, ?)", rows)

    def _ring(self) -> None:
        try:
            self._ringer.sendto(b"!", self._bell_path)
        except (FileNotFoundError, ConnectionRefusedError):
            return  # nobody waits: the row is enough

    def _end_and_claim(self, ended: list[tuple[int]], batch: int) -> list[tuple[int, int]]:
        """Record what ended and take the next waiting tasks, in one commit."""
        with self._transaction():
            if ended:
                self._db.executemany("update task set state = 2 where id = ?", ended)
            claimed = list(
                self._db.execute(
                    "select id, number from task where state = 0 order by id limit ?", (batch,)
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
        ended: list[tuple[int]] = []
        done = 0
        while done < count:
            claimed = self._end_and_claim(ended, min(batch, count - done))
            for _, number in claimed:
                self.body.run(number)
            ended = [(row[0],) for row in claimed]
            done += len(claimed)
        self._end_and_claim(ended, 0)
        return self.body.seconds_since_first()

    def make_history(self, count: int) -> int:
        with self._transaction():
            self._db.execute(
                "with recursive n (i) as (select 1 union all select i + 1 from n where i < ?1) "
                "insert into task (number, instructions, state) select i, ?2, 2 from n",
                (count, instructions_for(0)),
            )
        return count

    def serve(self) -> None:
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bell.bind(self._bell_path)
        bell.settimeout(IDLE_SECONDS)
        ended: list[tuple[int]] = []
        while True:
            claimed = self._end_and_claim(ended, 1)
            for _, number in claimed:
                self.body.run(number)
            ended = [(row[0],) for row in claimed]
            if not claimed:
                try:
                    bell.recv(16)
                except TimeoutError:
                    continue


class RawPostgres(Side):
    """psycopg: prepared statements, `unnest` for batches, SKIP LOCKED, LISTEN/NOTIFY."""

    INSERT = "insert into task (number, instructions) values (%s, %s)"
    INSERT_AND_NOTIFY = """
        with made as (insert into task (number, instructions) values (%s, %s) returning 1)
        select pg_notify('task', '') from made"""
    CLAIM = """
        with picked as materialized (
          select id from task where state = 0 order by id
          for update skip locked limit %s)
        update task set state = 1 from picked where task.id = picked.id
        returning task.id, task.number"""
    END = "update task set state = 2 where id = any(%s)"

    def create(self) -> None:
        self._db = psycopg.connect(self.place.url, autocommit=True, prepare_threshold=0)
        self._db.execute(POSTGRES_SCHEMA, prepare=False)
        self._announce = False

    def submit_one(self, number: int) -> None:
        statement = self.INSERT_AND_NOTIFY if self._announce else self.INSERT
        self._db.execute(statement, (number, instructions_for(number)), binary=True)

    def submit_stamped(self, number: int) -> int:
        self._announce = True
        return super().submit_stamped(number)

    def submit_batch(self, numbers: range) -> bool:
        self._db.execute(
            "insert into task (number, instructions) "
            "select * from unnest(%b::bigint[], %b::text[])",
            (list(numbers), [instructions_for(number) for number in numbers]),
        )
        return True

    def _end_and_claim(self, ended: list[int], batch: int) -> list[tuple[int, int]]:
        with self._db.transaction():
            if ended:
                self._db.execute(self.END, (ended,))
            return self._db.execute(self.CLAIM, (batch,), binary=True).fetchall()

    def drain(self, count: int, batch: int) -> float:
        # A freshly filled table has no statistics until autovacuum comes by; every PostgreSQL
        # side is given them before its drain.
        self._db.execute("analyze", prepare=False)
        self.body.expect(count)
        ended: list[int] = []
        done = 0
        while done < count:
            claimed = self._end_and_claim(ended, min(batch, count - done))
            for _, number in claimed:
                self.body.run(number)
            ended = [row[0] for row in claimed]
            done += len(claimed)
        self._db.execute(self.END, (ended,))
        return self.body.seconds_since_first()

    def make_history(self, count: int) -> int:
        self._db.execute(
            "insert into task (number, instructions, state) "
            "select i, %s, 2 from generate_series(1, %s) as i",
            (instructions_for(0), count),
        )
        self._db.execute("vacuum analyze task", prepare=False)
        return count

    def serve(self) -> None:
        self._db.execute("listen task", prepare=False)
        while True:
            claimed = self._db.execute(self.CLAIM, (1,), binary=True).fetchall()
            for task, number in claimed:
                self.body.run(number)
                self._db.execute(self.END, ([task],))
            if not claimed:
                for _ in self._db.notifies(timeout=IDLE_SECONDS, stop_after=1):
                    break


class RawRabbit(RawPostgres):
    """A ledger row, then a confirmed publish; the worker claims the rows it got word of, then acks.

    In that order, one after the other: what a queue without an outbox has to do to keep a ledger.
    """

    RECORD = """
        insert into task (number, instructions) values (%s, %s) returning id"""
    CLAIM_NAMED = """
        update task set state = 1 where id = any(%s) and state = 0 returning id, number"""
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

    def submit_one(self, number: int) -> None:
        values = (number, instructions_for(number))
        row = self._db.execute(self.RECORD, values, binary=True).fetchone()
        assert row is not None
        message = amqp.Message(str(row[0]), delivery_mode=2)
        self._channel.basic_publish(message, routing_key=ROLE)

    def submit_batch(self, numbers: range) -> bool:
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
        ended: list[int] = []
        done = 0
        for ids, receipt in self._consume(batch):
            with self._db.transaction():
                self._db.execute(self.END, (ended,))
                claimed = self._db.execute(self.CLAIM_NAMED, (ids,), binary=True).fetchall()
            self._channel.basic_ack(receipt, multiple=True)
            for _, number in claimed:
                self.body.run(number)
            ended = [row[0] for row in claimed]
            done += len(claimed)
            if done >= count:
                break
        self._db.execute(self.END, (ended,))
        return self.body.seconds_since_first()

    def serve(self) -> None:
        for ids, receipt in self._consume(1):
            claimed = self._db.execute(self.CLAIM_NAMED, (ids,), binary=True).fetchall()
            self._channel.basic_ack(receipt)
            for task, number in claimed:
                self.body.run(number)
                self._db.execute(self.END, ([task],))
