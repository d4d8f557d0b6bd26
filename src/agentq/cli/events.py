"""`agentq events`: the log, in the order of commits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from agentq.cli.options import TaskRef, Whole, command
from agentq.cli.screen import (
    STATE_STYLES,
    Styled,
    emit_json,
    one_line,
    paint,
    say,
    show_table,
    state_cell,
)
from agentq.cli.session import Session, pass_session

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.core.triggers import LogEntry, Trigger

_COLUMNS = (">position", "at", "task", "event", "state", ">attempt", "details")


@command()
@click.argument("named", metavar="[ID]", required=False, type=TaskRef())
@click.option("--task", "ref", type=TaskRef(), help="Only of this task; the same as naming it.")
@click.option("--after", type=Whole(), metavar="POSITION", help="Only later ones.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="How many at most.  [default: 50; with --follow no limit]",
)
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens from now on.")
@pass_session
def events(
    session: Session,
    named: str | None,
    ref: str | None,
    after: int | None,
    limit: int | None,
    follow: bool,
) -> None:
    """Show what happened, or follow it as it happens.

    Positions grow by commit without gaps, so `--after` the last one seen misses nothing. Without
    --after the newest are shown. With --json each event is one line.
    """
    queue = session.reader()
    ref = named or ref
    entries: Iterator[LogEntry]
    if follow:
        entries = _followed(queue, ref, after)
        entries = entries if limit is None else itertools.islice(entries, limit)
        for entry in entries:
            if session.json:
                emit_json(queue.event_json(entry), one_per_line=True)
            else:
                say(_line(entry))
        return
    entries = iter(_past(queue, ref, after, limit or 50))
    if session.json:
        for entry in entries:
            emit_json(queue.event_json(entry), one_per_line=True)
    else:
        show_table(_COLUMNS, [_row(entry) for entry in entries], "no events")


def _past(queue: QueueReader, ref: str | None, after: int | None, limit: int) -> list[LogEntry]:
    if ref is not None:
        found = [entry for entry in queue.history(ref) if entry.position > (after or 0)]
        return found[:limit] if after is not None else found[-limit:]
    if after is None:
        after = max(queue.last_position() - limit, 0)
    return queue.events(after, limit)


def _followed(queue: QueueReader, ref: str | None, after: int | None) -> Iterator[LogEntry]:
    task_id = queue.task(ref).id if ref is not None else None
    for entry in queue.follow(after):
        if task_id is None or entry.task_id == task_id:
            yield entry


def _row(entry: LogEntry) -> tuple[str | Styled, ...]:
    from agentq.protocol.envelope import iso

    event = entry.event
    return (
        str(entry.position),
        iso(event.at) or "",
        entry.task_id,
        event.kind,
        state_cell(str(event.state)),
        str(event.epoch) if event.epoch else "",
        details(entry),
    )


def _line(entry: LogEntry) -> str:
    """One event on a line of its own, for following."""
    from agentq.protocol.envelope import iso

    event = entry.event
    state = paint(f"{event.state:<11}", STATE_STYLES.get(str(event.state), ""))
    words = f"{entry.position:>6}  {iso(event.at)}  {entry.task_id}  {event.kind:<18} {state}"
    return f"{words} {details(entry)}".rstrip()


def details(entry: LogEntry) -> str:
    """The text that came with an event."""
    trigger = entry.event.trigger
    parts = []
    for name in ("holder", "by", "reason", "summary", "feedback", "text", "note", "name"):
        value = getattr(trigger, name, "")
        if value:
            parts.append(f"{name}: {one_line(str(value), 80)}{_proof(trigger, name)}")
    percent = getattr(trigger, "percent", None)
    return "  ".join([f"{percent} %"] * (percent is not None) + parts)


def _proof(trigger: Trigger, name: str) -> str:
    """How anybody knows who it was, where the log says so."""
    how = getattr(trigger, "how", "") if name == "by" else ""
    if not how:
        return ""
    own = ", own task" if getattr(trigger, "own", False) else ""
    return f" ({one_line(how, 80)}{own})"
