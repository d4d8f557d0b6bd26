"""opencode: `opencode run --format json`, the prompt on standard input.

What it may do the role says in one word, see `opencode_permissions.py`. It serves many providers,
so the role names the one whose quota counts.

Traps this file minds: it never says that it is done, so success is exit code 0, some text, and no
error after it; an unknown session ends with code 0 and without a word; cost comes step by step.
"""

from __future__ import annotations

from typing import Any

from agentq.agents.jsonl_adapter import (
    AWS_VARIABLES,
    PROXY_VARIABLES,
    Clock,
    JsonListener,
    ToolAdapter,
    command_words,
    messages,
    spending,
    tool_call,
)
from agentq.agents.jsonlines import RESULT_CHARS_MAX, number, table, text, total, whole
from agentq.agents.opencode_permissions import granted
from agentq.agents.permissions import Granted
from agentq.agents.reset_times import reset_time
from agentq.contracts.agent import (
    AgentEvent,
    AttemptOutcome,
    AttemptResult,
    Exit,
    Job,
    Limited,
    MessageKind,
)
from agentq.core.task import Usage


class Opencode(ToolAdapter):
    """opencode, one process per attempt."""

    name = "opencode"
    passes = (
        "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "AWS_BEARER_TOKEN_BEDROCK", "GEMINI_API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GOOGLE_GENERATIVE_AI_API_KEY",
        "GROQ_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENCODE_API_KEY", "OPENCODE_CONFIG",
        "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG_DIR", "OPENCODE_PERMISSION",
        "OPENROUTER_API_KEY", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
        "XDG_STATE_HOME", *AWS_VARIABLES, *PROXY_VARIABLES,
    )  # fmt: skip

    def argv(self, job: Job, session: str) -> tuple[str, ...]:
        resume = ("--session", session) if session else ()
        return (*command_words(job, "opencode", "run"), "--format", "json", *resume)

    def granted(self, job: Job) -> Granted:
        return granted(job)

    def listen(self, job: Job) -> _OpencodeListener:
        return _OpencodeListener(job, self._clock)


class _OpencodeListener(JsonListener):
    tool = "opencode"

    def __init__(self, job: Job, clock: Clock) -> None:
        super().__init__(job, clock)
        self._message = ""
        self._answer = ""
        self._reason = ""
        self._error: tuple[str, int] | None = None
        self._resets_at = 0
        self._has_output = False

    def event(self, event: dict[str, Any]) -> list[AgentEvent]:
        events = self.in_session(event.get("sessionID"))
        part = table(event.get("part"))
        self._has_output = True
        match event.get("type"):
            case "text":
                events += self._text(part)
            case "reasoning":
                events += messages(text(part.get("text"), RESULT_CHARS_MAX), MessageKind.THINKING)
            case "tool_use":
                events += self._tool_use(part)
            case "step_finish":
                self._error = None  # it got over it
                self._reason = text(part.get("reason"), 40)
                events += spending(_cost(part))
            case "error":
                events += self._failure(event.get("error"))
        return events

    def _text(self, part: dict[str, Any]) -> list[AgentEvent]:
        """One message may have several texts; the last message is the answer."""
        content = text(part.get("text"), RESULT_CHARS_MAX)
        message = text(part.get("messageID"), 200)
        if not content:
            return []
        if message and message == self._message and self._answer:
            self._answer = f"{self._answer}\n\n{content}"[:RESULT_CHARS_MAX]
        else:
            self._answer = content
        self._message = message
        self._error = None
        return messages(content)

    def _tool_use(self, part: dict[str, Any]) -> list[AgentEvent]:
        state = table(part.get("state"))
        told = table(state.get("input"))
        given = text(told.get("command")) or text(told.get("filePath")) or text(state.get("title"))
        what = tool_call(text(part.get("tool"), 80), given)
        error = text(state.get("error")).lower()
        if "reject" in error or "permission" in error or "rule which prevents" in error:
            return self.denied(what, part.get("callID"))
        gave = text(state.get("output"), RESULT_CHARS_MAX)
        gave = gave or text(state.get("error"), RESULT_CHARS_MAX)
        return messages(what, MessageKind.TOOL) + messages(gave, MessageKind.RESULT)

    def _failure(self, error: object) -> list[AgentEvent]:
        described = table(error)
        data = table(described.get("data"))
        words = text(data.get("message"), 4000) or text(described.get("message"), 4000)
        words = words or text(error, 4000) or text(described.get("name"), 200)
        words = words or "it did not say why"
        self._error = (words, whole(data.get("statusCode")))
        retry_after = text(table(data.get("responseHeaders")).get("retry-after"), 40)
        self._resets_at = reset_time(f"retry-after: {retry_after}", self.clock())
        return messages(words, MessageKind.ERROR)

    def verdict(self, exit: Exit) -> AttemptResult:
        if self._error is not None:
            words, status = self._error
            found = self.failed(exit, words, status)
            if found.outcome is AttemptOutcome.QUOTA and not found.resets_at and self._resets_at:
                return self.limited(Limited(self._resets_at, words))
            return found
        if self._reason == "content-filter":
            return self.ended(self._answer or "opencode refused.", AttemptOutcome.REFUSED)
        if exit.clean and self._answer:
            return self.completed(exit, self._answer)
        found = self.vanished(exit)
        if self.resumed and exit.clean and not self._has_output:
            return self.ended(found.summary, AttemptOutcome.TRANSIENT, session_unknown=True)
        return found


def _cost(part: dict[str, Any]) -> Usage:
    tokens = table(part.get("tokens"))
    used = total(tokens, "input", "output", "reasoning")
    used += total(table(tokens.get("cache")), "read", "write")
    return Usage(number(part.get("cost")), whole(tokens.get("total")) or used, turns=1)
