"""Codex: `codex exec --json -C WORKSPACE … -`, the prompt on standard input.

What it may do the role says in one word, see `codex_permissions.py`. What its sandbox denies is an
error of the command, told from others by the words of the operating system; a refused patch leaves
a line on standard error.

Traps this file minds: `usage` counts the whole thread, also the part before a resume; an `error`
event may be one that it got over, only `turn.failed` is final; an interrupted turn ends without any
event; `-C` and `-s` belong before the word `resume`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from agentq.agents.codex_permissions import granted, pointer
from agentq.agents.jsonl_adapter import (
    PROXY_VARIABLES,
    Clock,
    JsonListener,
    ToolAdapter,
    command_words,
    messages,
    share_of,
    spending,
)
from agentq.agents.jsonlines import RESULT_CHARS_MAX, Totals, listed, one_line, table, text, whole
from agentq.agents.permissions import Granted
from agentq.agents.tool_releases import is_older
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

#: How the operating system calls a write that Codex's sandbox does not allow.
_READ_ONLY = "Read-only file system"
#: The first release that can be given a budget of tokens, and what it says once that is used up.
_BUDGET_SINCE, _BUDGET_USED = "0.145.0", "rollout token budget exhausted"
#: The moment at the beginning of a line on standard error.
_MOMENT_CHARS = 27


class Codex(ToolAdapter):
    """OpenAI's Codex, one process per attempt."""

    name = "codex"
    provider = "openai"
    passes = (
        "ALL_PROXY", "CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL",
        "OPENAI_ORGANIZATION", "OPENAI_PROJECT", "SSL_CERT_FILE", *PROXY_VARIABLES,
    )  # fmt: skip

    def argv(self, job: Job, session: str) -> tuple[str, ...]:
        argv = [*command_words(job, "codex", "exec"), *self.granted(job).words]
        argv += [*_caps(job), "--json", "-C", str(job.workspace)]
        if "--skip-git-repo-check" not in argv:
            argv.append("--skip-git-repo-check")  # a workspace may be a plain folder
        if session:
            argv += ["resume", session]
        return (*argv, "-")

    def launch(self, job: Job) -> Launch:
        return super().launch(replace(job, prompt=job.prompt + pointer(job)))

    def granted(self, job: Job) -> Granted:
        return granted(job)

    def listen(self, job: Job) -> _CodexListener:
        return _CodexListener(job, self._clock)


def _tokens_left(job: Job) -> int:
    """What is left of a budget of tokens for this attempt; 0 without one."""
    budget, details = job.budget, job.task.details
    if not budget.tokens:
        return 0
    return max(budget.tokens + details.extra_budget.tokens - details.spent.tokens, 1)


def _caps(job: Job) -> tuple[str, ...]:
    """The budget as a setting of the tool: it names its tokens only at the end of a turn, which is
    all of its work. Read from the cache they do not count for it, so it may stop later than we
    would. A release that does not know the setting would not start at all."""
    left = _tokens_left(job)
    if not left or not job.version or is_older(job.version, _BUDGET_SINCE):
        return ()
    weights = "sampling_token_weight=1.0,prefill_token_weight=1.0"
    limit = f"enabled=true,limit_tokens={left},reminder_at_remaining_tokens=[],{weights}"
    return (
        "-c", f"features.rollout_budget={{{limit}}}",
        "-c", "suppress_unstable_features_warning=true",
    )  # fmt: skip


