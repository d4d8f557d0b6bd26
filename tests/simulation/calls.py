"""One call of an actor to the ledger, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentq.contracts.store import Lease
from agentq.core import triggers as t
from agentq.core.errors import AgentqError, Unavailable
from agentq.core.task import Spec, Task
from agentq.core.triggers import Trigger
from agentq.ledger.ledger import Ledger
from tests.simulation.faults import LostAnswer

#: Verbs that may take several transactions: a failure leaves what was committed before it.
MANY_TRANSACTIONS = frozenset({"claim", "tick", "prune"})


@dataclass(slots=True)
class Call:
    """What is about to be asked, with everything the checker needs to predict the answer."""

    actor: str
    verb: str
    run: Callable[[], Any]
    items: tuple[tuple[int, Trigger], ...] = ()
    role: str = ""
    count: int = 0
    provider: str = ""
    #: What is done to a circuit, whose it is, and until when or why.
    circuit: tuple[str, str, int | str] | None = None
    specs: tuple[Spec, ...] = ()
    generated: frozenset[str] = frozenset()
    fence: tuple[int, int] | None = None
    leases: tuple[Lease, ...] = ()
    sequences: tuple[int, ...] = ()
    before: int = 0
    forgotten: list[str] = field(default_factory=list)
    skew_ms: int = 0

    def __str__(self) -> str:
        said = [f"{key}: {trigger}" for key, trigger in self.items]
        said += [str(lease) for lease in self.leases]
        said += [_short(spec) for spec in self.specs]
        if self.role:
            said.append(f"{self.role} x{self.count} {self.provider}".rstrip())
        if self.circuit:
            said.append(" ".join(map(str, self.circuit)))
        if self.sequences:
            said.append(str(self.sequences))
        if self.fence:
            said.append(f"as {self.fence}")
        return f"{self.actor} {self.verb} {'; '.join(said)}".rstrip()


def _short(spec: Spec) -> str:
    plain = Spec(id=spec.id, to=spec.to)
    told = [
        f"{name}={getattr(spec, name)!r}"
        for name in Spec.__struct_fields__
        if name not in ("id", "next") and getattr(spec, name) != getattr(plain, name)
    ]
    told += [f"next={[child.id for child in spec.next]}"] if spec.next else []
    return f"{spec.id}->{spec.to}({' '.join(told)})"


@dataclass(slots=True)
class Outcome:
    """The answer. `unknown` means that nobody can tell whether it was applied."""

    value: Any = None
    error: AgentqError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def unknown(self) -> bool:
        return isinstance(self.error, LostAnswer)

    @property
    def unserved(self) -> bool:
        return isinstance(self.error, Unavailable)

    @property
    def worth_a_retry(self) -> bool:
        return self.unknown or self.unserved

    @property
    def refused(self) -> bool:
        return self.error is not None and not self.worth_a_retry

    def __str__(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__}({self.error.code}): {self.error.cause[:110]}"
        text = str(self.value)
        return text if len(text) < 110 else f"{text[:107]}..."


def apply(actor: str, ledger: Ledger, key: int, trigger: Trigger, skew_ms: int = 0) -> Call:
    """A trigger applied by the verb that the service would use."""
    return Call(
        actor, "apply", lambda: _apply(ledger, key, trigger), ((key, trigger),), skew_ms=skew_ms
    )


def _apply(ledger: Ledger, key: int, trigger: Trigger) -> Task:
    if isinstance(trigger, t.FailAttempt):
        return ledger.fail(key, trigger.epoch, trigger.reason, trigger.kind, trigger.cost)
    if isinstance(trigger, t.Requeue):
        return ledger.requeue(key, trigger.by, trigger.reason)
    if isinstance(trigger, t.Edit):
        return ledger.edit(key, trigger)
    return ledger.apply(key, trigger)
