"""The log of an attempt as a conversation: what the agent said and did, for people who read it.

The lines are read by the same listeners that a worker uses while an agent runs, so that the log
says what progress and last words said. Which tool wrote them is told by their shape: a log has no
name in it, and whoever reads it may know nothing of the role's settings.

Nothing here trusts the log. Unknown events are skipped, lines that are no events stay as they are,
and what one entry holds is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from agentq.agents.jsonl_adapter import JsonListener
from agentq.agents.jsonlines import clean, parsed
from agentq.agents.registry import agent_named
from agentq.contracts.agent import (
    AgentEvent,
    AgentMessage,
    Denied,
    Done,
    Job,
    Limited,
    MessageKind,
    OtherPermissions,
    Spent,
)
from agentq.core.counting import counted
from agentq.core.states import State
from agentq.core.task import NO_USAGE, Spec, Task, Usage

#: How much of one text is shown, and how much of what a tool call gave.
TEXT_SHOWN_MAX = 20_000
RESULT_LINES_MAX = 5
RESULT_LINE_MAX = 200
OUTPUT_LINE_MAX = 2000


class EntryKind(StrEnum):
    """What an entry of a conversation is; the kinds of messages, and what else is worth a line."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL = "tool"
    RESULT = "result"
    STATUS = "status"
    ERROR = "error"
    DENIED = "denied"
    COST = "cost"
    OUTPUT = "output"  # a line that is no event: of another program, or of the tool's errors


@dataclass(frozen=True, slots=True)
class ConversationEntry:
    """One thing that was said or done, as plain text; it may have many lines."""

    kind: EntryKind
    text: str


class ConversationReader:
    """Reads the log of one attempt, line by line."""

    def __init__(self, task_id: str, epoch: int) -> None:
        self._task_id = task_id
        self._epoch = epoch
        self._listener: JsonListener | None = None
        self._spent = NO_USAGE
        self._told = NO_USAGE
        #: The adapter of the tool that wrote it; "" until its first event, and for plain text.
        self.tool = ""

    def line(self, line: bytes) -> Iterator[ConversationEntry]:
        """What a line of the log says, given without its end."""
        event = parsed(line)
        if event is None or type(event.get("type")) is not str or not self._knows_tool(event):
            yield ConversationEntry(EntryKind.OUTPUT, self._as_it_is(line))
            return
        if self._listener is None or self._listener.is_over:
            # Another program of the same attempt: it was started again from the start.
            self._listener = _listener(self.tool, self._task_id, self._epoch)
        yield from self._entries(self._listener.event(event))

    def end(self) -> Iterator[ConversationEntry]:
        """What is left to say where the log ends."""
        if self._listener is not None:
            yield from self._entries(self._listener.rest())
            yield from self._cost()

    def _as_it_is(self, line: bytes) -> str:
        """The line as text; of a tool that prints events it may be a large one that was cut."""
        if not self.tool or len(line) <= OUTPUT_LINE_MAX:
            return line.decode("utf-8", "replace")
        left_out = counted(len(line) - OUTPUT_LINE_MAX, "byte")
        return f"{line[:OUTPUT_LINE_MAX].decode('utf-8', 'replace')} … {left_out} more"

    def _knows_tool(self, event: dict[str, Any]) -> bool:
        self.tool = self.tool or tool_of(event, f"{self._task_id}/{self._epoch}")
        return bool(self.tool)

    def _entries(self, events: Iterable[AgentEvent]) -> Iterator[ConversationEntry]:
        for event in events:
            match event:
                case AgentMessage():
                    yield from _message(event)
                case Denied(what):
                    yield ConversationEntry(EntryKind.DENIED, what)
                case Limited(_, reason) | OtherPermissions(reason):
                    yield ConversationEntry(EntryKind.ERROR, reason)
                case Spent(cost):
                    self._spent = self._spent.plus(cost)
                case Done():
                    yield from self._cost()

    def _cost(self) -> Iterator[ConversationEntry]:
        if self._spent != self._told:
            self._told = self._spent
            yield ConversationEntry(EntryKind.COST, _in_words(self._spent))


