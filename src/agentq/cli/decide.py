"""Decisions of people and reviewers: approve, reject, answer, cancel, requeue, comment, tell."""

from __future__ import annotations

from collections.abc import Callable
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
    Whole,
    by_option,
    command,
    epoch_option,
    named_task_argument,
    reason_option,
    text_of,
)
from agentq.cli.screen import emit_json, may_ask
from agentq.cli.session import Session, pass_session
from agentq.cli.status import answer_with_task
from agentq.core.states import DEAD_LETTERS, TERMINAL, State

if TYPE_CHECKING:
    from agentq.client.evidence import Evidence
    from agentq.client.writer import QueueWriter
    from agentq.core.task import Task


show_option = click.option(
    "--show", is_flag=True, help="Show what is decided about, and decide nothing."
)
version_option = click.option(
    "--if-version", type=Whole(1), metavar="N",
    help="Only if the task is still as it was in this version.",
)  # fmt: skip


@command()
@refs_argument
@filter_options
@yes_option
@show_option
@click.option("--digest", default="", metavar="SHA256", help="Only if it asks for exactly this.")
@version_option
@by_option
@pass_session
def approve(
    session: Session, /, refs: tuple[str, ...], by: str, yes: bool, show: bool, digest: str,
    if_version: int | None, **given: Any,
) -> None:  # fmt: skip
    """Let tasks start, or accept their reports.

    On a terminal what is decided about is shown first, and you are asked, unless --yes is given;
    elsewhere --show shows it. An approval binds to exactly what was shown. With four_eyes in the
    settings it must come from somebody other than who asked for the task. A report is judged by
    somebody other than who did the work. Tasks that are chosen by options are listed first, and
    approved with --yes; irreversible ones are not among them and must be named.
    """
    queue, chosen = session.writer(), Chosen.of(given)
    check_chosen(refs, chosen)
    if len(refs) != 1 and (digest or if_version):
        raise click.UsageError("--digest and --if-version are of one task: name it.")
    if show:
        _show(session, queue, refs)
        return
    shown: dict[str, Evidence] = {}
    if refs and not yes and may_ask(session):
        shown = _agreed(queue, refs, "Approve")
        refs = tuple(shown)
        if not refs:
            return
    if not refs:
        found = chosen_tasks(queue, chosen, (State.PENDING, State.REVIEW))
        found = [task for task in found if _may_be_approved(task)]
        if not yes or not found:
            preview(session, queue, found, "approve")
            return
        refs = tuple(task.id for task in found)

    def approve_one(ref: str) -> Task:
        return _as_shown(
            queue, shown.get(ref), if_version or 0,
            lambda seen, version: queue.approve(ref, by, digest or seen, if_version=version),
        )  # fmt: skip

    decide_many(session, queue, refs, approve_one, lambda _: session.done("approved", by))


def _agreed(queue: QueueWriter, refs: tuple[str, ...], verb: str) -> dict[str, Evidence]:
    """What was shown to whoever sits at the terminal and agreed to, by the task's id."""
    from agentq.cli.evidence import ask

    return {found.task.id: found for found in ask(queue, refs, verb)}


def _as_shown(
    queue: QueueWriter, shown: Evidence | None, if_version: int,
    decide: Callable[[str, int], Task],
) -> Task:  # fmt: skip
    """Decide by the digest and the version that were shown, where something was."""
    if shown is None or if_version:
        return decide("" if shown is None else shown.digest, if_version)
    from agentq.client.evidence import decide_as_shown

    return decide_as_shown(queue, shown, lambda version: decide(shown.digest, version))


def _show(session: Session, queue: QueueWriter, refs: tuple[str, ...]) -> None:
    from agentq.cli.evidence import show_all

    if not refs:
        raise click.UsageError("--show is of tasks that are named.")
    show_all(session, queue, refs)


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
@show_option
@click.option("--yes", is_flag=True, help="On a terminal, do not show it and ask first.")
@version_option
@pass_session
def reject(
    session: Session, ref: str, by: str, reason: str, changes: bool, show: bool, yes: bool,
    if_version: int | None,
) -> None:  # fmt: skip
    """Refuse a task or its report, or ask for changes.

    On a terminal what is decided about is shown first, and you are asked, unless --yes is given;
    elsewhere --show shows it.
    """
    queue = session.writer()
    if show:
        _show(session, queue, (ref,))
        return
    text, shown = text_of(reason, "The reason"), None
    if not yes and may_ask(session):
        verb = "Ask for changes of" if changes else "Reject"
        agreed = _agreed(queue, (ref,), verb)
        if not agreed:
            return
        ((ref, shown),) = agreed.items()
    task = _as_shown(
        queue, shown, if_version or 0,
        lambda _, version: queue.reject(ref, by, text, changes=changes, if_version=version),
    )  # fmt: skip
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
