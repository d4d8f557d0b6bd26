"""`agentq edit`, `priority` and `rerun`: what tasks ask for, changed or asked for again."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.many import decide_many
from agentq.cli.options import (
    Role,
    by_option,
    command,
    named_task_argument,
    text_of,
)
from agentq.cli.screen import emit_json, is_terminal, note, paint, paint_state, say
from agentq.cli.session import Session, pass_session
from agentq.cli.status import answer_with_task
from agentq.core.errors import AgentqError

if TYPE_CHECKING:
    from agentq.client.writer import QueueWriter
    from agentq.core.task import Task

PRIORITIES = ("low", "normal", "high", "urgent")
#: What an editor shows below the text. Not `#`: that begins a heading.
_HINT = "<!-- The text of {}. Save it and close the editor to change it; empty it to leave it. -->"
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--instructions", metavar="TEXT",
                 help="What to do; - reads standard input. It takes the place of a task file."),
    click.option("--file", "-f", metavar="FILE", help="A task file with the text, and its title, "
                 "priority and role if they change."),
    click.option("--title", metavar="TEXT", help="A line for people."),
    click.option("--priority", "-p", type=click.Choice(PRIORITIES), help="How urgent it is."),
    click.option("--role", "-t", "to", type=Role(), help="The role that does it."),
)  # fmt: skip


def _change_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in given.items() if value is not None}
    if "instructions" in fields:
        fields["instructions"] = text_of(fields["instructions"], "The instructions")
    return fields


@command()
@named_task_argument
@_change_options
@by_option
@pass_session
def edit(session: Session, /, ref: str, by: str, **given: Any) -> None:
    """Change what a waiting task asks for.

    Its text, title, priority or role, as long as nobody has begun it. Without options an editor
    (VISUAL, EDITOR) opens with the text. An approval is taken back: it was for what the task said
    before. A running task is told more with `agentq tell`, a finished one is run anew with
    `agentq rerun`.
    """
    queue, fields = session.writer(), _fields(given)
    before = queue.task(ref)
    if fields:
        _answer(session, queue, before, queue.edit(before.id, by, **fields), by)
        return
    if session.json or not (is_terminal() and sys.stdin.isatty()):
        raise click.UsageError(
            "What is to change? --instructions, --file, --title, --priority or --role say it; on a"
            " terminal an editor opens without them."
        )
    text = _from_editor(queue, before)
    if text is None:
        note(f"{before.id} stays as it is")
        return
    try:
        edited = queue.edit(before.id, by, instructions=text, if_version=before.version)
    except AgentqError:
        _keep(before.id, text)
        raise
    _answer(session, queue, before, edited, by)


def _from_editor(queue: QueueWriter, task: Task) -> str | None:
    """What somebody made of the text; None if it is the same, or nothing."""
    text, hint = queue.context(task), _HINT.format(task.id)
    found = click.edit(f"{text.rstrip()}\n\n{hint}\n", extension=".md")
    if found is None:
        return None
    found = found.replace(hint, "").strip()
    return None if found in ("", text.strip()) else f"{found}\n"


def _keep(task_id: str, text: str) -> None:
    """Write down what was typed and could not be used."""
    with tempfile.NamedTemporaryFile(
        "w", prefix=f"{task_id}-", suffix=".md", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    note(f"what you wrote is in {file.name}; `agentq edit {task_id} --file {file.name}` takes it")


def _answer(session: Session, queue: QueueWriter, before: Task, after: Task, by: str) -> None:
    words = session.done("edited", by)
    if after.version == before.version:
        words = "it says so already, nothing was changed"
    elif before.details.approved_by and not after.details.approved_by:
        words += f"; the approval of {before.details.approved_by} is taken back, it needs a new one"
    answer_with_task(session, queue, after, words)


@command()
@click.argument("words", nargs=-1, required=True, metavar="ID... PRIORITY")
@by_option
@pass_session
def priority(session: Session, words: tuple[str, ...], by: str) -> None:
    """Change how urgent waiting tasks are.

    PRIORITY is low, normal, high or urgent, and comes after the ids.
    """
    *refs, urgency = words
    if urgency not in PRIORITIES:
        raise click.UsageError(
            f"The last word is the priority, one of {', '.join(PRIORITIES)}; got {urgency!r}."
            " Nothing was changed."
        )
    if not refs:
        raise click.UsageError("Which task? Its id comes before the priority.")
    if not all(ref.strip() for ref in refs):
        raise click.UsageError("A task's id takes some text, got none. Nothing was done.")
    queue = session.writer()
    decide_many(
        session, queue, refs, lambda ref: queue.priority(ref, by, urgency),
        lambda task: f"{task.spec.priority} priority",
    )  # fmt: skip


@command()
@named_task_argument
@_change_options
@pass_session
def rerun(session: Session, /, ref: str, **given: Any) -> None:
    """Submit what a finished task asked for once more.

    A new task with a new id; the old one stays as it is. What an option says takes the place of
    what the old task said. It needs its own approval, has no idempotency key, and its label
    rerun_of names the old one. (`agentq requeue` reopens the failed task itself instead.)
    """
    queue = session.writer()
    task = queue.rerun(ref, **_fields(given))
    session.tasks.append(task)
    if session.json:
        emit_json(queue.as_json(task))
    elif is_terminal():
        old = task.spec.labels.get("rerun_of", ref)
        say(f"{paint(task.id, 'bold')} → {task.to}  {paint_state(task.state)}")
        say(f"  runs {old} again")
    else:
        say(task.id)
