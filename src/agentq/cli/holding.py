"""Commands that keep waiting tasks from starting, and let them start: hold and dispatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.cli.many import (
    Chosen,
    check_chosen,
    chosen_tasks,
    decide_many,
    filter_options,
    preview,
    refs_argument,
    yes_option,
)
from agentq.cli.options import by_option, command, reason_option
from agentq.cli.session import Session, pass_session
from agentq.core.states import State

if TYPE_CHECKING:
    from agentq.core.task import Task


@command()
@refs_argument
@filter_options
@yes_option
@by_option
@reason_option
@pass_session
def hold(
    session: Session, /, refs: tuple[str, ...], by: str, reason: str, yes: bool, **given: Any
) -> None:
    """Keep waiting tasks from starting.

    A task that is held stays pending, whatever else it waits for, until `agentq dispatch`; its time
    to live runs on. One that runs is not held: cancel it, or wait. Tasks that are chosen by options
    are shown first, and held with --yes.
    """
    queue, chosen = session.writer(), Chosen.of(given)
    check_chosen(refs, chosen)
    if not refs:
        found = chosen_tasks(queue, chosen, (State.PENDING, State.READY))
        found = [task for task in found if task.details.held is None]
        if not yes or not found:
            preview(session, queue, found, "hold")
            return
        refs = tuple(task.id for task in found)
    decide_many(session, queue, refs, lambda ref: queue.hold(ref, by, reason), _held_words)


def _held_words(task: Task) -> str:
    held = task.details.held
    if held is None:  # somebody has dispatched it at the same moment
        return "not held any more"
    why = f" ({held.reason})" if held.reason else ""
    return f"held by {held.by}{why} until `agentq dispatch {task.id}`"


@command()
@refs_argument
@filter_options
@yes_option
@by_option
@pass_session
def dispatch(session: Session, /, refs: tuple[str, ...], by: str, yes: bool, **given: Any) -> None:
    """Let tasks start that are held or delayed.

    It ends a hold, a delay, and the pause after a failure. The task is ready if nothing else keeps
    it; what it still waits for is said. Tasks that are chosen by options are shown first, and
    dispatched with --yes.
    """
    queue, chosen = session.writer(), Chosen.of(given)
    check_chosen(refs, chosen)
    if not refs:
        found = [each for each in chosen_tasks(queue, chosen, (State.PENDING,)) if _waits(each)]
        if not yes or not found:
            preview(session, queue, found, "dispatch")
            return
        refs = tuple(task.id for task in found)
    unchanged: set[str] = set()

    def dispatch_one(ref: str) -> Task:
        before = queue.task(ref)
        task = queue.dispatch(before.id, by)
        if task.version == before.version:
            unchanged.add(task.id)
        return task

    def words(task: Task) -> str:
        from agentq.core.schedule import waiting_for

        done = session.done("dispatched", by)
        if task.id in unchanged:
            done = "it was neither held nor delayed, nothing was changed"
        waits = waiting_for(task)
        return f"{done}; it still waits for {', '.join(waits)}" if waits else done

    decide_many(session, queue, refs, dispatch_one, words)


def _waits(task: Task) -> bool:
    """Whether it is held, or delayed."""
    return task.details.held is not None or bool(task.details.not_before)
