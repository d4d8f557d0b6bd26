"""`agentq workers`: who works here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.cli.lines import cut, table_lines, terminal_width
from agentq.cli.options import command
from agentq.cli.overview import elapsed, last_words, running_json
from agentq.cli.screen import Cell, Styled, ago, emit_json, iso_time, note, one_line, paint, say
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up

if TYPE_CHECKING:
    from agentq.contracts.overview_values import WorkerInfo


@command()
@pass_session
def workers(session: Session) -> None:
    """Show who claims tasks here, and what each is doing.

    Each worker with its role, slots and process, since when it is there and when it was last heard,
    and why it claims nothing if it does not. One that has said nothing for longer than its lease
    is gone, and forgotten ten minutes later. Whoever claims by hand or over the broker is listed by
    what it holds.
    """
    queue = session.reader()
    catch_up(queue)
    found, now = queue.workers(), queue.now()
    if session.json:
        emit_json({"workers": [worker_json(each) for each in found]})
        return
    if not found:
        note("nobody works here: `agentq up` starts the workers of agentq.toml")
        return
    width = terminal_width()
    heads, *rows = table_lines(_HEADS, [_row(each, now) for each in found], width)
    say(heads)
    for each, row in zip(found, rows, strict=True):
        say(row)
        for line in _more(each, now, width):
            say(line)


_HEADS = ("role", "worker", ">slots", "agent", ">up", ">heard", "state")


def _row(each: WorkerInfo, now: int) -> list[Cell]:
    slots = f"{len(each.running)}/{each.slots}" if each.slots else ""
    up = ago(each.since, now).removesuffix(" ago")
    return [each.role, each.holder, slots, each.agent, up, ago(each.seen_at, now), _state(each)]


def _state(each: WorkerInfo) -> Cell:
    if not each.reports:
        return "holds tasks, and does not report"
    if each.is_gone:
        return Styled("gone", "red")
    if each.is_ending:
        return Styled("ends when its agents have", "yellow")
    if each.problem:
        return Styled("claims nothing", "red")
    return "works" if each.running else "listens"


def _more(each: WorkerInfo, now: int, width: int) -> list[str]:
    """What a worker runs, and what keeps it from claiming."""
    lines = []
    if each.problem and not each.is_gone:
        lines.append(f"  {paint('→', 'red')} {cut(one_line(each.problem), width - 4)}")
    for task in each.running:
        percent = f"  {task.percent} %" if task.percent >= 0 else ""
        words = one_line(last_words(task))
        attempt = f"{task.task_id}  attempt {task.epoch}"
        lines.append(cut(f"    {attempt}  {elapsed(task, now)}{percent}  {words}", width))
    return lines


def worker_json(each: WorkerInfo) -> dict[str, Any]:
    """The one JSON shape of a worker."""
    return {
        "holder": each.holder,
        "role": each.role,
        "reports": each.reports,
        "gone": each.is_gone,
        "ending": each.is_ending,
        "since": iso_time(each.since),
        "seen_at": iso_time(each.seen_at),
        "machine": each.machine,
        "pid": each.pid or None,
        "version": each.version,
        "agent": each.agent,
        "slots": each.slots,
        "problem": each.problem,
        "running": [running_json(task) for task in each.running],
    }
