"""The verbs of the service interface about circuits: a provider's, and a role's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.contracts import service_values as v
from agentq.core.access import Action, Principal
from agentq.ledger.circuits import Interruption
from agentq.ledger.request_keys import repeatable, the_task
from agentq.ledger.service_custody import CustodyService, brief

if TYPE_CHECKING:
    from agentq.core.task import Task


class CircuitService(CustodyService):
    """Opens and closes circuits, and says who did."""

    def open_circuit(
        self, who: Principal, provider: str, until_ms: int, reason: str = ""
    ) -> v.Circuit:
        self._check(who, Action.OPEN_CIRCUIT, provider)
        said = brief(reason)
        audit = self._decision(who, Action.OPEN_CIRCUIT, provider, said)
        row = self._ledger.circuits.open(provider, until_ms, said, who.name, audit)
        return v.Circuit(*row[:6], bool(row.probing))

    def close_circuit(self, who: Principal, provider: str) -> bool:
        self._check(who, Action.CLOSE_CIRCUIT, provider)
        audit = self._decision(who, Action.CLOSE_CIRCUIT, provider)
        return self._ledger.circuits.close(provider, who.name, audit)

    def reset_circuit(self, who: Principal, provider: str) -> bool:
        # Whoever may say that a provider is away may say that it is back: nothing else is undone.
        self._check(who, Action.OPEN_CIRCUIT, provider)
        audit = self._decision(who, Action.CLOSE_CIRCUIT, provider, "it serves again")
        return self._ledger.circuits.reset(provider, audit)

    def open_role_circuit(self, who: Principal, role: str, reason: str) -> bool:
        self._check(who, Action.CHECK_ROLE, role=role)
        said = brief(reason)
        audit = self._decision(who, Action.OPEN_CIRCUIT, role, said)
        return self._ledger.circuits.open_role(role, said, who.name, audit)

    def close_role_circuit(self, who: Principal, role: str) -> bool:
        self._check(who, Action.CHECK_ROLE, role=role)
        audit = self._decision(who, Action.CLOSE_CIRCUIT, role)
        return self._ledger.circuits.close_role(role, audit)

    @repeatable(the_task)
    def interrupt(
        self, who: Principal, task_id: str, epoch: int, reason: str, provider: str = ""
    ) -> Task:
        self._check_attempt(who, Action.RELEASE, task_id, epoch)
        self._check(who, Action.OPEN_CIRCUIT, provider or "its role")
        said, key = Interruption(epoch, brief(reason), provider), self._key(task_id)
        task = self._queries.get(key)
        subject = provider or (task.to if task is not None else task_id)
        audit = self._decision(who, Action.OPEN_CIRCUIT, subject, said.reason)
        return self._ledger_for(who).interrupt(key, said, who.name, audit)
