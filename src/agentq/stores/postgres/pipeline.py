"""One connection to PostgreSQL that sends several statements in one round trip.

This stands on `psycopg.pq`, psycopg's own layer over libpq, because a cursor costs more than the
round trip it makes: measured on a local socket, `select 1` takes 40 to 65 µs here and 150 to 180 µs
through a cursor, and a cursor cannot put BEGIN beside the first statement or COMMIT beside the last
without paying for a pipeline block. Nothing of a session is relied upon but prepared statements,
and those can be switched off, so a transaction pooler may stand between.
"""

from __future__ import annotations

import hashlib
import re
import select
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

Values = Mapping[str, object]

#: libpq's settings for every connection: a dead peer is noticed, however it died.
PATIENCE: dict[str, str | int | None] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "agentq",
    # What is sent here is UTF-8, whatever the encoding of the database.
    "client_encoding": "utf8",
}

_PARAMETER = re.compile(r"%\(([a-z_][a-z0-9_]*)\)s")
_ARRAY = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i").pack
_NUMBER = struct.Struct("!iq").pack
_INT8, _TEXT = 20, 25


class Lost(Exception):
    """The connection broke. Whatever had not been answered may or may not have happened."""


class Statement:
    """Named SQL with numbered parameters, and their names in that order."""

    __slots__ = ("begins", "names", "sql", "title")

    def __init__(self, name: str, sql: str) -> None:
        names: list[str] = []

        def number(found: re.Match[str]) -> str:
            if found[1] not in names:
                names.append(found[1])
            return f"${names.index(found[1]) + 1}"

        self.sql = _PARAMETER.sub(number, sql).encode()
        self.names = tuple(names)
        self.begins = self.sql.startswith(b"BEGIN")
        # Two versions of agentq behind one pooler must not mistake each other's statements.
        mark = hashlib.blake2b(self.sql, digest_size=6).hexdigest()
        self.title = f"agentq_{name}_{mark}".encode()


class Call(NamedTuple):
    """A statement with its values, and what to make of each row."""

    statement: Statement
    values: Values
    make_row: Callable[[Sequence[Any]], Any] = tuple


class Exchanger(Protocol):
    """What transactions speak through."""

    autocommits: bool

    def exchange(self, calls: Sequence[Call], after: Sequence[Call] = ()) -> list[list[Any]]: ...


def encode(value: object) -> tuple[bytes | None, int]:
    """A parameter and its format. Numbers are text, so that the server may choose their width."""
    if isinstance(value, str):
        return value.encode(), 1
    if isinstance(value, int):
        return b"%d" % value, 0  # also true and false
    if value is None:
        return None, 0
    assert isinstance(value, (list, tuple))
    if not value:
        return b"{}", 0
    return (_texts(value) if isinstance(value[0], str) else _numbers(value)), 1


def _numbers(values: Sequence[int]) -> bytes:
    count = len(values)
    head = _ARRAY.pack(1, 0, _INT8, count, 1)
    if values.count(values[0]) == count:
        return head + _NUMBER(8, values[0]) * count
    parts: list[int] = [8] * (2 * count)
    parts[1::2] = values
    return head + struct.pack("!" + "iq" * count, *parts)


def _texts(values: Sequence[str]) -> bytes:
    head = _ARRAY.pack(1, 0, _TEXT, len(values), 1)
    if values.count(values[0]) == len(values):
        return head + _text(values[0]) * len(values)
    return head + b"".join(map(_text, values))


def _text(value: str) -> bytes:
    text = value.encode()
    return _LENGTH(len(text)) + text


