"""Prints answers: tables and colour on a terminal, aligned text in a pipe, JSON on request.

Titles, summaries and names are not trusted: control characters in them are made visible, so that no
terminal obeys them. rich is imported only for tables and progress on a terminal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from agentq.cli.session import Session

#: Control characters but tab and newline, marks that reverse reading order, and lone surrogates.
_OBEYED = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"
    "\ud800-\udfff"
)

#: Between columns; and what the last one keeps on a narrow terminal.
_GAP, _LAST_WIDTH_MIN = 2, 12

STATE_STYLES = {
    "pending": "bright_black",
    "ready": "cyan",
    "in_progress": "blue",
    "review": "magenta",
    "blocked": "yellow",
    "complete": "green",
    "failed": "red",
    "cancelled": "bright_black",
    "expired": "red",
}


class Styled(NamedTuple):
    """A text and the colour it has on a terminal."""

    text: str
    style: str


Cell = str | Styled


def state_cell(state: str) -> Styled:
    return Styled(state, STATE_STYLES.get(state, ""))


# -- text that others wrote ----------------------------------------------------------------------


def clean(text: str) -> str:
    """The text with every control character but newline and tab made visible."""
    if text.isprintable():
        return text
    return re.sub(f"[{_OBEYED}]", _visible, text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = 0) -> str:
    """The text on one line, perhaps shortened."""
    flat = " ".join(clean(text).split())
    return flat if not limit or len(flat) <= limit else f"{flat[: limit - 1]}…"


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


# -- JSON ----------------------------------------------------------------------------------------


def emit_json(plain: object, *, one_per_line: bool = False) -> None:
    """Print JSON, with characters escaped that a terminal might obey."""
    import json

    text = json.dumps(plain, ensure_ascii=False)
    # JSON has no such character outside of its strings, so the escape is always valid.
    if not text.isprintable():
        text = re.sub(f"[{_OBEYED}]", lambda match: f"\\u{ord(match.group()):04x}", text)
    if not one_per_line:
        import msgspec

        text = msgspec.json.format(text, indent=2)
    click.echo(text)


def answer(session: Session, plain: object, text: str) -> None:
    """Answer a command in JSON if that was asked for, else in text."""
    if session.json:
        emit_json(plain)
    else:
        say(text)


# -- terminal or pipe ----------------------------------------------------------------------------


def is_terminal(err: bool = False) -> bool:
    stream = sys.stderr if err else sys.stdout
    return stream is not None and stream.isatty()  # None: it was closed before the start


def may_ask(session: Session) -> bool:
    """Whether a person sits at a terminal who can be asked something."""
    typed = sys.stdin is not None and sys.stdin.isatty()
    return typed and not session.json and is_terminal() and is_terminal(err=True)


def paint(text: str, style: str, err: bool = False) -> str:
    """The text in colour, if it goes to a terminal that may have colour."""
    if not style or not is_terminal(err):
        return text
    from agentq.settings.preferences import wants_color

    if not wants_color():
        return text
    return click.style(text, bold=True) if style == "bold" else click.style(text, fg=style)


def paint_state(state: str, width: int = 0) -> str:
    return paint(state.ljust(width), STATE_STYLES.get(state, ""))


def harmless(text: str, err: bool = False) -> str:
    """The text with no control characters but those that `paint` makes for a terminal.

    Commands clean what they show of others; this is for what they forget.
    """
    if text.isprintable():
        return text
    if not is_terminal(err):
        return clean(text)
    parts = re.split(r"(\x1b\[(?:0|1|[39][0-7])m)", text)
    return "".join(part if number % 2 else clean(part) for number, part in enumerate(parts))


def say(text: str = "", err: bool = False) -> None:
    click.echo(harmless(text), err=err)


def confirm(session: Session, text: str) -> None:
    """Say what a command has done: to an agent on standard error.

    The standard output of an agent may be its result, and what agentq says is no part of that.
    """
    attempt = session.attempt()
    say(text, err=attempt is not None and bool(attempt.token))


def note(text: str) -> None:
    """Print a remark for people on standard error."""
    click.echo(paint(clean(text), "bright_black", err=True), err=True)


@contextmanager
def progress_bar(verb: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal where much is to do; gives a function that sets how much is done."""
    if total < 1000 or not (is_terminal() and is_terminal(err=True)):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(verb), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        work = progress.add_task("", total=total)
        yield lambda done: progress.update(work, completed=done)


