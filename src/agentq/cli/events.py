"""`agentq events` and `replay`: the log in the order of commits, and what it proves of a task."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from agentq.cli.options import TaskRef, Whole, command, task_argument
from agentq.cli.screen import (
    Styled,
    clean,
    emit_json,
    iso_time,
    one_line,
    paint,
    paint_state,
    say,
    show_table,
    state_cell,
)
from agentq.cli.session import Session, pass_session
from agentq.cli.timed_events import TimedEvents, told_of
from agentq.core.counting import counted
from agentq.core.errors import Damaged

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.core.triggers import LogEntry

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
    entries: Iterable[LogEntry]
    if follow:
        task_id = queue.task(ref).id if ref is not None else None
        wanted = (entry for entry in queue.follow(after) if task_id in (None, entry.task_id))
        entries = itertools.islice(wanted, limit)
    else:
        entries = _past(queue, ref, after, limit or 50)
    if session.json:
        for entry in entries:
            emit_json(queue.event_json(entry), one_per_line=True)
        return
    timed = TimedEvents(queue)
    if follow:
        for entry in entries:
            say(_line(entry, timed.words(entry)))
    else:
        rows = [_row(entry, timed.words(entry)) for entry in entries]
        show_table(_COLUMNS, rows, "no events")


@command()
@task_argument
@pass_session
def replay(session: Session, ref: str | None) -> None:
    """Replay a task's log and compare with its stored state.

    Shows each event with the state that today's rules give for it, and whether the last one is the
    stored one (else exit status 8).
    """
    queue = session.reader()
    found = queue.replay(session.task_id(ref))
    problems = [problem.what for problem in found.problems]
    if session.json:
        emit_json(
            {
                "task_id": found.task.id,
                "proved": not problems,
                "problems": problems,
                "steps": [
                    {
                        **queue.event_json(entry),
                        "replayed": {"state": str(left.state), "epoch": left.epoch},
                    }
                    for entry, left in found.steps
                ],
            }
        )
        click.get_current_context().exit(Damaged.exit_status if problems else 0)
    show_table(
        (">version", "at", "event", "state", ">attempt", "details"),
        [
            (
                str(entry.event.version),
                iso_time(entry.event.at) or "",
                entry.event.kind,
                state_cell(str(left.state)),
                str(left.epoch) if left.epoch else "",
                _details(entry) or told_of(entry, left),
            )
            for entry, left in found.steps
        ],
    )
    if problems:
        raise Damaged(
            f"The log of {found.task.id} does not give what is stored: {'; '.join(problems)}.",
            "Restore the ledger from a backup, or look for who wrote to it past agentq.",
        )
    count = len(found.steps)
    words = f"proved: replaying {counted(count, 'event')} gives exactly the stored state"
    say(f"{paint('✓', 'green')} {clean(words)} ({found.task.state}, attempt {found.task.epoch})")


def _past(queue: QueueReader, ref: str | None, after: int | None, limit: int) -> list[LogEntry]:
    if ref is not None:
        found = [entry for entry in queue.history(ref) if entry.position > (after or 0)]
        return found[:limit] if after is not None else found[-limit:]
    if after is None:
        after = max(queue.last_position() - limit, 0)
    return queue.events(after, limit)


def _row(entry: LogEntry, words: str) -> tuple[str | Styled, ...]:
    event = entry.event
    return (
        str(entry.position),
        iso_time(event.at) or "",
        entry.task_id,
        event.kind,
        state_cell(str(event.state)),
        str(event.epoch) if event.epoch else "",
        _details(entry) or one_line(words, 200),
    )


def _line(entry: LogEntry, words: str) -> str:
    """One event on a line of its own, for following."""
    event = entry.event
    state = paint_state(event.state, 11)
    head = f"{entry.position:>6}  {iso_time(event.at)}  {entry.task_id}  {event.kind:<18} {state}"
    return f"{head} {_details(entry) or one_line(words, 200)}".rstrip()


#: The fields of triggers that say something to people.
_TEXTS = (
    "holder", "by", "reason", "summary", "feedback", "text", "message", "note", "name", "to",
    "title", "priority", "instructions",
)  # fmt: skip


def _details(entry: LogEntry) -> str:
    """The text that came with an event."""
    trigger = entry.event.trigger
    parts = []
    for name in _TEXTS:
        value = getattr(trigger, name, "")
        if value:
            parts.append(f"{name}: {one_line(str(value), 80)}")
        # How it is known who decided, where the log says so.
        how = getattr(trigger, "how", "") if name == "by" else ""
        if value and how:
            own = ", own task" if getattr(trigger, "own", False) else ""
            parts[-1] += f" ({one_line(how, 80)}{own})"
    percent = getattr(trigger, "percent", None)
    return "  ".join([f"{percent} %"] * (percent is not None) + parts)