class PipelineConnection:
    """One connection. Not for two threads at once; whoever takes it gives it back."""

    def __init__(self, conninfo: str, *, prepares: bool = True, silence: float = 40.0) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._pq = self._connection.pgconn
        self._pq.enter_pipeline_mode()
        self._poll = select.poll()
        self._poll.register(self._pq.socket, select.POLLIN)
        self._loader = Transformer(self._connection)
        #: When the server last had reason to plan its prepared statements anew.
        self.planned_at = time.monotonic()
        #: Seconds after which a server that says nothing at all is given up.
        self.silence = silence
        #: Settings that every transaction begins with, where the session cannot take them.
        self.preface: Call | None = None
        #: What was sent after the last exchange, of which nothing was read yet; None for nothing.
        self._unread: list[Call | Statement] | None = None
        #: Whether a statement by itself is a transaction like those that BEGIN opens.
        self.autocommits = False
        self._prepares = prepares
        self._prepared: set[bytes] = set()

    @property
    def usable(self) -> bool:
        """Whether the connection is alive and outside any transaction."""
        if self._connection.closed or self._pq.status != pq.ConnStatus.OK:
            return False
        return self._unread is not None or self._pq.transaction_status == pq.TransactionStatus.IDLE

    def close(self) -> None:
        self._connection.close()

    def exchange(self, calls: Sequence[Call], after: Sequence[Call] = ()) -> list[list[Any]]:
        """Send all, then read all: the rows of each. The first failure is raised, at the end.

        A statement that fails keeps those after it from running. Raises `Lost` if the connection
        broke before everything was answered.

        What is sent `after` the others is a transaction of its own, in the same packet. Nobody
        waits for what it says, and that it fails is no failure.
        """
        with self._minding():
            self._read_unread()
            prefaced = self._prefaced(calls)
            if prefaced >= 0 and self.preface is not None:
                calls = [*calls[:prefaced], self.preface, *calls[prefaced:]]
            expected: list[Call | Statement] = []
            for call in calls:
                self._send(call, expected)
            if calls:
                self._pq.pipeline_sync()
            later: list[Call | Statement] = []
            if after:
                for call in after:
                    self._send(call, later)
                self._pq.pipeline_sync()
            self._flush()
            self._unread = later if after else None
            try:
                rows = self._receive(expected) if calls else []
            except psycopg.Error:
                if self._pq.status == pq.ConnStatus.OK:
                    self._read_unread()  # whoever asks now must see how this one was left
                raise
            if prefaced >= 0:
                del rows[prefaced]
            return rows

    def _read_unread(self) -> None:
        """Read what was sent after the last exchange: by now it has mostly come."""
        unread, self._unread = self._unread, None
        if unread is None:
            return
        asked = iter(unread)
        while (result := self._next_result()).status != pq.ExecStatus.PIPELINE_SYNC:
            each = next(asked, None)
            if isinstance(each, Statement) and result.status == pq.ExecStatus.COMMAND_OK:
                self._prepared.add(each.title)

    def _prefaced(self, calls: Sequence[Call]) -> int:
        """Where the preface goes: after BEGIN, else before all; -1 for nowhere."""
        if self.preface is None or self._pq.transaction_status != pq.TransactionStatus.IDLE:
            return -1
        return 1 if calls[0].statement.begins else 0

    @contextmanager
    def _minding(self) -> Iterator[None]:
        try:
            yield
        except psycopg.OperationalError as error:
            if self._pq.status == pq.ConnStatus.OK:
                raise
            self.close()
            raise Lost(str(error)) from error
        except psycopg.Error:
            raise
        except BaseException:
            # Interrupted half-way: the answers still under way belong to nobody.
            self.close()
            raise

    def _send(self, call: Call, expected: list[Call | Statement]) -> None:
        statement, values, _ = call
        params, formats = [], []
        for name in statement.names:
            param, kind = encode(values[name])
            params.append(param)
            formats.append(kind)
        if not self._prepares:
            self._pq.send_query_params(statement.sql, params, None, formats, pq.Format.BINARY)
        else:
            if statement.title not in self._prepared and statement not in expected:
                self._pq.send_prepare(statement.title, statement.sql)
                expected.append(statement)
            self._pq.send_query_prepared(statement.title, params, formats, pq.Format.BINARY)
        expected.append(call)

    def _flush(self) -> None:
        while self._pq.flush():
            self._poll.modify(self._pq.socket, select.POLLIN | select.POLLOUT)
            if self._wait() & select.POLLIN:
                self._pq.consume_input()
            self._poll.modify(self._pq.socket, select.POLLIN)

    def _receive(self, expected: Sequence[Call | Statement]) -> list[list[Any]]:
        """Read to the end of the exchange."""
        rows: list[list[Any]] = []
        for asked in expected:
            result = self._next_result()
            if result.status == pq.ExecStatus.TUPLES_OK and isinstance(asked, Call):
                self._loader.set_pgresult(result, format=pq.Format.BINARY)
                rows.append(self._loader.load_rows(0, result.ntuples, asked.make_row))
            elif result.status == pq.ExecStatus.COMMAND_OK:
                if isinstance(asked, Call):
                    rows.append([])
                else:
                    self._prepared.add(asked.title)
            else:
                self._read_on()
                raise error_from_result(result)
        self._read_on()
        return rows

    def _read_on(self) -> None:
        while self._next_result().status != pq.ExecStatus.PIPELINE_SYNC:
            continue

    def _wait(self) -> int:
        """Sleep until the server sends something, or takes more input. It answers a statement that
        takes too long by itself: one that is silent for longer than that is not there any more."""
        ready = self._poll.poll(self.silence * 1000)
        if not ready:
            raise Lost(f"the server has said nothing for {self.silence:g} s")
        return ready[0][1]

    def _next_result(self) -> pq.abc.PGresult:
        while True:
            while self._pq.is_busy():
                self._wait()
                self._pq.consume_input()
            result = self._pq.get_result()
            if self._pq.status != pq.ConnStatus.OK:
                raise psycopg.OperationalError(_last_words(self._pq, result))
            if result is not None:
                return result


def _last_words(connection: pq.abc.PGconn, result: pq.abc.PGresult | None) -> str:
    message = result.error_message if result is not None else b""
    return (message or connection.error_message).decode(errors="replace").strip()
