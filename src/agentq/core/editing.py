"""Changes of what a waiting task asks for: its text, title, priority and role.

What was submitted stays in its row, unchanged: idempotency keys go on to stand for it. The changes
are kept in the task's details, and `task.edited_spec` makes of both what is asked for now.
"""

from __future__ import annotations

from agentq.core import triggers as t
from agentq.core.effects import Effect, Notify
from agentq.core.errors import Refused
from agentq.core.states import State
from agentq.core.steps import Step, annotated, waits
from agentq.core.task import Edited, Task, edited_spec
from agentq.core.values import replace

#: What the next attempt is told where an earlier one may have read other words.
NEW_TEXT = "The text above is new: an earlier attempt was asked for something else."


def edit(task: Task, trigger: t.Edit, now: int) -> Step:
    details = task.details
    reassigned = trigger.to not in ("", task.to)
    may = details.reason_kind == "approval_timeout" or (
        # Another agent may know what this one had to ask.
        details.reason_kind == "asked" and reassigned
    )
    if task.state is State.BLOCKED and not may:
        raise Refused(
            f"{task.id} is blocked ({details.reason_kind}), and other words do not answer that."
            " Nothing was changed.",
            "Answer it with what is to be done instead: `agentq answer`. What an agent asked can"
            " also go to another role: `agentq reassign`.",
            code="wrong_state",
        )
    edited = _merged(details.edited, trigger, task.version + 1)
    spec = edited_spec(task.spec, edited)
    if spec == task.spec:
        return Step(task.state, "")
    approver = details.approved_by
    details = replace(details, edited=edited, approved_by="", approved_digest="", asked_at=0)
    if task.state is State.BLOCKED:
        if details.reason_kind == "asked":
            text = f"It was given to {trigger.to}, as {task.to} had asked: {details.reason}"
            details = annotated(details, now, trigger.by, "edit", text)
        details = replace(details, reason="", reason_kind="", remind_at=0)
    if task.epoch and trigger.instructions:
        details = annotated(details, now, trigger.by, "edit", NEW_TEXT)
    step = waits(spec, details, now, "edited")
    step.spec = spec
    why = f"edited by {trigger.by}" + (f" after {approver} had approved it" if approver else "")
    step.effects = tuple(_with_reason(effect, why) for effect in step.effects)
    return step


def _merged(before: Edited | None, trigger: t.Edit, version: int) -> Edited:
    """All that edits have changed so far, this one included."""
    edited = before or Edited(version)
    by = edited.by if trigger.by in edited.by else (*edited.by, trigger.by)
    edited = replace(edited, version=version, by=by)
    given = {name: getattr(trigger, name) for name in ("to", "title", "priority")}
    edited = replace(edited, **{name: value for name, value in given.items() if value})
    if not trigger.instructions:
        return edited
    text, sha256 = trigger.instructions, trigger.context_sha256
    return replace(edited, instructions=text, context_sha256=sha256)


def _with_reason(effect: Effect, why: str) -> Effect:
    """Approvers are told why they are asked again."""
    return replace(effect, text=f"{why}: {effect.text}") if type(effect) is Notify else effect
