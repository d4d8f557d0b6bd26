"""`warm`: one long-lived process that takes one task after the other, over lines of JSON.

The process is started once and then given its tasks on standard input, one line each:

    {"type": "task", "id": "task-7/2", "task": "task-7", "epoch": 2, "prompt": "…",
     "workspace": "/…", "context": "/…", "result": "/…", "artifacts": "/…", "session": ""}

`id` names this attempt and comes back in every line of the answer, on standard output:

    {"type": "said", "id", "text"}                      for people who watch
    {"type": "progress", "id", "percent", "note"}       the same, with a number
    {"type": "spent", "id", "usd", "tokens", "turns"}   since the last one; with "total": true
                                                        since the process started
    {"type": "session", "id", "session"}                to go on from in another attempt
    {"type": "listening", "id"}                         it takes messages while it works
    {"type": "denied", "id", "what"}                    it wanted to do what it may not
    {"type": "limited", "id", "resets_at", "reason"}    no service before then
    {"type": "done", "id", "summary", "result"}         the end; the result is text or any JSON,
                                                        or JSON beside the text in "structured"
    {"type": "error", "id", "class", "message"}         the end; the class is an outcome: transient,
                                                        quota, bad_output, refused, invalid, …

A moment (`resets_at`, in an error too) is Unix time or ISO 8601. An error with `"session_unknown":
true` says that the session to go on from is lost, and the task is tried again without it.

A long result belongs into the file `result`: the worker cuts lines that are too long, and a line
that was cut is no answer. `{"type": "cancel", "id"}` asks the process to stop that task and answer
with an error of class cancelled. `{"type": "message", "id", "by", "text"}` is what a person says to
it meanwhile (`agentq tell`); only a process gets some that has said that it is listening. Standard
error, and lines that are no JSON, are kept as evidence.

A line with the id of another task is no answer to this one. A few late ones are forgiven: after a
task that was given up, its answer may still come. A process that mixes up its tasks is not: the
attempt ends as bad output. A process that ends during a task has crashed, and the task goes on
elsewhere. Whoever runs the process ends it when `Rotation` says so and after every outcome but
`completed`: nothing of one task can reach the next one through a process that is gone.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from agentq.agents.error_classification import KnownError, unexplained
from agentq.agents.jsonl_adapter import (
    Clock,
    JsonListener,
    ToolAdapter,
    machine_clock,
    messages,
)
from agentq.agents.jsonlines import (
    RESULT_CHARS_MAX,
    SUMMARY_CHARS_MAX,
    Totals,
    clean,
    json_line,
    one_line,
    summary_of,
    text,
    usage_of,
)
from agentq.agents.reset_times import moment
from agentq.contracts.agent import (
    AgentEvent,
    AgentMessage,
    AttemptOutcome,
    AttemptResult,
    Done,
    Exit,
    Job,
    Launch,
    Limited,
    Listening,
    MessageKind,
    Spent,
)
from agentq.core.counting import counted
from agentq.core.errors import Invalid
from agentq.core.task import NO_USAGE, ToldMessage

#: Lines about other tasks that are tolerated: before the first line about this task, and after.
LATE_MAX = 100
MIXED_UP_MAX = 3


@dataclass(frozen=True, slots=True)
class Rotation:
    """Limits after which a warm process is replaced; 0 is no limit."""

    tasks: int = 10
    tokens: int = 0
    hours: float = 0

    def due(self, tasks: int, tokens: int, seconds: float) -> str:
        """Why a process that did this much takes no further task; "" if it may."""
        if self.tasks and tasks >= self.tasks:
            return f"it has done {counted(tasks, 'task')}, of {self.tasks}"
        if self.tokens and tokens >= self.tokens:
            return f"it has used {counted(tokens, 'token')}, of {self.tokens}"
        if self.hours and seconds >= self.hours * 3600:
            return f"it has run for {seconds / 3600:.1f} h, of {self.hours:g} h"
        return ""


class Warm(ToolAdapter):
    """A process that takes many tasks. One of these belongs to one process at a time.

    It remembers how far the process has counted, across tasks; `launch` forgets it.
    """

    name = "warm"
    warm = True

    def __init__(self, clock: Clock = machine_clock) -> None:
        super().__init__(clock)
        self._totals = Totals()

    def launch(self, job: Job) -> Launch:
        if not job.command:
            raise Invalid(
                "The agent `warm` needs the command of a process that takes tasks as lines of JSON,"
                " and none is set.",
                'Set it in the role: command = ["my-agent", "--serve"].',
            )
        self._totals.grown_to(NO_USAGE)  # in place: a listener may be there already
        return Launch(argv=job.command, keep_stdin=True)

    def listen(self, job: Job) -> WarmListener:
        return WarmListener(job, self._clock, self._totals)

    def opening(self, job: Job) -> bytes:
        """Return the line that gives the process its next task, the first one included."""
        return json_line(
            type="task",
            id=attempt_id(job),
            task=job.task.id,
            epoch=job.epoch,
            prompt=job.prompt,
            workspace=str(job.workspace),
            context=str(job.context),
            result=str(job.result),
            artifacts=str(job.artifacts),
            session=job.session,
        )


def attempt_id(job: Job) -> str:
    """Another attempt at the same task is another conversation: it needs another name."""
    return f"{job.task.id}/{job.epoch}"


class WarmListener(JsonListener):
    """Interprets the output of a warm process during one task."""

    tool = "The warm process"

    def __init__(self, job: Job, clock: Clock, totals: Totals) -> None:
        super().__init__(job, clock)
        self._id = attempt_id(job)
        self._totals = totals
        self._answers = False  # it has spoken about this task
        self._listens = False  # it takes messages while it works
        self._late = 0
        self._mixed_up = 0
        self._limited: Limited | None = None
        self._verdict: AttemptResult | None = None

    def interrupt(self) -> bytes | None:
        return json_line(type="cancel", id=self._id)

    def message(self, told: ToldMessage) -> bytes | None:
        if not self._listens or self.is_over:
            return None
        return json_line(type="message", id=self._id, by=told.by, text=told.text)

    def verdict(self, exit: Exit) -> AttemptResult:
        if self._verdict is not None:
            return self._verdict
        if self._limited is not None:
            return self.limited(self._limited)
        why = unexplained(exit)
        if why.outcome is not AttemptOutcome.SURROUNDINGS:
            # However it ended, it ended under the task: the next process may do better.
            why = KnownError(AttemptOutcome.CRASHED)
        return self.ended(self.with_noise(f"{self.tool} ended during the task ({exit})"), *why)

    # -- what a line means -------------------------------------------------------------------------

    def event(self, event: dict[str, Any]) -> list[AgentEvent]:
        if self._verdict is not None:  # the first answer counts
            return []
        if event.get("id") != self._id:
            return self._not_for_us(event)
        self._answers = True
        match event.get("type"):
            case "said" | "progress" as kind:
                said = kind == "said"
                return messages(text(event.get("text"), RESULT_CHARS_MAX)) if said else _far(event)
            case "spent":
                cost = usage_of(event)
                return [Spent(self._totals.grown_to(cost) if _is_total(event) else cost)]
            case "session" | "listening" as kind:
                self._listens = self._listens or kind == "listening"
                known = self.in_session(event.get("session"))
                return known if kind == "session" else [Listening()]
            case "denied":
                return self.denied(text(event.get("what")) or "something")
            case "limited":
                reason = text(event.get("reason")) or "the provider's limit is reached"
                self._limited = Limited(moment(event.get("resets_at"), self.clock()), reason)
                return [self._limited]
            case "done" | "error" as kind:
                return self._end(self._done(event) if kind == "done" else self._error(event))
        return []

    def _not_for_us(self, event: dict[str, Any]) -> list[AgentEvent]:
        kind = event.get("type")
        if kind == "spent" and _is_total(event):
            self._totals.grown_to(usage_of(event))  # counted by the process, but not for this task
        if event.get("id") is None and kind in ("done", "error"):
            return self._end(
                self._bad(f'its line of type {kind} has no "id", so it answers nothing')
            )
        if self._answers:
            self._mixed_up += 1
        else:
            self._late += 1
        if self._mixed_up <= MIXED_UP_MAX and self._late <= LATE_MAX:
            return []
        why = (
            f"it mixes up its tasks: {self._mixed_up + self._late} lines were not about {self._id}"
        )
        return self._end(self._bad(why))

    def _end(self, verdict: AttemptResult) -> list[AgentEvent]:
        self._verdict = verdict
        is_error = verdict.outcome is not AttemptOutcome.COMPLETED
        kind = MessageKind.ERROR if is_error else MessageKind.TEXT
        return [*messages(verdict.summary, kind), Done()]

    @property
    def is_over(self) -> bool:
        return self._verdict is not None

    def _bad(self, why: str) -> AttemptResult:
        return self.ended(f"{self.tool}: {why}", AttemptOutcome.BAD_OUTPUT)

    def _done(self, event: dict[str, Any]) -> AttemptResult:
        result, structured = event.get("result"), event.get("structured")
        try:
            if result is not None and not isinstance(result, str):
                structured = result
                result = json.dumps(_storable(result), ensure_ascii=False, indent=2)
            structured = _storable(structured)
        except (ValueError, RecursionError):
            return self._bad("its result cannot be stored as JSON")
        answer = text(result, RESULT_CHARS_MAX)
        summary = text(event.get("summary"), SUMMARY_CHARS_MAX) or summary_of(answer)
        return self.succeeded(summary, answer, structured)

    def _error(self, event: dict[str, Any]) -> AttemptResult:
        message = text(event.get("message"), SUMMARY_CHARS_MAX)
        named = one_line(text(event.get("class")), 40)
        try:
            outcome = AttemptOutcome(named)
        except ValueError:
            outcome = AttemptOutcome.TRANSIENT  # an error that says no more than that may pass
        if outcome in (AttemptOutcome.OVERLOADED, AttemptOutcome.SURROUNDINGS):
            outcome = AttemptOutcome.TRANSIENT  # whether others must wait is not for it to say
        if outcome is AttemptOutcome.COMPLETED:
            return self._bad("it answered with an error of class completed")
        resets_at = moment(event.get("resets_at"), self.clock())
        if outcome is AttemptOutcome.QUOTA and not resets_at and self._limited is not None:
            resets_at = self._limited.resets_at
        lost = event.get("session_unknown") is True
        message = message or f"{self.tool} answered with an error of class {named!r}."
        return self.ended(message, outcome, resets_at=resets_at, session_unknown=lost)


def _is_total(event: dict[str, Any]) -> bool:
    return event.get("total") is True


def _far(event: dict[str, Any]) -> list[AgentEvent]:
    """How far it is; nothing if it says neither a number nor a word."""
    note, given = text(event.get("note")), event.get("percent")
    percent = int(given) if isinstance(given, int | float) and 0 <= given <= 100 else -1
    message = AgentMessage(note, percent, MessageKind.STATUS)
    return [message] if note.strip() or percent >= 0 else []


def _storable(value: Any) -> Any:
    """The value as JSON and databases can carry it; raises ValueError if they cannot."""
    if isinstance(value, dict):
        return {clean(key): _storable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_storable(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(value)
    return clean(value) if isinstance(value, str) else value
