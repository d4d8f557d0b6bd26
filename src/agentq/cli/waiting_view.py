"""What `agentq wait` shows meanwhile: a live line for each task on a terminal, ends elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentq.cli.lines import table_lines, terminal_width
from agentq.cli.live import print_above
from agentq.cli.screen import Cell, clean, is_terminal, note, one_line, paint_state, say, state_cell
from agentq.core.durations import format_duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from agentq.client.reader import QueueReader
    from agentq.core.task import Task

#: Live lines at once.
_LINES_MAX = 10


class WaitingView:
    """Shows tasks that are waited for. Without `live` only ends are shown."""

    def __init__(self, queue: QueueReader, *, shows_ends: bool) -> None:
        self._queue = queue
        self.shows_ends = shows_ends
        self._began = time.monotonic()
        self._waiting: Sequence[Task] = ()
        self._ended: dict[str, Task] = {}
        #: When each task got to the state of its attempt, by the clock of this process.
        self._since: dict[tuple[str, int, str], float] = {}
        self.live: Live | None = None

    def looked(self, waiting: Sequence[Task], reached: Mapping[str, Task]) -> None:
        """Take what was seen: tasks that are waited for, and those that are there."""
        for task_id, task in reached.items():
            if task_id not in self._ended:
                self._ended[task_id] = task
                self._show_end(task)
        self._note_states(waiting)
        self._waiting = tuple(waiting)
        if self.live is not None:
            self.live.refresh()

    def _note_states(self, waiting: Sequence[Task]) -> None:
        now, ledger_now = time.monotonic(), 0
        for task in waiting:
            key = (task.id, task.epoch, str(task.state))
            if key not in self._since:
                ledger_now = ledger_now or self._queue.now()
                self._since[key] = now - max(ledger_now - task.updated_at, 0) / 1000

    def _show_end(self, task: Task) -> None:
        if not self.shows_ends:
            return
        tail = one_line(task.summary or task.reason)
        line = f"{clean(task.id)} is {paint_state(str(task.state))}" + (f": {tail}" if tail else "")
        if self.live is None:
            say(line)
        else:  # above the live lines, which are drawn anew below it
            print_above(self.live, line)

    def lines(self) -> list[str]:
        """A line for each task that is waited for, and one for all."""
        now = time.monotonic()
        rows = [self._row(task, now) for task in self._waiting[:_LINES_MAX]]
        heads = ("task", "state", ">attempt", ">%", ">for", "")
        lines = table_lines(heads, rows, terminal_width() or 80)[1:]
        total = len(self._waiting) + len(self._ended)
        more = len(self._waiting) - _LINES_MAX
        rest = f", {more} more are not shown" if more > 0 else ""
        past = format_duration(round(now - self._began))
        if total > 1:
            lines.append(f"{len(self._ended)} of {total} are over after {past}{rest}")
        return lines

    def _row(self, task: Task, now: float) -> list[Cell]:
        details = task.details
        percent = str(details.progress_percent) if details.progress_percent >= 0 else ""
        since = self._since.get((task.id, task.epoch, str(task.state)), now)
        words = details.progress_note or details.reason or task.spec.title
        return [
            task.id,
            state_cell(str(task.state)),
            str(task.epoch or ""),
            percent,
            format_duration(round(now - since)),
            words,
        ]

    def summary(self) -> str:
        """How those that are over have ended, and how long that took."""
        counts = Counter(str(task.state) for task in self._ended.values())
        ends = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        return f"{ends} after {format_duration(round(time.monotonic() - self._began))}"

    def rendered(self) -> RenderableType:
        """The lines, for the thread that draws them."""
        from agentq.cli.live import as_text

        return as_text(self.lines())


@contextmanager
def waiting_view(queue: QueueReader, *, shows_ends: bool) -> Iterator[WaitingView]:
    """Give the view of one wait; live while the block lasts, if there is a terminal for it."""
    view = WaitingView(queue, shows_ends=shows_ends)
    if is_terminal() and is_terminal(err=True):
        from agentq.cli.live import terminal

        console = terminal()
        if not console.is_dumb_terminal:
            from rich.live import Live

            with Live(
                console=console, transient=True, refresh_per_second=1, get_renderable=view.rendered
            ) as view.live:
                yield view
            view.live = None
            _sum_up(view)
            return
    yield view
    _sum_up(view)


def _sum_up(view: WaitingView) -> None:
    if view.shows_ends:
        note(view.summary())
