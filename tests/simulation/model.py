"""What the world knows without asking the database: every task's shadow and what lies around it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Spec
from agentq.core.triggers import Event
from agentq.core.values import replace
from tests.simulation.answers import Judgement, meaning
from tests.simulation.circuits import NO_LIMIT, ModelCircuits
from tests.simulation.endings import Expected
from tests.simulation.following import following
from tests.simulation.quotas import Quotas
from tests.simulation.shadow import Shadow
from tests.simulation.standing import CANCELLED, COMPLETE, READY, REVIEW
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
        #: By the parent's key, the tasks that were submitted as its children.
        self.kin: defaultdict[int, list[Shadow]] = defaultdict(list)
        #: By the key of a completed task, those that it named as next.
        self.followers: defaultdict[int, list[Shadow]] = defaultdict(list)
        #: Whether tasks of this history are related by more than what they come after.
        self.has_kin = False
        #: By author, the tasks that review what it reported.
        self.reviews_of: defaultdict[str, list[Shadow]] = defaultdict(list)
        #: Reviews whose verdicts were delivered, and who leads which loop.
        self.delivered_reviews: set[str] = set()
        self.terms: dict[str, tuple[str, int, int]] = {}
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
                found.update(child.id for child in self.kin.get(shadow.key, ()))
        return found

    def open_children(self, key: int) -> set[str]:
        return {child.id for child in self.kin.get(key, ()) if not child.over}

    def waits_for_itself(self, task_id: str, through: Iterable[str]) -> bool:
        seen, left = set[str](), list(through)
        while left:
            here = left.pop()
            if here == task_id:
                return True
            shadow = self.by_id.get(here)
            if here not in seen and shadow is not None and not shadow.over:
                seen.add(here)
                left += shadow.waiting
                left += self.open_children(shadow.key) if shadow.yielded else ()
        return False

    def waiting_parent(self, key: int) -> str:
        parent = self.shadows.get(self.shadows[key].parent_key)
        return parent.id if parent is not None and parent.yielded else ""

    def judgement(self, review: str, reviewed: str) -> Judgement | None:
        shadow = self.by_id.get(review)
        if shadow is None or shadow.spec.reviews != reviewed or review in self.delivered_reviews:
            return None
        said = meaning(shadow.report[5]) if shadow.report and shadow.state is COMPLETE else None
        of = shadow.spec.inputs.get("epoch", 0)
        return said and replace(said, role=shadow.spec.to, of=of)

    def parent_of(self, task_id: str) -> str:
        return self.by_id[task_id].spec.parent if task_id in self.by_id else ""

    def role_of(self, task_id: str) -> str:
        return self.by_id[task_id].spec.to if task_id in self.by_id else ""

    # -- changes ---------------------------------------------------------------------------------

    def born(self, shadow: Shadow) -> None:
        self.shadows[shadow.key] = self.by_id[shadow.id] = shadow
        self.last_key = shadow.key
        self.files.add(shadow.id)
        for parent in shadow.spec.after:
            self.children[parent].append(shadow)
        if shadow.spec.reviews:
            self.reviews_of[shadow.spec.reviews].append(shadow)

    def adopted(self, child: Shadow) -> None:
        """Note whose child a new task is, unless its parent never opens again."""
        parent = self.by_id.get(child.spec.parent)
        if parent is not None and parent.state not in (COMPLETE, CANCELLED):
            child.parent_key = parent.key
            self.kin[parent.key].append(child)
        elif parent is not None and child.id in following(parent):
            self.followers[parent.key].append(child)

    def has_below(self, shadow: Shadow) -> bool:
        """Whether a task has children, or tasks that followed it."""
        return bool(self.kin.get(shadow.key) or self.followers.get(shadow.key))

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
        self.kin.pop(key, None)
        self.reviews_of.pop(shadow.id, None)
        if shadow.spec.reviews in self.reviews_of:
            self.reviews_of[shadow.spec.reviews].remove(shadow)
        if shadow.parent_key in self.kin:
            self.kin[shadow.parent_key].remove(shadow)
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
