"""Claude Code: `claude -p --output-format stream-json --verbose`, the prompt on standard input.

What it may do the role says in one word, see `claude_permissions.py`. Its first event names the
mode that is in effect: if it is another, it is stopped before it does anything.

Traps this file minds: an API failure ends with `subtype: "success"` (only `is_error` decides); an
interrupted run exits 0 without a result; a `task-notification` result answers no prompt of ours;
`total_cost_usd` is a running total, which even goes on from the conversation that was resumed.
"""

from __future__ import annotations

import json
from typing import Any

from agentq.agents.claude_permissions import differs, granted
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
from agentq.agents.jsonlines import (
    RESULT_CHARS_MAX,
    Totals,
    listed,
    number,
    table,
    text,
    total,
    whole,
)
from agentq.agents.permissions import Granted
from agentq.agents.reset_times import moment
from agentq.contracts.agent import (
    AgentEvent,
    AttemptOutcome,
    AttemptResult,
    Done,
    Exit,
    Job,
    Limited,
    MessageKind,
    OtherPermissions,
)
from agentq.core.task import NO_USAGE, Usage
from agentq.core.values import replace

#: How many messages in flight are remembered by id; sub-agents write at the same time.
MESSAGES_KEPT = 64

#: All that the model read and wrote, cached or not: so all tools count alike.
_TOKENS = (
    "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens",
)  # fmt: skip
_MODEL_TOKENS = (
    "inputTokens", "outputTokens", "cacheCreationInputTokens", "cacheReadInputTokens",
)  # fmt: skip


class Claude(ToolAdapter):
    """Claude Code, one process per attempt."""

    name = "claude"
    provider = "anthropic"
    passes = (
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL",
        "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_VERTEX_PROJECT_ID",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "CLAUDE_CODE_MAX_RETRIES",
        "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX",
        "CLAUDE_CONFIG_DIR", "CLOUD_ML_REGION", "DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING",
        "DISABLE_TELEMETRY", "GOOGLE_APPLICATION_CREDENTIALS", "NODE_EXTRA_CA_CERTS",
        *AWS_VARIABLES, *PROXY_VARIABLES,
    )  # fmt: skip

    def argv(self, job: Job, session: str) -> tuple[str, ...]:
        argv = [*command_words(job, "claude")]
        for option, most in _caps(job, resumed=bool(session)):
            if not any(word == option or word.startswith(f"{option}=") for word in argv):
                argv += [option, most]
        argv += [*self.granted(job).words, "-p", "--output-format", "stream-json", "--verbose"]
        return (*argv, "--resume", session) if session else tuple(argv)

    def granted(self, job: Job) -> Granted:
        return granted(job)

    def listen(self, job: Job) -> _ClaudeListener:
        return _ClaudeListener(job, self._clock)


def _caps(job: Job, *, resumed: bool) -> list[tuple[str, str]]:
    """The budget as options of the tool: it names its cost only at the end of a run, so that
    nobody else could stop it in time."""
    budget, details = job.budget, job.task.details
    extra, spent = details.extra_budget, details.spent
    caps = []
    if budget.usd:
        # A resumed conversation starts from its earlier cost, and so does what it compares.
        used = 0.0 if resumed else spent.usd
        caps.append(("--max-budget-usd", f"{max(budget.usd + extra.usd - used, 0.01):.6g}"))
    if budget.turns:
        caps.append(("--max-turns", str(max(budget.turns + extra.turns - spent.turns, 1))))
    return caps


