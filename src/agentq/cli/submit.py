"""`agentq submit`: one task from words or a file, or many from JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.listing import labels_of
from agentq.cli.options import Amount, Duration, Role, TaskRef, command, text_of
from agentq.cli.screen import emit_json, is_terminal, one_line, paint, paint_state, say
from agentq.cli.session import Session, pass_session
from agentq.core.errors import NotFound, Refused

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.core.task import Task

#: Options that are a field of the task under the same name.
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--to", type=Role(), help="The role that does it (a queue is made if need be)."),
    click.option("--type", metavar="TYPE", help="What kind of work it is."),
    click.option("--file", metavar="FILE", help="A task file: Markdown with front matter."),
    click.option("--instructions", metavar="TEXT", help="What to do; - reads standard input."),
    click.option("--id", metavar="ID", help="Its id.  [default: of the file, else generated]"),
    click.option("--title", metavar="TEXT", help="A line for people."),
    click.option("--from", "sender", metavar="NAME", help="Who asks.  [default: coordinator]"),
    click.option("--priority", type=click.Choice(["low", "normal", "high", "urgent"]),
                 help="How urgent it is among the tasks of its role."),
    click.option("--ttl", type=Duration(), help="Expires unless it starts within."),
    click.option("--timeout", type=Duration(), help="How long one attempt may run."),
    click.option("--delay", type=Duration(), help="Not before this has passed."),
    click.option("--lease", type=Duration(), help="How long a claim holds without a heartbeat."),
    click.option("--max-attempts", type=click.IntRange(1, 1000), metavar="N",
                 help="Failures before it is failed."),
    click.option("--after", type=TaskRef(), multiple=True, metavar="ID",
                 help="Only once this task is over; repeatable."),
    click.option("--on-dependency-failure", type=click.Choice(["fail", "skip", "run"]),
                 help="What becomes of it when one of those did not complete."),
    click.option("--next", multiple=True, metavar="FILE",
                 help="A task file to submit when this one completes; repeatable."),
    click.option("--resource", multiple=True, metavar="KEY",
                 help="Needs this to itself while it runs; repeatable."),
    click.option("--idempotency-key", metavar="KEY", help="The same key gives the same task."),
    click.option("--irreversible", is_flag=True, default=None,
                 help="Never retried by itself, never started without an approval."),
    click.option("--requires-approval", is_flag=True, default=None, help="Not before approved."),
    click.option("--review", is_flag=True, default=None, help="Its report needs a verdict."),
    click.option("--expect", metavar="A,B", help="Artifacts that a report must bring."),
    click.option("--budget-usd", type=Amount(), help="Stop and ask when this much is spent."),
    click.option("--tree-budget-usd", type=Amount(),
                 help="The same for it and all that comes from it."),
    click.option("--reply-to", metavar="QUEUE",
                 help="Where its outcome goes.  [with a broker: results.coordinator]"),
    click.option("--label", "labels", multiple=True, metavar="K=V",
                 help="Something to find it by; repeatable."),
)  # fmt: skip


def _task_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@command()
@_task_options
@click.option("--bulk", metavar="FILE", help="Tasks as JSON lines, one object each; - reads stdin.")
@pass_session
def submit(session: Session, /, bulk: str | None, **words: Any) -> None:
    """Submit a task, or many from a file.

    Returns once the task is durable, and prints its id (alone, in a pipe). What an option says
    overrides the front matter of --file. Inside an attempt the new task is its child.

    --bulk takes one JSON object per line with the names of front matter fields. The whole file is
    checked first; then 1,000 tasks at a time are accepted, each batch wholly or not at all.
    """
    given = {name: value for name, value in words.items() if value not in (None, ())}
    if bulk is not None:
        from agentq.cli.bulk import submit_bulk

        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise click.UsageError(f"--bulk takes everything from its file; leave out {options}.")
        submit_bulk(session, bulk)
        return
    if not given.keys() & {"file", "instructions", "title"}:
        raise click.UsageError(
            "What is to be done? --instructions says it, or a task file (--file)."
        )
    queue = session.client()
    fields = _fields(queue, given)
    under = parent_attempt(session, queue)
    if under is None:
        task = queue.submit(**fields)
    else:
        epoch, parent = under
        task = queue.submit_under(parent.id, epoch, {"from": parent.to, **fields})
    if session.json:
        emit_json(queue.as_json(task))
    elif is_terminal():
        _say_submitted(task)
    else:
        say(task.id)


def _fields(queue: Client, given: dict[str, Any]) -> dict[str, Any]:
    fields = dict(given)
    if "sender" in fields:
        fields["from"] = fields.pop("sender")
    if "instructions" in fields:
        fields["instructions"] = text_of(fields["instructions"], "The instructions")
    if "labels" in fields:
        fields["labels"] = labels_of(fields["labels"])
    if "after" in fields:
        fields["after"] = [whole_id(queue, each) for each in fields["after"]]
    return fields


def whole_id(queue: Client, ref: str) -> str:
    """The id that a beginning stands for; what stands for none is left for the ledger to refuse."""
    try:
        return queue.task(ref).id
    except (NotFound, Refused):
        return ref


def parent_attempt(session: Session, queue: Client) -> tuple[int, Task] | None:
    """The epoch and the task of the attempt that submits, if a worker started this process."""
    attempt = session.attempt()
    return None if attempt is None else (attempt.epoch, queue.task(attempt.task_id))


def _say_submitted(task: Task) -> None:
    from agentq.core.schedule import waiting_for

    say(f"{paint(task.id, 'bold')} → {task.to}  {paint_state(task.state)}")
    waits = waiting_for(task)
    if waits:
        say(f"  waits for {', '.join(waits)}")
    elif task.is_terminal:
        say(f"  {one_line(task.summary or task.reason)}")
