"""Commands of whoever holds an attempt: heartbeat, progress, release, complete, fail, block."""

from __future__ import annotations

import re

import click

from agentq.cli.options import (
    Amount,
    Duration,
    Role,
    Whole,
    command,
    epoch_option,
    reason_option,
    required_reason_option,
    task_argument,
    text_of,
)
from agentq.cli.screen import ago
from agentq.cli.session import Session, pass_session
from agentq.cli.status import answer_with_task
from agentq.cli.streams import content_of, json_of
from agentq.core.states import State

_PERCENT = re.compile(r"([0-9]{1,3}) ?%?")
_from_option = click.option(
    "--from", "sender", type=Role(), default="",
    help="The role that reports; it may report a task that nobody has claimed yet.",
)  # fmt: skip


@command()
@task_argument
@epoch_option
@click.option("--lease", type=Duration(), default="15m", show_default=True, help="Its new length.")
@pass_session
def heartbeat(session: Session, ref: str | None, epoch: int | None, lease: int) -> None:
    """Renew the lease of an attempt.

    Refused (exit status 4) if the attempt holds its task no longer: then stop working on it.
    """
    queue, task_id, epoch = session.holder(ref, epoch)
    task = queue.heartbeat(task_id, epoch, lease=lease)
    ends = ago(task.wake_at, queue.now())
    answer_with_task(session, queue, task, f"attempt {task.epoch}, lease ends {ends}")


@command()
@click.argument("words", nargs=-1, required=True, metavar="[ID] PERCENT [NOTE]")
@epoch_option
@click.option("--note", metavar="TEXT", help="What is being done.")
@pass_session
def progress(session: Session, words: tuple[str, ...], epoch: int | None, note: str | None) -> None:
    """Record how far an attempt has come.

    PERCENT is 0 to 100. Inside an attempt the ID may be left out.
    """
    ref, rest = None, list(words)
    # With two numbers the first is the id: ids may be numbers too.
    if not _PERCENT.fullmatch(rest[0]) or (len(rest) > 1 and _PERCENT.fullmatch(rest[1])):
        ref = rest.pop(0)
    found = _PERCENT.fullmatch(rest[0]) if rest else None
    if found is None or len(rest) > 2 or (len(rest) == 2 and note is not None):
        raise click.UsageError(
            "Expected [ID] PERCENT [NOTE], as in `agentq progress task-123 40 reading`."
        )
    text = rest[1] if len(rest) == 2 else note or ""
    queue, task_id, epoch = session.holder(ref, epoch)
    task = queue.progress(task_id, int(found[1]), text, epoch=epoch)
    answer_with_task(session, queue, task, f"{task.details.progress_percent} % {text}".rstrip())


@command()
@task_argument
@epoch_option
@reason_option
@pass_session
def release(session: Session, ref: str | None, epoch: int | None, reason: str) -> None:
    """Give a task back without using up an attempt."""
    queue, task_id, epoch = session.holder(ref, epoch)
    answer_with_task(session, queue, queue.release(task_id, reason, epoch=epoch), "given back")


@command()
@task_argument
@_from_option
@epoch_option
@click.option("--summary", default="", metavar="TEXT", help="What was done, in short.")
@click.option("--result-file", metavar="FILE", help="The result; - reads standard input.")
@click.option("--data", metavar="JSON",
              help="A structured result, for gates and next tasks; @FILE reads it.")  # fmt: skip
@click.option("--leave-children", is_flag=True, help="Its open children go on without it.")
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
    data: str | None,
    leave_children: bool,
    cost_usd: float,
    cost_tokens: int,
) -> None:
    """Report an attempt complete, with its result.

    The result becomes results/ID.md. If the task has gates (expected artifacts, a review), the
    report is kept and the task waits for them. Refused (exit status 4) are a report over open
    children, and a late one of an attempt that lost its task.
    """
    from agentq.core.task import Usage

    queue, task_id, epoch = session.holder(ref, epoch)
    result = None if result_file is None else content_of(result_file)
    task = queue.complete(
        task_id,
        summary,
        result,
        epoch=epoch,
        sender=sender,
        cost=Usage(usd=cost_usd, tokens=cost_tokens),
        data=json_of(data, "The structured result"),
        leave_children=leave_children,
    )
    answer_with_task(session, queue, task, task.summary)


@command()
@task_argument
@_from_option
@epoch_option
@required_reason_option
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
    queue, task_id, epoch = session.holder(ref, epoch)
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
@required_reason_option
@pass_session
def block(session: Session, ref: str | None, epoch: int | None, reason: str) -> None:
    """Stop and ask a person.

    The task waits, without a holder, until `agentq answer`.
    """
    queue, task_id, epoch = session.holder(ref, epoch)
    task = queue.block(task_id, text_of(reason, "The reason"), epoch=epoch)
    answer_with_task(session, queue, task, task.reason)
