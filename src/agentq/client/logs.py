"""The output of agents: the live log of a running attempt, or its log artifacts.

>>> from agentq import Queue
>>> from agentq.client.logs import read_log
>>> with Queue() as queue:  # doctest: +SKIP
...     for part in read_log(queue, "task-1"):
...         print(part.epoch, part.data)
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentq.contracts.artifacts import left_out
from agentq.contracts.doorbell import EVENTS_TOPIC
from agentq.core.errors import NotFound

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader

#: What a worker makes of an attempt's output: of the agent (again, if it was started again), and of
#: the check that came after it. One after the other they are what the live log was.
_LOG_NAME = re.compile(r"output(?:-([0-9]{1,9}))?\.log|(verify)\.log")

#: How often a growing log is polled: output rings no doorbell.
_LOOK_SECONDS = 0.2
_WAIT_SECONDS = 5.0
_PART_BYTES = 1 << 18
#: A longer line is given in pieces rather than kept in memory.
_LINE_BYTES_MAX = 1 << 20
#: Enough to find the place again where a reader was.
_SEEN_BYTES = 4096
_SEEN_BYTES_MIN = 128
#: Of the line that marks a cut, what follows the number.
_CUT_BYTES = len(left_out(0)) - len(b"[agentq: 0")


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of an attempt's output. It may end in the middle of a line."""

    epoch: int
    data: bytes


def read_log(queue: QueueReader, ref: str, epoch: int = 0) -> Iterator[LogPart]:
    """All that is kept of what an attempt said (default: the newest attempt that said anything).

    Raises `NotFound` before the first part if there is nothing.
    """
    task = queue.task(ref)
    for each in [epoch] if epoch else range(task.epoch, 0, -1):
        parts = _LogReader(queue, task.id, each).parts()
        first = next(parts, None)
        if first is not None:
            return itertools.chain((first,), parts)
    raise NotFound(
        f"{task.id} has no recorded output" + (f" of attempt {epoch}." if epoch else "."),
        f"It is {task.state}; `agentq logs {task.id} --follow` waits for an attempt.",
    )


def follow_log(
    queue: QueueReader, ref: str, epoch: int = 0, timeout: float | None = None
) -> Iterator[LogPart]:
    """What an attempt said and says, as it comes, and then what the attempts after it say.

    Ends when the task is over; with `epoch` when that attempt is. `timeout` ends it as well.
    """
    task = queue.task(ref)
    deadline = None if timeout is None else time.monotonic() + timeout
    reader = _LogReader(queue, task.id, epoch or max(task.epoch, 1))
    with closing(queue.installation.doorbell.listen((EVENTS_TOPIC,))) as waiter:
        while True:
            # The task first: what was said before it ended is then surely there to be read.
            task = queue.task(task.id)
            yield from reader.parts()
            if task.is_over(reader.epoch):
                if epoch or (task.is_terminal and task.epoch <= reader.epoch):
                    return
                if task.epoch > reader.epoch:
                    reader = _LogReader(queue, task.id, reader.epoch + 1)
                    continue
            elif task.is_terminal and not task.holder:
                return  # it never came to this attempt
            left = _LOOK_SECONDS if task.epoch == reader.epoch and task.holder else _WAIT_SECONDS
            if deadline is not None:
                left = min(left, deadline - time.monotonic())
                if left <= 0:
                    return
            queue.wait_for_change(waiter, left)


def whole_lines(parts: Iterable[LogPart]) -> Iterator[LogPart]:
    """The parts cut at ends of lines: an escape sequence or a letter must not be cut in two."""
    epoch, held = 0, b""
    for part in parts:
        if held and part.epoch != epoch:
            yield LogPart(epoch, held)
            held = b""
        epoch, held = part.epoch, held + part.data
        end = held.rfind(b"\n") + 1 or (len(held) if len(held) > _LINE_BYTES_MAX else 0)
        if end:
            yield LogPart(epoch, held[:end])
            held = held[end:]
    if held:
        yield LogPart(epoch, held)


class _LogReader:
    """Reads the log of one attempt to where it is now, again and again."""

    def __init__(self, queue: QueueReader, task_id: str, epoch: int) -> None:
        self._queue = queue
        self._task_id = task_id
        self.epoch = epoch
        self._position = 0
        self._given = 0
        self._seen = b""
        self._at_end = False

    def parts(self) -> Iterator[LogPart]:
        """What is new. Nothing live to read: what the artifacts have, if there are any by now."""
        while not self._at_end:
            try:
                part = self._queue.artifacts.live_read(
                    self._task_id, self.epoch, self._position, _PART_BYTES
                )
            except NotFound:
                yield from self._rest()
                return
            self._position = part.position
            if not part.data:
                return
            yield self._give(part.text)

    def _rest(self) -> Iterator[LogPart]:
        """What the artifacts have beyond what was given already."""
        rows = self._queue.artifact_list(self._task_id)
        names = _in_order(row.name for row in rows if row.epoch == self.epoch)
        if not names:
            return
        skip = self._place(names)
        for data in self._stored(names):
            if len(data) > skip:
                yield self._give(data[skip:])
            skip = max(skip - len(data), 0)
        self._at_end = True

    def _stored(self, names: list[str]) -> Iterator[bytes]:
        for name in names:
            with self._queue.open_artifact(self._task_id, name, self.epoch)[1] as file:
                while data := file.read(_PART_BYTES):
                    yield data

    def _give(self, data: bytes) -> LogPart:
        self._given += len(data)
        self._seen = (self._seen + data[-_SEEN_BYTES:])[-_SEEN_BYTES:]
        return LogPart(self.epoch, data)

    def _place(self, names: list[str]) -> int:
        """How much of what is stored was given already.

        Mostly as much as was given. A log that was cut in its middle while we followed it has
        become shorter than that: then up to where the last that we gave stands, or, if that is
        gone too, up to the cut.
        """
        if not self._seen:
            return 0
        for needle in (self._seen, self._seen[-_SEEN_BYTES_MIN:], left_out(0)[-_CUT_BYTES:]):
            place = self._last(needle, self._stored(names))
            if place:
                return place
        return self._given

    def _last(self, needle: bytes, stored: Iterator[bytes]) -> int:
        """Where the needle ends: at what was given if it stands there, else for the last time."""
        place, start, window = 0, 0, b""
        for data in stored:
            window += data
            expected = self._given - len(needle) - start
            if expected >= 0 and window.startswith(needle, expected):
                return self._given
            found = window.rfind(needle)
            if found >= 0:
                place = start + found + len(needle)
            kept = window[-len(needle) :]
            start += len(window) - len(kept)
            window = kept
        return place


def _in_order(names: Iterable[str]) -> list[str]:
    """Those that are logs, in the order in which a worker makes them."""
    found = {name: match for name in names if (match := _LOG_NAME.fullmatch(name))}
    return sorted(found, key=lambda name: (found[name][2] is not None, int(found[name][1] or 1)))
