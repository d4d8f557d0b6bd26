"""Decisions about messages of people to the agent of a task.

A message stays with its task. Every attempt that is claimed later has it in its prompt. An attempt
that runs may be given it as well, once, where its holder takes messages: it says so by taking them,
and what it took is marked before anything is sent. So a message reaches a running agent at most
once, and the next attempt in any case.
"""

from __future__ import annotations

from agentq.core import triggers as t
from agentq.core.errors import Refused
from agentq.core.limits import MESSAGES_KEPT
from agentq.core.states import State
from agentq.core.steps import Step, holder_only
from agentq.core.task import Task, TaskDetails, ToldMessage
from agentq.core.values import replace


def tell(task: Task, trigger: t.Tell, now: int) -> Step:
    details, kept = task.details, task.details.messages
    number = kept[-1].number + 1 if kept else 1
    if len(kept) >= MESSAGES_KEPT:
        read = next((each for each in kept if each.epoch), None)
        if read is None:
            raise Refused(
                f"{len(kept)} messages wait already for the next attempt at {task.id}; no more are"
                " kept. Nothing was changed.",
                "Tell it again once an attempt has begun. What is longer belongs into a file.",
                code="too_many_messages",
            )
        kept = tuple(each for each in kept if each is not read)
    message = ToldMessage(number, now, trigger.by, trigger.message)
    told = replace(details, messages=(*kept, message))
    return Step(task.state, "told", (), told, keeps_custody=True)


def take_messages(task: Task, trigger: t.TakeMessages, now: int) -> Step:
    """Give the holder what it has not been given, and note that it takes messages."""
    holder_only(task, trigger.epoch)
    details = given_messages(task.details, trigger.epoch)
    if details is task.details and details.listening == trigger.epoch:
        return Step(task.state, "")
    details = replace(details, listening=trigger.epoch)
    return Step(task.state, "messages_taken", (), details, keeps_custody=True)


def given_messages(details: TaskDetails, epoch: int) -> TaskDetails:
    """The details after this attempt was given every message that no attempt had yet."""
    if all(each.epoch for each in details.messages):
        return details
    given = tuple(
        each if each.epoch else replace(each, epoch=epoch) for each in details.messages
    )  # fmt: skip
    return replace(details, messages=given)


def is_told_live(task: Task) -> bool:
    """Whether what is told now reaches the agent that runs, and not only the next attempt."""
    return task.state is State.IN_PROGRESS and task.details.listening == task.epoch


def cannot_be_told(task: Task) -> Refused:
    """The refusal of a message that no attempt would read."""
    remedies = {
        State.FAILED: f"Open it again with what it needs: `agentq requeue {task.id} --reason …`.",
        State.EXPIRED: f"Open it again with what it needs: `agentq requeue {task.id} --reason …`.",
    }
    return Refused(
        f"Nobody will work on {task.id} who could read a message: it is {task.state}. Nothing was"
        " changed.",
        remedies.get(task.state, f"Run it again as a new task: `agentq rerun {task.id}`."),
        code="wrong_state",
    )
