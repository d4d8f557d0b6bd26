"""Changes what is asked for, or asks again: edits of waiting tasks, reruns of finished ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.core import triggers as t
from agentq.core.access import Action, Principal, check_submitter
from agentq.core.errors import Conflict, Invalid, NotFound, Refused
from agentq.core.task import Priority, Spec, Task
from agentq.core.values import replace
from agentq.ledger.request_keys import Remembered, repeatable, the_task
from agentq.ledger.service_graph import GraphService

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The label by which a task says which one it does again.
RERUN_OF = "rerun_of"


class EditService(GraphService):
    """Changes what waiting tasks ask for, and asks again for what finished ones did."""

    @repeatable(the_task)
    def edit(
        self,
        who: Principal,
        ref: str,
        to: str = "",
        title: str = "",
        priority: Priority | None = None,
        instructions: str = "",
        context: bytes = b"",
        *,
        if_version: int = 0,
    ) -> Task:
        key, task = self._find(who, Action.EDIT, ref)
        with self._noting(who, Action.EDIT, task.id):
            check_submitter(who, Action.EDIT, task)
        if to:
            self._check(who, Action.SUBMIT, role=to)
        _check_changes(to, title, priority, instructions, context)
        sha256 = self._artifacts.stage_context(task.id, context).sha256 if context else ""
        urgency = "" if priority is None else str(Priority(priority))
        trigger = t.Edit(who.name, to, title, urgency, instructions, sha256, who.how)
        audit = self._decision(who, Action.EDIT, task.id, _in_words(trigger))
        try:
            with self._noting(who, Action.EDIT, task.id):
                ledger = self._ledger_for(who)
                edited = ledger.edit(key, trigger, audit, if_version=if_version)
        except (Invalid, Conflict, Refused, NotFound, Remembered):
            # Refused for certain, or done before. Of anything else nobody knows: the context stays.
            if sha256:
                self._artifacts.discard_context(task.id, sha256)
            raise
        if sha256 and edited.edited_context == sha256:
            self._publish_context(task.id, sha256, edited=True)
        elif sha256:  # it says what the task said before
            self._artifacts.discard_context(task.id, sha256)
        return edited

    def rerun(
        self,
        who: Principal,
        ref: str,
        new_id: str,
        to: str = "",
        title: str = "",
        priority: Priority | None = None,
        instructions: str = "",
        context: bytes = b"",
    ) -> Task:
        _, task = self._find(who, Action.READ, ref)
        # Not for an attempt: what it submits belongs to its own task.
        self._check_submission(who, [replace(task.spec, to=to or task.to)])
        if not task.is_terminal:
            raise Refused(
                f"{task.id} is {task.state}: what is not over is not run again. Nothing was"
                " submitted.",
                f"`agentq explain {task.id}` says what it waits for; `agentq edit` changes one that"
                " waits, and `agentq cancel` ends it.",
                code="wrong_state",
            )
        if context and not instructions:
            raise _context_alone()
        known = self._queries.by_id([*task.spec.after, task.spec.parent or task.id])
        spec = replace(
            task.spec,
            id=new_id,
            idempotency_key="",
            traceparent="",
            after=tuple(each for each in task.spec.after if each in known),
            parent=task.spec.parent if task.spec.parent in known else "",
            labels={**task.spec.labels, RERUN_OF: task.id},
            context_sha256="",
            **_overriding(to, title, priority, instructions),
        )
        contexts = {} if not context else {new_id: context}
        if task.spec.context_sha256 and not instructions:
            contexts[new_id] = self._context_of(task)
        children = tuple(self._renamed(each, task.id, new_id, contexts) for each in spec.next)
        return self.submit(who, [replace(spec, next=children)], contexts, [new_id])[0]

    def _renamed(self, spec: Spec, old: str, new: str, contexts: dict[str, bytes]) -> Spec:
        """What comes next under the name that follows from its parent's, with its context."""
        name = spec.id
        if name.startswith(f"{old}."):
            name = new + name.removeprefix(old)
        if spec.context_sha256:
            contexts[name] = self._artifacts.context(spec.id, spec.context_sha256)
        children = tuple(self._renamed(each, spec.id, name, contexts) for each in spec.next)
        return replace(spec, id=name, idempotency_key="", context_sha256="", next=children)


def _overriding(
    to: str, title: str, priority: Priority | None, instructions: str
) -> dict[str, Any]:
    given = {"to": to, "title": title, "priority": priority, "instructions": instructions}
    return {name: value for name, value in given.items() if value}


def _check_changes(
    to: str, title: str, priority: Priority | None, instructions: str, context: bytes
) -> None:
    if context and not instructions:
        raise _context_alone()
    if not (to or title or priority or instructions):
        raise Invalid(
            "An edit changes the text, the title, the priority or the role of a task, and none of"
            " them was given. Nothing was changed.",
            "Say what it should be.",
        )
    if not all(each.strip() for each in (to, title, instructions) if each):
        raise Invalid(
            "A field of a task takes some text, got blanks. Nothing was changed.",
            "Leave out what stays as it is.",
        )


def _context_alone() -> Invalid:
    return Invalid(
        "A context comes with instructions that say in a line what it is about, and there are none."
        " Nothing was changed.",
        "Send both.",
    )


def _in_words(trigger: t.Edit) -> str:
    return ", ".join(_words_of(trigger))


def _words_of(trigger: t.Edit) -> Iterator[str]:
    if trigger.instructions:
        yield "other instructions"
    if trigger.title:
        yield f"title {trigger.title!r}"
    if trigger.priority:
        yield f"priority {trigger.priority}"
    if trigger.to:
        yield f"role {trigger.to}"
