"""`agentq stats`: how much there is, of what, for whom."""

from __future__ import annotations

import click

from agentq.cli.options import group
from agentq.cli.overhead import overhead
from agentq.cli.screen import emit_json, say, show_table
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up


@group()
@click.option("--cost", is_flag=True, help="What was spent instead.")
@click.option(
    "--by", type=click.Choice(["role", "label", "day"]), help="Sum costs up by.  [default: role]"
)
@pass_session
@click.pass_context
def stats(ctx: click.Context, session: Session, cost: bool, by: str | None) -> None:
    """Count tasks by role and state.

    With --cost: what was spent, by role, label or day (UTC).
    """
    if ctx.invoked_subcommand is not None:
        return
    if cost:
        show_costs(session, by or "role")
        return
    if by is not None:
        raise click.UsageError("--by goes with --cost.", click.get_current_context())
    from agentq.core.durations import format_duration
    from agentq.core.states import State

    queue = session.reader()
    catch_up(queue)
    found = queue.stats()
    names = [str(state) for state in State]
    totals = {name: sum(row.get(name, 0) for row in found.by_role.values()) for name in names}
    if session.json:
        emit_json(
            {
                "roles": {
                    role: {
                        "states": counts,
                        "oldest_ready_seconds": _seconds(found.oldest_ready_ms.get(role)),
                    }
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
                format_duration(found.oldest_ready_ms[role] // 1000)
                if role in found.oldest_ready_ms
                else "",
            )
            for role, counts in sorted(found.by_role.items())
        ],
        "no tasks",
    )
    waiting = {lane: count for lane, count in found.outbox.items() if count}
    if waiting:
        say("waiting to leave: " + ", ".join(f"{count} {lane}" for lane, count in waiting.items()))


stats.add_command(overhead)


def show_costs(session: Session, by: str) -> None:
    """What was spent, by role, label or day (UTC). What pruned tasks cost their role stays."""
    from agentq.core.digests import usage_to_dict
    from agentq.core.durations import format_duration
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
                f"{each.usd:.2f}",
                str(each.tokens),
                str(each.turns),
                format_duration(round(each.seconds)),
            )
            for name, each in rows
        ],
        "nothing was spent",
    )


def _seconds(age_ms: int | None) -> float | None:
    return None if age_ms is None else age_ms / 1000
