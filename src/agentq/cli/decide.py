"""Decisions of people and reviewers: approve, reject, answer, cancel, requeue, comment, tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentq.cli.many import (
    Chosen,
    check_chosen,
    chosen_tasks,
    decide_many,
    filter_options,
    kind_option,
    preview,
    refs_argument,
    yes_option,
)
from agentq.cli.options import (
    Amount,
    Duration,
    by_option,
    command,
    epoch_option,
    named_task_argument,
    reason_option,
    text_of,
)
from agentq.cli.screen import emit_json
from agentq.cli.session import Session, pass_session
from agentq.cli.status import answer_with_task
from agentq.core.states import DEAD_LETTERS, TERMINAL, State

if TYPE_CHECKING:
    from agentq.core.task import Task


@command()
@refs_argument
@filter_options
@yes_option
@by_option
@pass_session
def approve(session: Session, /, refs: tuple[str, ...], by: str, yes: bool, **given: Any) -> None:
    """Let tasks start, or accept their reports.

    An approval binds to exactly what the task asks for. With four_eyes in the settings it must come
    from somebody other than the submitter. A report is judged by somebody other than who did the
    work. Tasks that are chosen by options are shown first, and approved with --yes; irreversible
    ones are not among them and must be named.
    """
    queue, chosen = session.writer(), Chosen.of(given)
    check_chosen(refs, chosen)
    if not refs:
        found = chosen_tasks(queue, chosen, (State.PENDING, State.REVIEW))
        found = [task for task in found if _may_be_approved(task)]
        if not yes or not found:
            preview(session, queue, found, "approve")
            return
        refs = tuple(task.id for task in found)
    decide_many(
        session, queue, refs, lambda ref: queue.approve(ref, by),
        lambda _: session.done("approved", by),
    )  # fmt: skip


def _may_be_approved(task: Task) -> bool:
    """Whether it waits for an approval, or a verdict, that may be given to many at once."""
    from agentq.core.schedule import awaits_approval

    if task.spec.irreversible:
        return False
    return task.state is State.REVIEW or awaits_approval(task.spec, task.details)


@command()
@named_task_argument
@by_option
@reason_option
@click.option("--changes", is_flag=True, help="Of a report: send it back with the reason.")
@pass_session
def reject(session: Session, ref: str, by: str, reason: str, changes: bool) -> None:
    """Refuse a task or its report, or ask for changes."""
    queue = session.writer()
    task = queue.reject(ref, by, text_of(reason, "The reason"), changes=changes)
    word = "changes asked for" if changes and not task.is_terminal else "rejected"
    answer_with_task(session, queue, task, session.done(word, by))


@command()
@named_task_argument
@click.argument("text", default="", metavar="[TEXT]")
@by_option
@click.option("--done", is_flag=True, help="It is done already: complete it.")
@click.option("--give-up", is_flag=True, help="It is not to be done: fail it.")
@click.option("--extra-usd", type=Amount(), default=0.0, help="Raise the budget by this.")
@pass_session
def answer(
    session: Session, ref: str, text: str, by: str, done: bool, give_up: bool, extra_usd: float
) -> None:
    """Answer a blocked task.

    It goes back to the queue with the TEXT attached for its next attempt, unless --done or
    --give-up ends it.
    """
    if done and give_up:
        raise click.UsageError("--done and --give-up contradict each other.")
    resolution = "done" if done else "give_up" if give_up else "retry"
    queue = session.writer()
    words = text_of(text, "The answer")
    task = queue.answer(ref, by, words, resolution=resolution, extra_usd=extra_usd)
    answer_with_task(session, queue, task, session.done("answered", by))


@command()
@refs_argument
@filter_options
@yes_option
@by_option
@reason_option
@click.option("--tree", is_flag=True, help="And all their open children, and theirs.")
@click.option("--wait", is_flag=True, help="Return when its agent is really gone.")
@click.option("--timeout", type=Duration(True), help="Give up waiting after this long (status 6).")
@pass_session
def cancel(
    session: Session, /, refs: tuple[str, ...], by: str, reason: str, tree: bool, wait: bool,
    timeout: int | None, yes: bool, **given: Any,
) -> None:  # fmt: skip
    """Cancel tasks; a running attempt is stopped.

    Tasks that are chosen by options are shown first, and cancelled with --yes.
    """
    queue, chosen = session.writer(), Chosen.of(given)
    check_chosen(refs, chosen)
    if not refs:
        found = chosen_tasks(queue, chosen, set(State) - TERMINAL)
        if not yes or not found:
            preview(session, queue, found, "cancel")
            return
        refs = tuple(task.id for task in found)

    def cancel_one(ref: str) -> Task:
        task = queue.cancel(ref, by, reason, tree=tree)
        return queue.wait_gone(task.id, timeout) if wait else task

    decide_many(session, queue, refs, cancel_one, lambda task: task.reason)


@command()
@refs_argument
@filter_options
@kind_option
@yes_option
@by_option
@reason_option
@pass_session
def requeue(
    session: Session, /, refs: tuple[str, ...], by: str, reason: str, yes: bool, **given: Any
) -> None:
    """Open dead letters again.

    A failed or expired task gets fresh attempts; its history stays. Tasks that are chosen by
    options are shown first, and opened with --yes: `agentq requeue --role R --kind invalid
    --since 1h` finds what a wrong setting has cost.
    """
    queue, chosen = session.writer(), Chosen.of(given)
    check_chosen(refs, chosen)
    if not refs:
        found = chosen_tasks(queue, chosen, DEAD_LETTERS)
        if not yes or not found:
            preview(session, queue, found, "requeue")
            return
        refs = tuple(task.id for task in found)
    decide_many(
        session, queue, refs, lambda ref: queue.requeue(ref, by, reason),
        lambda _: session.done("reopened", by),
    )  # fmt: skip


@command()
@click.argument("words", nargs=-1, required=True, metavar="[ID] TEXT")
@by_option
@epoch_option
@pass_session
def comment(session: Session, words: tuple[str, ...], by: str, epoch: int | None) -> None:
    """Leave a note on a task.

    It stands in the task's events. Inside an attempt the ID may be left out; the note is then
    refused if the attempt has lost its task. TEXT - reads standard input.
    """
    if len(words) > 2:
        raise click.UsageError("Expected [ID] TEXT; quote the text.")
    queue, task_id, epoch = session.holder(words[0] if len(words) == 2 else None, epoch)
    text = text_of(words[-1], "The comment")
    task = queue.comment(task_id, by, text, epoch=epoch or 0)
    answer_with_task(session, queue, task, session.done("noted", by))


@command()
@click.argument("ref", metavar="ID")
@click.argument("message", metavar="TEXT")
@by_option
@pass_session
def tell(session: Session, ref: str, message: str, by: str) -> None:
    """Send a message to the agent of a task.

    An agent that runs gets it at once where its tool takes messages. In any case it stands in the
    prompt of every attempt that begins later. Which of both will happen is said. TEXT - reads
    standard input.
    """
    from agentq.core.agent_messages import is_told_live

    queue = session.writer()
    task = queue.tell(ref, by, text_of(message, "The message"))
    live = is_told_live(task)
    if session.json:
        emit_json({**queue.as_json(task), "delivery": "live" if live else "next_attempt"})
        return
    if live:
        what = f"attempt {task.epoch} gets it while it runs"
    elif task.holder:
        what = f"attempt {task.epoch} takes no messages so far, the next one will read it"
    elif task.state is State.REVIEW:
        what = "an attempt will read it if changes are asked for"
    else:
        what = "the next attempt will read it"
    answer_with_task(session, queue, task, f"{session.done('told', by)}; {what}")
