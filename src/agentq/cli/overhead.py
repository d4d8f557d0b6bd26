"""`agentq stats overhead`: what coordinating a set of tasks has cost, from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.options import Duration, Role, TaskRef, command
from agentq.cli.screen import emit_json, note, show_fields
from agentq.cli.session import Session, pass_session

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.service_values import Overhead
    from agentq.core.task import Task


@command()
@click.argument("refs", nargs=-1, type=TaskRef(), metavar="[ID]...")
@click.option("--label", "labels", multiple=True, metavar="K=V", help="Of this label; repeatable.")
@click.option("--role", type=Role(), default="", help="Only of this role.")
@click.option("--since", type=Duration(), help="Only submitted no longer ago than this.")
@pass_session
def overhead(
    session: Session,
    refs: tuple[str, ...],
    labels: tuple[str, ...],
    role: str,
    since: int | None,
) -> None:
    """Compare the work of a set of tasks with the time that passed.

    Work is the time that attempts ran, wall from the first submit to the last end, the critical
    path the longest chain of tasks that had to wait for each other. What of the wall is not on the
    critical path is overhead: waiting to be claimed, pauses before another attempt, decisions of
    people, too few workers. Without IDs or options: all tasks there are.
    """
    queue = session.reader()
    tasks = _chosen(queue, refs, labels, role, since)
    found = queue.overhead([task.id for task in tasks])
    if session.json:
        emit_json(_as_json(found))
    elif not found.tasks:
        note("no such tasks" if labels or role or since else "no tasks")
    else:
        show_fields(_fields(found), indent="")


def _chosen(
    queue: QueueReader, refs: tuple[str, ...], labels: tuple[str, ...], role: str, since: int | None
) -> list[Task]:
    """The tasks that were named; else those that the options describe."""
    from agentq.cli.listing import labels_of
    from agentq.contracts.service_values import Wanted

    wanted = Wanted(role=role, labels=tuple(sorted(labels_of(labels).items())))
    oldest = queue.now() - since * 1000 if since else 0
    if not refs:
        return list(queue.every_task(wanted, oldest))
    if labels or role or since:
        raise click.UsageError(
            "Name the tasks, or describe them by --label, --role and --since; not both.",
            click.get_current_context(),
        )
    return [queue.task(ref) for ref in refs]


def _fields(found: Overhead) -> list[tuple[str, str]]:
    still = f", {found.running} still running" if found.running else ""
    path = " → ".join(found.path[:6]) + (" → …" if len(found.path) > 6 else "")
    share = "" if found.share is None else f"{found.share:.1%} of the gain"
    saved = found.gain_ms > 0
    return [
        ("tasks", f"{found.tasks} ({found.attempts} attempts{still})"),
        ("work", _seconds(found.work_ms)),
        ("wall", _seconds(found.wall_ms)),
        ("critical path", f"{_seconds(found.critical_path_ms)}  {path}".rstrip()),
        ("overhead", f"{_seconds(found.overhead_ms)}  {share}".rstrip()),
        (
            "parallel gain",
            _seconds(found.gain_ms)
            if saved
            else "none: one after the other would have been as quick",
        ),
    ]


def _seconds(milliseconds: int) -> str:
    from agentq.core.durations import format_duration

    if abs(milliseconds) < 600_000:
        return f"{milliseconds / 1000:.3f} s"
    return format_duration(milliseconds // 1000)


def _as_json(found: Overhead) -> dict[str, object]:
    return {
        "tasks": found.tasks,
        "attempts": found.attempts,
        "running": found.running,
        "work_seconds": found.work_ms / 1000,
        "wall_seconds": found.wall_ms / 1000,
        "critical_path_seconds": found.critical_path_ms / 1000,
        "critical_path": list(found.path),
        "overhead_seconds": found.overhead_ms / 1000,
        "parallel_gain_seconds": found.gain_ms / 1000,
        "overhead_share": None if found.share is None else round(found.share, 4),
    }
