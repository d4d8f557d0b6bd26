"""The contract of agent adapters: how to start a tool, and what its output means.

An adapter knows one tool and nothing else: not the ledger, not processes, not files. The worker
starts what `launch` describes, feeds every line of its output to a `Listener` made for this attempt
alone, acts on what the listener heard, and asks it for a verdict once the process is gone.

Output is untrusted and changes with every release of a tool: listeners parse JSON by meaning, skip
what they do not know, never raise on a line, and keep a bounded amount of what they hear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from agentq.contracts.permissions import Permissions
from agentq.core.prices import TokenCounts
from agentq.core.task import NO_USAGE, Task, ToldMessage, Usage


class AttemptOutcome(StrEnum):
    """How an attempt ended; each has its own answer in the worker (`worker/outcomes.py`)."""

    COMPLETED = "completed"
    TRANSIENT = "transient"  # try again after a while
    QUOTA = "quota"  # the provider's circuit opens until `resets_at`; no attempt is used
    OVERLOADED = "overloaded"  # it does not serve: its circuit opens for longer each time; likewise
    #: No program, login, repository…: the role is checked. If it cannot work its circuit opens, and
    #: no attempt is used; if it can, it was this task alone (see `AttemptResult.otherwise`).
    SURROUNDINGS = "surroundings"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    CRASHED = "crashed"
    BAD_OUTPUT = "bad_output"  # tried again with the evidence in its context
    REFUSED = "refused"  # the agent will not do it: no retry
    INVALID = "invalid"  # it cannot be done as asked (unknown command, bad settings): no retry
    BUDGET = "budget"  # blocked, with the numbers
    BLOCKED = "blocked"  # it asks a question that somebody must answer
    CANCELLED = "cancelled"
    YIELDED = "yielded"  # it goes on when its children are over or a signal comes
    INTERRUPTED = "interrupted"  # the worker shuts down: given back, no attempt is used


#: Code of the `Invalid` that `Agent.launch` raises if this workspace, and no other, keeps the tool
#: from being started.
UNFIT_WORKSPACE = "unfit_workspace"


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt as an adapter sees it."""

    task: Task
    epoch: int
    #: The whole prompt: instructions, context, and what earlier attempts left behind.
    prompt: str
    workspace: Path  # where it works
    context: Path  # a file with `prompt` in it
    result: Path  # where a tool that can write files leaves its result (AGENTQ_RESULT)
    artifacts: Path  # a folder for other evidence (AGENTQ_ARTIFACTS)
    #: The role's own command for the tool: the program and arguments that replace or extend the
    #: adapter's defaults.
    command: tuple[str, ...] = ()
    #: The tool's own id of an earlier conversation about this task, to go on from; "" for none.
    session: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    #: None: nothing is said to the tool, because the role's own command does, or it is a program
    #: of the user's own.
    permissions: Permissions | None = None
    #: What it may run under `Permissions.RUN`: each a command, or the beginning of one before " *".
    commands: tuple[str, ...] = ()
    #: Whether it runs inside our own sandbox, in which no other can be made.
    sandboxed: bool = False
    #: The release of the tool, as it says itself; "" if that is not known.
    version: str = ""
    #: The role's budget, for tasks that bring none of their own.
    role_budget: Usage = NO_USAGE

    @property
    def budget(self) -> Usage:
        """What all attempts at the task may spend; what was added to it is in the task."""
        own = self.task.spec.budget
        return own if own != NO_USAGE else self.role_budget


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to start."""

    argv: tuple[str, ...]
    #: Written to its standard input, which is closed after that unless `keep_stdin`.
    stdin: bytes = b""
    keep_stdin: bool = False
    #: Added to its environment.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Names that may pass from the worker's environment if they are set there, beside the
    #: worker's own short list (PATH, HOME, LANG, TMPDIR, …).
    passes: tuple[str, ...] = ()
    #: Written before it starts, in the folder of `Job.context`: what the tool is told by file.
    files: Mapping[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: its exit code, or the signal that ended it."""

    code: int = 0
    signal: int = 0

    @property
    def clean(self) -> bool:
        return self.code == 0 and self.signal == 0

    def __str__(self) -> str:
        return f"signal {self.signal}" if self.signal else f"exit code {self.code}"


