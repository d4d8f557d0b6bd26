"""`agentq inbox` and `reassign`: what waits for somebody, and whom else it could go to."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from agentq.cli.many import decide_many
from agentq.cli.options import Role, by_option, command
from agentq.cli.screen import ago, emit_json, iso_time, note, one_line, show_table
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up

if TYPE_CHECKING:
    from agentq.organisation.inbox import InboxItem

#: What can be done about each kind, as it is typed.
_WHAT_TO_DO = {
    "approval": "approve, reject",
    "blocked": "answer, reassign, cancel",
    "mention": "comment, tell",
    "failed": "requeue, rerun",
    "task": "priority, reassign, cancel",
}


@command()
@click.option("--as", "name", metavar="NAME", help="Whose: an agent or a person.  [default: yours]")
@pass_session
def inbox(session: Session, name: str | None) -> None:
    """List what waits for somebody: questions, approvals, mentions.

    Also failures of what they asked for, and the tasks of their role. A question of an agent is one
    for its manager; if nobody answers it for four hours it is one for the next above as well, and
    in the end for every person. It is said by which commands each can be decided.
    """
    from agentq.organisation.inbox import inbox_of
    from agentq.settings import actor_from_environment
    from agentq.settings.profiles import profiles

    queue = session.reader()
    catch_up(queue)
    name = name or actor_from_environment()
    known = profiles(session.settings().agents_folder)
    now = queue.now()
    found = inbox_of(queue.queries, queue.who, name, known, now)
    if session.json:
        emit_json({"name": name, "items": [_as_json(each) for each in found]})
        return
    if not found:
        near = [] if name in known else get_close_matches(name, list(known), 1)
        note(f"nothing waits for {name}" + (f" (did you mean {near[0]}?)" if near else ""))
        return
    show_table(
        ("what", "task", "role", ">since", "decide with", ""),
        [
            (
                each.kind, each.task_id, each.role, ago(each.since, now),
                _WHAT_TO_DO[each.kind], one_line(each.text or each.title, 60),
            )
            for each in found
        ],
    )  # fmt: skip


def _as_json(each: InboxItem) -> dict[str, object]:
    return {
        "kind": each.kind, "task_id": each.task_id, "title": each.title, "role": each.role,
        "state": each.state, "since": iso_time(each.since), "by": each.by, "text": each.text,
        "decide_with": _WHAT_TO_DO[each.kind].split(", "),
    }  # fmt: skip


@command()
@click.argument("refs", metavar="TASK...", nargs=-1, required=True)
@click.option("--to", "-t", "role", type=Role(), required=True, help="The role that does it.")
@by_option
@pass_session
def reassign(session: Session, refs: tuple[str, ...], role: str, by: str) -> None:
    """Give tasks to another role.

    Those that wait, and those whose agent has asked something: the next one may know. What was
    asked goes with it.
    """
    queue = session.writer()
    decide_many(
        session,
        queue,
        refs,
        lambda ref: queue.edit(queue.task(ref).id, by, to=role),
        lambda task: session.done(f"given to {role}", by),
    )