class _ClaudeListener(JsonListener):
    tool = "claude"

    def __init__(self, job: Job, clock: Clock) -> None:
        super().__init__(job, clock)
        self._asked_mode = granted(job).mode
        self._result: dict[str, Any] | None = None
        #: The last words of the agent itself, and not of one that it started.
        self._last_words = ""
        self._limited: Limited | None = None
        self._costs = Totals()
        #: Tokens reported while they were used, since the last result, which brings exact figures.
        self._live = NO_USAGE
        #: Messages since then: all that is known of its turns if no result comes any more.
        self._turns = 0
        self._messages: dict[str, None] = {}

    def event(self, event: dict[str, Any]) -> list[AgentEvent]:
        events = self.in_session(event.get("session_id"))
        match event.get("type"):
            case "assistant":
                events += self._assistant(event)
            case "user":
                events += self._results(table(event.get("message")))
            case "result":
                events += self._ended(event)
            case "rate_limit_event":
                events += self._rate_limit(table(event.get("rate_limit_info")))
            case "system" if event.get("subtype") == "init":
                events += self._init(text(event.get("permissionMode"), 80))
            case "system" if event.get("subtype") == "api_retry":
                status, attempt = whole(event.get("error_status")), whole(event.get("attempt"))
                most = whole(event.get("max_retries"))
                words = f"the provider answered {status}; try {attempt} of {most}"
                events += messages(words, MessageKind.STATUS)
            case "system" if event.get("subtype") == "permission_denied":
                events += self._denial(event)
            case "permission_denied":
                events += self._denial(event)
        return events

    def _init(self, mode: str) -> list[AgentEvent]:
        if not differs(self._asked_mode, mode):
            return []
        return [
            OtherPermissions(
                f"claude was started with --permission-mode {self._asked_mode}, and says that"
                f" {mode} is in effect. It was stopped before it did anything."
            )
        ]

    def _assistant(self, event: dict[str, Any]) -> list[AgentEvent]:
        message = table(event.get("message"))
        events: list[AgentEvent] = []
        for block in map(table, listed(message.get("content"))[:100]):
            if block.get("type") == "text":
                words = text(block.get("text"), RESULT_CHARS_MAX)
                events += messages(words)
                if words and not event.get("parent_tool_use_id"):
                    self._last_words = words
            elif block.get("type") == "tool_use":
                what = _tool(block.get("name"), block.get("input"))
                self.called(block.get("id"), what)
                events += messages(what, MessageKind.TOOL)
            elif block.get("type") == "thinking":
                words = text(block.get("thinking"), RESULT_CHARS_MAX)
                events += messages(words, MessageKind.THINKING)
        return events + self._spent_live(message)

    def _results(self, message: dict[str, Any]) -> list[AgentEvent]:
        """What tool calls gave: a text, or a list of texts and pictures. What was denied is told
        as that."""
        events: list[AgentEvent] = []
        for block in map(table, listed(message.get("content"))[:100]):
            if block.get("type") == "tool_result" and not self.was_denied(block.get("tool_use_id")):
                events += messages(_given_back(block.get("content")), MessageKind.RESULT)
        return events

    def _spent_live(self, message: dict[str, Any]) -> list[AgentEvent]:
        """A message comes once per part of it, each time with the whole of its usage."""
        known_as = text(message.get("id"), 200)
        if not known_as or known_as in self._messages or message.get("model") == "<synthetic>":
            return []
        if len(self._messages) >= MESSAGES_KEPT:
            del self._messages[next(iter(self._messages))]
        self._messages[known_as] = None
        cost = Usage(tokens=total(table(message.get("usage")), *_TOKENS))
        self._live = self._live.plus(cost)
        self._turns += 1
        return spending(cost)

    def _rate_limit(self, info: dict[str, Any]) -> list[AgentEvent]:
        if info.get("status") != "rejected" or info.get("isUsingOverage") is True:
            return []
        kind = text(info.get("rateLimitType"), 60) or "rate"
        resets_at = moment(info.get("resetsAt"), self.clock())
        self._limited = Limited(resets_at, f"the {kind.replace('_', ' ')} limit is used up")
        return [self._limited]

    def _denial(self, event: dict[str, Any]) -> list[AgentEvent]:
        what = _tool(event.get("tool_name"), event.get("tool_input"))
        return self.denied(what, event.get("tool_use_id"))

    # -- the result --------------------------------------------------------------------------------

    def _ended(self, event: dict[str, Any]) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        for denial in map(table, listed(event.get("permission_denials"))[:200]):
            events += self._denial(denial)
        events += spending(self._cost(event))
        if table(event.get("origin")).get("kind") == "task-notification":
            return events
        self._result = event
        words = self._why(event)
        if event.get("is_error") is not False and words != self._last_words:
            events += messages(words, MessageKind.ERROR)
        elif not self._last_words:  # `--output-format json`: its answer is all that it prints
            events += messages(words)
        return [*events, Done()]

    @staticmethod
    def _why(result: dict[str, Any]) -> str:
        """Why a result is an error, as the tool says it."""
        errors = "; ".join(filter(None, map(text, listed(result.get("errors"))[:5])))
        return errors or text(result.get("result"), RESULT_CHARS_MAX)

    def _cost(self, event: dict[str, Any]) -> Usage:
        """Return what this result adds to the costs reported before."""
        grown = self._costs.grown_to(Usage(usd=number(event.get("total_cost_usd"))))
        turns = whole(event.get("num_turns"))
        since = event.get("model_usage_since_last_result")
        if type(since) is dict:
            # The exact difference, where the tool gives it: also right for a resumed conversation.
            models = [table(model) for model in since.values()]
            usd = sum(number(model.get("costUSD")) for model in models)
            tokens = sum(total(model, *_MODEL_TOKENS) for model in models)
        else:
            usd, tokens = grown.usd, total(table(event.get("usage")), *_TOKENS)
        live, self._live, self._turns = self._live, NO_USAGE, 0
        return Totals(live).grown_to(Usage(round(usd, 9), tokens, turns))

    def verdict(self, exit: Exit) -> AttemptResult:
        found = self._verdict(exit)
        return replace(found, cost=Usage(turns=self._turns)) if self._turns else found

    def _verdict(self, exit: Exit) -> AttemptResult:
        result = self._result
        if result is None:
            return self.limited(self._limited) if self._limited else self.vanished(exit)
        answer = text(result.get("result"), RESULT_CHARS_MAX)
        if result.get("stop_reason") == "refusal":
            return self.ended(answer or "claude refused.", AttemptOutcome.REFUSED)
        if result.get("is_error") is False:
            structured = result.get("structured_output")
            answer = answer or _written(structured) or self._last_words
            return self.completed(exit, answer, structured)
        return self._error(result, exit, self._why(result) or f"claude failed ({exit})")

    def _error(self, result: dict[str, Any], exit: Exit, message: str) -> AttemptResult:
        match result.get("subtype"):
            case "error_max_turns" | "error_max_budget_usd":
                # Turns and money are parts of a budget, and this one is used up. Trying again
                # would spend as much and end here again: somebody decides whether it may have more.
                turns = f" after {whole(result.get('num_turns'))} turns"
                return self.ended(message + turns, AttemptOutcome.BUDGET)
            case "error_max_structured_output_retries":
                return self.ended(message, AttemptOutcome.BAD_OUTPUT)
        status = whole(result.get("api_error_status"))
        if self._limited is not None and status in (0, 429):
            return self.limited(self._limited, message)
        return self.failed(exit, message, status)


def _written(structured: object) -> str:
    """A structured answer as text, for a run that gave no other."""
    if structured is None:
        return ""
    try:
        written = json.dumps(structured, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return ""  # deeper than anybody could read
    return text(written, RESULT_CHARS_MAX)


def _given_back(content: object) -> str:
    parts = [text(table(part).get("text"), RESULT_CHARS_MAX) for part in listed(content)[:20]]
    return text(content, RESULT_CHARS_MAX) or "\n".join(filter(None, parts))


def _tool(name: object, given: object) -> str:
    """A tool call in one line: its name, and the first of what it was given."""
    described = next((text(value) for value in table(given).values() if text(value)), "")
    return tool_call(text(name, 80), described)