# -- what a listener hears -------------------------------------------------------------------------


class MessageKind(StrEnum):
    """What a message of an agent is to people who watch it or read its log."""

    TEXT = "text"  # what it says
    THINKING = "thinking"
    TOOL = "tool"  # a tool call: its name and what it is about
    RESULT = "result"  # what a tool call gave
    STATUS = "status"  # how far it is, or what it waits for
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class AgentMessage:
    """A line of output for people who watch; it also counts as activity."""

    text: str
    #: Progress in percent; -1 if the agent did not report any.
    percent: int = -1
    kind: MessageKind = MessageKind.TEXT
    #: The text as it was written, for readers of the log; "" where `text` is all of it.
    whole: str = ""


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent since the last `Spent`: cumulative counters are turned into differences."""

    cost: Usage
    #: Of a tool that names no money: what its tokens were, so that a price list can.
    counts: TokenCounts | None = None


@dataclass(frozen=True, slots=True)
class AgentSession:
    """The tool's own id of this conversation."""

    id: str


@dataclass(frozen=True, slots=True)
class Limited:
    """The provider will not serve before this moment (Unix milliseconds; 0: it did not say)."""

    resets_at: int
    reason: str


@dataclass(frozen=True, slots=True)
class Denied:
    """The tool wanted to do something it was not allowed to; each tool call is told once."""

    what: str


@dataclass(frozen=True, slots=True)
class OtherPermissions:
    """The tool says that other permissions are in effect than it was told: it must not go on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Listening:
    """The tool takes messages of people from now on, while it works (`Listener.message`)."""


@dataclass(frozen=True, slots=True)
class Done:
    """The tool says it is done: it has a bounded time to exit (a warm one: to take the next)."""


AgentEvent = (
    AgentMessage | Spent | AgentSession | Limited | Denied | OtherPermissions | Listening | Done
)


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of an attempt, from the tool's output and its exit."""

    outcome: AttemptOutcome
    #: One or two sentences for people: what was done, or what went wrong.
    summary: str
    #: The answer as text; "" if there is none, or it is in the result file.
    result: str = ""
    structured: Any = None
    resets_at: int = 0
    #: The session to go on from was not known any more: forget it, and try once from the start.
    session_unknown: bool = False
    denials: tuple[str, ...] = ()
    #: What became of the attempt if its surroundings are in order after all.
    otherwise: AttemptOutcome = AttemptOutcome.INVALID
    #: All that was spent, for tools that report it only at the end, without `Spent` events.
    cost: Usage = NO_USAGE


class Listener(Protocol):
    """Interprets the output of one attempt."""

    def line(self, line: bytes, *, is_error: bool = False) -> Iterable[AgentEvent]:
        """One line of output (`is_error`: of standard error), without its end. Never raises.

        A line longer than the worker's limit comes cut off.
        """
        ...

    def interrupt(self) -> bytes | None:
        """What to write to standard input to ask the tool to stop; None: it knows signals only."""
        ...

    def message(self, told: ToldMessage) -> bytes | None:
        """What to write to standard input to give the tool a message; None: it takes none now."""
        ...

    def verdict(self, exit: Exit) -> AttemptResult:
        """Called once, after the process is gone (a warm one: after `Done`). Never raises."""
        ...


class Agent(Protocol):
    """The adapter of one agent tool."""

    #: As `agent = "…"` in the settings names it.
    name: str
    #: Whose quota it uses unless the role says otherwise; "" for none.
    provider: str
    #: Whether `Job.session` means something to it.
    resumes: bool
    #: Whether one process serves many tasks, one after the other.
    warm: bool
    #: Whether it reads files that git ignores, as `.agentq-task/inputs/` is.
    reads_ignored: bool

    def launch(self, job: Job) -> Launch:
        """Raises `Invalid` if this job cannot be started at all, saying why."""
        ...

    def listen(self, job: Job) -> Listener: ...

    def opening(self, job: Job) -> bytes:
        """For a warm tool: the line that gives a running process its next job."""
        ...
