"""What the model of a test does, step by step, in words that mean the same for every agent tool.

Every request of the conversation takes one step. The last one is never used up: a model that is
asked once more says the same again, and one that is overloaded stays so.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Say:
    """Answer with a text, which ends the turn of the agent."""

    text: str


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Call the tool that writes a whole file."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Call the tool that reads a file."""

    path: str


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Call the tool that runs a shell command."""

    command: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an HTTP error."""

    status: int
    message: str = "the stand-in was told to refuse"
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class CutOff:
    """Start an answer, then close the connection in the middle of it."""

    text: str = "I was about to say"


@dataclass(frozen=True, slots=True)
class Hang:
    """Start an answer and go silent until the test releases it, or the agent goes away."""

    reached: threading.Event = field(default_factory=threading.Event, compare=False)
    released: threading.Event = field(default_factory=threading.Event, compare=False)


ToolUse = WriteFile | ReadFile | RunCommand
Step = Say | WriteFile | ReadFile | RunCommand | Refuse | CutOff | Hang
