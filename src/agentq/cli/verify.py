"""`agentq verify`: the proof that what the ledger shows is true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from agentq.cli.options import command
from agentq.cli.screen import clean, emit_json, is_terminal, paint, say
from agentq.cli.session import Session, pass_session
from agentq.core.errors import Damaged

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.service_values import Problem


@command()
@pass_session
def verify(session: Session) -> None:
    """Prove every state from the log and check every file.

    Replays the log of every task through the rules and compares with what is stored; checks every
    context, artifact and result against its digest. Exits with 8 if anything does not add up.
    """
    queue = session.reader()
    looked_at, problems = 0, []
    for so_far, found in _with_progress(queue):
        looked_at = so_far
        for problem in found:
            problems.append({"task_id": problem.task_id, "what": problem.what})
            if not session.json:
                bad = paint("✗", "red")
                say(f"{bad} {paint(problem.task_id, 'bold')}: {clean(problem.what)}")
    if session.json:
        emit_json({"ok": not problems, "tasks": looked_at, "problems": problems})
        click.get_current_context().exit(Damaged.exit_status if problems else 0)
    if problems:
        raise Damaged(
            f"{len(problems)} problems in {looked_at} tasks: what is shown cannot be proved.",
            "Restore what is missing or altered from a backup; `agentq replay ID` shows one task.",
        )
    good = paint("✓", "green")
    say(f"{good} {looked_at} tasks: every state proved from the log, every file as recorded")


def _with_progress(queue: QueueReader) -> Iterator[tuple[int, list[Problem]]]:
    if not (is_terminal() and is_terminal(err=True)):
        yield from queue.verify()
        return
    total = sum(sum(counts.values()) for counts in queue.stats().by_role.values())
    if total < 1000:
        yield from queue.verify()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        work = progress.add_task("", total=total)
        for so_far, found in queue.verify():
            progress.update(work, completed=so_far)
            yield so_far, found
