"""Random tasks: every feature of a spec alone and in odd company."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from agentq.core.task import (
    ApprovalPolicy,
    Escalation,
    ExpectedOutput,
    Gates,
    OnDependencyFailure,
    OnTimeout,
    Priority,
    Spec,
    Usage,
)
from agentq.core.values import replace

ROLES = ("impl", "check")
#: Who reviews, and is reviewed by nobody: else two roles could wait for each other's verdicts.
JUDGES = "judge"
SENDERS = ("coordinator", "planner")
RESOURCES = ("repo", "staging", "printer")
LEASES_S = (60, 120, 600, 3600)
FEATURES = (
    "after", "next", "resources", "key", "irreversible", "approval", "review", "ttl", "delay",
    "budget", "reply", "expect", "priority", "attempts",
)  # fmt: skip

#: How tasks may be related: histories that know none of these are as they were without them.
KINSHIP = ("children", "reviewer", "policy", "signals", "templates")
SIGNAL_NAMES = ("deployed", "data")
#: Of a task that is made once for each part that the task before names.
TEMPLATE = "do {{ item }}, {{ index }} of {{ task.id }}"


@dataclass(slots=True)
class SpecMaker:
    """Makes specs; a history draws which features it knows, so that each gets its turn alone."""

    rng: Random
    features: frozenset[str]
    kinship: frozenset[str] = frozenset()
    made: int = 0

    def _has(self, feature: str, share: float) -> bool:
        return feature in self.features and self.rng.random() < share

    def _knows(self, relation: str, share: float) -> bool:
        return relation in self.kinship and self.rng.random() < share

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
        if (self._has("next", 0.5) or self._knows("templates", 0.3)) and not nested:
            fields["next"] = self._following(sender, task_id, there)
        spec = Spec(id=task_id, to=rng.choice(ROLES), **fields)
        return self._related(spec, there, nested) if self.kinship else spec

    def _related(self, spec: Spec, there: list[str], nested: bool) -> Spec:
        """The same with reviewers, policies, signals to wait for, a parent."""
        rng = self.rng
        if self._knows("reviewer", 0.6):
            reviewer = rng.choice(("check", JUDGES, JUDGES)) if spec.to == "impl" else JUDGES
            gates = Gates(
                "", reviewer, rng.choice((0, 0, 60)), rng.choice((0, 1, 1)), rng.random() < 0.3
            )
            spec = replace(spec, gates=gates)
        elif self._knows("reviewer", 0.2):
            spec = replace(spec, gates=Gates(person=True))
        if self._knows("signals", 0.4):
            names = rng.choices(SIGNAL_NAMES, k=rng.choice((1, 1, 2)))
            spec = replace(spec, wait_for=tuple(names))
        if there and not nested and self._knows("children", 0.25):
            spec = replace(spec, parent=rng.choice(there))
        decided = spec.needs_approval or spec.review or spec.gates != Gates()
        return self._with_policy(spec) if decided and self._knows("policy", 0.7) else spec

    def _with_policy(self, spec: Spec) -> Spec:
        rng = self.rng
        moments = sorted(rng.sample((300, 1800, 4000, 9000), rng.randrange(3)))
        policy = ApprovalPolicy(
            rng.choice((0, 900, 5400)),
            tuple(Escalation(each, rng.choice(("lead", "owner"))) for each in moments),
            rng.choice(tuple(OnTimeout)),
        )
        # That nobody answers never approves what cannot be undone: mostly people know.
        if spec.irreversible and policy.on_timeout is OnTimeout.APPROVE and rng.random() < 0.8:
            policy = replace(policy, on_timeout=OnTimeout.REJECT)
        timeout = spec.approval_timeout_seconds
        if policy.on_timeout is not OnTimeout.HOLD or rng.random() < 0.6:
            timeout = rng.choice((1200, 7200))
        return replace(spec, approval=policy, approval_timeout_seconds=timeout)

    def _following(self, sender: str, task_id: str, there: list[str]) -> tuple[Spec, ...]:
        """What is to follow a task: after it, after each other, after anything that is there."""
        known = [task_id, *there]
        children = []
        for number in range(1, self.rng.randrange(2, 4)):
            name = f"{task_id}.{number}"
            child = replace(self.make(sender, known, nested=True), id=name)
            if self._knows("templates", 0.5):
                child = replace(child, each="result.parts", instructions=TEMPLATE)
            children.append(child)
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
