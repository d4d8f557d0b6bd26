"""The verbs of the service interface by which tasks wait, for each other or for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.core import triggers as t
from agentq.core.access import Action, Principal, PrincipalKind, check_submitter
from agentq.ledger.request_keys import repeatable, the_task
from agentq.ledger.service_circuits import CircuitService
from agentq.ledger.service_custody import brief
from agentq.protocol.spec_validation import check_signal_name
from agentq.protocol.structured_data import structured_data

if TYPE_CHECKING:
    from agentq.core.task import Task
    from agentq.ledger.unit_of_work import Fence


class GraphService(CircuitService):
    """Lets attempts leave and go on later, takes signals, holds tasks and dispatches them."""

    @repeatable(the_task)
    def yield_attempt(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        wait: str = "all",
        note: str = "",
        signals: Sequence[str] = (),
    ) -> Task:
        self._check_attempt(who, Action.YIELD, task_id, epoch)
        names = tuple(check_signal_name(each) for each in signals)
        self._decide_deferred()  # what it has submitted in a transaction is among its children
        return self._apply(who, task_id, t.Yield(epoch, wait, brief(note), names))

    @repeatable(the_task)
    def signal(self, who: Principal, ref: str, name: str, data: str = "") -> Task:
        check_signal_name(name)
        key, task = self._find(who, Action.SIGNAL, ref)
        kept = structured_data(data, "The data of a signal")
        trigger = t.Signal(who.name, name, kept, who.how)
        return self._decide(who, Action.SIGNAL, key, task, trigger, name)

    @repeatable(the_task)
    def hold(self, who: Principal, ref: str, reason: str = "", *, if_version: int = 0) -> Task:
        trigger = t.Hold(who.name, reason, who.how)
        return self._keep_back(who, Action.HOLD, ref, trigger, reason, if_version)

    @repeatable(the_task)
    def dispatch(self, who: Principal, ref: str, *, if_version: int = 0) -> Task:
        trigger = t.Dispatch(who.name, who.how)
        return self._keep_back(who, Action.DISPATCH, ref, trigger, "", if_version)

    def _keep_back(
        self,
        who: Principal,
        action: Action,
        ref: str,
        trigger: t.Hold | t.Dispatch,
        said: str,
        if_version: int,
    ) -> Task:
        key, task = self._find(who, action, ref)
        with self._noting(who, action, task.id):
            check_submitter(who, action, task)
        return self._decide(who, action, key, task, trigger, said, if_version=if_version)

    def _decide(
        self,
        who: Principal,
        action: Action,
        key: int,
        task: Task,
        trigger: t.Trigger,
        said: str = "",
        *,
        if_version: int = 0,
    ) -> Task:
        """Apply what somebody decided about a task, with who it was."""
        audit = self._decision(who, action, task.id, said)
        fence = self._fence(who)
        with self._noting(who, action, task.id):
            ledger = self._ledger_for(who)
            return ledger.apply(key, trigger, fence, audit, if_version=if_version)

    def _fence(self, who: Principal) -> Fence:
        """An attempt that has lost its task decides nothing about any other either."""
        if who.kind is not PrincipalKind.ATTEMPT:
            return None
        return self._key(who.task_id), who.epoch
