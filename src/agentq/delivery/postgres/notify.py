"""The doorbell of a PostgreSQL ledger: LISTEN and NOTIFY, as a hint only.

The store sends one notification per transaction, on one channel, that names all its topics. A
waiter has a connection of its own and sleeps on its socket. Behind a pooler that drops
notifications, or while the server is away, nothing is heard and callers fall back to their poll.
"""

from __future__ import annotations

import random
import select
import time
from collections.abc import Iterable

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from agentq.contracts.doorbell import ALL_TOPICS

CHANNEL = "agentq"
_LISTEN, _UNLISTEN = f"LISTEN {CHANNEL}".encode(), f"UNLISTEN {CHANNEL}".encode()
_PAYLOAD_BYTES_MAX = 7000
_RECONNECT_SECONDS_MAX = 5.0
#: A server that does not answer within this time to so little is not there any more.
_ANSWER_SECONDS = 10.0

_PATIENCE: dict[str, str | int | None] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "agentq-bell",
    "client_encoding": "utf8",
}


def _connect(conninfo: str) -> psycopg.Connection | None:
    """Open a connection; None while the server cannot be reached."""
    try:
        return psycopg.connect(conninfo, autocommit=True)
    except psycopg.OperationalError:
        return None


def _notify(connection: psycopg.Connection, command: bytes) -> None:
    """Send a statement and wait for its answer within a time limit, which psycopg lacks."""
    connection.pgconn.send_query(command)
    _drain(connection)


def _drain(connection: psycopg.Connection) -> None:
    """Read the answers to statements sent. Raises OperationalError if they do not come."""
    wire, line = connection.pgconn, select.poll()
    line.register(wire.socket, select.POLLIN)
    failed = ""
    while True:
        while wire.is_busy():
            if not line.poll(_ANSWER_SECONDS * 1000):
                raise psycopg.OperationalError("the server does not answer")
            wire.consume_input()
        result = wire.get_result()
        if result is None:
            break
        failed = failed or result.error_message.decode(errors="replace")
    if failed:
        raise psycopg.OperationalError(failed)


class ListenPool:
    """Connections to listen on. One is kept between waiters: to close it takes as long as to claim
    a task, and whoever has been woken has no time for that."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._kept: list[psycopg.Connection] = []
        self._closed = False

    def take(self) -> psycopg.Connection | None:
        """Return a connection that listens from now on; None while the server cannot be reached."""
        while (connection := self._pop()) is not None:
            try:
                _drain(connection)  # of what `give` has said
                _notify(connection, _LISTEN)
                return connection
            except psycopg.Error:
                connection.close()
        connection = _connect(self._conninfo)
        if connection is not None:
            try:
                _notify(connection, _LISTEN)
            except psycopg.OperationalError:
                connection.close()
                return None
        return connection

    def _pop(self) -> psycopg.Connection | None:
        try:
            return self._kept.pop()
        except IndexError:  # none, or another thread was faster
            return None

    def give(self, connection: psycopg.Connection) -> None:
        """Keep a connection for later; it stops listening, so that nothing is queued for it."""
        try:
            if self._kept or self._closed:
                connection.close()
            else:
                connection.pgconn.send_query(_UNLISTEN)
                self._kept.append(connection)
        except psycopg.Error:
            connection.close()

    def close(self) -> None:
        self._closed = True
        while (connection := self._pop()) is not None:
            connection.close()


class NotifyDoorbell:
    """Rings every waiter on the same database."""

    def __init__(self, url: str) -> None:
        self._conninfo = make_conninfo("", **{**_PATIENCE, **conninfo_to_dict(url)})
        self._connection: psycopg.Connection | None = None
        self._pool = ListenPool(self._conninfo)

    def ring(self, topics: Iterable[str]) -> None:
        """The store rings by itself inside its transactions; this is for whoever is outside."""
        payload = "\n".join(sorted(set(topics)))
        if not payload:
            return
        if len(payload.encode()) > _PAYLOAD_BYTES_MAX:
            payload = ALL_TOPICS
        if self._connection is None:
            self._connection = _connect(self._conninfo)
        if self._connection is None:
            return
        try:
            words = sql.SQL("SELECT pg_notify({}, {})").format(CHANNEL, payload)
            _notify(self._connection, words.as_bytes(self._connection))
        except psycopg.OperationalError:
            self._hang_up()

    def listen(self, topics: Iterable[str]) -> NotifyWaiter:
        return NotifyWaiter(self._pool, topics)

    def close(self) -> None:
        self._pool.close()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class NotifyWaiter:
    """Waits on a connection of its own: sleeps in the kernel until a notification comes."""

    def __init__(self, pool: ListenPool, topics: Iterable[str]) -> None:
        self._pool = pool
        self._topics = frozenset(topics)
        self._rung: set[str] = set()
        self._connection: psycopg.Connection | None = None
        self._closed = False
        self._pause_seconds = 0.1
        self._open()

    def _open(self) -> bool:
        self._connection = self._pool.take()
        if self._connection is None:
            return False
        self._pause_seconds = 0.1
        return True

    def wait(self, timeout: float, wake_fd: int = -1) -> bool:
        deadline = time.monotonic() + max(timeout, 0)
        self._rung.clear()
        while not self._closed:
            if self._connection is None:
                if self._open():
                    self._rung.add(ALL_TOPICS)  # who knows what was rung while nobody listened
                    return True
                if not self._rest(deadline, wake_fd):
                    return False
                continue
            try:
                return self._wait_for_notification(self._connection, deadline, wake_fd)
            except psycopg.OperationalError:
                self._connection.close()
                self._connection = None
        return False

    def _rest(self, deadline: float, wake_fd: int) -> bool:
        """Sleep before the next try to connect; False when the time is up."""
        left = deadline - time.monotonic()
        if left > 0:
            pause = min(left, random.uniform(self._pause_seconds / 2, self._pause_seconds))
            poller = select.poll()
            if wake_fd >= 0:
                poller.register(wake_fd, select.POLLIN)
            if poller.poll(pause * 1000):
                return False
            self._pause_seconds = min(self._pause_seconds * 2, _RECONNECT_SECONDS_MAX)
        return time.monotonic() < deadline

    def _wait_for_notification(
        self, connection: psycopg.Connection, deadline: float, wake_fd: int
    ) -> bool:
        poller = select.poll()
        poller.register(connection.fileno(), select.POLLIN)
        if wake_fd >= 0:
            poller.register(wake_fd, select.POLLIN)
        # libpq itself: its wrapper waits a while for more, and every worker would be late by that.
        wire = connection.pgconn
        while True:
            wire.consume_input()
            notified = False
            while note := wire.notifies():  # all that has come so far: many rings are one
                notified = self._concerns(note.extra.decode(errors="replace")) or notified
            if notified:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if any(fd == wake_fd for fd, _ in poller.poll(left * 1000)):
                return False

    def _concerns(self, payload: str) -> bool:
        topics = payload.split("\n")
        self._rung.update(topics)
        every = payload == ALL_TOPICS or ALL_TOPICS in self._topics
        return every or not self._topics.isdisjoint(topics)

    def rung(self) -> frozenset[str]:
        return frozenset(self._rung)

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._pool.give(self._connection)
            self._connection = None
