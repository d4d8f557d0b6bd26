"""What all dialects have in common: an id maker, a clock that only the script moves, and counters.

A dialect turns what happens into bytes and does nothing else: it opens no file and knows no
process. What ends a conversation is an `Ending`, because tools say it with words and an exit code.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from agentq.core.task import NO_USAGE, Usage

MODEL = "fake-1"


@dataclass(frozen=True, slots=True)
class Ending:
    """Last words, and the exit code that goes with them."""

    out: bytes = b""
    code: int = 0
    err: bytes = b""


class Clock:
    """The time as the stand-in tells it: it stands still but for the script's own steps."""

    def __init__(self, first_moment: int) -> None:
        self.started_ms = first_moment * 1000
        self.now_ms = self.started_ms

    def advance(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    def tick(self) -> int:
        """A moment later than every one before, in Unix milliseconds."""
        self.now_ms += 1
        return self.now_ms

    def iso(self) -> str:
        """The next moment as tools write it: `2026-01-01T00:00:00.001Z`."""
        moment = datetime.fromtimestamp(self.tick() / 1000, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self.now_ms % 1000:03d}Z"

    @property
    def elapsed_ms(self) -> int:
        return self.now_ms - self.started_ms


class Names:
    """Ids that look random and are not: the same seed gives the same ones in the same order."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._count = 0

    def hex(self) -> str:
        self._count += 1
        return hashlib.sha256(f"{self._seed}\0{self._count}".encode()).hexdigest()

    def uuid(self) -> str:
        h = self.hex()
        return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-8{h[17:20]}-{h[20:32]}"


def line(event: dict[str, Any]) -> bytes:
    """One event as one line of JSON."""
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Dialect(ABC):
    name: ClassVar[str]
    #: What SIGTERM and SIGINT make of its exit code; None: the signal ends it as usual.
    exit_on_term: ClassVar[int | None] = None
    exit_on_interrupt: ClassVar[int | None] = None
    #: Whether it leaves its result in the file AGENTQ_RESULT names, if it names one.
    leaves_result: ClassVar[bool] = False

    def __init__(
        self, names: Names, clock: Clock, *, session: str = "", before: Usage = NO_USAGE
    ) -> None:
        self.names = names
        self.clock = clock
        #: What came before counts on only in a session that is gone on with.
        self.before = before if session else NO_USAGE
        self.session = session or self.new_session()
        self.spent_here = NO_USAGE
        self.last_message = ""

    def new_session(self) -> str:
        return self.names.uuid()

    # -- on the way --------------------------------------------------------------------------------

    def opening(self, prompt: str) -> bytes:
        """What it says before the first step."""
        return b""

    def say(self, text: str) -> bytes:
        self.last_message = text
        return self.said(text)

    def say_once(self, text: str) -> bytes:
        """The text, unless the last message was the same."""
        return b"" if text == self.last_message else self.say(text)

    @abstractmethod
    def said(self, text: str) -> bytes: ...

    def used_tool(self, command: str, output: str) -> bytes:
        return b""

    def spend(self, cost: Usage) -> bytes:
        self.spent_here = self.spent_here.plus(cost)
        return self.spent(cost)

    def spent(self, cost: Usage) -> bytes:
        """Said at once only by tools that do so; the others say it at the end."""
        return b""

    def denied(self, what: str) -> bytes:
        return b""

    # -- how it ends -------------------------------------------------------------------------------

    def finished(self, result: str, structured: object) -> Ending:
        return Ending()

    def asked(self, question: str) -> Ending:
        """It needs an answer; most tools can only end with the question as their last words."""
        return self.finished(question, None)

    def failed(self, message: str) -> Ending:
        return Ending(code=1, err=f"{message}\n".encode())

    def api_error(self, status: int, message: str) -> Ending:
        """The provider has answered with this HTTP status."""
        return self.failed(f"unexpected status {status}: {message}")

    def limited(self, seconds: float, resets_at: int) -> Ending:
        """The provider serves again in so many seconds, at this Unix second."""
        return self.failed(f"429 Too Many Requests: try again in {span(seconds)}.")

    def refused(self, reason: str) -> Ending:
        return self.failed(reason)

    def session_unknown(self) -> Ending:
        return self.failed(f"Session not found: {self.session}")

    # -- counting ----------------------------------------------------------------------------------

    @property
    def total(self) -> Usage:
        """All that its session has spent: the number a cumulative counter shows."""
        return self.before.plus(self.spent_here)


def split_tokens(tokens: int) -> tuple[int, int]:
    """Tokens read and written, as most conversations have them: four to one."""
    written = tokens // 5
    return tokens - written, written


def span(seconds: float) -> str:
    """`1 hour 30 minutes`, as providers write it."""
    left, words = max(1, round(seconds)), []
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        count, left = divmod(left, length)
        if count:
            words.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(words)
