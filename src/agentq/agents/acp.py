"""`acp`: any agent that speaks the Agent Client Protocol, through a bridge of our own.

The role's command starts the agent (`command = ["gemini", "--acp"]`). The bridge
(`agentq.agents.acp_bridge`) runs it in the workspace and translates; here is what its lines mean.
What the agent asks permission for is answered by the word of its role (`acp_permissions.py`), or by
`options.permissions`, if the role has that instead: "deny" or "allow", for whatever it asks.

How the protocol's reasons to stop are read:

- `end_turn` is completed, and the last message is the answer; `refusal` is refused.
- `max_tokens` and `max_turn_requests` are budget: the agent ran into a limit of its own. The same
  task with the same limit would spend the same again, so somebody raises it or cuts the task.
- `cancelled` is cancelled if we asked for it. If not, the attempt failed and is tried again.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from io import StringIO
from typing import Any

from agentq.agents.acp_conversation import MISSING_SDK, MISSING_SDK_REMEDY
from agentq.agents.acp_permissions import granted
from agentq.agents.error_classification import LOG_IN, KnownError, known_error
from agentq.agents.jsonl_adapter import (
    Clock,
    JsonListener,
    SpokenLines,
    ToolAdapter,
    messages,
    spending,
)
from agentq.agents.jsonlines import (
    RESULT_CHARS_MAX,
    Totals,
    clean,
    json_line,
    number,
    one_line,
    table,
    text,
    total,
    whole,
)
from agentq.agents.permissions import Granted, named_commands
from agentq.contracts.agent import (
    AgentEvent,
    AttemptOutcome,
    AttemptResult,
    Done,
    Exit,
    Job,
    Launch,
    Listening,
    MessageKind,
)
from agentq.core.errors import Invalid
from agentq.core.task import ToldMessage, Usage

PERMISSIONS = ("deny", "allow")
#: The protocol's own error code for "log in first".
AUTH_REQUIRED = -32000

_STOPS = {
    "end_turn": KnownError(AttemptOutcome.COMPLETED),
    "refusal": KnownError(AttemptOutcome.REFUSED),
    "max_tokens": KnownError(
        AttemptOutcome.BUDGET, "It reached its own limit of tokens for one answer."
    ),
    "max_turn_requests": KnownError(
        AttemptOutcome.BUDGET, "It reached its own limit of model requests for one task."
    ),
    "cancelled": KnownError(
        AttemptOutcome.TRANSIENT, "It says that it was cancelled; nobody here did."
    ),
}
#: What the bridge itself finds wrong.
_NAMED = {"invalid": AttemptOutcome.INVALID, "bad_output": AttemptOutcome.BAD_OUTPUT}


class Acp(ToolAdapter):
    """Any tool that speaks ACP."""

    name = "acp"

    def launch(self, job: Job) -> Launch:
        if not job.command:
            raise Invalid(
                "The agent `acp` needs the command of an agent that speaks the Agent Client"
                " Protocol on its standard input and output, and none is set.",
                'Set it in the role: command = ["gemini", "--acp"].',
            )
        permissions = job.options.get("permissions", "deny")
        if job.permissions is None and permissions not in PERMISSIONS:
            raise Invalid(
                f"The option `permissions` of the agent `acp` is {permissions!r}; it can be deny or"
                " allow.",
                "Set it in the role, or leave it out for deny.",
            )
        if find_spec("acp") is None:
            raise Invalid(MISSING_SDK, MISSING_SDK_REMEDY)
        # -P: a module in the workspace must not stand in for one of ours.
        bridge = (sys.executable, "-P", "-m", "agentq.agents.acp_bridge")
        answers = str(job.permissions or permissions)
        named = named_commands(job)
        commands = {"commands": named} if named else {}
        words = ("--workspace", str(job.workspace), "--permissions", answers, "--")
        return Launch(
            argv=(*bridge, *words, *job.command),
            stdin=json_line(prompt=job.prompt, session=job.session, **commands),
            keep_stdin=True,
        )

    def granted(self, job: Job) -> Granted:
        return granted(job)

    def listen(self, job: Job) -> AcpListener:
        return AcpListener(job, self._clock)


class AcpListener(JsonListener):
    tool = "The ACP agent"

    def __init__(self, job: Job, clock: Clock) -> None:
        super().__init__(job, clock)
        self._totals = Totals()
        self._answer = StringIO()
        self._message = ""
        self._begins = True  # what comes next is a new message
        self._turns = 0
        self._spoken = SpokenLines()
        self._thinking = SpokenLines(MessageKind.THINKING)
        #: The tool call that was told last, by id and title, and one whose title may still change.
        self._told_tool = self._new_tool = ("", "")
        self._end: dict[str, Any] = {}
        self._listens = False

    def interrupt(self) -> bytes | None:
        return json_line(type="cancel")

    def message(self, told: ToldMessage) -> bytes | None:
        if not self._listens or self.is_over:
            return None
        return json_line(type="message", text=f"{told.by} says: {told.text}")

    # -- what a line means -------------------------------------------------------------------------

    def event(self, event: dict[str, Any]) -> list[AgentEvent]:
        if self._end:
            return []
        # Many a tool call is announced by its kind alone, and says with its next update what it is.
        events = [] if event.get("type") == "tool" else self._tell_tool()
        return events + self._meaning(event)

    def _meaning(self, event: dict[str, Any]) -> list[AgentEvent]:
        match event.get("type"):
            case "said":
                return self._chunk(text(event.get("text"), RESULT_CHARS_MAX), event.get("message"))
            case "tool":
                return self._tool(event)
            case "thought":
                return self._thinking.add(text(event.get("text"), RESULT_CHARS_MAX))
            case "usage":
                return self._usage(event)
            case "denied":
                return self.denied(text(event.get("what")) or "something", event.get("id"))
            case "allowed" | "log" as kind:
                words = text(event.get("what" if kind == "allowed" else "text"))
                words = f"allowed: {words}" if words and kind == "allowed" else words
                return messages(words, MessageKind.STATUS)
            case "stop" | "error" | "gone":
                self._end = event
                spent = self._last_spending(table(event.get("usage")))
                return [*self.rest(), *_problem(event), *spent, Done()]
        return self._of_conversation(event)

    def _of_conversation(self, event: dict[str, Any]) -> list[AgentEvent]:
        """What the bridge says of the conversation as a whole."""
        match event.get("type"):
            case "session":
                return self.in_session(event.get("session"))
            case "listening":
                self._listens = True
                return [Listening()]
            case "turn":  # a message of a person begins the next, with an answer of its own
                self._message, self._begins = "", True
                return [*self.rest(), *self._tokens_of(table(event.get("usage")))]
        return []

    def rest(self) -> list[AgentEvent]:
        return [*self._tell_tool(), *self._thinking.end(), *self._spoken.end()]

    @property
    def is_over(self) -> bool:
        return bool(self._end)

    def _chunk(self, words: str, message: object) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        known = message if isinstance(message, str) else ""
        if known != self._message if known else self._begins:
            events += [*self._spoken.end(), *spending(Usage(turns=1))]
            self._message, self._begins = known, True
            self._turns += 1
        if not words:
            return events
        if self._begins:  # only words replace words: the last message that has any is the answer
            self._begins, self._answer = False, StringIO()
        self._answer.write(words[: max(RESULT_CHARS_MAX - self._answer.tell(), 0)])
        return [*events, *self._thinking.end(), *self._spoken.add(words)]

    def _tool(self, event: dict[str, Any]) -> list[AgentEvent]:
        self._begins = self._begins or not self._message
        tool = (text(event.get("id"), 300), text(event.get("title")))
        events = self._tell_tool() if tool[0] != self._new_tool[0] else []
        events += [*self._thinking.end(), *self._spoken.end()]
        is_first = tool[0] not in (self._new_tool[0], self._told_tool[0])
        self._new_tool = tool if tool[1] else self._new_tool
        if not is_first or event.get("status") != "pending":
            events += self._tell_tool()
        return events + messages(text(event.get("output"), RESULT_CHARS_MAX), MessageKind.RESULT)

    def _tell_tool(self) -> list[AgentEvent]:
        """Tell of the tool call that was announced last, if that was not done."""
        tool, self._new_tool = self._new_tool, ("", "")
        if not tool[1] or tool == self._told_tool:
            return []
        self._told_tool = tool
        return messages(one_line(tool[1]), MessageKind.TOOL)

    def _usage(self, event: dict[str, Any]) -> list[AgentEvent]:
        amount = event.get("amount")
        if type(amount) not in (int, float) or event.get("currency") != "USD":
            return []  # how full the context is, or money that no budget of ours counts
        grown = self._totals.grown_to(Usage(usd=number(amount)))
        # What it names before our prompt was paid in an earlier attempt.
        return [] if event.get("earlier") is True else spending(grown)

    def _last_spending(self, usage: dict[str, Any]) -> list[AgentEvent]:
        turns = 1 if self._end.get("type") == "stop" and not self._turns else 0
        return self._tokens_of(usage, turns)

    @staticmethod
    def _tokens_of(usage: dict[str, Any], turns: int = 0) -> list[AgentEvent]:
        """What one prompt has used."""
        tokens = whole(usage.get("total_tokens"))
        tokens = tokens or total(usage, "input_tokens", "output_tokens")
        return spending(Usage(tokens=tokens, turns=turns))

    # -- verdicts ----------------------------------------------------------------------------------

    def verdict(self, exit: Exit) -> AttemptResult:
        end = self._end
        kind = end.get("type")
        if kind is None:
            return self.vanished(exit)
        if end.get("asked") is True and end.get("reason") in (None, "cancelled"):
            return self.ended(f"{self.tool} stopped when asked to.", AttemptOutcome.CANCELLED)
        if kind == "stop":
            return self._stopped(exit, text(end.get("reason"), 40))
        if kind == "gone":
            return self._gone(exit, text(end.get("broken")), end.get("code"))
        return self._failed(exit)

    def _stopped(self, exit: Exit, reason: str) -> AttemptResult:
        answer = clean(self._answer.getvalue())
        why = _STOPS.get(reason, KnownError(AttemptOutcome.BAD_OUTPUT))
        if why.outcome is AttemptOutcome.COMPLETED:
            return self.completed(exit, answer)
        ending = f": {answer}" if answer else "."
        return self.ended(f"{self.tool} stopped with {reason or 'no reason'}{ending}", *why)

    def _gone(self, exit: Exit, broken: str, code: object) -> AttemptResult:
        if broken:
            return self.ended(f"{self.tool} sent {broken}.", AttemptOutcome.BAD_OUTPUT)
        if type(code) is not int:
            return self.vanished(exit)
        return self.vanished(Exit(signal=-code) if code < 0 else Exit(code=code))

    def _failed(self, exit: Exit) -> AttemptResult:
        end = self._end
        message = text(end.get("message"), 2000)
        if named := _NAMED.get(text(end.get("outcome"), 40)):
            return self.ended(message, named)
        if end.get("code") == AUTH_REQUIRED:
            return self.ended(f"{self.tool}: {message}.", AttemptOutcome.SURROUNDINGS, LOG_IN)
        details = f"{message} {text(end.get('data'), 2000)}".strip()
        known = known_error(details, self.clock(), resumed=self.resumed)
        is_quota = known is not None and known.outcome is AttemptOutcome.QUOTA
        if end.get("stage") == "load" and not is_quota:
            known = KnownError(AttemptOutcome.TRANSIENT, session_unknown=True)
        message = f"{self.tool} answered with an error: {details}"
        return self.ended(message, *known) if known else self.failed(exit, message)


def _problem(end: dict[str, Any]) -> list[AgentEvent]:
    """Why a conversation did not end as it should; nothing if it did."""
    if end.get("type") == "stop":
        reason = text(end.get("reason"), 40)
        words = "" if reason == "end_turn" else f"it stopped with {reason or 'no reason'}"
    elif end.get("type") == "gone":
        broken = text(end.get("broken"))
        words = f"it sent {broken}" if broken else f"it ended with code {end.get('code')}"
    else:
        words = text(end.get("message"), 2000)
    return messages(words, MessageKind.ERROR)
