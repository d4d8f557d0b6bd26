"""What `agentq up` shows on a terminal: log lines, and below them a block of what its workers do.

Everything that is written while the block is there goes through one place, which puts lines above
it: what this process logs, and what its workers do, by a pipe. All of it ends in the output of the
process, which neither fails nor waits (see `background_output`): a terminal that is gone, or takes
nothing, keeps nobody from working.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, TextIO, cast

from agentq.cli.background_output import LAST_SECONDS
from agentq.cli.lines import cut, table_lines, terminal_width
from agentq.cli.live import as_text, print_above
from agentq.cli.overview import kinds_waiting, roles_table, running_row
from agentq.cli.screen import is_terminal, one_line, paint
from agentq.core.errors import AgentqError
from agentq.core.values import replace

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from agentq.client.reader import QueueReader
    from agentq.contracts.overview_values import Overview

#: Tasks that are shown at once, and looks at the ledger, however much happens.
_RUNNING_MAX = 8
_LOOK_SECONDS = 1.0
#: A line that does not end is written all the same.
_LINE_CHARS_MAX = 10_000


class LinesAbove(io.TextIOBase):
    """A text stream whose lines stand above a live block."""

    def __init__(self, live: Live, file: TextIO) -> None:
        super().__init__()
        self._live = live
        self._file = file
        self._rest = ""
        self._lock = threading.Lock()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._file.encoding

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            if len(self._rest) > _LINE_CHARS_MAX:
                lines, self._rest = [*lines, self._rest], ""
            if lines:  # all at once: the block is drawn anew for each call
                print_above(self._live, "\n".join(lines))
        return len(text)

    def finish(self) -> None:
        """Write a last line that has not ended."""
        with self._lock:
            if self._rest:
                print_above(self._live, self._rest)
            self._rest = ""


class Fleet:
    """The block: what an installation does, as it was last looked at."""

    def __init__(self, queue: QueueReader) -> None:
        self._queue = queue
        self._found: Overview | None = None
        self._looked_at = 0.0
        self._problem = ""
        self._ended = threading.Event()
        #: Where the HTTP API is served; "" for nowhere.
        self.address = ""
        self.is_ending = False
        #: What workers write to; None: where this process does.
        self.worker_output: int | None = None

    def look_until_ended(self) -> None:
        """Look after each event, in a thread of its own, until `end`."""
        while not self._ended.is_set():
            try:
                with closing(self._queue.looks(None)) as looks:
                    for _ in looks:
                        self._found, self._looked_at = self._queue.overview(), time.monotonic()
                        self._problem = ""
                        if self._ended.wait(_LOOK_SECONDS):
                            return
            except Exception as error:  # noqa: BLE001 - a block that is not drawn keeps nobody from working
                self._problem = str(error) if isinstance(error, AgentqError) else repr(error)
                self._ended.wait(5 * _LOOK_SECONDS)

    def end(self) -> None:
        self._ended.set()

    def rendered(self) -> RenderableType:
        """The block as it is now, for the thread that draws it."""
        try:
            return as_text(self.lines())
        except Exception as error:  # noqa: BLE001 - whatever it is: the next one may be drawn again
            return as_text([f"(the block cannot be drawn: {type(error).__name__})"])

    def lines(self) -> list[str]:
        width = terminal_width() or 80
        lines = [paint("─" * width, "bright_black"), paint(cut(self._title(), width), "bold")]
        if self._problem:
            lines.append(cut(f"the ledger cannot be read: {one_line(self._problem)}", width))
        if self._found is None:
            return lines
        passed = round((time.monotonic() - self._looked_at) * 1000)
        found = replace(self._found, at=self._found.at + passed)
        lines += table_lines(*roles_table(found), width)
        shown = found.running[:_RUNNING_MAX]
        rows = [running_row(task, found.at) for task in shown]
        lines += table_lines(("task", ">attempt", "role", ">time", ">%", "last words"), rows, width)
        if found.running_count > len(shown):
            lines.append(f"… {found.running_count - len(shown)} more run: `agentq workers`")
        waiting = kinds_waiting(found)
        if waiting:
            lines.append(cut(f"waiting for you: {waiting}: `agentq status`", width))
        return lines

    def _title(self) -> str:
        served = f" · {self.address}" if self.address else ""
        if self.is_ending:
            return f"agentq up ends when its agents have{served} · Ctrl-C again ends it at once"
        return f"agentq up{served} · Ctrl-C ends it"


@contextmanager
def fleet_on_terminal(queue: QueueReader, *, wanted: bool) -> Iterator[Fleet | None]:
    """Show the fleet while the block lasts, where there is a terminal that can; else give None."""
    if not (wanted and is_terminal() and is_terminal(err=True)):
        yield None
        return
    from agentq.cli.live import terminal

    console = terminal()
    if console.is_dumb_terminal:
        yield None
        return
    from rich.live import Live

    fleet = Fleet(queue)
    live = Live(
        console=console,
        transient=True,
        refresh_per_second=1,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
        get_renderable=fleet.rendered,
    )
    looking = threading.Thread(target=fleet.look_until_ended, name="agentq-fleet", daemon=True)
    before = sys.stdout, sys.stderr
    with live:
        above = LinesAbove(live, sys.stdout)
        sys.stdout = sys.stderr = cast("TextIO", above)
        looking.start()
        try:
            with _worker_lines(above) as fleet.worker_output:
                yield fleet
        finally:
            fleet.end()
            looking.join(LAST_SECONDS)
            above.finish()
            sys.stdout, sys.stderr = before


@contextmanager
def _worker_lines(above: LinesAbove) -> Iterator[int]:
    """A file that workers write to, whose lines come above the block."""
    reads, writes = os.pipe2(os.O_CLOEXEC)
    copying = threading.Thread(target=_copy, args=(reads, above), name="agentq-lines", daemon=True)
    copying.start()
    try:
        yield writes
    finally:
        os.close(writes)
        copying.join(LAST_SECONDS)  # longer only if a child keeps the pipe


def _copy(reads: int, above: LinesAbove) -> None:
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    with suppress(OSError), os.fdopen(reads, "rb", buffering=0) as file:
        while data := file.read(65536):
            above.write(decoder.decode(data))
