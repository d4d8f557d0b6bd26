"""Gemini CLI: `gemini --output-format stream-json -p …`, the prompt on standard input.

What it may do the role says in one word, see `gemini_permissions.py`.

The prompt goes through standard input because an argument may have 128 KiB and is seen by every
user of the machine. `-p` is still needed, also for `--resume`: its words follow those of the input.
"""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from agentq.agents.error_classification import LOG_IN, KnownError
from agentq.agents.gemini_permissions import granted, obeyed
from agentq.agents.jsonl_adapter import (
    PROXY_VARIABLES,
    Clock,
    JsonListener,
    SpokenLines,
    ToolAdapter,
    command_words,
    messages,
    share_of,
    spending,
    tool_call,
)
from agentq.agents.jsonlines import (
    RESULT_CHARS_MAX,
    TEXT_CHARS_MAX,
    Totals,
    one_line,
    table,
    text,
    total,
    whole,
)
from agentq.agents.permissions import Granted
from agentq.contracts.agent import (
    AgentEvent,
    AttemptOutcome,
    AttemptResult,
    Done,
    Exit,
    Job,
    Launch,
    MessageKind,
)
from agentq.core.prices import TokenCounts
from agentq.core.task import Usage
from agentq.core.values import replace

#: By which it is told its limit of turns. It skips the file where others may write to a folder
#: above it, and then only the worker counts.
DEFAULTS = "gemini-defaults.json"
ASKED = "Do what the text above asks for."

#: What its exit codes mean when it said nothing that tells more.
EXIT_CODES = {
    41: KnownError(AttemptOutcome.SURROUNDINGS, LOG_IN),
    42: KnownError(AttemptOutcome.INVALID, "The input was not accepted."),
    44: KnownError(
        AttemptOutcome.SURROUNDINGS, "Its sandbox could not be set up: check the role's settings."
    ),
    52: KnownError(
        AttemptOutcome.SURROUNDINGS, "Its configuration is not valid: check its settings file."
    ),
    # As with any other amount that is used up: somebody decides whether it may have more.
    53: KnownError(AttemptOutcome.BUDGET, "It reached its limit of turns."),
    55: KnownError(
        AttemptOutcome.SURROUNDINGS, "The workspace is not trusted: say so in its settings."
    ),
}


#: How it says that a tool call was not allowed; each in lower case.
_DENIALS = ("denied", "not allowed", "requires user confirmation", "path not in workspace")


class Gemini(ToolAdapter):
    """Google's Gemini CLI, one process per attempt."""

    name = "gemini"
    provider = "google"
    reads_ignored = False  # its file tool refuses them in every mode
    passes = (
        "GEMINI_API_KEY", "GEMINI_CLI_HOME", "GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_MODEL",
        "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_CLOUD_PROJECT", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_GCA",
        "GOOGLE_GENAI_USE_VERTEXAI", "NODE_EXTRA_CA_CERTS", *PROXY_VARIABLES,
    )  # fmt: skip

    def argv(self, job: Job, session: str) -> tuple[str, ...]:
        resume = ("--resume", session) if session else ()
        words = (*command_words(job, "gemini"), *self.granted(job).words)
        return (*words, "--output-format", "stream-json", *resume, "-p", ASKED)

    def granted(self, job: Job) -> Granted:
        return granted(job)

    def launch(self, job: Job) -> Launch:
        launch, most = super().launch(job), _turns_left(job)
        if not most:
            return launch
        # The lowest of its settings, so that a smaller number of the user's own still counts.
        defaults = job.context.parent / DEFAULTS
        content = json.dumps({"model": {"maxSessionTurns": most}})
        return replace(
            launch, files={**launch.files, defaults: content},
            environment={**launch.environment, "GEMINI_CLI_SYSTEM_DEFAULTS_PATH": str(defaults)},
        )  # fmt: skip

    def refused_files(self, job: Job) -> tuple[str, ...]:
        return obeyed(job)

    def listen(self, job: Job) -> _GeminiListener:
        return _GeminiListener(job, self._clock)


def _turns_left(job: Job) -> int:
    """What is left of a budget of turns for this attempt; 0 without one."""
    budget, details = job.budget, job.task.details
    if not budget.turns:
        return 0
    return max(budget.turns + details.extra_budget.turns - details.spent.turns, 1)


