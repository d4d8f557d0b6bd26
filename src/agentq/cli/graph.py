"""Commands by which tasks wait for each other and for what happens outside: yield and signal."""

from __future__ import annotations

import click

from agentq.cli.options import by_option, command, epoch_option, named_task_argument, task_argument
from agentq.cli.session import Session, pass_session
from agentq.cli.status import answer_with_task
from agentq.cli.streams import json_of


@command("yield")
@task_argument
@epoch_option
@click.option("--any", "any_", is_flag=True, help="Go on when one of them is over, not all.")
@click.option("--signal", "signals", multiple=True, metavar="NAME",
              help="And wait for this signal; repeatable.")  # fmt: skip
@click.option("--note", default="", metavar="TEXT", help="For the attempt that goes on.")
@pass_session
def yield_(
    session: Session, ref: str | None, epoch: int | None, any_: bool, signals: tuple[str, ...],
    note: str,
) -> None:  # fmt: skip
    """Leave until children are over or a signal comes.

    The attempt ends here and uses nothing up. When all children that it submitted are over, and
    the signals have come, another attempt goes on from its workspace: it is told how they ended,
    and finds the note.
    """
    from agentq.core.schedule import waiting_for

    queue, task_id, epoch = session.holder(ref, epoch)
    wait = "any" if any_ else "all"
    task = queue.yield_attempt(task_id, wait, note, signals, epoch=epoch)
    waits = waiting_for(task)
    what = f"yielded, waits for {', '.join(waits)}" if waits else "yielded, and can go on at once"
    answer_with_task(session, queue, task, what)


@command()
@named_task_argument
@click.argument("name", metavar="NAME")
@click.option("--data", metavar="JSON", help="What it brings: an object or a list; @FILE reads it.")
@by_option
@pass_session
def signal(session: Session, ref: str, name: str, data: str | None, by: str) -> None:
    """Let a task go on that waits for this.

    A signal is kept until the task, or an attempt that has yielded, waits for one of its NAME. Each
    lets one wait go on, and is told to the next attempt, with its data.
    """
    queue = session.writer()
    task = queue.signal(ref, by, name, json_of(data, "The data of a signal"))
    taken = next((each.is_taken for each in reversed(task.details.signals) if each.name == name), 0)
    after = "it had waited for it" if taken else "kept until it waits for it"
    answer_with_task(session, queue, task, f"{session.done('signalled', by)}; {after}")
