"""`agentq audit`: who decided what and who was refused, how that is known, and from where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.options import Duration, TaskRef, Whole, command
from agentq.cli.screen import Cell, Styled, emit_json, iso_time, note, show_table
from agentq.cli.session import Session, pass_session

if TYPE_CHECKING:
    from agentq.contracts.service_values import AuditEntry

_COLUMNS = ("at", "who", "how", "from", "action", "about", "outcome", "details")


@command()
@click.option("--refused", is_flag=True, help="Only what was refused.")
@click.option("--by", metavar="NAME", default="", help="Only of whoever goes by this name.")
@click.option("--task", "ref", type=TaskRef(), help="Only about this task.")
@click.option("--since", type=Duration(), help="Only of this last while, as in 2h.")
@click.option("--before", type=Whole(1), metavar="NUMBER", help="Only those before this entry.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, metavar="N",
    help="How many at most.",
)  # fmt: skip
@pass_session
def audit(
    session: Session,
    refused: bool,
    by: str,
    ref: str | None,
    since: int | None,
    before: int | None,
    limit: int,
) -> None:
    """Show who decided what and who was refused, the newest first.

    Of each it says how anybody knows who it was (a token, an attempt, a user of the machine) and
    from where they spoke. Of many refusals alike one entry says how many. People only, and tokens
    with the scope admin.
    """
    page = session.client().audit(
        refused=refused, by=by, task=ref or "", since=since, cursor=before or 0, limit=limit
    )
    if session.json:
        emit_json({"entries": [_plain(each) for each in page.entries], "next": page.cursor or None})
        return
    show_table(_COLUMNS, [_row(each) for each in page.entries], "nothing was decided or refused")
    if page.cursor:
        note(f"There are more: --before {page.cursor} shows them.")


def _row(entry: AuditEntry) -> tuple[Cell, ...]:
    times = f" × {entry.times}" if entry.times > 1 else ""
    is_refused = entry.outcome == "refused"
    outcome = Styled(f"{entry.outcome}{times}", "red" if is_refused else "")
    return (
        iso_time(entry.at) or "", entry.who, entry.how, entry.origin, entry.action, entry.subject,
        outcome, entry.detail,
    )  # fmt: skip


def _plain(entry: AuditEntry) -> dict[str, object]:
    return {
        "number": entry.number,
        "at": iso_time(entry.at),
        "who": entry.who,
        "kind": entry.kind,
        "how": entry.how,
        "from": entry.origin,
        "action": entry.action,
        "about": entry.subject,
        "outcome": str(entry.outcome),
        "code": entry.code,
        "times": entry.times,
        "detail": entry.detail,
    }