class _GeminiListener(JsonListener):
    tool = "gemini"

    def __init__(self, job: Job, clock: Clock) -> None:
        super().__init__(job, clock)
        self._totals = Totals()
        #: What it says comes in pieces; a tool call ends one text, and the last text is the answer.
        self._text = StringIO()
        self._spoken = SpokenLines()
        self._answer = ""
        self._error = ""
        self._status = ""
        self._its_turn = False

    def event(self, event: dict[str, Any]) -> list[AgentEvent]:
        match event.get("type"):
            case "init":
                return self.in_session(event.get("session_id"))
            case "message":
                return self._message(event)
            case "tool_use":
                given = table(event.get("parameters"))
                described = text(given.get("command")) or text(given.get("file_path"))
                said = self._end_of_text()
                shown = tool_call(text(event.get("tool_name"), 80), described)
                self.called(event.get("tool_id"), shown)
                return said + messages(shown, MessageKind.TOOL) + self._turn()
            case "tool_result":
                return self._tool_result(event)
            case "error":
                return self._spoken.end() + self._warning(event)
            case "result":
                return self._spoken.end() + self._result(event)
            case _:
                return []

    def _message(self, event: dict[str, Any]) -> list[AgentEvent]:
        if event.get("role") != "assistant":
            self._its_turn = False
            return []
        piece = text(event.get("content"), RESULT_CHARS_MAX)
        said = [] if event.get("delta") else self._end_of_text()
        if self._text.tell() + len(piece) <= RESULT_CHARS_MAX:
            self._text.write(piece)
        return said + self._spoken.add(piece) + self._turn()

    def _turn(self) -> list[AgentEvent]:
        """A turn starts with the first output or tool call after an input."""
        if self._its_turn:
            return []
        self._its_turn = True
        return spending(Usage(turns=1))

    def _tool_result(self, event: dict[str, Any]) -> list[AgentEvent]:
        self._its_turn = False
        output = text(event.get("output"), RESULT_CHARS_MAX)
        if event.get("status") != "error":
            return messages(output, MessageKind.RESULT)
        error = table(event.get("error"))
        message = text(error.get("message")) or output[:TEXT_CHARS_MAX]
        if any(words in message.lower() for words in _DENIALS):
            return self.denied(one_line(message), event.get("tool_id"))
        return messages(output or message, MessageKind.RESULT)

    def _warning(self, event: dict[str, Any]) -> list[AgentEvent]:
        message = text(event.get("message"), 4000)
        if event.get("severity") == "warning":
            return messages(message, MessageKind.STATUS)
        self._error = message or self._error
        return messages(message, MessageKind.ERROR)

    def _result(self, event: dict[str, Any]) -> list[AgentEvent]:
        self._status = text(event.get("status"), 40)
        before = self._error
        self._error = text(table(event.get("error")).get("message"), 4000) or before
        failed = messages(self._error, MessageKind.ERROR) if self._error != before else []
        stats = table(event.get("stats"))
        tokens = whole(stats.get("total_tokens"))
        tokens = tokens or total(stats, "input_tokens", "output_tokens")
        grown = self._totals.grown_to(Usage(tokens=tokens))
        read, cached = whole(stats.get("input_tokens")), whole(stats.get("cached"))
        # What it thought is in no count of its own, only in the total.
        counts = TokenCounts(read, cached, max(tokens - read, 0))
        return [*failed, *spending(grown, share_of(counts, grown.tokens, tokens)), Done()]

    def _end_of_text(self) -> list[AgentEvent]:
        if self._text.tell():
            self._answer, self._text = self._text.getvalue(), StringIO()
        return self._spoken.end()

    def rest(self) -> list[AgentEvent]:
        return self._spoken.end()

    def verdict(self, exit: Exit) -> AttemptResult:
        self._end_of_text()
        if self._status == "success":
            return self.completed(exit, self._answer)
        if self._status or (self._error and exit.code):
            found = self.failed(exit, self._error or f"gemini failed ({exit})")
        else:
            found = self.vanished(exit)
        known = EXIT_CODES.get(exit.code)
        if known is None or found.session_unknown or found.outcome is AttemptOutcome.QUOTA:
            return found
        return self.ended(found.summary, *known)
