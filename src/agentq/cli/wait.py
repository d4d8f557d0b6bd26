"""`agentq wait`: sleep until something has become of a task."""

from __future__ import annotations

import click

from agentq.cli.options import Duration, command, states, task_argument
from agentq.cli.session import Session, pass_session
from agentq.cli.status import answer_with_task


@command()
@task_argument
@click.option("--timeout", type=Duration(True), help="Give up after this long (exit status 6).")
@click.option("--until", type=states(), multiple=True, help="Wait for this state; repeatable.")
@click.option("--check", is_flag=True, help="Exit with 4 unless the task is complete.")
@pass_session
def wait(
    session: Session, ref: str | None, timeout: int | None, until: tuple[str, ...], check: bool
) -> None:
    """Wait until a task is over.

    Exits with 0 once it is, however it ended; --check makes any end but complete an error (4).
    With --until it waits for those states instead, and says so (4) if they can no longer come.
    """
    from agentq.core.errors import Refused
    from agentq.core.states import TERMINAL, State

    queue = session.reader()
    wanted = {State(each) for each in until} or TERMINAL
    task = queue.wait(session.task_id(ref), timeout, wanted | TERMINAL)
    if task.state not in wanted:
        raise Refused(
            f"{task.id} ended {task.state}: {task.reason or 'it is over'}. It will not become"
            f" {' or '.join(sorted(wanted))}.",
            f"`agentq status {task.id}` shows it.",
            code="over",
        )
    if check and task.state is not State.COMPLETE:
        raise Refused(
            f"{task.id} is {task.state}: {task.reason or 'not complete'}.",
            f"`agentq status {task.id}` shows it.",
            code="not_complete",
        )
    answer_with_task(session, queue, task, task.summary or task.reason)
