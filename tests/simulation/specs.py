"""Random tasks: every feature of a spec alone and in odd company."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from agentq.core.task import ExpectedOutput, OnDependencyFailure, Priority, Spec, Usage
from agentq.core.values import replace

ROLES = ("impl", "check")
SENDERS = ("coordinator", "planner")
RESOURCES = ("repo", "staging", "printer")
LEASES_S = (60, 120, 600, 3600)
FEATURES = (
    "after", "next", "resources", "key", "irreversible", "approval", "review", "ttl", "delay",
    "budget", "reply", "expect", "priority", "attempts",
)  # fmt: skip


@dataclass(slots=True)
class SpecMaker:
    """Makes specs; a history draws which features it knows, so that each gets its turn alone."""

    rng: Random
    features: frozenset[str]
    made: int = 0

    def _has(self, feature: str, share: float) -> bool:
        return feature in self.features and self.rng.random() < share

    def make(self, sender: str, there: list[str], *, nested: bool = False) -> Spec:
        """A fresh spec that may come after some of `there`."""
        rng = self.rng
        self.made += 1
        task_id = f"task-{self.made:03d}"
        fields: dict[str, Any] = {
            "sender": sender,
            "lease_seconds": rng.choice(LEASES_S),
            "instructions": f"do {task_id}",
        }
        if there and self._has("after", 0.6):
            fields["after"] = tuple(rng.sample(there, min(len(there), rng.randrange(1, 4))))
            fields["on_dependency_failure"] = rng.choice(list(OnDependencyFailure))
        if self._has("key", 0.5) and not nested:
            fields["idempotency_key"] = f"key-{task_id}"
        if self._has("resources", 0.6):
            fields["resources"] = tuple(rng.sample(RESOURCES, rng.randrange(1, 3)))
        self._add_gates(fields)
        self._add_times(fields)
        if self._has("reply", 0.7):
            fields["reply_to"] = f"results.{sender}"
        if self._has("priority", 0.7):
            fields["priority"] = rng.choice(list(Priority))
        if self._has("next", 0.5) and not nested:
            fields["next"] = self._following(sender, task_id, there)
        return Spec(id=task_id, to=rng.choice(ROLES), **fields)

    def _following(self, sender: str, task_id: str, there: list[str]) -> tuple[Spec, ...]:
        """What is to follow a task: after it, after each other, after anything that is there."""
        known = [task_id, *there]
        children = []
        for number in range(1, self.rng.randrange(2, 4)):
            name = f"{task_id}.{number}"
            children.append(replace(self.make(sender, known, nested=True), id=name))
            known.insert(0, name)
        return tuple(children)

    def _add_gates(self, fields: dict[str, Any]) -> None:
        rng = self.rng
        if self._has("irreversible", 0.5):
            fields["irreversible"] = True
        if self._has("approval", 0.4):
            fields["requires_approval"] = True
        if ("irreversible" in fields or "requires_approval" in fields) and rng.random() < 0.4:
            fields["approval_timeout_seconds"] = rng.choice((600, 7200))
        if self._has("review", 0.6):
            fields["review"] = True
        if self._has("expect", 0.6):
            names = rng.choice((("summary",), ("patch",), ("patch", "risks"), ("result",)))
            fields["expected_output"] = ExpectedOutput(artifacts=names)
        if self._has("budget", 0.6):
            fields["budget"] = Usage(tokens=rng.choice((10, 100)))
        if self._has("attempts", 0.7):
            fields["max_attempts"] = rng.randrange(1, 5)

    def _add_times(self, fields: dict[str, Any]) -> None:
        if self._has("ttl", 0.5):
            fields["ttl_seconds"] = self.rng.choice((5, 300, 7200, 40_000))
        if self._has("delay", 0.4):
            fields["delay_seconds"] = self.rng.choice((1, 60, 5000))