def tool_of(event: dict[str, Any], attempt: str) -> str:
    """The adapter of the tool that wrote this event; "" if it is none that we know."""
    kind = event.get("type")
    if type(kind) is not str:
        return ""
    if kind in _KINDS["codex"] or (kind.startswith("item.") and type(event.get("item")) is dict):
        return "codex"
    if type(event.get("sessionID")) is str and kind in _KINDS["opencode"]:
        return "opencode"
    if kind in _KINDS["claude"] and type(event.get("session_id")) is str and "uuid" in event:
        return "claude"
    if kind in _KINDS["gemini"] and type(event.get("timestamp")) is str:
        return "gemini"
    if kind in _KINDS["warm"] and event.get("id") == attempt:
        return "warm"
    return "acp" if _is_of_bridge(kind, set(event)) else ""


def _is_of_bridge(kind: str, fields: set[str]) -> bool:
    """Whether our ACP bridge begins with such a line."""
    if kind == "error":
        return {"message", "outcome"} <= fields or {"message", "stage"} <= fields
    return fields == {"type", *_BRIDGE_FIELDS.get(kind, ("?",))}


#: The lines with which our ACP bridge may begin, and what each has.
_BRIDGE_FIELDS: dict[str, tuple[str, ...]] = {
    "session": ("session",),
    "log": ("text",),
    "usage": ("amount", "currency", "earlier"),
    "gone": ("broken", "code", "asked"),
    "alive": (),
}


_KINDS = {
    "codex": {"thread.started", "turn.started", "turn.completed", "turn.failed"},
    "opencode": {"step_start", "step_finish", "text", "reasoning", "tool_use", "error"},
    "claude": {"system", "assistant", "user", "result", "rate_limit_event"},
    "gemini": {"init", "message", "tool_use", "tool_result", "error", "result"},
    "warm": {"said", "progress", "spent", "session", "denied", "limited", "done", "error"},
}


def _listener(tool: str, task_id: str, epoch: int) -> JsonListener:
    """A listener as the worker had it, but for what only a running attempt knows."""
    nowhere = Path()
    task = Task(Spec(task_id, ""), State.IN_PROGRESS, 1, epoch, 0, 0)
    job = Job(task, epoch, "", nowhere, nowhere, nowhere, nowhere)
    listener = agent_named(tool).listen(job)
    assert isinstance(listener, JsonListener)
    return listener


def _message(message: AgentMessage) -> Iterator[ConversationEntry]:
    words = message.whole or message.text
    if message.kind is MessageKind.RESULT:
        words = _shortened(words)
    elif len(words) > TEXT_SHOWN_MAX:
        left_out = counted(len(words) - TEXT_SHOWN_MAX, "character")
        words = f"{words[:TEXT_SHOWN_MAX]}\n… {left_out} more"
    if message.percent >= 0:
        words = f"{words} ({message.percent} %)" if words else f"{message.percent} %"
    if words.strip():
        yield ConversationEntry(EntryKind(message.kind), clean(words).rstrip())


def _shortened(words: str) -> str:
    """The first lines of what a tool call gave, and how many there are more."""
    lines = (line.rstrip() for line in words.strip("\n").split("\n"))
    first = [_short_line(line) for line in islice(lines, RESULT_LINES_MAX)]
    more = sum(1 for _ in lines)
    return "\n".join([*first, f"… {counted(more, 'more line')}"] if more else first)


def _short_line(line: str) -> str:
    return line if len(line) <= RESULT_LINE_MAX else f"{line[:RESULT_LINE_MAX]}…"


def _in_words(spent: Usage) -> str:
    parts = [f"{spent.usd:.4g} $"] if spent.usd else []
    parts += [counted(spent.tokens, "token")] if spent.tokens else []
    parts += [counted(spent.turns, "turn")] if spent.turns else []
    return ", ".join(parts)
