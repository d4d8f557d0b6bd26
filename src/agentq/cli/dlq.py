"""`agentq dlq`: dead letters, which are tasks that ended badly and messages nobody could read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from agentq.cli.listing import cursor_option, emit_page, limit_option, role_option, say_more
from agentq.cli.options import by_option, group, reason_option
from agentq.cli.screen import (
    ago,
    answer,
    clean,
    emit_json,
    note,
    one_line,
    say,
    show_table,
    state_cell,
)
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up
from agentq.core.counting import counted
from agentq.core.errors import AgentqError, Invalid, NotFound, Refused

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.delivery import DeadMessage

#: The key of a message. Anything else names a task, and the broker is not asked.
_KEY = re.compile(r"[0-9a-f]{1,12}\Z")
#: Copies of a message have one key, so a few are enough to see whether a prefix names one.
_LOOKED_AT = 100


@group()
@role_option
@limit_option
@cursor_option
@click.pass_context
@pass_session
def dlq(session: Session, ctx: click.Context, role: str, limit: int, cursor: int) -> None:
    """List dead letters: failed tasks, unreadable messages.

    `agentq requeue ID` opens a task again; `agentq dlq requeue` does so for both. Messages are
    those of the broker, if there is one, that no reader could make sense of. Where a message came
    from is followed by a question mark if nobody but its sender says so.
    """
    if ctx.invoked_subcommand is not None:
        return
    queue = session.reader()
    catch_up(queue)
    page = queue.dead_letters(limit, role, cursor)
    messages = _messages(queue, limit) if not role and not cursor else []
    if session.json:
        more = {"messages": [_plain(each) for each in messages]} if queue.has_broker else {}
        emit_page(queue, page, **more)
        return
    now = queue.now()
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
    for each in messages:
        origin = f"{one_line(each.queue, 80)}{'' if each.certain else '?'}"
        rows.append((each.key, state_cell("unreadable"), origin, "", "", one_line(each.reason, 80)))
    show_table(("id", "state", "role", ">attempts", ">ended", "reason"), rows, "no dead letters")
    say_more(page)


@dlq.command()
@click.argument("ref", metavar="ID")
@pass_session
def show(session: Session, ref: str) -> None:
    """Show a dead letter: why it is one, and what it says."""
    queue = session.reader()
    message = _message(queue, ref)
    if message is not None:
        answer(session, _plain(message), "\n".join([*_described(message), _body(message)]))
        return
    task = queue.task(ref)
    if session.json:
        emit_json(queue.as_json(task))
    else:
        say(f"{task.id} is {task.state}: {clean(task.reason)}")
        say(f"`agentq replay {task.id}` shows how it came to that")


@dlq.command()
@click.argument("refs", nargs=-1, required=True, metavar="ID...")
@by_option
@reason_option
@pass_session
def requeue(session: Session, refs: tuple[str, ...], by: str, reason: str) -> None:
    """Open tasks again; send messages to where they were read from, once more.

    A message is sent again only if it is certain where it was read: workers may write to the dead
    letters, and nobody is to reach another's queue by them. `agentq dlq show` tells.
    """
    queue = session.writer()
    found = {ref: _message(queue, ref) for ref in refs}
    messages = [each for each in found.values() if each is not None]
    for each in messages:
        if each.stuck:
            raise Refused(
                f"Message {each.key} cannot be sent again: {clean(each.stuck)}. Nothing was"
                " changed.",
                f"agentq dlq purge {each.key}",
            )
    if messages:
        queue.requeue_messages([each.key for each in messages])
    tasks = [queue.requeue(ref, by, reason) for ref, message in found.items() if message is None]
    if session.json:
        plain = [queue.as_json(task) for task in tasks]
        emit_json({"tasks": plain, "messages": [_plain(each) for each in messages]})
        return
    done = session.done("reopened", one_line(by)) if tasks else ""
    for task in tasks:
        say(f"{task.id} is {task.state}: {done}")
    for each in messages:
        say(f"{each.key} was sent to {one_line(each.queue)} again")


@dlq.command()
@click.argument("refs", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="All messages.")
@pass_session
def purge(session: Session, refs: tuple[str, ...], everything: bool) -> None:
    """Throw unreadable messages away.

    Tasks are never thrown away by hand: `agentq prune` deletes those that ended long ago.
    """
    if bool(refs) == everything:
        raise click.UsageError("Name messages, or say --all.")
    session.refuse_server()
    queue = session.writer()
    keys = []
    for ref in refs:
        message = _message(queue, ref)
        if message is None:
            raise Invalid(
                f"{queue.task(ref).id} is a task and no message. Nothing was thrown away.",
                "`agentq prune --older-than 30d` deletes tasks that ended long ago.",
            )
        keys.append(message.key)
    count = queue.purge_messages(None if everything else keys)
    answer(session, {"purged": count}, f"{counted(count, 'message')} thrown away")


def _messages(queue: QueueReader, limit: int) -> list[DeadMessage]:
    """Those of the broker; without them the tasks are still worth seeing."""
    try:
        return queue.dead_messages(limit)
    except AgentqError as error:
        note(f"unreadable messages are not shown: {clean(error.cause)}")
        return []


def _message(queue: QueueReader, ref: str) -> DeadMessage | None:
    """The message of this key or prefix of a key; None if it names a task."""
    if not queue.has_broker or not _KEY.match(ref):
        return None
    try:
        task_id = queue.task(ref).id
    except NotFound:
        task_id = ""
    if task_id == ref:
        return None
    found = {each.key: each for each in queue.dead_messages(_LOOKED_AT, ref)}
    if not found and not task_id:
        raise NotFound(
            f"Neither a task nor an unreadable message is called {ref}.", "`agentq dlq` lists both."
        )
    if len(found) > 1 or (found and task_id and ref not in found):
        named = [*found, task_id] if task_id else [*found]
        raise Invalid(
            f"{ref} begins the names of several: {', '.join(named[:5])}.", "Give more of it."
        )
    return next(iter(found.values()), None)


def _described(message: DeadMessage) -> list[str]:
    """What is known of a message, and what only its sender says."""
    queue, reason = one_line(message.queue) or "?", one_line(message.reason)
    if message.certain:
        lines = [f"{message.key} came to {queue} and could not be read: {reason}"]
    else:
        lines = [f"{message.key} is said to have come to {queue}: {reason}"]
    lines.append(
        f"message id {one_line(message.id) or '(none)'}, {counted(message.size, 'byte')}, sent to"
        f" {one_line(message.exchange) or 'a queue'} as {one_line(message.routing_key)}"
    )
    if message.user:
        lines.append(f"the broker knows its sender as user {one_line(message.user)}")
    if message.stuck:
        lines.append(f"it cannot be sent again: {one_line(message.stuck)}")
    return lines


def _body(message: DeadMessage) -> str:
    text = message.body.decode("utf-8", "backslashreplace")
    shown = "".join(
        char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text
    )
    return shown + ("…" if message.size > len(message.body) else "")


def _plain(message: DeadMessage) -> dict[str, object]:
    return {
        "key": message.key,
        "message_id": message.id,
        "reason": message.reason,
        "queue": message.queue,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "user": message.user,
        "certain": message.certain,
        "stuck": message.stuck,
        "size": message.size,
        "body": message.body.decode("utf-8", "backslashreplace"),
    }
