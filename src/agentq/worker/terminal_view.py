"""What a worker shows: a live table of its slots on a terminal, lines elsewhere, JSON if asked."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any, TextIO

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.core.counting import counted
from agentq.protocol.secret_detection import redact
from agentq.worker.redaction import redacted_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from agentq.core.task import Usage
    from agentq.worker.attempt import Attempt
    from agentq.worker.worker import Worker

REFRESHES_PER_SECOND = 2
_STYLES = {
    AttemptOutcome.COMPLETED: "green",
    AttemptOutcome.CANCELLED: "yellow",
    AttemptOutcome.INTERRUPTED: "yellow",
}


def printable(text: str) -> str:
    """One line without control characters: what an agent says must not drive a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def _money(spent: Usage) -> str:
    about = "~" if spent.estimated_usd else ""
    return f"{about}{spent.usd:.2f} $" if spent.usd else ""


class Lines:
    """One line per step, for logs and pipes; with `as_json` one object per line."""

    def __init__(self, out: TextIO, *, as_json: bool = False) -> None:
        self._out = out
        self._as_json = as_json
        self._lock = threading.Lock()

    def show_step(self, task_id: str, step: str, note: str) -> None:
        self._write({"task_id": task_id, "step": step, "note": note})

    def ended(self, attempt: Attempt, verdict: AttemptResult) -> None:
        self._write(
            {
                "task_id": attempt.task.id,
                "attempt": attempt.claim.epoch,
                "step": "ended",
                "outcome": str(verdict.outcome),
                "seconds": round(time.monotonic() - attempt.started, 3),
                "usd": attempt.budget.spent.usd,
                "estimated_usd": attempt.budget.spent.estimated_usd,
                "note": verdict.summary[:500],
            }
        )

    def _write(self, record: dict[str, Any]) -> None:
        now = time.time()
        record["note"] = redact(str(record["note"]))
        if self._as_json:
            line = json.dumps({"at": round(now, 3), **record})  # in ASCII: no terminal obeys it
        else:
            stamp = time.strftime("%H:%M:%S", time.localtime(now))
            words = [stamp, str(record["task_id"]), str(record["step"])]
            if "outcome" in record:
                words += [str(record["outcome"]), f"after {record['seconds']:.1f} s"]
            if record["note"]:
                words.append(printable(str(record["note"]))[:300])
            line = "  ".join(words)
        with self._lock:
            self._out.write(line + "\n")
            self._out.flush()


class Table:
    """A live table on a terminal; what ended scrolls by above it."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=out)

    def show_step(self, task_id: str, step: str, note: str) -> None:
        """Steps show in the table, which refreshes itself."""

    def ended(self, attempt: Attempt, verdict: AttemptResult) -> None:
        from rich.markup import escape

        style = _STYLES.get(verdict.outcome, "red")
        seconds = time.monotonic() - attempt.started
        summary = escape(printable(redact(verdict.summary))[:160])
        self._console.print(
            f"[{style}]{verdict.outcome}[/]  {attempt.task.id}  {seconds:.1f} s  {summary}",
            highlight=False,
        )

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
