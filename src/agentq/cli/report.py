"""How attempts end: complete, failed, or blocked."""

from __future__ import annotations

from pathlib import Path

import click

from agentq.cli.options import (
    Amount,
    Role,
    Whole,
    command,
    epoch_option,
    reason_option,
    task_argument,
    text_of,
    unreadable,
)
from agentq.cli.session import Session, pass_session
from agentq.cli.status import answer_with_task
from agentq.cli.streams import spooled, standard_input
from agentq.core.states import State

_from_option = click.option(
    "--from", "sender", type=Role(), default="",
    help="The role that reports; it may report a task that nobody has claimed yet.",
)  # fmt: skip


@command()
@task_argument
@_from_option
@epoch_option
@click.option("--summary", default="", metavar="TEXT", help="What was done, in short.")
@click.option("--result-file", metavar="FILE", help="The result; - reads standard input.")
@click.option("--cost-usd", type=Amount(), default=0.0, help="What this attempt cost.")
@click.option("--cost-tokens", type=Whole(), default=0, metavar="N", help="And in tokens.")
@pass_session
def complete(
    session: Session,
    ref: str | None,
    sender: str,
    epoch: int | None,
    summary: str,
    result_file: str | None,
    cost_usd: float,
    cost_tokens: int,
) -> None:
    """Report an attempt complete, with its result.

    The result becomes results/ID.md. If the task has gates (expected artifacts, a review), the
    report is kept and the task waits for them. A late report of an attempt that lost its task is
    refused (exit status 4).
    """
    from agentq.core.task import Usage

    queue = session.writer()
    task_id, epoch = session.holder_of(ref, epoch)
    result = None if result_file is None else content_of(result_file)
    task = queue.complete(
        task_id,
        summary,
        result,
        epoch=epoch,
        sender=sender,
        cost=Usage(usd=cost_usd, tokens=cost_tokens),
    )
    answer_with_task(session, queue, task, task.summary)


@command()
@task_argument
@_from_option
@epoch_option
@reason_option(required=True)
@click.option(
    "--kind",
    type=click.Choice(
        ["transient", "timeout", "stalled", "crashed", "bad_output", "refused", "invalid", "budget"]
    ),
    default="transient",
    show_default=True,
    help="Each kind has its own answer; refused is not retried.",
)
@pass_session
def fail(
    session: Session, ref: str | None, sender: str, epoch: int | None, reason: str, kind: str
) -> None:  # fmt: skip
    """Report an attempt failed.

    It is tried again after a pause while attempts are left, then it becomes a dead letter.
    """
    queue = session.writer()
    task_id, epoch = session.holder_of(ref, epoch)
    reason = text_of(reason, "The reason")
    task = queue.fail(task_id, reason, kind=kind, epoch=epoch, sender=sender)
    details = task.details
    again = task.state is State.PENDING and details.failures
    counted = (
        f"{details.failures} of {task.spec.max_attempts} failures" if again else details.reason
    )
    answer_with_task(session, queue, task, counted)


@command()
@task_argument
@epoch_option
@reason_option(required=True)
@pass_session
def block(session: Session, ref: str | None, epoch: int | None, reason: str) -> None:
    """Stop and ask a person.

    The task waits, without a holder, until `agentq answer`.
    """
    queue = session.writer()
    task_id, epoch = session.holder_of(ref, epoch)
    task = queue.block(task_id, text_of(reason, "The reason"), epoch=epoch)
    answer_with_task(session, queue, task, task.reason)


def content_of(file: str) -> bytes | Path:
    """What a file holds, checked to be there before anything is claimed or changed for it."""
    if file == "-":
        return spooled(standard_input())
    from agentq.client.task_input.task_file import refuse_special

    path = Path(file)
    try:
        refuse_special(file)
        with path.open("rb") as stream:
            stream.read(1)
    except OSError as error:
        raise unreadable(file, error, "recorded") from error
    return path
