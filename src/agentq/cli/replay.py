"""`agentq replay`: a task's life, decided anew from its log."""

from __future__ import annotations

from agentq.cli.events import details
from agentq.cli.options import command, task_argument
from agentq.cli.screen import clean, emit_json, paint, say, show_table, state_cell
from agentq.cli.session import Session, pass_session
from agentq.core.errors import Damaged


@command()
@task_argument
@pass_session
def replay(session: Session, ref: str | None) -> None:
    """Replay a task's log and compare with its stored state.

    Shows each event with the state that today's rules give for it, and whether the last one is the
    stored one (else exit status 8).
    """
    import click

    from agentq.protocol.envelope import iso

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
                iso(entry.event.at) or "",
                entry.event.kind,
                state_cell(str(left.state)),
                str(left.epoch) if left.epoch else "",
                details(entry),
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
    words = f"proved: replaying {count} events gives exactly the stored state"
    say(f"{paint('✓', 'green')} {clean(words)} ({found.task.state}, attempt {found.task.epoch})")
