"""`agentq top`: fleet, queue, what waits for you and what is spent, live, with keys that decide.

What is drawn is read in a thread of its own after each event; keys are read meanwhile. A key runs
the command of its name on the chosen task, which shows what it decides about and asks, as it does
anywhere: nothing is decided here that the command would not decide.
"""

from __future__ import annotations

import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple, Self

import click

from agentq.cli.lines import cut, table_lines, terminal_width
from agentq.cli.options import command
from agentq.cli.overview import kinds_waiting, money, overview_json, roles_table, running_row
from agentq.cli.screen import ago, emit_json, is_terminal, one_line, paint, say
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up
from agentq.contracts.number_values import sample_to_dict
from agentq.core.errors import AgentqError
from agentq.core.samples import Sample, total_of
from agentq.core.task import NO_USAGE

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.overview_values import Overview

#: A look at the ledger at most this often, and how long a key is waited for before drawing again.
_LOOK_SECONDS, _KEY_SECONDS = 1.0, 0.5
#: Of each part so many are shown.
_SHOWN_MAX = 10
_KEYS = "j/k choose · o open · a approve · c cancel · q end"
_HEADS = ("", "task", ">attempt", "role", ">time", ">%", "last words")


class Seen(NamedTuple):
    """An installation as it was looked at, and how its last hour went, all roles together."""

    overview: Overview
    hour: Sample

    def ids(self) -> list[str]:
        """What can be chosen, in the order it is shown."""
        waiting = [each.task_id for each in self.overview.decisions[:_SHOWN_MAX]]
        return [*waiting, *(each.task_id for each in self.overview.running[:_SHOWN_MAX])]


@command()
@pass_session
def top(session: Session) -> None:
    """Show fleet, queue, what waits for you and what is spent, live.

    Keys: j and k choose a task, o opens it, a approves it, c cancels it, q ends. Each shows what it
    is about to do and asks. Where there is no terminal the screen is written once.
    """
    queue = session.reader()
    catch_up(queue)
    if session.json:
        seen = _look(queue)
        emit_json({**overview_json(seen.overview), "hour": sample_to_dict(seen.hour)})
    elif is_terminal() and sys.stdin.isatty():
        TopScreen(session, queue).run()
    else:
        for line in screen_lines(_look(queue), terminal_width()):
            say(line)


def _look(queue: QueueReader) -> Seen:
    return Seen(queue.overview(), total_of(queue.numbers("1h").by_role().values()))


# -- the screen ------------------------------------------------------------------------------------


def screen_lines(seen: Seen, width: int, chosen: str = "") -> list[str]:
    """The screen, line by line; the chosen task is marked."""
    found = seen.overview
    lines = [*_head(seen, width), "", *table_lines(*roles_table(found), width)]
    waiting = kinds_waiting(found)
    lines += ["", paint(cut(f"Waiting for you: {waiting or 'nothing'}", width), "bold")]
    for each in found.decisions[:_SHOWN_MAX]:
        about = " · ".join(one_line(text) for text in (each.title, each.reason) if text)
        kind = str(each.kind).replace("_", " ")
        text = f"{each.task_id}  {kind}  {each.role}  {ago(each.since, found.at)}  {about}"
        lines.append(_marked(cut(text, max(width - 2, 0)), each.task_id == chosen))
    lines += ["", paint(f"Running: {found.running_count or 'nothing'}", "bold")]
    rows = [
        [">" if task.task_id == chosen else "", *running_row(task, found.at)]
        for task in found.running[:_SHOWN_MAX]
    ]
    lines += table_lines(_HEADS, rows, width)
    if found.running_count > len(rows):
        lines.append(f"… {found.running_count - len(rows)} more run: `agentq workers`")
    return lines


def _marked(text: str, chosen: bool) -> str:
    return paint(f"> {text}", "bold") if chosen else f"  {text}"


def _head(seen: Seen, width: int) -> Iterator[str]:
    found, hour = seen.overview, seen.hour
    today = NO_USAGE
    for role in found.roles:
        today = today.plus(role.today)
    workers, slots = sum(role.workers for role in found.roles), sum(r.slots for r in found.roles)
    ready = sum(role.ready for role in found.roles)
    rate = "" if hour.failure_rate is None else f" ({hour.failure_rate:.0%} of attempts)"
    text = (
        f"{ready} ready · {found.running_count} running on {slots} slots of {workers} workers ·"
        f" last hour: {hour.completed} done, {hour.failed} failed{rate}, {money(hour.cost)} usd ·"
        f" today {money(today)} usd"
    )
    yield paint(cut(text, width), "bold")
    for circuit in found.circuits[:3]:
        name = circuit.role or circuit.provider
        yield paint(cut(f"{name} is held back: {one_line(circuit.reason)}", width), "yellow")


