"""`agentq schedules`: what occurs when; paused, resumed, run now, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentq.cli.options import group
from agentq.cli.screen import Styled, clean, emit_json, one_line, say, show_table
from agentq.cli.session import Session, pass_session
from agentq.core.errors import Invalid

if TYPE_CHECKING:
    from agentq.schedules.listing import ScheduleListing, ScheduleView

_name_argument = click.argument("name", metavar="SCHEDULE")


def _listing(session: Session) -> ScheduleListing:
    from agentq.schedules.listing import ScheduleListing

    return ScheduleListing(session.client())


@group()
@click.pass_context
@pass_session
def schedules(session: Session, ctx: click.Context) -> None:
    """List schedules, and when each occurs next.

    A schedule is the file schedules/NAME.md: when it occurs (`cron` with a `zone`, `every`, or
    `at`), and the task or the workflow that it asks for. `agentq up` carries them out.
    """
    if ctx.invoked_subcommand is not None:
        return
    listing = _listing(session)
    found = listing.every()
    if session.json:
        emit_json({
            "folder": str(listing.folder), "schedules": [view_json(each) for each in found],
        })  # fmt: skip
        return
    now = session.reader().now()
    rows = [_row(each, now) for each in found]
    header = ("schedule", "state", "next", "last", ">fired", ">skipped", "")
    show_table(header, rows, f"no schedules in {listing.folder}")


@schedules.command()
@click.argument("names", metavar="[SCHEDULE]...", nargs=-1)
@pass_session
def check(session: Session, names: tuple[str, ...]) -> None:
    """Check schedule files: times, zones, roles, workflows, inputs. Nothing is changed.

    Each problem is named with its file and line. Exits with 2 if there is one.
    """
    listing = _listing(session)
    wanted = names or tuple(listing.names())
    problems = listing.problems(wanted)
    if session.json:
        emit_json({"checked": list(wanted), "problems": [
            {"schedule": name, "text": error.cause, "remedy": error.remedy}
            for name, error in problems
        ]})  # fmt: skip
    else:
        for _, error in problems:
            say(clean(f"error: {error.cause} {error.remedy}".strip()))
        if not problems:
            say(
                clean(
                    f"{len(wanted)} checked, no problems: {', '.join(wanted) or 'none are there'}"
                )
            )
    if problems:
        raise Invalid(f"{len(problems)} schedules do not run as they are.")


@schedules.command("next")
@_name_argument
@click.option("-n", "count", type=click.IntRange(1, 1000), default=5, show_default=True,
              help="How many.")  # fmt: skip
@pass_session
def next_(session: Session, name: str, count: int) -> None:
    """Show when a schedule will occur, by the clock of its zone."""
    from agentq.protocol.occurrences import iso

    zone, moments = _listing(session).upcoming(name, count)
    if session.json:
        emit_json({"schedule": name, "zone": zone, "next": [iso(each, zone) for each in moments]})
        return
    for each in moments:
        say(iso(each, zone))
    if not moments:
        say("never again")


@schedules.command()
@_name_argument
@pass_session
def pause(session: Session, name: str) -> None:
    """Let a schedule rest. What it misses until it is resumed is for its `catch_up` to say."""
    _tell(session, _listing(session).pause(name), "paused")


@schedules.command()
@_name_argument
@pass_session
def resume(session: Session, name: str) -> None:
    """Let a paused schedule occur again."""
    _tell(session, _listing(session).resume(name), "resumed")


@schedules.command("run")
@_name_argument
@pass_session
def run_now(session: Session, name: str) -> None:
    """Run a schedule once now, whether it is paused or not.

    Its own times stay as they are. Where the ledger is elsewhere, the `agentq up` there does it.
    """
    view, tasks = _listing(session).run(name)
    if session.json:
        emit_json({**view_json(view), "tasks": [task.id for task in tasks]})
        return
    done = ", ".join(task.id for task in tasks)
    say(clean(f"submitted {done}" if done else f"{name} runs as soon as `agentq up` sees it"))


def _tell(session: Session, view: ScheduleView, done: str) -> None:
    if session.json:
        emit_json(view_json(view))
    else:
        say(clean(f"{done} {view.name}"))


# -- showing ---------------------------------------------------------------------------------------


def view_json(view: ScheduleView) -> dict[str, Any]:
    """The stable shape of a schedule."""
    from agentq.protocol.occurrences import iso

    state = view.state
    return {
        "name": view.name,
        "rule": view.rule or None,
        "zone": view.zone,
        "next": iso(view.next_at, view.zone) if view.next_at else None,
        "last": iso(state.last_at, view.zone) if state.last_at else None,
        "paused": state.paused,
        "fired": state.fired,
        "skipped": state.skipped,
        "open_tasks": list(state.open_tasks),
        "note": state.note or None,
        "problem": view.problem or None,
        "description": view.description or None,
    }


def _row(view: ScheduleView, now: int) -> tuple[Any, ...]:
    from agentq.protocol.occurrences import iso

    state = view.state
    if view.problem:
        standing = Styled("broken", "red")
    elif state.paused:
        standing = Styled("paused", "yellow")
    elif not view.next_at:
        standing = Styled("over", "bright_black")
    else:
        standing = Styled("runs", "green")
    words = view.problem or state.note or view.description
    if not view.is_known and not view.problem:
        words = "not seen by `agentq up` yet"
    return (
        clean(view.name),
        standing,
        iso(view.next_at, view.zone) if view.next_at and not view.problem else "",
        iso(state.last_at, view.zone) if state.last_at else "",
        str(state.fired),
        str(state.skipped),
        one_line(words, 300),
    )
