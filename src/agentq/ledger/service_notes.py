"""The verbs of the service interface that leave something with a task: notes, messages, marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.core import triggers as t
from agentq.core.access import Action, Principal
from agentq.core.comments import mentioned
from agentq.core.trigger_validation import check_cause, check_comment, check_message
from agentq.ledger.request_keys import repeatable, the_task
from agentq.ledger.service_edits import EditService
from agentq.protocol.secret_detection import redact

if TYPE_CHECKING:
    from agentq.core.task import Task


class NoteService(EditService):
    """Leaves comments and messages, and marks work that was applied."""

    @repeatable(the_task)
    def mark_applied(
        self, who: Principal, ref: str, commit: str, branch: str = "", *, if_version: int = 0
    ) -> Task:
        key, task = self._find(who, Action.APPLY, ref)
        trigger = t.Applied(who.name, commit, branch, who.how)
        said = f"{commit[:12]} on {branch}" if branch else commit[:12]
        return self._decide(who, Action.APPLY, key, task, trigger, said, if_version=if_version)

    @repeatable(the_task)
    def comment(
        self,
        who: Principal,
        ref: str,
        text: str,
        epoch: int = 0,
        denied: int = 0,
        replaces: bool = False,
        cause: str = "",
    ) -> Task:
        check_comment(text)
        check_cause(cause)
        if epoch or denied:
            # What its tool was denied is for the worker to say, who has seen it.
            self._check_attempt(who, Action.RECORD if denied else Action.COMMENT, ref, epoch)
            key = self._key(ref)
        else:
            key, task = self._find(who, Action.COMMENT, ref)
            if task.id == who.task_id:
                epoch = who.epoch
        said = redact(text)
        comment = t.Comment(
            who.name, said, epoch, who.how, denied, replaces, () if denied else mentioned(said),
            "" if denied else cause or "said",
        )  # fmt: skip
        return self._ledger_for(who).apply(key, comment, self._fence(who))

    @repeatable(the_task)
    def tell(self, who: Principal, ref: str, message: str) -> Task:
        check_message(message)
        key, task = self._find(who, Action.TELL, ref)
        told = t.Tell(who.name, redact(message), who.how)
        audit = self._decision(who, Action.TELL, task.id)
        with self._noting(who, Action.TELL, task.id):
            return self._ledger_for(who).apply(key, told, self._fence(who), audit)
