"""What the world knows without asking the database: every task's shadow and what lies around it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Spec
from agentq.core.triggers import Event
from agentq.core.values import replace
from tests.simulation.circuits import NO_LIMIT, ModelCircuits
from tests.simulation.quotas import Quotas
from tests.simulation.shadow import Expected, Shadow
from tests.simulation.standing import READY, REVIEW
from tests.simulation.violation import EFFECTS, IRREVERSIBLE, LIMITS, Violation


@dataclass(frozen=True, slots=True)
class Remembered:
    """What an idempotency key or a chosen id stands for, and until when."""

    task_id: str
    body: Spec
    expires_at: int


def body_of(spec: Spec) -> Spec:
    """What idempotency compares: everything but the names it was sent under."""
    children = tuple(
        replace(child, id="") if child.id == f"{spec.id}.{number}" else child
        for number, child in enumerate(spec.next, 1)
    )
    return replace(spec, id="", idempotency_key="", next=children)


def names_of(spec: Spec, generated: frozenset[str]) -> list[str]:
    names = [f"key:{spec.idempotency_key}"] if spec.idempotency_key else []
    return names if spec.id in generated else [*names, f"id:{spec.id}"]


class Model:
    """Shadows by key and id, and the facts that are not of one task: limits, resources, names."""

    def __init__(self, dedup_ms: int) -> None:
        self.dedup_ms = dedup_ms
        self.shadows: dict[int, Shadow] = {}
        self.by_id: dict[str, Shadow] = {}
        self.pruned: dict[str, State] = {}
        #: Tasks of which there are files.
        self.files: set[str] = set()
        self.children: defaultdict[str, list[Shadow]] = defaultdict(list)
        self.limits: dict[str, RoleLimits] = {}
        self.circuits = ModelCircuits()
        self.running: Counter[str] = Counter()
        self.in_review: Counter[str] = Counter()
        self.quotas = Quotas()
        self.names: dict[str, Remembered] = {}
        #: By name, until when those of pruned tasks were to be remembered before they were pruned.
        self.windows: dict[str, int] = {}
        self.lanes: frozenset[str] = frozenset()
        #: Every event ever committed: position, task id, version; and the keys beside them.
        self.log: list[tuple[int, str, int]] = []
        self.log_keys: list[int] = []
        self.last_key = 0
        #: Deliveries to the world outside, by the effect's stable id.
        self.delivered: dict[str, tuple[str, str]] = {}
        self.side_effects: Counter[int] = Counter()
        #: What this history has seen: transitions, faults, refusals. It tells of blind spots.
        self.seen: set[str] = set()

    def outcome(self, task_id: str) -> State:
        shadow = self.by_id.get(task_id)
        return shadow.state if shadow else self.pruned[task_id]

    def wanted(self) -> set[str]:
        """What tasks that are not over refer to."""
        found: set[str] = set()
        for shadow in self.shadows.values():
            if not shadow.over or shadow.holder:
                found.update(shadow.spec.after)
            if not shadow.over:
                found.add(shadow.spec.parent)
                for child in shadow.spec.next:
                    found.update((child.id, *child.after))
        return found

    # -- changes ---------------------------------------------------------------------------------

    def born(self, shadow: Shadow) -> None:
        self.shadows[shadow.key] = self.by_id[shadow.id] = shadow
        self.last_key = shadow.key
        self.files.add(shadow.id)
        for parent in shadow.spec.after:
            self.children[parent].append(shadow)

    def is_kept(self, task_id: str, now: int) -> bool:
        """Whether it was pruned, and its name may not be given again yet."""
        known = self.names.get(f"id:{task_id}")
        pruned = task_id in self.pruned and task_id not in self.by_id
        return pruned and known is not None and known.expires_at > now

    def forget(self, key: int, now: int) -> None:
        shadow = self.shadows.pop(key)
        del self.by_id[shadow.id]
        name = f"id:{shadow.id}"
        known = self.names.get(name)
        if known is None or known.expires_at <= now:
            self.names[name] = Remembered(shadow.id, body_of(shadow.submitted), 0)
        self.windows[name] = self.names[name].expires_at
        self.pruned[shadow.id] = shadow.state
        for child in self.children.pop(shadow.id, ()):
            child.gone[shadow.id] = shadow.state
        for parent in shadow.spec.after:
            if parent in self.children:
                self.children[parent] = [c for c in self.children[parent] if c.key != key]

    def apply(self, shadow: Shadow, event: Event) -> list[Expected]:
        """Tell the shadow, and keep the counts that limits speak of."""
        role, held_before, reviewed = shadow.spec.to, bool(shadow.holder), shadow.state is REVIEW
        effects = shadow.apply(event)
        if reviewed is not (shadow.state is REVIEW):
            self.in_review[role] += -1 if reviewed else 1
        if held_before is not bool(shadow.holder):
            if held_before:
                self.running[role] -= 1
                self.quotas.release(shadow)
            else:
                self._started(shadow)
        return effects

    def _started(self, shadow: Shadow) -> None:
        """A claim committed: were the limits kept?"""
        role = shadow.spec.to
        limits = self.limits.get(role, RoleLimits())
        self.running[role] += 1
        if limits.paused:
            raise Violation(LIMITS, f"{shadow.id} was started while {role} is paused")
        if limits.max_running and self.running[role] > limits.max_running:
            raise Violation(LIMITS, f"{self.running[role]} of {role} run, {limits}")
        if limits.max_review and self.in_review[role] >= limits.max_review:
            raise Violation(LIMITS, f"{self.in_review[role]} of {role} in review, {limits}")
        self.quotas.hold(shadow, self.seen)

    # -- questions -------------------------------------------------------------------------------

    def room(self, role: str) -> int:
        """How many more of a role may start; a large number if nothing limits it."""
        if role in self.circuits.roles:
            return 0
        limits = self.limits.get(role, RoleLimits())
        if limits.paused or (limits.max_review and self.in_review[role] >= limits.max_review):
            return 0
        if not limits.max_running:
            return NO_LIMIT
        return max(limits.max_running - self.running[role], 0)

    def is_claimable(self, shadow: Shadow, now: int) -> bool:
        return (
            shadow.state is READY
            and not (shadow.expires_at and max(now, shadow.updated_at) >= shadow.expires_at)
            and self.quotas.is_free(shadow.spec.resources, now)
        )

    def next_up(self, role: str, now: int) -> Shadow | None:
        """The task that the next claim of this role must take first."""
        ready = [s for s in self.shadows.values() if s.spec.to == role and s.state is READY]
        ready = [shadow for shadow in ready if self.is_claimable(shadow, now)]
        return min(ready, key=lambda s: (s.spec.priority.rank, s.key), default=None)

    # -- the world outside -----------------------------------------------------------------------

    def deliver(self, effect_id: str, lane: str, payload: str) -> None:
        """Something left the system. The same id must always be the same thing."""
        if self.delivered.setdefault(effect_id, (lane, payload)) != (lane, payload):
            raise Violation(EFFECTS, f"effect {effect_id} was delivered with two contents")

    def do_irreversibly(self, shadow: Shadow) -> None:
        """An agent did the thing that cannot be undone."""
        self.side_effects[shadow.key] += 1
        if self.side_effects[shadow.key] > shadow.approvals:
            raise Violation(
                IRREVERSIBLE,
                f"{shadow.id} was done {self.side_effects[shadow.key]} times,"
                f" approved {shadow.approvals} times",
            )
