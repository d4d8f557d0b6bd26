"""The live log of an attempt as objects: one process writes pieces of it while others read along.

    live/<task>/<epoch>/head-<start>   from the first byte on, up to half of what is kept
    live/<task>/<epoch>/tail-<start>   what comes after it; the oldest of these are dropped

An object cannot grow. So the last piece is written again, larger, until it is full, and then the
next one begins: a reader goes by positions, and what it read stays as it was. And a request for
each line would cost more than the line: what is said shortly after another thing waits, at most
`PAUSE_SECONDS`, and goes with what comes meanwhile. Whoever reads through the same store object
sees it at once all the same.

A server that is away for a moment costs nothing: what was said waits, up to `_WAITING_MAX` bytes.
"""

from __future__ import annotations

import atexit
import re
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from agentq.artifacts.s3.bucket import Bucket
from agentq.artifacts.s3.errors import store_errors
from agentq.artifacts.store_base import overtaken
from agentq.contracts.artifacts import LivePart
from agentq.core.errors import AgentqError, Unavailable

_LIVE = "live"
_NAME = re.compile(r"(head|tail)-([0-9]{20})")
#: How long what is said may wait for more.
PAUSE_SECONDS = 0.5
_WAITING_MAX = 1 << 20
#: The usual size of a piece, and how many there are at most of what is kept.
_PIECE_BYTES = 1 << 17
_PIECES_MAX = 256
#: After a failure the server is left alone for so long.
_TROUBLE_SECONDS = 5.0
#: So often it is tried again when nothing more is said.
_TRIES_MAX = 12
#: The end of a process waits for the last words no longer than this.
_EXIT_SECONDS = 3.0
#: A reader that is overtaken looks again; a writer so fast that this is not enough is a fault.
_LOOKS_MAX = 20


class Piece(NamedTuple):
    """An object of a log: the position it starts at, and what is in it."""

    kind: str
    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.start:020d}"


class _Known(NamedTuple):
    """An object of a log as a listing shows it."""

    start: int
    size: int
    key: str

    @property
    def end(self) -> int:
        return self.start + self.size