class TopScreen:
    """The live screen: what was seen last, what is chosen, and the keys."""

    def __init__(self, session: Session, queue: QueueReader) -> None:
        self._session = session
        self._queue = queue
        self._seen: Seen | None = None
        self._problem = ""
        self._chosen = ""
        self._ended = threading.Event()

    def run(self) -> None:
        """Draw and obey keys, until q or Ctrl-C."""
        looking = threading.Thread(target=self._look_until_ended, name="agentq-top", daemon=True)
        looking.start()
        try:
            while self._draw_until_key():
                pass
        except KeyboardInterrupt:
            return
        finally:
            self._ended.set()

    def _look_until_ended(self) -> None:
        while not self._ended.is_set():
            try:
                with closing(self._queue.looks(None)) as looks:
                    for _ in looks:
                        self._seen, self._problem = _look(self._queue), ""
                        if self._ended.wait(_LOOK_SECONDS):
                            return
            except Exception as error:  # noqa: BLE001 - the next look may be answered again
                self._problem = str(error) if isinstance(error, AgentqError) else repr(error)
                self._ended.wait(5 * _LOOK_SECONDS)

    def lines(self) -> list[str]:
        """The screen as it is now."""
        width = terminal_width() or 80
        last = [f"the ledger cannot be read: {one_line(self._problem)}"] if self._problem else []
        seen = self._seen
        if seen is None:
            return [*last, "…"]
        ids = seen.ids()
        if self._chosen not in ids:
            self._chosen = ids[0] if ids else ""
        return [*screen_lines(seen, width, self._chosen), "", *last, paint(_KEYS, "bright_black")]

    def _draw_until_key(self) -> bool:
        """Draw until a key asks for a command, and run that; whether to go on."""
        from rich.live import Live

        from agentq.cli.live import as_text, terminal

        act: Callable[[], None] | None = None
        screen = Live(console=terminal(), screen=True, auto_refresh=False)
        with TerminalKeys() as keys, screen as live:
            while act is None:
                live.update(as_text(self.lines()), refresh=True)
                key = keys.next()
                if key == "q":
                    return False
                act = self._obey(key)
        act()
        with TerminalKeys() as keys:  # before it is said: what is typed earlier is forgotten
            say("\nany key goes back …")
            while not keys.next():
                pass
        return True

    def _obey(self, key: str) -> Callable[[], None] | None:
        """Move the choice; or what a key asks to run."""
        ids = self._seen.ids() if self._seen is not None else []
        if not ids or self._chosen not in ids:
            return None
        step = {"j": 1, "\x1b[B": 1, "k": -1, "\x1b[A": -1}.get(key, 0)
        place = min(max(ids.index(self._chosen) + step, 0), len(ids) - 1)
        self._chosen = ids[place]
        name = {"o": "status", "\n": "status", "\r": "status", "a": "approve", "c": "cancel"}
        if key not in name:
            return None
        return lambda: self._run(name[key], self._chosen)

    def _run(self, verb: str, task_id: str) -> None:
        """Run a command on a task, on the ordinary screen."""
        from agentq.cli.decide import approve, cancel
        from agentq.cli.status import status

        say(f"$ agentq {verb} {task_id}")
        run = {"status": status, "approve": approve, "cancel": cancel}[verb]
        try:
            if verb == "cancel" and not click.confirm(f"Cancel {task_id}?"):
                return
            run.main([task_id], standalone_mode=False, obj=self._session)
        except AgentqError as error:
            say(str(error))
        except (click.ClickException, click.Abort) as error:
            say(error.format_message() if isinstance(error, click.ClickException) else "left")


class TerminalKeys:
    """Keys of the terminal, at once and unseen while the block lasts; arrows are one key each."""

    def __enter__(self) -> Self:
        import termios
        import tty

        self._before = termios.tcgetattr(sys.stdin)
        self._typed: list[str] = []
        tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *_: object) -> None:
        import termios

        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def next(self) -> str:
        """The next key; "" if none comes for a while."""
        if not self._typed and select.select([sys.stdin], [], [], _KEY_SECONDS)[0]:
            data = os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace")
            self._typed = re.findall(r"\x1b\[[A-D]|.", data, re.DOTALL) or ["q"]  # nobody is there
        return self._typed.pop(0) if self._typed else ""
