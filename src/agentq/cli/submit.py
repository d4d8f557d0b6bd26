"""`agentq submit`: one task from words or a file, or many from JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.listing import labels_of
from agentq.cli.options import Amount, Duration, Role, TaskRef, command, text_of
from agentq.cli.screen import (
    clean,
    emit_json,
    is_terminal,
    note,
    one_line,
    paint,
    paint_state,
    say,
)
from agentq.cli.session import Session, pass_session
from agentq.core.errors import Invalid, NotFound, Refused

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.core.task import Task

#: Options that are a field of the task under the same name.
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--to", "-t", type=Role(),
                 help="The role that does it.  [default: see above]"),
    click.option("--type", metavar="TYPE", help="What kind of work it is."),
    click.option("--file", "-f", metavar="FILE", help="A task file: Markdown with front matter."),
    click.option("--instructions", metavar="TEXT",
                 help="What to do, like TEXT; - reads standard input."),
    click.option("--id", metavar="ID", help="Its id.  [default: of the file, else generated]"),
    click.option("--title", metavar="TEXT", help="A line for people."),
    click.option("--from", "sender", metavar="NAME", help="Who asks.  [default: coordinator]"),
    click.option("--priority", "-p", type=click.Choice(["low", "normal", "high", "urgent"]),
                 help="How urgent it is among the tasks of its role."),
    click.option("--ttl", type=Duration(), help="Expires unless it starts within."),
    click.option("--timeout", type=Duration(), help="How long one attempt may run."),
    click.option("--delay", type=Duration(), help="Not before this has passed."),
    click.option("--lease", type=Duration(), help="How long a claim holds without a heartbeat."),
    click.option("--max-attempts", type=click.IntRange(1, 1000), metavar="N",
                 help="Failures before it is failed."),
    click.option("--after", type=TaskRef(), multiple=True, metavar="ID",
                 help="Only once this task is over; repeatable."),
    click.option("--base", type=TaskRef(), multiple=True, metavar="ID",
                 help="Start from its work in git, and after it; several are merged."),
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
    click.option("--approval-timeout", type=Duration(),
                 help="How long a decision of people is waited for."),
    click.option("--on-timeout", type=click.Choice(["hold", "reject", "approve"]),
                 help="What follows when nobody has decided by then.  [default: hold]"),
    click.option("--escalate", multiple=True, metavar="AFTER:NAME",
                 help="Who is asked next, as 4h:lead; repeatable."),
    click.option("--review", is_flag=True, default=None, help="Its report needs a verdict."),
    click.option("--reviewer", type=Role(), help="The role that judges its report."),
    click.option("--min-score", type=click.IntRange(0, 100), metavar="N",
                 help="Less, of 100, asks for changes."),
    click.option("--max-rounds", type=click.IntRange(1, 100), metavar="N",
                 help="So often at most, then a person is asked."),
    click.option("--verify", metavar="CMD",
                 help="The worker runs it in the workspace; it must succeed."),
    click.option("--wait-for", multiple=True, metavar="NAME",
                 help="Only once this signal has come; repeatable."),
    click.option("--input", "inputs", multiple=True, metavar="K=V",
                 help="Data for templates and the agent; K:=JSON if it is no text."),
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
@click.argument("words", nargs=-1, metavar="[TEXT]")
@_task_options
@click.option("--wait", is_flag=True, help="Wait until it is over, as `agentq wait` does.")
@click.option("--bulk", metavar="FILE", help="Tasks as JSON lines, one object each; - reads stdin.")
@pass_session
def submit(
    session: Session, /, words: tuple[str, ...], wait: bool, bulk: str | None, **options: Any
) -> None:
    """Submit a task, or many from a file.

    TEXT says what is to be done; - reads it from standard input. Without --to the task goes to the
    role with default = true in agentq.toml, else to the only role there, else to
    implementation-worker. A role that is not there is a queue that is made.

    Returns once the task is durable, and prints its id (alone, in a pipe). What an option says
    overrides the front matter of --file. Inside an attempt the new task is its child.

    --bulk takes one JSON object per line with the names of front matter fields. The whole file is
    checked first; then 1,000 tasks at a time are accepted, each batch wholly or not at all.
    """
    given = {name: value for name, value in options.items() if value not in (None, ())}
    given |= _instructions(words, given)
    if bulk is not None:
        from agentq.cli.bulk import submit_bulk

        if given or wait:
            listed = ", ".join(f"--{name.replace('_', '-')}" for name in (*given, *["wait"] * wait))
            raise click.UsageError(f"--bulk takes everything from its file; leave out {listed}.")
        submit_bulk(session, bulk)
        return
    if not given.keys() & {"file", "instructions", "title"}:
        raise click.UsageError(
            'What is to be done? Say it: agentq submit "Make the import skip empty lines". A task'
            " file (--file) says it, too."
        )
    queue = session.client()
    fields = _fields(queue, given)
    under = parent_attempt(session, queue)
    if under is None:
        task = queue.submit(**fields)
    else:
        epoch, parent = under
        task = queue.submit_under(parent.id, epoch, {"from": parent.to, **fields})
    session.tasks.append(task)
    _hint_at_role(session, task)
    if wait:
        from agentq.cli.wait import wait as wait_for

        note(f"submitted {task.id} to {task.to}")
        click.get_current_context().invoke(wait_for, refs=(task.id,))
    elif session.json:
        emit_json(queue.as_json(task))
    elif is_terminal():
        _say_submitted(task)
    else:
        say(task.id)


def _instructions(words: tuple[str, ...], given: dict[str, Any]) -> dict[str, str]:
    """What the argument says, as a field; empty without one."""
    if not words:
        return {}
    if len(words) > 1:
        shown = one_line(" ".join(words), 60)
        raise click.UsageError(
            f'The text is one argument, and these are {len(words)}. Quote it: "{shown}".'
        )
    if not words[0].strip():
        raise click.UsageError("TEXT takes some text, got none. Nothing was done.")
    if "instructions" in given:
        raise click.UsageError("TEXT and --instructions say the same twice. Leave one of them out.")
    return {"instructions": words[0]}


def _hint_at_role(session: Session, task: Task) -> None:
    """Say so where a role looks like a slip: it is a queue of its own, which nobody may serve."""
    from agentq.settings.default_role import meant_role

    meant = meant_role(session.installation().settings, task.to)
    if meant:
        note(
            f"agentq.toml has no role {clean(task.to)}; did you mean {meant}? The task waits for a"
            f" worker of that name. `agentq edit {task.id} --role {meant}` moves it."
        )


def _fields(queue: Client, given: dict[str, Any]) -> dict[str, Any]:
    fields = dict(given)
    if "sender" in fields:
        fields["from"] = fields.pop("sender")
    if "instructions" in fields:
        fields["instructions"] = text_of(fields["instructions"], "The instructions")
    if "labels" in fields:
        fields["labels"] = labels_of(fields["labels"])
    if "inputs" in fields:
        fields["inputs"] = inputs_of(fields["inputs"])
    policy = {name: fields.pop(name) for name in ("on_timeout", "escalate") if name in fields}
    if policy:
        steps = [_escalation(each) for each in policy.pop("escalate", ())]
        fields["approval"] = policy | ({"escalate": steps} if steps else {})
    for name in fields.keys() & {"after", "base"}:
        fields[name] = [whole_id(queue, each) for each in fields[name]]
    return fields


def inputs_of(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`k=text` and `k:=json` as they are written on the command line."""
    import json

    inputs: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key.rstrip(":") and equals):
            raise Invalid(f"--input takes KEY=VALUE, got {pair!r}.", "As in --input branch=main.")
        try:
            inputs[key.removesuffix(":")] = json.loads(value) if key.endswith(":") else value
        except ValueError as error:
            raise Invalid(
                f"--input {key}= takes JSON, got {value[:80]!r}: {error}.", "As in --input n:=3."
            ) from None
    return inputs


def _escalation(text: str) -> dict[str, str]:
    after, colon, name = text.partition(":")
    if not (after and colon and name.strip()):
        raise Invalid(f"--escalate takes AFTER:NAME, got {text!r}.", "As in --escalate 4h:lead.")
    return {"after": after, "to": name.strip()}


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
