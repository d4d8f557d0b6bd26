"""`agentq stats`: how much there is, of what, for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.listing import label_option, labels_of, role_option
from agentq.cli.options import Duration, TaskRef, group
from agentq.cli.screen import emit_json, note, say, show_table
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up
from agentq.core.durations import format_duration
from agentq.core.states import State

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.service_values import Overhead

#: Of how long ago tasks are measured unless somebody says otherwise.
_WEEK_SECONDS, _MONTH_SECONDS = 7 * 86_400, 30 * 86_400


@group()
@click.option("--cost", is_flag=True, help="What was spent instead.")
@click.option(
    "--by", type=click.Choice(["role", "label", "day"]), help="Sum costs up by.  [default: role]"
)
@click.option(
    "--period",
    type=click.Choice(["1h", "24h", "30d", "total"]),
    default="24h",
    show_default=True,
    help="How work went in this time.",
)
@pass_session
@click.pass_context
def stats(ctx: click.Context, session: Session, cost: bool, by: str | None, period: str) -> None:
    """Count tasks by role and state, and say how work went.

    Below the counts, of the last hour, day (the default) or month, or of all there ever was: how
    many attempts began, were retried and failed, how long tasks waited from ready to claimed and
    attempts ran (half of them at most so long, 19 of 20 at most so long; estimated), and how long
    ago the most silent worker of the role was heard of.

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
    from agentq.cli.numbers import heartbeat_ages, numbers_json, show_numbers

    queue = session.reader()
    catch_up(queue)
    found, went = queue.stats(), queue.numbers(period)
    heard = heartbeat_ages(queue)
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
                "period": period,
                "work": numbers_json(went, heard),
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
    show_numbers(went, heard)
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
@click.option("--run", type=TaskRef(), metavar="ID", help="A run and all its steps.")
@label_option
@role_option
@click.option(
    "--since", type=Duration(), help="Only submitted no longer ago than this.  [default: 7d]"
)
@pass_session
def overhead(
    session: Session,
    refs: tuple[str, ...],
    run: str | None,
    labels: tuple[str, ...],
    role: str,
    since: int | None,
) -> None:
    """Show where the time and the money of tasks went.

    Of these tasks and all below them; of a run; of a role; else of the whole installation. Each
    task's life is divided into phases by its log: working, supervising others, attempts that did
    not count, and whatever it waited for.

    Work is the time that attempts ran, wall from the first submit to the last end, the critical
    path the longest chain of tasks that had to wait for each other. What of the wall is not on the
    critical path is overhead, and marked if it is more than 30 % of what running side by side has
    saved. The bottleneck is what took most time, other than working, on the way to the last end.
    """
    from agentq.cli.measures import overhead_json, show_overhead

    described = bool(labels or role or since)
    if (refs or run) and described:
        raise click.UsageError(
            "Name the tasks or the run, or describe tasks by --label, --role and --since; not both."
        )
    if refs and run:
        raise click.UsageError("Name tasks, or a run; not both.")
    queue = session.reader()
    found = _measured(queue, refs, run, labels, role, since)
    if session.json:
        emit_json(overhead_json(found))
    elif not found.tasks:
        note("no such tasks" if described else "no tasks")
    else:
        show_overhead(found)


def _measured(
    queue: QueueReader,
    refs: tuple[str, ...],
    run: str | None,
    labels: tuple[str, ...],
    role: str,
    since: int | None,
) -> Overhead:
    if run:
        return queue.run_overhead(run)
    if refs:
        return queue.overhead([queue.task(ref).id for ref in refs], below=True)
    oldest = _ago(queue, since or _WEEK_SECONDS)
    if not labels:
        return queue.recent_overhead(oldest, role)
    from agentq.contracts.service_values import Wanted

    wanted = Wanted(role=role, labels=tuple(sorted(labels_of(labels).items())))
    return queue.labelled_overhead(wanted, oldest)


def _ago(queue: QueueReader, seconds: int) -> int:
    return max(queue.now() - seconds * 1000, 0)


@stats.command()
@role_option
@click.option(
    "--since", type=Duration(), help="Only submitted no longer ago than this.  [default: 30d]"
)
@pass_session
def quality(session: Session, role: str, since: int | None) -> None:
    """Show how reviewers judged the work of each role.

    Verdicts by what they said, how many it took on average until a report was accepted, and the
    scores from 0 to 100 that reviewers gave: mean, median, lowest, and the newest ten.
    """
    from agentq.cli.measures import quality_json, show_quality

    queue = session.reader()
    found = queue.quality(_ago(queue, since or _MONTH_SECONDS), role)
    if session.json:
        emit_json(quality_json(found))
    else:
        show_quality(found)