class _CodexListener(JsonListener):
    tool = "codex"

    def __init__(self, job: Job, clock: Clock) -> None:
        super().__init__(job, clock)
        # The thread's count includes earlier attempts at this task, and those are on its account.
        spent = job.task.details.spent.tokens if self.resumed else 0
        self._totals = Totals(Usage(tokens=spent))
        self._answer = ""
        self._error = ""
        self._ended = ""
        self._left = _tokens_left(job)
        self._has_schema = any(word.startswith("--output-schema") for word in job.command)

    def line(self, line: bytes, *, is_error: bool = False) -> Iterable[AgentEvent]:
        events = [*super().line(line, is_error=is_error)]
        if is_error and b"rejected" in line:
            said = line.decode("utf-8", "replace").partition("error=")[2]
            if said.startswith("patch rejected"):
                # The line begins with its moment: two refusals in the same words are two.
                known_as = line[:_MOMENT_CHARS].decode("ascii", "replace")
                events += self.denied(one_line(said, 200), known_as)
        return events

    def event(self, event: dict[str, Any]) -> list[AgentEvent]:
        match event.get("type"):
            case "thread.started":
                return self.in_session(event.get("thread_id"))
            case "item.started" | "item.updated" | "item.completed":
                return self._item(table(event.get("item")), text(event.get("type"), 40))
            case "turn.started":
                self._ended = ""
                return []
            case "turn.completed":
                self._ended = "completed"
                return [*self._spent(event), Done()]
            case "turn.failed":
                self._ended = "failed"
                error = text(table(event.get("error")).get("message"), 4000)
                return [*self._failure(error), *self._spent(event), *self._used_up(event), Done()]
            case "error":
                return self._failure(text(event.get("message"), 4000))
            case _:
                return []

    def _failure(self, error: str) -> list[AgentEvent]:
        """Tell an error once, though the end of its turn repeats it."""
        again = not error or error == self._error
        self._error = error or self._error
        return [] if again else messages(error, MessageKind.ERROR)

    def _item(self, item: dict[str, Any], event: str) -> list[AgentEvent]:
        kind = item.get("type")
        if kind == "agent_message":
            answer = text(item.get("text"), RESULT_CHARS_MAX)
            if event == "item.completed" and answer:
                self._answer = answer
            return messages(answer) if event == "item.completed" else []
        if kind == "command_execution":
            command = one_line(text(item.get("command")))
            if item.get("status") == "declined" or _was_confined(item):
                return self.denied(command, item.get("id"))
            if event == "item.started":
                return messages(command, MessageKind.TOOL)
            printed = text(item.get("aggregated_output"), RESULT_CHARS_MAX)
            return messages(printed, MessageKind.RESULT) if event == "item.completed" else []
        if kind == "file_change" and item.get("status") == "declined":
            return self.denied(_changed(item), item.get("id"))
        if event == "item.completed":
            return _finished(item)
        return []

    def _spent(self, event: dict[str, Any]) -> list[AgentEvent]:
        usage = event.get("usage")
        tokens, counts = 0, None
        if type(usage) is dict:
            # Cached input is part of the input, reasoning is part of the output.
            kinds = ("input_tokens", "cached_input_tokens", "output_tokens")
            of_thread = TokenCounts(*(whole(usage.get(kind)) for kind in kinds))
            all_tokens = of_thread.input + of_thread.output
            tokens = self._totals.grown_to(Usage(tokens=all_tokens)).tokens
            counts = share_of(of_thread, tokens, all_tokens)
        return spending(Usage(tokens=tokens, turns=1), counts)

    def _used_up(self, event: dict[str, Any]) -> list[AgentEvent]:
        """Of a turn that its own limit ended it gives no count: it was all that it had."""
        if _BUDGET_USED not in self._error or type(event.get("usage")) is dict:
            return []
        return spending(Usage(tokens=self._left))

    def verdict(self, exit: Exit) -> AttemptResult:
        if self._ended == "failed" and _BUDGET_USED in self._error:
            # Trying again would end here again: somebody decides whether it may have more.
            words = f"its budget of {self._left} tokens is used up"
            return self.ended(words, AttemptOutcome.BUDGET)
        if self._ended == "completed":
            return self.completed(exit, self._answer, self._structured())
        if self._ended == "failed":
            return self.failed(exit, self._error or "codex failed and did not say why")
        if self._error and exit.code:
            return self.failed(exit, self._error)
        return self.vanished(exit)

    def _structured(self) -> Any:
        if not self._has_schema:
            return None
        try:
            return msgspec.json.decode(self._answer)
        except (ValueError, RecursionError):
            return None


def _finished(item: dict[str, Any]) -> list[AgentEvent]:
    """What the other items say once they are complete."""
    match item.get("type"):
        case "reasoning":
            return messages(text(item.get("text"), RESULT_CHARS_MAX), MessageKind.THINKING)
        case "error":  # a warning: the turn goes on
            return messages(text(item.get("message"), 2000), MessageKind.STATUS)
        case "file_change":
            return messages(_changed(item), MessageKind.TOOL)
        case "mcp_tool_call":
            name = f"{text(item.get('server'), 80)}.{text(item.get('tool'), 80)}".strip(".")
            return messages(name, MessageKind.TOOL)
        case "web_search":
            return messages(f"web search: {text(item.get('query'))}", MessageKind.TOOL)
    return []


def _was_confined(item: dict[str, Any]) -> bool:
    """Whether a command failed on a file that the sandbox lets nobody write. What it may not reach
    by the network fails in as many words as there are programs: that is not known."""
    failed = item.get("status") == "failed" and item.get("exit_code") != 0
    return failed and _READ_ONLY in text(item.get("aggregated_output"), 100_000)


def _changed(item: dict[str, Any]) -> str:
    paths = [text(table(change).get("path"), 200) for change in listed(item.get("changes"))[:20]]
    return one_line(f"changing {', '.join(path for path in paths if path) or 'files'}")
