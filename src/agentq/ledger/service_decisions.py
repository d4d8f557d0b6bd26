"""The verbs of the service interface by which somebody decides: about a task, or about a role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.core.access import Action, Principal, PrincipalKind, approves_own
from agentq.core.errors import Refused
from agentq.core.states import State
from agentq.core.task import NO_USAGE, Task, Usage
from agentq.core.trigger_validation import check_comment
from agentq.core.triggers import (
    Answer,
    Approve,
    Cancel,
    Comment,
    Reject,
    Resolution,
    Ruling,
    Trigger,
    Verdict,
)
from agentq.ledger.service_custody import CustodyService, brief
from agentq.ledger.service_queries import recorded
from agentq.protocol.secret_detection import redact

if TYPE_CHECKING:
    from agentq.contracts.service_values import ArtifactInfo, Circuit
    from agentq.core.limits import RoleLimits

#: A staged context older than this whose task never came is an orphan.
_ORPHAN_MS = 24 * 3600 * 1000


class DecisionService(CustodyService):
    """Decides about tasks and roles. Who did stands in the log, by name and by how it is known."""

    # -- tasks -----------------------------------------------------------------------------------

    def approve(self, who: Principal, ref: str, digest: str = "") -> Task:
        key, task = self._queries.find(ref)
        if task.state is State.REVIEW:
            return self._judge(who, key, task, Ruling.ACCEPT, "")
        self._check_task(who, Action.APPROVE, task)
        own = (
            who.kind is PrincipalKind.PERSON
            and who.name == task.spec.sender
            and approves_own(
                who.name, task, self._queries.limits(), four_eyes=self._resources.four_eyes
            )
        )
        return self._decide(who, key, Approve(who.name, digest, who.how, own))

    def reject(self, who: Principal, ref: str, reason: str = "", *, changes: bool = False) -> Task:
        key, task = self._queries.find(ref)
        if task.state is State.REVIEW:
            ruling = Ruling.CHANGES if changes else Ruling.REJECT
            return self._judge(who, key, task, ruling, reason)
        self._check_task(who, Action.REJECT, task)
        if changes:
            raise Refused(
                f"{task.id} is {task.state}: there is no report to ask changes of. Nothing was"
                " changed.",
                "Changes can be asked for while a task is in review.",
            )
        return self._decide(who, key, Reject(who.name, reason, who.how))

    def verdict(self, who: Principal, ref: str, ruling: Ruling, feedback: str = "") -> Task:
        key, task = self._queries.find(ref)
        return self._judge(who, key, task, Ruling(ruling), feedback)

    def _judge(self, who: Principal, key: int, task: Task, ruling: Ruling, feedback: str) -> Task:
        self._check_task(who, Action.VERDICT, task)
        judged = self._decide(who, key, Verdict(who.name, ruling, feedback, who.how))
        self._after_completion(judged)
        return judged

    def answer(
        self,
        who: Principal,
        ref: str,
        text: str = "",
        resolution: Resolution = Resolution.RETRY,
        extra_budget: Usage = NO_USAGE,
    ) -> Task:
        key, task = self._find(who, Action.ANSWER, ref)
        if extra_budget != NO_USAGE:
            self._check_task(who, Action.RAISE_BUDGET, task)
        said = Answer(who.name, text, Resolution(resolution), extra_budget, how=who.how)
        answered = self._decide(who, key, said)
        self._after_completion(answered)
        return answered

    def cancel(self, who: Principal, ref: str, reason: str = "") -> Task:
        key, _ = self._find(who, Action.CANCEL, ref)
        return self._decide(who, key, Cancel(who.name, reason, who.how))

    def requeue(self, who: Principal, ref: str, reason: str = "") -> Task:
        key, _ = self._find(who, Action.REQUEUE, ref)
        return self._ledger.requeue(key, who.name, reason, who.how, self._fence(who))

    def comment(self, who: Principal, ref: str, text: str, epoch: int = 0) -> Task:
        check_comment(text)
        if epoch:
            self._check_attempt(who, Action.COMMENT, ref, epoch)
            key = self._key(ref)
        else:
            key, task = self._find(who, Action.COMMENT, ref)
            if task.id == who.task_id:
                epoch = who.epoch
        return self._decide(who, key, Comment(who.name, redact(text), epoch, who.how))

    def _decide(self, who: Principal, key: int, trigger: Trigger) -> Task:
        return self._ledger.apply(key, trigger, self._fence(who))

    def _fence(self, who: Principal) -> tuple[int, int] | None:
        """An attempt that has lost its task decides nothing about any other either."""
        if who.kind is not PrincipalKind.ATTEMPT:
            return None
        return self._key(who.task_id), who.epoch

    # -- roles, providers, budgets -----------------------------------------------------------------

    def set_limits(self, who: Principal, role: str, limits: RoleLimits) -> None:
        self._check(who, Action.SET_LIMITS, role)
        self._ledger.set_limits(role, limits)

    def open_circuit(
        self, who: Principal, provider: str, until_ms: int, reason: str = ""
    ) -> Circuit:
        from agentq.contracts.service_values import Circuit

        self._check(who, Action.OPEN_CIRCUIT, provider)
        return Circuit(*self._ledger.open_circuit(provider, until_ms, brief(reason), who.name))

    def close_circuit(self, who: Principal, provider: str) -> bool:
        self._check(who, Action.CLOSE_CIRCUIT, provider)
        return self._ledger.close_circuit(provider, who.name)

    def raise_tree_budget(self, who: Principal, ref: str, extra: Usage) -> Task:
        key, _ = self._find(who, Action.RAISE_BUDGET, ref)
        return self._ledger.raise_tree(key, who.name, extra, who.how)

    # -- keeping -----------------------------------------------------------------------------------

    def prune(self, who: Principal, before_ms: int) -> int:
        from agentq.ledger.pruning import touch

        self._check(who, Action.PRUNE)
        # A ledger that was moved refuses this: contexts it does not know may be of the other one.
        self._store.write(touch)
        # What has committed is a task before anything it names, or its context, may go.
        self._publish_contexts(self._ledger.decide_deferred())
        # Before tasks, so that none is deleted while the files are out of reach.
        self._sweep_contexts()
        return self._ledger.prune(before_ms + 1, self._artifacts.remove)

    def _sweep_contexts(self) -> None:
        """Drop contexts that submitters staged and never committed; young ones may be under way."""
        from agentq.ledger.pruning import Named

        named = Named()
        self._store.read(named.look)

        def is_wanted(task_id: str, sha256: str) -> bool:
            if (task_id, sha256) in named.contexts:
                return True
            task = self._queries.by_id([task_id]).get(task_id)
            return task is not None and task.spec.context_sha256 == sha256

        self._artifacts.sweep(self._store.now() - _ORPHAN_MS, is_wanted)

    def task_files(
        self, who: Principal, after: int = 0, limit: int = 500
    ) -> tuple[list[tuple[Task, list[ArtifactInfo]]], int]:
        self._check(who, Action.READ, "every task")
        page = self._queries.with_artifacts(after, limit)
        return [(task, recorded(rows)) for _, task, rows in page], page[-1][0] if page else 0

    def files_to_remove(self, who: Principal) -> int:
        from agentq.ledger.pruning import files_to_remove

        self._check(who, Action.READ, "every task")
        return self._store.read(files_to_remove)

    def lanes(self, who: Principal) -> frozenset[str]:
        self._check(who, Action.READ, "the lanes of the outbox")
        # Not what this process knows: another one may have opened or closed some.
        return self._store.write(lambda tx: tx.lanes())

    def open_lanes(self, who: Principal, lanes: Sequence[str]) -> None:
        self._check(who, Action.OPERATE)
        self._ledger.open_lanes(*lanes)

    def close_lanes(self, who: Principal, lanes: Sequence[str]) -> None:
        self._check(who, Action.OPERATE)
        self._ledger.close_lanes(*lanes)
