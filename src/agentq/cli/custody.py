"""Commands of an attempt's holder: heartbeat, progress, release."""

from __future__ import annotations

import re

import click

from agentq.cli.options import Duration, command, epoch_option, reason_option, task_argument
from agentq.cli.screen import ago
from agentq.cli.session import Session, pass_session
from agentq.cli.status import answer_with_task

_PERCENT = re.compile(r"([0-9]{1,3}) ?%?")


@command()
@task_argument
@epoch_option
@click.option("--lease", type=Duration(), default="15m", show_default=True, help="Its new length.")
@pass_session
def heartbeat(session: Session, ref: str | None, epoch: int | None, lease: int) -> None:
    """Renew the lease of an attempt.

    Refused (exit status 4) if the attempt holds its task no longer: then stop working on it.
    """
    queue = session.writer()
    task_id, epoch = session.holder_of(ref, epoch)
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
            "Expected [ID] PERCENT [NOTE], as in `agentq progress task-123 40 reading`.",
            click.get_current_context(),
        )
    text = rest[1] if len(rest) == 2 else note or ""
    queue = session.writer()
    task_id, epoch = session.holder_of(ref, epoch)
    task = queue.progress(task_id, int(found[1]), text, epoch=epoch)
    answer_with_task(session, queue, task, f"{task.details.progress_percent} % {text}".rstrip())


@command()
@task_argument
@epoch_option
@reason_option()
@pass_session
def release(session: Session, ref: str | None, epoch: int | None, reason: str) -> None:
    """Give a task back without using up an attempt."""
    queue = session.writer()
    task_id, epoch = session.holder_of(ref, epoch)
    answer_with_task(session, queue, queue.release(task_id, reason, epoch=epoch), "given back")
