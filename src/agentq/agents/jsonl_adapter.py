"""What the adapters of tools have in common, above all of tools that print JSON lines.

A tool's own file says which words start it, what each event means, and what counts as success.
Here is the rest: telling events from noise, keeping the end of the noise as evidence, and turning
an end without success into a classified verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any

from agentq.agents.error_classification import KnownError, known_error, signal_of, unexplained
from agentq.agents.jsonlines import (
    DENIALS_MAX,
    SUMMARY_CHARS_MAX,
    Tail,
    one_line,
    parsed,
    session_id,
    summary_of,
)
from agentq.agents.permissions import NOTHING_SAID, Granted
from agentq.contracts.agent import (
    AgentEvent,
    AgentMessage,
    AgentSession,
    AttemptOutcome,
    AttemptResult,
    Denied,
    Exit,
    Job,
    Launch,
    Limited,
    MessageKind,
    Spent,
)
from agentq.core.prices import TokenCounts
from agentq.core.task import NO_USAGE, ToldMessage, Usage

#: Unix milliseconds; given by tests, the machine's clock otherwise.
Clock = Callable[[], int]
NOISE_BYTES_MAX = 8 * 1024
#: How many tool calls are remembered by id, for denials that name no more than that.
CALLS_KEPT = 256
#: A longer line of what an agent says is given on in pieces.
SPOKEN_CHARS_MAX = 4000

#: Environment variables that several tools read.
PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
)  # fmt: skip


def machine_clock() -> int:
    return time.time_ns() // 1_000_000


def command_words(job: Job, program: str, verb: str = "") -> tuple[str, ...]:
    """The words that start a tool: the role's own if it has any, else the program's usual name.

    Words that begin with an option are added to the usual program. The tool's `verb` ("exec",
    "run") comes right after the tool's name, or after the whole of a wrapper's words.
    """
    words = job.command
    if not words or words[0].startswith("-"):
        words = (program, *words)
    if not verb or verb in words[1:]:
        return words
    if program in PurePath(words[0]).name:
        return (words[0], verb, *words[1:])
    return (*words, verb)


class ToolAdapter:
    """An adapter without its tool: one process per attempt, with the prompt on standard input."""

    provider = ""
    resumes = True
    warm = False
    reads_ignored = True
    #: The environment variables that the tool may see, where the worker has them.
    passes: tuple[str, ...] = ()

    def __init__(self, clock: Clock = machine_clock) -> None:
        self._clock = clock

    def launch(self, job: Job) -> Launch:
        prompt = job.prompt.encode("utf-8", "replace")
        told = self.granted(job)
        return Launch(
            self.argv(job, session_id(job.session)), prompt, passes=self.passes,
            environment=told.environment, files=told.files,
        )  # fmt: skip

    def granted(self, job: Job) -> Granted:
        """How the tool is told what it may do; raises `Invalid` if it cannot keep to that."""
        return NOTHING_SAID

    def refused_files(self, job: Job) -> tuple[str, ...]:
        """Files of a workspace in which the tool is not started: it would obey them."""
        return ()

    def argv(self, job: Job, session: str) -> tuple[str, ...]:
        """The command line; `session` is the conversation to go on from, "" for none."""
        return job.command

    def opening(self, job: Job) -> bytes:
        return b""


def messages(words: str, kind: MessageKind = MessageKind.TEXT) -> list[AgentEvent]:
    """These words as a message, if there are any: one line to watch, and the whole to read."""
    line = one_line(words[:2000])
    return [AgentMessage(line, kind=kind, whole="" if line == words else words)] if line else []


class SpokenLines:
    """Puts words that come in pieces together again, line by line."""

    def __init__(self, kind: MessageKind = MessageKind.TEXT) -> None:
        self._kind = kind
        self._line = ""
        self._gap = ""

    def add(self, words: str) -> list[AgentEvent]:
        """The lines that are complete now."""
        *lines, self._line = (self._line + words).split("\n")
        if len(self._line) >= SPOKEN_CHARS_MAX:
            lines, self._line = [*lines, self._line], ""
        return [event for line in lines for event in self._spoken(line)]

    def end(self) -> list[AgentEvent]:
        """The line that nothing ended: what comes next is something else."""
        line, self._line = self._line, ""
        events = self._spoken(line)
        self._gap = ""
        return events

    def _spoken(self, line: str) -> list[AgentEvent]:
        """The line as a message. An empty one becomes a gap before the next."""
        if not line.strip():
            self._gap = "\n"
            return []
        gap, self._gap = self._gap, ""
        return messages(gap + line.rstrip(), self._kind)


def spending(cost: Usage, counts: TokenCounts | None = None) -> list[AgentEvent]:
    return [] if cost == NO_USAGE else [Spent(cost, counts)]


def share_of(counts: TokenCounts, part: int, whole: int) -> TokenCounts | None:
    """So much of these tokens as is new: `part` of `whole`. A tool that counts a conversation from
    its beginning does not say what kind of tokens it has used since."""
    if not whole or not part:
        return None
    kinds = (counts.input, counts.cached, counts.output)
    return TokenCounts(*(round(each * part / whole) for each in kinds))


def tool_call(name: str, given: str) -> str:
    """A tool call in one line."""
    name = name or "a tool"
    return one_line(f"{name}: {given}" if given else name)


class JsonListener:
    """Listens to one attempt of a tool that prints one JSON object per line."""

    #: How people call the tool.
    tool = ""

    def __init__(self, job: Job, clock: Clock) -> None:
        self.clock = clock
        self.resumed = bool(session_id(job.session))
        self.session = ""
        self.denials: list[str] = []
        self._denied_ids: set[str] = set()
        self._calls: dict[str, str] = {}
        self._noise = Tail(NOISE_BYTES_MAX)
        self._unreadable = 0

    def line(self, line: bytes, *, is_error: bool = False) -> Iterable[AgentEvent]:
        event = None if is_error else parsed(line)
        if event is not None:
            return self.event(event)
        if not line:
            return ()
        if not is_error:
            self._unreadable += 1
        if is_error or line[:1] != b"{":
            self._noise.add(line)
        # Else an event that was cut off. It may hold the agent's own words, and an agent that
        # writes about rate limits has not hit one: it is no evidence of what went wrong.
        return ()

    def event(self, event: dict[str, Any]) -> list[AgentEvent]:
        """What an event means; [] if it is not known."""
        return []

    def rest(self) -> list[AgentEvent]:
        """What was said and not yet given on, where the output ends here."""
        return []

    @property
    def is_over(self) -> bool:
        """Whether it heard the end, after which nothing counts any more."""
        return False

    def interrupt(self) -> bytes | None:
        return None  # standard input is closed once the prompt is in: signals only

    def message(self, told: ToldMessage) -> bytes | None:
        return None

    def in_session(self, id: object) -> list[AgentEvent]:
        """Report the id of the conversation, once, from whichever event carries it."""
        known = session_id(id)
        if not known or known == self.session:
            return []
        self.session = known
        return [AgentSession(known)]

    def called(self, id: object, what: str) -> None:
        """Remember what a tool call was about, for a denial that names its id and no more."""
        if type(id) is str and id and what:
            if len(self._calls) >= CALLS_KEPT:
                del self._calls[next(iter(self._calls))]
            self._calls[id] = what

    def denied(self, what: str, id: object = "") -> list[AgentEvent]:
        """Report a denial once, though tools report it as it happens and again at the end.

        The id of the tool call tells which one it is, as the two reports differ in words; without
        an id the words do.
        """
        known_as = id[:200] if type(id) is str else ""
        what = self._calls.get(known_as, what) if known_as else what
        again = known_as in self._denied_ids if known_as else what in self.denials
        if not what or again or len(self.denials) >= DENIALS_MAX:
            return []
        self._denied_ids.add(known_as)
        self.denials.append(what)
        return [Denied(what)]

    def was_denied(self, id: object) -> bool:
        """Whether the tool call of this id was denied."""
        return type(id) is str and id[:200] in self._denied_ids

    # -- verdicts ----------------------------------------------------------------------------------

    def completed(self, exit: Exit, answer: str, structured: Any = None) -> AttemptResult:
        """The result of a run whose tool reported success. A signal after that ended a process
        that only hung on; an exit code of its own says that something went wrong after all."""
        if not exit.clean and not signal_of(exit):
            return self.failed(exit, f"{self.tool} gave its answer and then ended with {exit}")
        return self.succeeded(summary_of(answer), answer, structured)

    def succeeded(self, summary: str, answer: str, structured: Any) -> AttemptResult:
        return AttemptResult(
            AttemptOutcome.COMPLETED,
            summary or f"{self.tool} finished without words.",
            answer,
            structured,
            denials=tuple(self.denials),
        )

    def failed(self, exit: Exit, message: str, status: int = 0) -> AttemptResult:
        """The result of a run whose tool reported an error."""
        known = known_error(message, self.clock(), status, resumed=self.resumed)
        return self.ended(message, *(known or unexplained(exit)))

    def limited(self, limit: Limited, message: str = "") -> AttemptResult:
        """The result of a run that the provider's limit ended."""
        message = message or limit.reason
        return self.ended(message, AttemptOutcome.QUOTA, resets_at=limit.resets_at)

    def vanished(self, exit: Exit) -> AttemptResult:
        """The result of a run that reported neither success nor an error."""
        known = known_error(self._noise.last(12), self.clock(), resumed=self.resumed)
        ending = f"{self.tool} ended without a result ({exit})"
        if self._unreadable:
            ending += f"; lines of its output that cannot be read: {self._unreadable}"
        if exit.clean and known is None and self._unreadable:
            known = KnownError(AttemptOutcome.BAD_OUTPUT)
        if known is not None and known.outcome is AttemptOutcome.OVERLOADED:
            # What an agent starts may write to the same standard error: that is no reason to keep
            # all others from a provider. Tools give its answers as errors of their own.
            known = KnownError(AttemptOutcome.TRANSIENT)
        # The signal counts for more than an error that the tool had got over before it.
        why = unexplained(exit) if signal_of(exit) or known is None else known
        return self.ended(self.with_noise(ending), *why)

    def with_noise(self, ending: str) -> str:
        noise = self._noise.last(6)
        return f"{ending}: {noise}" if noise else f"{ending}."

    def ended(
        self,
        message: str,
        outcome: AttemptOutcome,
        advice: str = "",
        resets_at: int = 0,
        session_unknown: bool = False,
    ) -> AttemptResult:
        """The result of a run without success; what a `KnownError` has follows its message."""
        return AttemptResult(
            outcome,
            f"{one_line(message, SUMMARY_CHARS_MAX)} {advice}".strip(),
            resets_at=resets_at,
            session_unknown=session_unknown,
            denials=tuple(self.denials),
        )
