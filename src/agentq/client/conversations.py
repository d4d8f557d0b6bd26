"""The output of agents as a conversation: what the parts of a log say.

>>> from agentq import Queue
>>> from agentq.client.conversations import read_conversation
>>> with Queue() as queue:  # doctest: +SKIP
...     for said in read_conversation(queue, "task-1"):
...         print(said.epoch, [(entry.kind, entry.text) for entry in said.entries])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentq.agents.conversation import ConversationEntry, ConversationReader
from agentq.client.logs import LogPart, follow_log, read_log, whole_lines

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader


@dataclass(frozen=True, slots=True)
class ConversationPart:
    """Lines of an attempt's output, and what they say."""

    epoch: int
    #: Whole lines; empty where the log ends, and what it said last follows from that.
    data: bytes
    entries: tuple[ConversationEntry, ...] = ()
    #: Whether it is no tool's event, but text that says itself what it says.
    is_plain: bool = False


def read_conversation(queue: QueueReader, ref: str, epoch: int = 0) -> Iterator[ConversationPart]:
    """What an attempt said, as far as it is kept; see `read_log`."""
    task_id = queue.task(ref).id
    return conversation_of(read_log(queue, task_id, epoch), task_id)


def follow_conversation(
    queue: QueueReader, ref: str, epoch: int = 0, timeout: float | None = None
) -> Iterator[ConversationPart]:
    """What an attempt says, and those after it, as it comes; see `follow_log`."""
    task_id = queue.task(ref).id
    return conversation_of(follow_log(queue, task_id, epoch, timeout), task_id)


def conversation_of(parts: Iterable[LogPart], task_id: str) -> Iterator[ConversationPart]:
    """What the parts of a task's log say. A part for each block of lines of plain text, and for
    each line of a tool that prints events."""
    reader, epoch = ConversationReader(task_id, 0), 0
    for part in whole_lines(parts):
        if part.epoch != epoch:
            yield from _end(reader, epoch)
            reader, epoch = ConversationReader(task_id, part.epoch), part.epoch
        if not reader.tool and not (part.data.startswith(b"{") or b"\n{" in part.data):
            yield ConversationPart(epoch, part.data, is_plain=True)
            continue
        for line in part.data.splitlines(keepends=True):
            entries = tuple(reader.line(line.rstrip(b"\r\n")))
            is_plain = not reader.tool
            yield ConversationPart(epoch, line, () if is_plain else entries, is_plain)
    yield from _end(reader, epoch)


def _end(reader: ConversationReader, epoch: int) -> Iterator[ConversationPart]:
    entries = tuple(reader.end())
    if entries:
        yield ConversationPart(epoch, b"", entries)