def show_bytes(data: bytes) -> None:
    """Print content: unchanged into a pipe, made harmless on a terminal."""
    if not is_terminal():
        click.echo(data, nl=False)
        return
    text = clean(data.decode("utf-8", "replace"))
    click.echo(text, nl=not text.endswith("\n"))


# -- lines and tables ----------------------------------------------------------------------------


def show_fields(pairs: Iterable[tuple[str, Cell | None]], indent: str = "  ") -> None:
    """Names and values, one pair per line; what is empty is left out."""
    rows = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        text, style = value if isinstance(value, Styled) else (value, "")
        lines = clean(str(text)).rstrip().split("\n")
        say(f"{indent}{paint(name.ljust(width), 'bright_black')}  {paint(lines[0], style)}")
        for line in lines[1:]:
            say(f"{indent}{' ' * width}  {paint(line, style)}")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], empty: str = "") -> None:
    """Rows under their headings. A column whose name starts with '>' stands to the right; the last
    one gives way when the terminal is narrow."""
    cells = [[_plain(cell) for cell in row] for row in rows]
    if not cells:
        note(empty or "nothing to show")
    elif is_terminal():
        _rich_table(columns, cells)
    else:
        _plain_table(columns, cells)


def _plain(cell: Cell) -> Styled:
    text, style = cell if isinstance(cell, Styled) else (cell, "")
    return Styled(one_line(text), style)


def _plain_table(columns: Sequence[str], rows: Sequence[Sequence[Styled]]) -> None:
    heads = [column.lstrip(">").upper() for column in columns]
    widths = [
        max(len(head), *(len(row[number].text) for row in rows))
        for number, head in enumerate(heads)
    ]
    for texts in (heads, *([cell.text for cell in row] for row in rows)):
        placed = [
            text.rjust(width) if column.startswith(">") else text.ljust(width)
            for text, width, column in zip(texts, widths, columns, strict=True)
        ]
        say("  ".join(placed).rstrip())


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[Styled]]) -> None:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heads = [column.lstrip(">") for column in columns]
    widths = [
        max(cell_len(text) for text in (head, *(row[number].text for row in rows)))
        for number, head in enumerate(heads)
    ]
    console = Console(highlight=False)
    last = max(console.width - sum(widths[:-1]) - _GAP * (len(columns) - 1), _LAST_WIDTH_MIN)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for head, column in zip(heads, columns, strict=True):
        right = column.startswith(">")
        table.add_column(head, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        # Text, never markup: a title like [red] must stay a title.
        cells = [Text(cell.text, style=cell.style) for cell in row]
        cells[-1].truncate(last, overflow="ellipsis")
        table.add_row(*cells)
    needed = sum(widths[:-1]) + min(widths[-1], last) + _GAP * (len(columns) - 1)
    # Too narrow even so: let lines wrap rather than cut ids that somebody wants to copy.
    console.width = max(needed, console.width)
    console.print(table)


# -- time ----------------------------------------------------------------------------------------


def ago(at: int, now: int) -> str:
    from agentq.core.durations import format_duration

    if not at:
        return ""
    seconds = (now - at) // 1000
    if seconds < 0:
        return f"in {format_duration(-seconds)}"
    return f"{format_duration(seconds)} ago" if seconds else "now"


def iso_time(at: int) -> str | None:
    """Milliseconds as ISO 8601 in UTC; None for 0."""
    from agentq.protocol.envelope import iso

    return iso(at)


def size_words(size: int) -> str:
    """A file's size as people say it: `312 B`, `4.2 kB`, `7.0 MB`."""
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
