"""What a worker shows: a live table of its slots on a terminal, lines elsewhere, JSON if asked."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any, TextIO

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.core.counting import counted
from agentq.core.durations import format_duration
from agentq.protocol.secret_detection import redact
from agentq.worker.redaction import redacted_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from agentq.core.task import Usage
    from agentq.worker.attempt import Attempt
    from agentq.worker.worker import Worker

REFRESHES_PER_SECOND = 2
#: How an attempt ended, in words: each follows "attempt 1 of a-role".
OUTCOMES = {
    AttemptOutcome.COMPLETED: "completed",
    AttemptOutcome.TRANSIENT: "failed",
    AttemptOutcome.QUOTA: "was stopped by its provider's limit",
    AttemptOutcome.OVERLOADED: "was not served by its provider",
    AttemptOutcome.SURROUNDINGS: "could not work here",
    AttemptOutcome.TIMEOUT: "ran out of time",
    AttemptOutcome.STALLED: "stalled",
    AttemptOutcome.CRASHED: "crashed",
    AttemptOutcome.BAD_OUTPUT: "failed the checks of its work",
    AttemptOutcome.REFUSED: "refused the task",
    AttemptOutcome.INVALID: "failed for good",
    AttemptOutcome.BUDGET: "used up its budget",
    AttemptOutcome.BLOCKED: "asks a question",
    AttemptOutcome.CANCELLED: "was cancelled",
    AttemptOutcome.YIELDED: "yielded",
    AttemptOutcome.INTERRUPTED: "was interrupted",
}
_STYLES = {
    AttemptOutcome.COMPLETED: "green",
    AttemptOutcome.CANCELLED: "yellow",
    AttemptOutcome.YIELDED: "cyan",
    AttemptOutcome.INTERRUPTED: "yellow",
}


def printable(text: str) -> str:
    """One line without control characters: what an agent says must not drive a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def _money(spent: Usage) -> str:
    about = "~" if spent.estimated_usd else ""
    return f"{about}{spent.usd:.2f} $" if spent.usd else ""


class Lines:
    """A line when an attempt begins and one when it has ended, for logs and pipes; with `steps` one
    for each step as well, and with `as_json` objects."""

    def __init__(self, out: TextIO, *, as_json: bool = False, steps: bool = False) -> None:
        self._out = out
        self._as_json = as_json
        self._steps = steps
        self._lock = threading.Lock()

    def show_step(self, task_id: str, step: str, note: str) -> None:
        if self._steps:
            words = f"{step}: {note}" if note else step
            self._write({"task_id": task_id, "step": step, "note": note}, words)

    def started(self, attempt: Attempt) -> None:
        self._write(
            {**_named(attempt), "step": "started", "note": ""}, f"{_which(attempt)} started"
        )

    def ended(self, attempt: Attempt, verdict: AttemptResult) -> None:
        spent = attempt.budget.spent
        record = {
            **_named(attempt),
            "step": "ended",
            "outcome": str(verdict.outcome),
            "seconds": round(time.monotonic() - attempt.started, 3),
            "usd": spent.usd,
            "estimated_usd": spent.estimated_usd,
            "tokens": spent.tokens,
            "denied": len(verdict.denials),
            "note": verdict.summary[:500],
        }
        self._write(record, f"{_which(attempt)} {_how_it_ended(attempt, verdict)}")

    def _write(self, record: dict[str, Any], words: str) -> None:
        now = time.time()
        if self._as_json:
            record["note"] = redact(str(record["note"]))
            line = json.dumps({"at": round(now, 3), **record})  # in ASCII: no terminal obeys it
        else:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
            line = f"{stamp}  {record['task_id']}  {printable(redact(words))[:400]}"
        with self._lock:
            self._out.write(line + "\n")
            self._out.flush()


def _named(attempt: Attempt) -> dict[str, Any]:
    role = attempt.shared.role
    return {"task_id": attempt.task.id, "attempt": attempt.claim.epoch, "role": role}


def _which(attempt: Attempt) -> str:
    return f"attempt {attempt.claim.epoch} of {attempt.shared.role}"


def _how_it_ended(attempt: Attempt, verdict: AttemptResult) -> str:
    """The end of an attempt in words: outcome, time, cost, denials, and what it came to."""
    seconds = time.monotonic() - attempt.started
    took = f"{seconds:.1f}s" if seconds < 60 else format_duration(round(seconds))
    parts = [f"{OUTCOMES[verdict.outcome]} after {took}"]
    parts += [each for each in (_money(attempt.budget.spent),) if each]
    if verdict.denials:
        parts.append(f"{counted(len(verdict.denials), 'tool call')} not allowed")
    summary = verdict.summary[:500]
    return ", ".join(parts) + (f": {summary}" if summary else "")


class Table:
    """A live table on a terminal; what ended scrolls by above it."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=out)

    def show_step(self, task_id: str, step: str, note: str) -> None:
        """Steps show in the table, which refreshes itself."""

    def started(self, attempt: Attempt) -> None:
        """What runs shows in the table as well."""

    def ended(self, attempt: Attempt, verdict: AttemptResult) -> None:
        from rich.markup import escape

        style = _STYLES.get(verdict.outcome, "red")
        words = f"{_which(attempt)} {_how_it_ended(attempt, verdict)}"
        words = escape(printable(redact(words))[:300])
        self._console.print(f"[{style}]{attempt.task.id}[/]  {words}", highlight=False)

    def live(self, worker: Worker) -> Live:
        """The table of this worker, shown while the context manager is open."""
        from rich.live import Live

        return Live(
            console=self._console,
            transient=True,
            refresh_per_second=REFRESHES_PER_SECOND,
            get_renderable=lambda: self._shown(worker),
        )

    def _shown(self, worker: Worker) -> RenderableType:
        """The table; one that cannot be drawn must not end the thread that draws it."""
        try:
            return self._table(worker)
        except Exception as error:  # noqa: BLE001 - whatever it is: the next one may be drawn again
            return f"(the table cannot be drawn: {type(error).__name__})"

    def _table(self, worker: Worker) -> RenderableType:
        from rich.table import Table as RichTable
        from rich.text import Text

        what = "ends when its agents have" if worker.draining else "claims"
        title = (
            f"{worker.shared.role} {what} · {len(worker.running)} of"
            f" {counted(len(worker.slots), 'slot')} busy"
            f" · {worker.completed} completed, {worker.failed} not"
        )
        table = RichTable(title=title, title_justify="left", expand=True, box=None)
        for heading in ("slot", "task", "attempt", "step", "time", "cost", "last words"):
            table.add_column(heading, no_wrap=True, ratio=1 if heading == "last words" else None)
        for slot in worker.slots:
            attempt = slot.attempt
            if attempt is None:
                table.add_row(str(slot.number), Text("free", style="dim"))
                continue
            seconds = time.monotonic() - attempt.started
            table.add_row(
                str(slot.number),
                attempt.task.id,
                str(attempt.claim.epoch),
                attempt.step,
                f"{seconds:.0f} s",
                _money(attempt.budget.spent),
                Text(printable(redacted_text(attempt.observer.last_words, attempt.secrets))),
            )
        return table
