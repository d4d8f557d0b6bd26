"""`agentq stats`: how much there is, of what, for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.listing import label_option, labels_of, role_option
from agentq.cli.options import Duration, TaskRef, group
from agentq.cli.screen import emit_json, note, say, show_fields, show_table
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up
from agentq.core.counting import counted
from agentq.core.durations import format_duration
from agentq.core.states import State

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.service_values import Overhead
    from agentq.core.task import Task


@group()
@click.option("--cost", is_flag=True, help="What was spent instead.")
@click.option(
    "--by", type=click.Choice(["role", "label", "day"]), help="Sum costs up by.  [default: role]"
)
@pass_session
@click.pass_context
def stats(ctx: click.Context, session: Session, cost: bool, by: str | None) -> None:
    """Count tasks by role and state.

    With --cost: what was spent, by role, label or day (UTC). ~ marks money of which some is
    estimated: worked out from tokens, for tools that name no money.
    """
    if ctx.invoked_subcommand is not None:
        return
    if cost:
        _show_costs(session, by or "role")
        return
    if by is not None:
        raise click.UsageError("--by goes with --cost.")
    queue = session.reader()
    catch_up(queue)
    found = queue.stats()
    names = [str(state) for state in State]
    totals = {name: sum(row.get(name, 0) for row in found.by_role.values()) for name in names}
    oldest = found.oldest_ready_ms
    if session.json:
        ages = {role: age_ms / 1000 for role, age_ms in oldest.items()}
        emit_json(
            {
                "roles": {
                    role: {"states": counts, "oldest_ready_seconds": ages.get(role)}
                    for role, counts in found.by_role.items()
                },
                "totals": totals,
                "outbox": found.outbox,
                "last_position": found.last_position,
            }
        )
        return
    used = [name for name in names if totals[name]]
    show_table(
        ("role", *(f">{name}" for name in used), ">oldest ready"),
        [
            (
                role,
                *(str(counts.get(name, "")) for name in used),
                format_duration(oldest[role] // 1000) if role in oldest else "",
            )
            for role, counts in sorted(found.by_role.items())
        ],
        "no tasks",
    )
    waiting = {lane: count for lane, count in found.outbox.items() if count}
    if waiting:
        say("waiting to leave: " + ", ".join(f"{count} {lane}" for lane, count in waiting.items()))


def _show_costs(session: Session, by: str) -> None:
    from agentq.cli.overview import money
    from agentq.core.digests import usage_to_dict
    from agentq.core.task import NO_USAGE

    costs = session.reader().costs(by)
    total = NO_USAGE
    for each in costs.values():
        total = total.plus(each)
    if session.json:
        plain = {name: usage_to_dict(each) for name, each in costs.items()}
        # A task may have many labels: what it cost is then in several rows.
        whole = {} if by == "label" else {"total": usage_to_dict(total)}
        emit_json({"by": by, "costs": plain, **whole})
        return
    rows = list(costs.items())
    if by != "label" and len(rows) > 1:
        rows.append(("total", total))
    show_table(
        (by, ">usd", ">tokens", ">turns", ">time"),
        [
            (
                name,
                money(each),
                str(each.tokens),
                str(each.turns),
                format_duration(round(each.seconds)),
            )
            for name, each in rows
        ],
        "nothing was spent",
    )
    if total.estimated_usd:
        note(f"~ {total.estimated_usd:.2f} of it is estimated: tokens by the prices in settings")


@stats.command()
@click.argument("refs", nargs=-1, type=TaskRef(), metavar="[ID]...")
@label_option
@role_option
@click.option("--since", type=Duration(), help="Only submitted no longer ago than this.")
@pass_session
def overhead(
    session: Session, refs: tuple[str, ...], labels: tuple[str, ...], role: str, since: int | None
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
        emit_json(_overhead_json(found))
    elif not found.tasks:
        note("no such tasks" if labels or role or since else "no tasks")
    else:
        show_fields(_overhead_fields(found), indent="")


def _chosen(
    queue: QueueReader, refs: tuple[str, ...], labels: tuple[str, ...], role: str, since: int | None
) -> list[Task]:
    """The tasks that were named; else those that the options describe."""
    from agentq.contracts.service_values import Wanted

    wanted = Wanted(role=role, labels=tuple(sorted(labels_of(labels).items())))
    oldest = queue.now() - since * 1000 if since else 0
    if not refs:
        return list(queue.every_task(wanted, oldest))
    if labels or role or since:
        raise click.UsageError(
            "Name the tasks, or describe them by --label, --role and --since; not both."
        )
    return [queue.task(ref) for ref in refs]


def _overhead_fields(found: Overhead) -> list[tuple[str, str]]:
    still = f", {found.running} still running" if found.running else ""
    path = " → ".join(found.path[:6]) + (" → …" if len(found.path) > 6 else "")
    share = "" if found.share is None else f"{found.share:.1%} of the gain"
    gain = "none: one after the other would have been as quick"
    if found.gain_ms > 0:
        gain = _span(found.gain_ms)
    return [
        ("tasks", f"{found.tasks} ({counted(found.attempts, 'attempt')}{still})"),
        ("work", _span(found.work_ms)),
        ("wall", _span(found.wall_ms)),
        ("critical path", f"{_span(found.critical_path_ms)}  {path}".rstrip()),
        ("overhead", f"{_span(found.overhead_ms)}  {share}".rstrip()),
        ("parallel gain", gain),
    ]


def _span(milliseconds: int) -> str:
    if abs(milliseconds) < 600_000:
        return f"{milliseconds / 1000:.3f} s"
    return format_duration(milliseconds // 1000)


def _overhead_json(found: Overhead) -> dict[str, object]:
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
