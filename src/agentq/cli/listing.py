"""`agentq list`: many tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.options import Role, Whole, command, states
from agentq.cli.screen import ago, emit_json, note, show_table, state_cell
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up, headline_of
from agentq.core.errors import Invalid
from agentq.core.states import State

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.service_values import Page

limit_option = click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many."
)
cursor_option = click.option(
    "--cursor",
    type=Whole(),
    default=0,
    metavar="N",
    help="Go on after the last page, by its number.",
)
label_option = click.option(
    "--label", "labels", multiple=True, metavar="K=V", help="Of this label; repeatable."
)
role_option = click.option("--role", type=Role(), default="", help="Only of this role.")


@command("list")
@click.option("--state", "wanted", type=states(), multiple=True, help="Only these; repeatable.")
@role_option
@click.option("--from", "sender", default="", metavar="NAME", help="Only from this sender.")
@click.option("--type", "kind", default="", metavar="TYPE", help="Only of this type.")
@label_option
@limit_option
@cursor_option
@pass_session
def list_tasks(
    session: Session,
    wanted: tuple[str, ...],
    role: str,
    sender: str,
    kind: str,
    labels: tuple[str, ...],
    limit: int,
    cursor: int,
) -> None:
    """List tasks, newest first."""
    from agentq.contracts.service_values import Wanted

    queue = session.reader()
    catch_up(queue)
    page = queue.tasks(
        Wanted(
            tuple(State(each) for each in dict.fromkeys(wanted)),
            role,
            sender,
            kind,
            tuple(sorted(labels_of(labels).items())),
            cursor,
            limit,
        )
    )
    if session.json:
        emit_page(queue, page)
        return
    now = queue.now()
    show_table(
        ("id", "state", "role", "priority", ">attempt", ">changed", "what"),
        [
            (
                task.id,
                state_cell(str(task.state)),
                task.to,
                str(task.spec.priority),
                str(task.epoch) if task.epoch else "",
                ago(task.updated_at, now),
                headline_of(task) + (" (applied)" if task.details.applied_at else ""),
            )
            for task in page.tasks
        ],
        "no tasks" if not (wanted or role or sender or kind or labels) else "no such tasks",
    )
    say_more(page)


def emit_page(queue: QueueReader, page: Page, **more: object) -> None:
    plain = [queue.as_json(task) for task in page.tasks]
    emit_json({"tasks": plain, "cursor": page.cursor, **more})


def say_more(page: Page) -> None:
    if page.cursor:
        note(f"there are more: --cursor {page.cursor}")


def labels_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """`k=v` as it is written on the command line."""
    labels = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals and value):
            raise Invalid(f"--label takes KEY=VALUE, got {pair!r}.", "As in --label team=web.")
        labels[key] = value
    return labels
