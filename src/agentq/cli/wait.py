"""`agentq wait`: until tasks are over, or in a state."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.failures import INTERRUPTED
from agentq.cli.many import (
    Chosen,
    check_chosen,
    check_complete,
    chosen_tasks,
    filter_options,
    refs_argument,
)
from agentq.cli.options import Duration, command, states
from agentq.cli.screen import emit_json, note
from agentq.cli.session import Session, pass_session
from agentq.cli.status import answer_with_task
from agentq.cli.waiting_view import waiting_view
from agentq.core.errors import Refused
from agentq.core.states import TERMINAL, State

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.core.task import Task


@command()
@refs_argument
@filter_options
@click.option("--timeout", type=Duration(True), help="Give up after this long (exit status 6).")
@click.option("--until", type=states(), multiple=True, help="Wait for this state; repeatable.")
@click.option("--check", is_flag=True, help="Exit with 4 unless all are complete.")
@pass_session
def wait(
    session: Session, /, refs: tuple[str, ...], timeout: int | None, until: tuple[str, ...],
    check: bool, **given: Any,
) -> None:  # fmt: skip
    """Wait until tasks are over.

    Exits with 0 once they are, however they ended; --check makes any end but complete an error (4).
    With --until it waits for those states instead, and says so (4) if they can no longer come.
    Options choose among the tasks that are not over now. On a terminal a line for each shows how
    far it is. Ctrl-C ends the waiting, and nothing else.
    """
    queue, chosen = session.reader(), Chosen.of(given)
    wanted = {State(each) for each in until} or TERMINAL
    if chosen.is_empty:
        refs = refs or (session.task_id(None),)
    else:
        check_chosen(refs, chosen)
        refs = tuple(task.id for task in chosen_tasks(queue, chosen, set(State) - TERMINAL))
    one = chosen.is_empty and len(refs) == 1
    tasks = _waited(session, queue, refs, timeout, wanted | TERMINAL, one=one)
    for task in tasks:
        if task.state not in wanted:
            raise Refused(
                f"{task.id} ended {task.state}: {task.reason or 'it is over'}. It will not become"
                f" {' or '.join(sorted(wanted))}.",
                f"`agentq status {task.id}` shows it.",
                code="over",
            )
    if check:
        check_complete(tasks)
    if one:
        answer_with_task(session, queue, tasks[0], tasks[0].summary or tasks[0].reason)
    elif session.json:
        emit_json({"tasks": [queue.as_json(task) for task in tasks]})
    elif not tasks:
        note("no task is meant")


def _waited(
    session: Session,
    queue: QueueReader,
    refs: tuple[str, ...],
    timeout: int | None,
    until: Collection[State],
    *,
    one: bool,
) -> list[Task]:
    """The tasks once they are there; on a terminal what they do meanwhile is shown, and of several
    each end as it comes."""
    if not refs:
        return []
    try:
        if session.json:
            return queue.wait_all(refs, timeout, until)
        with waiting_view(queue, shows_ends=not one) as view:
            return queue.wait_all(refs, timeout, until, view.looked)
    except KeyboardInterrupt:
        goes_on = "the task goes on" if len(refs) == 1 else f"the {len(refs)} tasks go on"
        note(f"no longer waiting: {goes_on}, and nothing was changed")
        click.get_current_context().exit(INTERRUPTED)
