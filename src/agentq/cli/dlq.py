"""`agentq dlq`: dead letters, which are tasks that ended badly and messages nobody could read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.listing import cursor_option, emit_page, limit_option, role_option, say_more
from agentq.cli.options import by_option, command, group, reason_option
from agentq.cli.screen import ago, emit_json, note, one_line, say, show_table, state_cell
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up
from agentq.core.errors import Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from agentq.client.reading import Reading
    from agentq.contracts.delivery import DeadMessage

_SHOWN_BYTES = 4096
_SAID = "unreadable"


@group()
@role_option
@limit_option
@cursor_option
@click.pass_context
@pass_session
def dlq(session: Session, ctx: click.Context, role: str, limit: int, cursor: int) -> None:
    """List dead letters: failed tasks, unreadable messages.

    `agentq requeue ID` opens a task again; `agentq dlq requeue` does so for both. Messages are
    those of the broker, if there is one, that no reader could make sense of.
    """
    if ctx.invoked_subcommand is not None:
        return
    queue = session.reading()
    catch_up(queue)
    page = queue.dead_letters(limit, role, cursor)
    messages = _messages(queue, limit) if not role and not cursor else []
    if session.json:
        more = {"messages": [_plain(each) for each in messages]} if queue.has_broker else {}
        emit_page(queue, page, **more)
        return
    now = queue.store.now()
    rows = [
        (
            task.id,
            state_cell(str(task.state)),
            task.to,
            str(task.epoch),
            ago(task.updated_at, now),
            task.reason,
        )
        for task in page.tasks
    ]
    rows += [
        (each.key, state_cell(_SAID), each.queue, "", "", one_line(each.reason, 80))
        for each in messages
    ]
    show_table(("id", "state", "role", ">attempts", ">ended", "reason"), rows, "no dead letters")
    say_more(page)


@command()
@click.argument("ref", metavar="ID")
@pass_session
def show(session: Session, ref: str) -> None:
    """Show a dead letter: why it is one, and what it says."""
    queue = session.reading()
    message = _message(queue, ref)
    if message is None:
        task = queue.task(ref)
        if session.json:
            emit_json(queue.as_json(task))
        else:
            say(f"{task.id} is {task.state}: {task.reason}")
            say(f"`agentq replay {task.id}` shows how it came to that")
        return
    if session.json:
        emit_json(_plain(message))
        return
    say(f"{message.key} came to {message.queue or '?'} and could not be read: {message.reason}")
    say(f"message id {message.id or '(none)'}, {message.size} bytes, sent to"
        f" {message.exchange or 'a queue'} as {message.routing_key}")  # fmt: skip
    say(_body(message))


@command()
@click.argument("refs", nargs=-1, required=True, metavar="ID...")
@by_option
@reason_option()
@pass_session
def requeue(session: Session, refs: tuple[str, ...], by: str, reason: str) -> None:
    """Open tasks again; send messages to where they were read from, once more."""
    queue = session.speaking()
    found = {ref: _message(queue, ref) for ref in refs}
    messages = [each for each in found.values() if each is not None]
    if messages:
        queue.requeue_messages([each.key for each in messages])
    tasks = [queue.requeue(ref, by, reason) for ref, message in found.items() if message is None]
    if session.json:
        plain = [queue.as_json(task) for task in tasks]
        emit_json({"tasks": plain, "messages": [_plain(each) for each in messages]})
        return
    for task in tasks:
        say(f"{task.id} is {task.state}: reopened by {by}")
    for each in messages:
        say(f"{each.key} was sent to {each.queue} again")


@command()
@click.argument("refs", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="All messages.")
@pass_session
def purge(session: Session, refs: tuple[str, ...], everything: bool) -> None:
    """Throw unreadable messages away.

    Tasks are never thrown away by hand: `agentq prune` deletes those that ended long ago.
    """
    if bool(refs) == everything:
        raise click.UsageError("Name messages, or say --all.", click.get_current_context())
    queue = session.speaking()
    for ref in refs:
        if _message(queue, ref) is None:
            raise Invalid(
                f"{queue.task(ref).id} is a task and no message. Nothing was thrown away.",
                "`agentq prune --older-than 30d` deletes tasks that ended long ago.",
            )
    count = queue.purge_messages(None if everything else refs)
    if session.json:
        emit_json({"purged": count})
    else:
        say(f"{count} messages were thrown away")


for _each in (show, requeue, purge):
    dlq.add_command(_each)


def _messages(queue: Reading, limit: int) -> list[DeadMessage]:
    """Those of the broker; without them the tasks are still worth seeing."""
    try:
        return queue.dead_messages(limit)
    except Unavailable as away:
        note(f"unreadable messages are not shown: {away.cause}")
        return []


def _message(queue: Reading, ref: str) -> DeadMessage | None:
    """The message of this name; None if it must be a task."""
    if not queue.has_broker or ref.startswith("task-"):
        return None
    found = [each for each in queue.dead_messages(10_000) if each.key.startswith(ref)]
    if not found:
        try:
            queue.task(ref)
        except NotFound:
            raise NotFound(
                f"Neither a task nor an unreadable message is called {ref}.",
                "`agentq dlq` lists both.",
            ) from None
        return None
    if len({each.key for each in found}) > 1:
        raise Invalid(f"{ref} begins the names of several messages.", "Give more of it.")
    return found[0]


def _body(message: DeadMessage) -> str:
    text = message.body[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
    shown = "".join(
        char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text
    )
    return shown + ("…" if message.size > _SHOWN_BYTES else "")


def _plain(message: DeadMessage) -> dict[str, object]:
    return {
        "key": message.key,
        "message_id": message.id,
        "reason": message.reason,
        "queue": message.queue,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "size": message.size,
        "body": message.body[:_SHOWN_BYTES].decode("utf-8", "backslashreplace"),
    }
