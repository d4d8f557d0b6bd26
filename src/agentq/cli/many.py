"""Many tasks at once: ids one after the other, or filters with a preview of what would be done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.listing import label_option
from agentq.cli.options import Duration, Role, TaskRef
from agentq.cli.screen import ago, clean, emit_json, note, one_line, say, show_table, state_cell
from agentq.cli.status import answer_with_task, catch_up
from agentq.core.choices import FailureKind
from agentq.core.counting import counted
from agentq.core.errors import AgentqError, Invalid, Refused
from agentq.core.states import State

if TYPE_CHECKING:
    from agentq.cli.session import Session
    from agentq.client.reader import QueueReader
    from agentq.core.task import Task

#: How many tasks a preview shows; the rest are counted.
SHOWN_MAX = 20

refs_argument = click.argument("refs", nargs=-1, type=TaskRef(), metavar="[ID]...")
_FILTERS = (
    click.option("--role", type=Role(), default="", help="All of this role."),
    label_option,
    click.option("--since", type=Duration(), help="All that changed within so long."),
    click.option("--all", "everything", is_flag=True, help="All that can be meant."),
)
_KINDS = [*map(str, FailureKind), "poison"]
kind_option = click.option(
    "--kind", type=click.Choice(_KINDS), metavar="KIND",
    help=f"All that failed as: {', '.join(_KINDS)}.",
)  # fmt: skip
yes_option = click.option("--yes", is_flag=True, help="Do what the preview shows.")


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose tasks where no ids are given."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was given on the command line to choose tasks by."""

    role: str = ""
    labels: tuple[str, ...] = ()
    since: int | None = None
    everything: bool = False
    kind: str | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> Chosen:
        """Take the filters out of the options of a command."""
        return cls(
            **{each.name: given.pop(each.name) for each in fields(cls) if each.name in given}
        )

    @property
    def is_empty(self) -> bool:
        return self == Chosen()


def check_chosen(refs: Sequence[str], chosen: Chosen) -> None:
    """Raise a usage error unless either ids or filters say which tasks are meant."""
    if refs and not chosen.is_empty:
        raise click.UsageError("Name tasks, or choose them by options; not both.")
    if not refs and chosen.is_empty:
        raise click.UsageError(
            "Which tasks? Name them, or choose them: --role, --label, --since, --all."
        )


def chosen_tasks(queue: QueueReader, chosen: Chosen, states: Collection[State]) -> list[Task]:
    """The tasks that the filters mean, the oldest first."""
    from agentq.client.selection import Selection, selected

    catch_up(queue)
    since = queue.now() - chosen.since * 1000 if chosen.since is not None else 0
    wanted = Selection(chosen.role, tuple(map(_label, chosen.labels)), chosen.kind or "", since)
    return selected(queue, states, wanted)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise Invalid(f"A label is written key=value, got {text!r}.")
    return key, value


def preview(session: Session, queue: QueueReader, tasks: Sequence[Task], verb: str) -> None:
    """Show what would be done, and change nothing."""
    if session.json:
        ids = [task.id for task in tasks]
        emit_json({"would": verb, "count": len(ids), "ids": ids, "done": False})
        return
    now = queue.now()
    show_table(
        ("id", "state", "role", ">changed", "reason"),
        [
            (
                task.id, state_cell(str(task.state)), task.to, ago(task.updated_at, now),
                one_line(task.reason, 80),
            )
            for task in tasks[:SHOWN_MAX]
        ],
        "no task is meant",
    )  # fmt: skip
    if len(tasks) > SHOWN_MAX:
        say(f"… and {len(tasks) - SHOWN_MAX} more")
    if tasks:
        note(f"nothing was changed: --yes would {verb} {counted(len(tasks), 'task')}")


def decide_many(
    session: Session,
    queue: QueueReader,
    refs: Sequence[str],
    decide: Callable[[str], Task],
    words: Callable[[Task], str],
) -> None:
    """Decide about one task after the other; what is refused refuses only itself."""
    if len(refs) == 1:
        task = decide(refs[0])
        answer_with_task(session, queue, task, words(task))
        return
    done: list[Task] = []
    refused: list[tuple[str, AgentqError]] = []
    for ref in dict.fromkeys(refs):
        try:
            done.append(decide(ref))
        except AgentqError as error:
            refused.append((ref, error))
    _answer(session, queue, done, refused, words)
    if refused:
        click.get_current_context().exit(refused[0][1].exit_status)


def _answer(
    session: Session,
    queue: QueueReader,
    done: Sequence[Task],
    refused: Sequence[tuple[str, AgentqError]],
    words: Callable[[Task], str],
) -> None:
    if session.json:
        emit_json(
            {
                "done": True,
                "tasks": [queue.as_json(task) for task in done],
                "refused": [
                    {"task_id": ref, "code": error.code, "error": str(error)}
                    for ref, error in refused
                ],
            }
        )
        return
    for task in done:
        tail = words(task)
        say(f"{task.id} is {task.state}" + (f": {clean(tail)}" if tail else ""))
    for ref, error in refused:
        note(f"{ref}: {clean(str(error))}")
    if refused:
        note(f"{counted(len(done), 'task')} changed, {len(refused)} refused")


def check_complete(tasks: Sequence[Task]) -> None:
    """Raise `Refused` unless all of them are complete."""
    wrong = [task for task in tasks if task.state is not State.COMPLETE]
    if wrong:
        first = wrong[0]
        others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise Refused(
            f"{first.id} is {first.state}: {first.reason or 'not complete'}{others}.",
            f"`agentq status {first.id}` shows it.",
            code="not_complete",
        )
