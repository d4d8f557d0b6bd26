"""Screens that are drawn again when something has happened, on a terminal.

A terminal that cannot move its cursor (TERM=dumb) gets each screen below the one before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from agentq.cli.screen import harmless, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from agentq.client.reader import QueueReader

#: Screens a second, however much happens.
_SECONDS_MIN = 0.25


def terminal() -> Console:
    """The terminal that standard output is now, as rich draws on it."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=False)


def as_text(lines: Sequence[str]) -> Text:
    """Lines as `paint` makes them; whatever else is in them that a terminal obeys is shown."""
    from rich.text import Text

    text = Text.from_ansi("\n".join(harmless(line) for line in lines))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def print_above(live: Live, line: str) -> None:
    """Print a line above what is drawn again and again."""
    from rich.text import Text

    live.console.print(Text.from_ansi(harmless(line)), soft_wrap=True)


def redraw_on_events(queue: QueueReader, lines: Callable[[], Sequence[str]]) -> None:
    """Show these lines as they are after each event, until Ctrl-C."""
    from rich.live import Live

    console = terminal()
    try:
        with closing(queue.looks(None)) as looks:
            if console.is_dumb_terminal:
                _print_changes(looks, lines)
                return
            with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
                for _ in looks:
                    live.update(as_text(lines()), refresh=True)
                    time.sleep(_SECONDS_MIN)
    except KeyboardInterrupt:
        return


def _print_changes(looks: object, lines: Callable[[], Sequence[str]]) -> None:
    shown: Sequence[str] = ()
    for _ in looks:  # type: ignore[attr-defined]
        now = list(lines())
        if now != shown:
            shown = now
            for line in (*now, ""):
                say(line)
        time.sleep(_SECONDS_MIN)
