"""`agentq repair`: writes again what the log implies, and says what nothing but a backup has."""

from __future__ import annotations

import click

from agentq.cli.options import command
from agentq.cli.screen import clean, emit_json, paint, say
from agentq.cli.session import Session, pass_session
from agentq.core.counting import counted
from agentq.core.errors import Damaged


@command()
@click.option("--apply", is_flag=True, help="Write it; without this nothing is written.")
@pass_session
def repair(session: Session, apply: bool) -> None:
    """Write again what the log implies and stands otherwise.

    Without --apply it lists what it would write. Repaired are the rows of tasks and what stands
    beside them (dependencies, resources, shared budgets, records of evidence), limits, circuits,
    tokens and lanes, and published results. Each repair becomes an event of the system stream, with
    what was there before.

    Never written are events, specs, seals and the files of evidence: nothing but a backup has them.
    Exits with 8 if anything is left that cannot be repaired. With --json each repair is a line, and
    the last line sums up.
    """
    queue = session.client()
    done = queue.repair(dry_run=not apply)
    for each in done:
        if session.json:
            plain = {"subject": each.subject, "where": each.where, "was": each.was, "now": each.now}
            emit_json(plain, one_per_line=True)
        else:
            say(f"{paint(each.subject, 'bold')}: {each.where}")
            say(f"  was {clean(each.was)}\n  now {clean(each.now)}")
    found = [each for _, page in queue.verify() for each in page]
    about = {each.subject for each in done}
    left = found if apply else [each for each in found if each.task_id not in about]
    if session.json:
        summary = {"ok": not left, "applied": apply, "repairs": len(done), "left": len(left)}
        emit_json(summary, one_per_line=True)
        click.get_current_context().exit(Damaged.exit_status if left else 0)
    repairs = counted(len(done), "repair")
    if left:
        for problem in left:
            bad = paint("✗", "red")
            say(f"{bad} {paint(problem.task_id, 'bold')}: {clean(problem.what)}")
        raise Damaged(
            f"{repairs} {'made' if apply else 'possible'}; {counted(len(left), 'problem')} cannot"
            " be repaired from the log.",
            "Restore the ledger and its files from a backup, then run `agentq verify`.",
        )
    if not done:
        say(f"{paint('✓', 'green')} nothing to repair: everything is as the log says")
    elif apply:
        say(f"{paint('✓', 'green')} {repairs} made; everything is as the log says")
    else:
        say(f"{repairs} possible, nothing was written. `agentq repair --apply` makes them.")
