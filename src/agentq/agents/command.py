"""Any executable: the prompt on standard input, the result in a file or on standard output.

The program finds the prompt on standard input and in `.agentq-task/task.md`. Its result is the file
`.agentq-task/result.md` if it writes one, else the end of its standard output. Its exit code says
how it went, by the conventions of sysexits.h and shells:

    0             completed
    64, 65, 78    invalid: wrong usage, data or configuration; not tried again
    77            refused: it will not do this; not tried again
    69, 75        transient: something was unavailable, or failed for now; quota if the last lines
                  of standard error speak of a rate limit ("429 …, try again in 20s")
    124           timeout, as `timeout` says it
    126, 127      invalid: the program cannot be run, or is not there
    128 + N       crashed by signal N, as shells say it
    all others    transient

A line of standard output that is a JSON object with the key `agentq` speaks to the worker instead:

    {"agentq": {"progress": 40, "note": "half of the tests pass"}}
    {"agentq": {"cost": {"usd": 0.02, "tokens": 1500, "turns": 1}}}     since it last said so
    {"agentq": {"quota": {"resets_at": 1800000000, "reason": "…"}}}     if it then fails: quota
    {"agentq": {"denied": "writing to /etc"}}
    {"agentq": {"question": "Which of the two?"}}                       if it then exits 0: blocked
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentq.agents.error_classification import known_error, signal_of
from agentq.agents.jsonl_adapter import Clock, ToolAdapter, spending
from agentq.agents.jsonlines import (
    DENIALS_MAX,
    SUMMARY_CHARS_MAX,
    Tail,
    one_line,
    parsed,
    summary_of,
    table,
    text,
    usage_of,
    whole,
)
from agentq.agents.reset_times import moment
from agentq.contracts.agent import (
    AgentEvent,
    AgentMessage,
    AttemptOutcome,
    AttemptResult,
    Denied,
    Exit,
    Job,
    Limited,
)
from agentq.core.errors import Invalid
from agentq.core.task import ToldMessage

#: So much of the end of standard output is the result, if there is no file.
OUTPUT_BYTES_MAX = 64 * 1024
ERROR_BYTES_MAX = 8 * 1024

EX_UNAVAILABLE, EX_TEMPFAIL = 69, 75
EXIT_OUTCOMES = {
    0: AttemptOutcome.COMPLETED,
    64: AttemptOutcome.INVALID,
    65: AttemptOutcome.INVALID,
    EX_UNAVAILABLE: AttemptOutcome.TRANSIENT,
    EX_TEMPFAIL: AttemptOutcome.TRANSIENT,
    77: AttemptOutcome.REFUSED,
    78: AttemptOutcome.INVALID,
    124: AttemptOutcome.TIMEOUT,
    126: AttemptOutcome.SURROUNDINGS,
    127: AttemptOutcome.SURROUNDINGS,
}


class Command(ToolAdapter):
    name = "command"
    resumes = False

    def argv(self, job: Job, session: str) -> tuple[str, ...]:
        if not job.command:
            raise Invalid(
                "The agent `command` needs the words of a command, and there are none.",
                'Write command = ["./work.sh"] in the role\'s settings, or put it after `--`.',
            )
        return job.command

    def listen(self, job: Job) -> ProgramListener:
        return ProgramListener(self._clock)


class ProgramListener:
    """Interprets a program that prints text, and perhaps JSON lines for the worker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._output = Tail(OUTPUT_BYTES_MAX)
        self._errors = Tail(ERROR_BYTES_MAX)
        self._limited: Limited | None = None
        self._question = ""
        self._denials: list[str] = []

    def line(self, line: bytes, *, is_error: bool = False) -> Iterable[AgentEvent]:
        if is_error:
            self._errors.add(line)
            return ()
        if b'"agentq"' in line and (event := parsed(line)) is not None and "agentq" in event:
            return self._own_event(table(event["agentq"]))
        self._output.add(line)
        return ()

    def _own_event(self, words: dict[str, Any]) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        note = one_line(text(words.get("note"), 2000))
        percent = min(whole(words["progress"]), 100) if "progress" in words else -1
        if note or percent >= 0:
            events.append(AgentMessage(note, percent))
        events += spending(usage_of(table(words.get("cost"))))
        if quota := table(words.get("quota")):
            reason = one_line(text(quota.get("reason"))) or "its provider's quota is used up"
            self._limited = Limited(moment(quota.get("resets_at"), self._clock()), reason)
            events.append(self._limited)
        denied = one_line(text(words.get("denied")))
        if denied and len(self._denials) < DENIALS_MAX:
            self._denials.append(denied)
            events.append(Denied(denied))
        self._question = one_line(text(words.get("question"), 4000), 2000) or self._question
        return events

    def interrupt(self) -> bytes | None:
        return None

    def message(self, told: ToldMessage) -> bytes | None:
        return None

    def verdict(self, exit: Exit) -> AttemptResult:
        denials = tuple(self._denials)
        if self._limited is not None and not exit.clean:
            reason, resets_at = self._limited.reason, self._limited.resets_at
            return AttemptResult(AttemptOutcome.QUOTA, reason, resets_at=resets_at, denials=denials)
        if self._question and exit.clean:
            return AttemptResult(AttemptOutcome.BLOCKED, self._question, denials=denials)
        output = str(self._output)
        outcome, resets_at = self._outcome(exit)
        if outcome is AttemptOutcome.COMPLETED:
            return AttemptResult(
                outcome, summary_of(output) or "It ended well.", output, denials=denials
            )
        why = self._errors.last(6) or self._output.last(6)
        summary = one_line(
            f"It ended with {exit}" + (f": {why}" if why else "."), SUMMARY_CHARS_MAX
        )
        return AttemptResult(outcome, summary, output, resets_at=resets_at, denials=denials)

    def _outcome(self, exit: Exit) -> tuple[AttemptOutcome, int]:
        if signal_of(exit):
            return AttemptOutcome.CRASHED, 0
        outcome = EXIT_OUTCOMES.get(exit.code, AttemptOutcome.TRANSIENT)
        if exit.code in (EX_UNAVAILABLE, EX_TEMPFAIL):
            # It says itself that this passes; its last words may say when.
            known = known_error(self._errors.last(3), self._clock())
            if known is not None and known.outcome is AttemptOutcome.QUOTA:
                return AttemptOutcome.QUOTA, known.resets_at
        return outcome, 0