def placed(last: Piece, data: bytes, keep_bytes: int) -> Iterator[Piece]:
    """The pieces that hold `data`: `last`, extended, and those after it.

    Line by line: a line goes to the piece at hand if it fits there, else to a new one. So the
    pieces do not depend on how much is appended at a time.
    """
    usual = min(max(_PIECE_BYTES, keep_bytes // _PIECES_MAX), keep_bytes // 8)
    head_max, done = keep_bytes // 2, 0
    while done < len(data):
        most = min(usual, head_max - last.start) if last.kind == "head" else usual
        room = max(most - len(last.data), 0)
        until = len(data)
        if until - done > room:
            until = data.rfind(b"\n", done, done + room) + 1
        if until <= done and not last.data:  # a line that is longer than a usual piece
            longest = head_max - last.start if last.kind == "head" else keep_bytes // 4
            until = data.find(b"\n", done, done + longest) + 1
            if until <= done and last.kind == "head" and last.start:
                last = Piece("tail", last.start, b"")
                continue
            if until <= done:
                until = min(done + longest, len(data))
        if until > done:
            last = last._replace(data=last.data + data[done:until])
            done = until
        if done < len(data):
            if last.data:
                yield last
            last = Piece(last.kind, last.end, b"")
    yield last


class _Log:
    """What the writer of one live log remembers.

    Two locks: whoever appends must not wait for a request that is under way.
    """

    def __init__(self, bucket: Bucket, folder: str, task_id: str) -> None:
        self._bucket = bucket
        self._folder = folder
        self._doing = f"write the live log of task {task_id} below {bucket.url}"
        self._sending = threading.Lock()
        self._taking = threading.Lock()
        self._waiting = bytearray()
        #: Where the log ends with what waits; -1 until somebody has to know.
        self._end = -1
        self._keep_bytes = 0
        #: None until it was looked up: an earlier process may have begun this log.
        self._last: Piece | None = None
        self._tail: list[_Known] = []
        self._next_at = 0.0
        self._failure: AgentqError | None = None
        self._ended = False

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting) and not self._ended

    def append(self, data: bytes, keep_bytes: int, position: int) -> int:
        """Take more in, and send it if it is time.

        Raises only if it cannot be taken in. Who is faster than the server waits for it; while
        the server is in trouble nobody does.
        """
        if position >= 0 and self._end < 0:
            self._find_end()
        with self._taking:
            self._keep_bytes = keep_bytes
            full = len(self._waiting) + len(data) > _WAITING_MAX and bool(self._waiting)
        if full and self._failure is None:
            self.send()
        with self._taking:
            failure = self._failure
            if failure is not None and len(self._waiting) + len(data) > _WAITING_MAX:
                raise Unavailable(failure.cause, failure.remedy)  # said anew: it is kept
            if self._end >= 0:
                if position >= 0:
                    data = data[max(self._end - position, 0) :]
                self._end += len(data)
            self._waiting += data
            end = self._end
        is_time = self._failure is None and time.monotonic() >= self._next_at
        if is_time and not self._sending.locked():
            self.send()
        return end

    def _find_end(self) -> None:
        """Look where the log ends, of whoever has written it. While the server is away nobody
        knows; then what comes is taken as it comes."""
        with self._sending:
            if self._last is None:
                try:
                    with store_errors(self._doing):
                        self._last, self._tail = self._looked_up()
                except AgentqError:
                    return
            with self._taking:
                self._end = self._last.end + len(self._waiting)

    def send(self) -> AgentqError | None:
        """Send what waits, now; returns what went wrong. It waits on, then."""
        with self._sending:
            with self._taking:
                data = bytes(self._waiting)
            if not data or self._ended:
                return None
            try:
                with store_errors(self._doing):
                    self._write(data)
            except AgentqError as failure:
                self._failure = failure
                return failure
            with self._taking:
                del self._waiting[: len(data)]
            self._failure = None
            self._next_at = time.monotonic() + PAUSE_SECONDS
            return None

    def end(self) -> None:
        """Send nothing more; a request that is under way has ended when this returns."""
        with self._sending:
            self._ended = True

    def _write(self, data: bytes) -> None:
        if self._last is None:
            self._last, self._tail = self._looked_up()
        pieces = [each for each in placed(self._last, data, self._keep_bytes) if each != self._last]
        heads = [piece for piece in pieces if piece.kind == "head"]
        tails = {f"{self._folder}/{piece.name}": piece for piece in pieces if piece.kind == "tail"}
        known = [each for each in self._tail if each.key not in tails]
        known += [_Known(each.start, len(each.data), key) for key, each in tails.items()]
        kept = _newest(known, self._keep_bytes // 2)
        keys = {each.key for each in kept}
        # Dropped first, so that there is never more than is kept.
        if dropped := [each.key for each in self._tail if each.key not in keys]:
            self._bucket.delete(dropped)
        for piece in heads:
            self._bucket.replace(f"{self._folder}/{piece.name}", piece.data)
        for key, piece in tails.items():
            if key in keys:
                self._bucket.replace(key, piece.data)
        self._last, self._tail = pieces[-1], kept

    def _looked_up(self) -> tuple[Piece, list[_Known]]:
        """Where an earlier writer left off: a new piece begins there."""
        known = _known(self._bucket, self._folder)
        tail = [each for each in known if "/tail-" in each.key]
        end = known[-1].end if known else 0
        return Piece("tail" if tail else "head", end, b""), tail


def _newest(known: list[_Known], room: int) -> list[_Known]:
    """As many of the last ones as there is room for."""
    first = len(known)
    while first and known[first - 1].size <= room:
        first -= 1
        room -= known[first].size
    return known[first:]


def _known(bucket: Bucket, folder: str) -> list[_Known]:
    """The objects of a log, in order. Whatever else somebody put there is not looked at."""
    found = []
    for entry in bucket.entries(folder):
        match = _NAME.fullmatch(entry.key.removeprefix(f"{folder}/"))
        if match is not None:
            found.append(_Known(int(match[2]), entry.size, entry.key))
    return sorted(found)


class LiveObjects:
    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._logs: dict[tuple[str, str], _Log] = {}
        self._sender: threading.Thread | None = None
        self._closing = threading.Event()

    def append(
        self, task_id: str, epoch: str, data: bytes, keep_bytes: int, position: int = -1
    ) -> int:
        with self._lock:
            log = self._logs.get((task_id, epoch))
            if log is None:
                log = _Log(self._bucket, _folder(task_id, epoch), task_id)
                self._logs[(task_id, epoch)] = log
        try:
            return log.append(data, keep_bytes, position)
        finally:
            if log.is_waiting:
                self._send_later()

    def read(self, task_id: str, epoch: str, position: int, limit: int) -> LivePart | None:
        own = self._logs.get((task_id, epoch))
        failure = own.send() if own is not None else None
        if failure is not None:
            raise failure
        with store_errors(f"read the live log of task {task_id} below {self._bucket.url}"):
            for _ in range(_LOOKS_MAX):
                known = _known(self._bucket, _folder(task_id, epoch))
                if not known:
                    return None
                part = self._read(known, position, limit)
                if part is not None:
                    return part
        raise overtaken(task_id)

    def _read(self, known: list[_Known], position: int, limit: int) -> LivePart | None:
        """What is there from the position on, up to a gap; None if it was just dropped."""
        data, start = b"", position
        for each in known:
            if each.end <= start + len(data):
                continue
            if data and (each.start > start + len(data) or len(data) >= limit):
                break
            if not data:
                start = max(position, each.start)
            begin = start + len(data) - each.start
            end = min(begin + limit - len(data), each.size)
            part = self._bucket.part(each.key, begin, end)
            if part is None:
                return LivePart(data, start + len(data), start - position) if data else None
            data += part
        return LivePart(data, start + len(data), start - position)

    def end(self, task_id: str, epoch: str) -> None:
        with self._lock:
            log = self._logs.pop((task_id, epoch), None)
        if log is not None:
            log.end()
        self._delete(task_id, _folder(task_id, epoch))

    def remove(self, task_id: str) -> None:
        with self._lock:
            logs = [self._logs.pop(each) for each in list(self._logs) if each[0] == task_id]
        for log in logs:
            log.end()
        self._delete(task_id, f"{_LIVE}/{task_id}")

    def _delete(self, task_id: str, folder: str) -> None:
        with store_errors(f"remove the live log of task {task_id} below {self._bucket.url}"):
            self._bucket.delete([entry.key for entry in self._bucket.entries(folder)])

    def _send_later(self) -> None:
        with self._lock:
            if self._sender is None:
                self._sender = threading.Thread(
                    target=self._send_all, name="agentq-live-logs", daemon=True
                )
                self._sender.start()
                atexit.register(self._close)

    def _close(self) -> None:
        """At the end of the process: the last words still go out, if that is quick."""
        self._closing.set()
        sender = self._sender
        if sender is not None:
            sender.join(_EXIT_SECONDS)

    def _send_all(self) -> None:
        """Send what waits, after a pause; ends when nothing waits, or when nothing helps."""
        failed = 0
        while True:
            closing = self._closing.wait(_TROUBLE_SECONDS if failed else PAUSE_SECONDS)
            with self._lock:
                waiting = [log for log in self._logs.values() if log.is_waiting]
                if not waiting or failed > _TRIES_MAX or (closing and failed):
                    self._sender = None  # whoever appends or reads next tries again
                    atexit.unregister(self._close)
                    return
            failures = [log.send() for log in waiting]  # each of them, whatever the others do
            failed = failed + 1 if any(failures) else 0


def _folder(task_id: str, epoch: str) -> str:
    return f"{_LIVE}/{task_id}/{epoch}"
