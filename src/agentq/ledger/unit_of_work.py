"""One unit of work: tasks loaded under lock, decisions taken, everything saved together.

This is the heart of the ledger. `apply` asks `core.transition` and notes what follows; `finish`
carries on with what a decision means for other tasks (dependents, next tasks) until nothing is
left, then saves tasks, events and effects in one transaction. All of it commits or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.doorbell import (
    EVENTS_TOPIC,
    ROOM_TOPIC,
    holder_topic,
    lane_topic,
    role_topic,
)
from agentq.contracts.hook_rows import HookOutcomeRow
from agentq.contracts.limit_rows import CircuitRow, ResourceRow, RoleRow
from agentq.contracts.schedule_rows import ScheduleRow
from agentq.contracts.store import (
    HAS_DEPENDENTS,
    HAS_MENTIONS,
    HAS_RESOURCES,
    AddressRow,
    ArtifactRow,
    Changes,
    DedupRow,
    EffectRow,
    NewRow,
    SpecRow,
    SpendingRow,
    TaskRow,
    TreeRow,
    Tx,
)
from agentq.core.effects import Announce, Effect, ResolveDependents, StopHolder, lanes_of
from agentq.core.errors import Conflict, NotFound
from agentq.core.limits import DAY_MS
from agentq.core.states import State
from agentq.core.steps import fenced_out
from agentq.core.task import Spec, Task, Usage
from agentq.core.transition import transition
from agentq.core.triggers import (
    AddArtifact,
    DependencyEnded,
    Event,
    FailAttempt,
    Report,
    Spend,
    Tell,
    Trigger,
)
from agentq.ledger.codec import SpecCache, encode_details, to_hot, to_task
from agentq.ledger.costs import bookings, day_of, submits_of
from agentq.ledger.log_codec import encode_effect, encode_trigger, to_event_rows
from agentq.ledger.system_log import SystemNote, circuit_note, system_rows

#: Carries out what a decision about one task means for others, in the same transaction.
InnerEffects = Callable[["UnitOfWork", int, Effect], None]
#: The (key, epoch) of the attempt that asks, which must hold its task; None if no attempt asks.
Fence: TypeAlias = tuple[int, int] | None
#: Triggers with the keys of the tasks that they are applied to.
Items: TypeAlias = Sequence[tuple[int, Trigger]]


class UnitOfWork:
    """The tasks of one transaction, by key."""

    def __init__(
        self,
        tx: Tx,
        specs: SpecCache,
        role_ids: Callable[[Iterable[str]], dict[str, int]],
        carry_out: InnerEffects,
        limited: set[str] | None = None,
    ) -> None:
        self.tx = tx
        self._now = 0
        self.tasks: dict[int, Task] = {}
        self.flags: dict[int, int] = {}
        self._digests: dict[int, str] = {}
        #: What was decided, in order: the task's key, the event, and its trigger encoded.
        self.events: list[tuple[int, Event, str]] = []
        self.effects: list[EffectRow] = []
        self.topics: set[str] = set()
        #: Tasks that are born in this transaction. They have no key before it has committed.
        self.new: list[NewRow] = []
        self.artifacts: list[ArtifactRow] = []
        self.dedup: list[DedupRow] = []
        self.new_dedup: list[DedupRow] = []
        self.roles: list[RoleRow] = []
        self.resources: dict[str, ResourceRow] = {}
        self.circuits: list[CircuitRow] = []
        #: What the system stream shall say, beside the circuits above.
        self.notes: list[SystemNote] = []
        self.hook_outcomes: list[HookOutcomeRow] = []
        self.schedules: list[ScheduleRow] = []
        self._audit: list[AuditRow] = []
        #: The trees that tasks belong to, where they were loaded (see `shared_budgets`).
        self.roots: dict[int, list[int]] = {}
        self.trees: dict[int, TreeRow] = {}
        self.changed_trees: dict[int, None] = {}
        self.new_trees: list[TreeRow] = []
        #: How many tasks attempts of each role submit.
        self.submits: dict[str, int] = {}
        #: By the day of their events: a clock that was set back moves no cost to the day before.
        self._costs: dict[int, list[tuple[Spec, Usage]]] = {}
        self._specs = specs
        self._role_ids = role_ids
        self._carry_out = carry_out
        #: Roles that this process knows to have limits; whoever waits for capacity must be woken.
        self._limited: set[str] = set() if limited is None else limited
        self._keys: dict[str, int] = {}
        self._changed: dict[int, None] = {}
        self._readdressed: dict[int, None] = {}
        self._ended: list[tuple[int, State]] = []
        self._inner: list[tuple[int, Effect]] = []
        self._freed: list[int] = []
        self._lanes: frozenset[str] | None = None
        self._encoded: tuple[Trigger | None, str] = (None, "")

    @property
    def now(self) -> int:
        """The store's clock, read once, when first needed: after what is decided was locked."""
        if not self._now:
            self._now = self.tx.now()
        return self._now

    def adopt(self, row: TaskRow) -> Task:
        """Take in a task that the store has locked already."""
        spec, submitted_at = self._specs.put(row.spec)
        task = to_task(row.hot, spec, submitted_at)
        self.tasks[row.hot.key] = task
        self.flags[row.hot.key] = row.hot.flags
        self._digests[row.hot.key] = row.hot.digest
        return task

    def load(self, keys: Sequence[int]) -> None:
        """Lock tasks and take them in."""
        wanted = [key for key in keys if key not in self.tasks]
        if not wanted:
            return
        # Kept here, not only in the cache: that may be emptied at any moment.
        known = {key: held for key in wanted if (held := self._specs.get(key))}
        if len(known) == len(wanted):
            rows = self.tx.lock(wanted)
        else:
            found: dict[int, SpecRow] = {}
            rows = self.tx.lock(wanted, found)
            known = {key: self._specs.put(spec) for key, spec in found.items()}
        for row in rows:
            self.tasks[row.key] = to_task(row, *known[row.key])
            self.flags[row.key] = row.flags
            self._digests[row.key] = row.digest

    def keys(self, ids: Iterable[str]) -> dict[str, int]:
        """The keys of these tasks; one that was found before is not asked for again."""
        wanted = list(ids)
        unknown = [each for each in wanted if each not in self._keys]
        if unknown:
            self._keys |= self.tx.keys(unknown)
        return {each: self._keys[each] for each in wanted if each in self._keys}

    def check_fence(self, fence: Fence, keys: Sequence[int] = ()) -> None:
        """Lock these tasks and that of the attempt that asks; raise `Stale` if it is fenced out."""
        if fence is not None:
            self.load(sorted({fence[0], *keys}))
            fenced_out(self.task(fence[0]), fence[1])

    def check_version(self, key: int, version: int) -> None:
        """Raise `Conflict` if the task has changed since that version; 0 stands for any."""
        if not version:
            return
        self.load([key])
        task = self.task(key)
        if task.version != version:
            raise Conflict(
                f"{task.id} has changed: it is {task.state} in version {task.version}, and this was"
                f" decided on version {version}. Nothing was changed.",
                "Look at it again, then decide.",
                code="version_changed",
            )

    def task(self, key: int) -> Task:
        try:
            return self.tasks[key]
        except KeyError:
            raise NotFound(
                "That task is no longer in the ledger: it was pruned.",
                "`agentq list` shows what is there.",
            ) from None

    def apply(self, key: int, trigger: Trigger) -> Task:
        """Decide and note what follows. Raises `Refused` and notes nothing if not allowed."""
        before = self.tasks.get(key) or self.task(key)
        decision = transition(before, trigger, self._now or self.now)
        if not decision.events:
            return before
        after = decision.task
        self.tasks[key] = after
        self._changed[key] = None
        if after.spec is not before.spec:
            self._readdressed[key] = None
        for event in decision.events:
            if event.trigger is not self._encoded[0]:  # one claim takes many tasks
                self._encoded = (event.trigger, encode_trigger(event.trigger))
            self.events.append((key, event, self._encoded[1]))
        if before.holder and not after.holder:
            if self.flags[key] & HAS_RESOURCES:
                self._freed.append(key)  # others of its kind may want the same
                self.topics.update((role_topic(before.to), ROOM_TOPIC))
            elif before.to in self._limited:  # there is room for one more
                self.topics.update((role_topic(before.to), ROOM_TOPIC))
        if decision.effects:
            self.note_effects(key, after, decision.effects)
        if after.details.mentions is not before.details.mentions:
            rest = self.flags[key] & ~HAS_MENTIONS
            self.flags[key] = rest | (HAS_MENTIONS if after.details.mentions else 0)
        if type(trigger) is Tell and after.holder:
            self.topics.add(holder_topic(after.holder))
        if after.details.spent is not before.details.spent:
            assert isinstance(trigger, (Spend, Report, FailAttempt))
            day = day_of(decision.events[-1].at)
            self._costs.setdefault(day, []).append((after.spec, trigger.cost))
        return after

    def _spending(self) -> list[SpendingRow]:
        booked = [
            row for day, costs in self._costs.items() for row in bookings(costs, day * DAY_MS)
        ]
        return booked + submits_of(self.submits, self.now)

    def note_decision(self, row: AuditRow | None) -> None:
        """Write down who decided, unless nothing came of it."""
        if row is not None and self.events:
            self._audit.append(row._replace(at=self.now))

    def note_effects(self, key: int, task: Task, effects: Sequence[Effect]) -> None:
        for number, effect in enumerate(effects):
            kind = type(effect)
            if kind is Announce:
                self.topics.add(role_topic(task.to))
            elif type(effect) is StopHolder:
                self.topics.add(holder_topic(effect.holder))
            if kind is ResolveDependents:
                if self.flags[key] & HAS_DEPENDENTS:
                    self._ended.append((key, task.state))
            elif not effect.lane:
                self._inner.append((key, effect))
            elif lanes := lanes_of(effect.lane, self.lanes()):
                payload = encode_effect(effect, task)
                for lane in lanes:
                    self.topics.add(lane_topic(lane))
                    self.effects.append(EffectRow(key, task.version, number, lane, payload))

    def note_limits(self, role: str, limited: bool) -> None:
        (self._limited.add if limited else self._limited.discard)(role)

    def role_id(self, role: str) -> int:
        return self._role_ids((role,))[role]

    def lanes(self) -> frozenset[str]:
        if self._lanes is None:
            self._lanes = self.tx.lanes()
        return self._lanes

    def record_artifact(self, key: int, artifact: AddArtifact) -> None:
        """Make a file of an attempt visible; refused if that attempt no longer holds the task."""
        self.apply(key, artifact)
        # When its event happened: a clock that was set back sets back no task.
        at = self.events[-1][1].at
        self.artifacts.append(
            ArtifactRow(
                key, artifact.epoch, artifact.name, artifact.size, artifact.sha256,
                artifact.media_type, at,
            )
        )  # fmt: skip

    def artifacts_of(self, key: int) -> list[ArtifactRow]:
        """What is recorded of a task's evidence, that of this transaction included."""
        recorded = self.tx.artifacts_of(key)
        return recorded + [row for row in self.artifacts if row.key == key]

    def finish(self) -> None:
        """Carry decisions on to other tasks, then save everything."""
        while self._ended or self._inner:
            inner, self._inner = self._inner, []
            for key, effect in inner:
                self._carry_out(self, key, effect)
            self._resolve_dependents()
        if self.new or self.events:
            self.topics.add(EVENTS_TOPIC)
        events = to_event_rows(self.events, self._digests)
        hot = []
        for key in self._changed:
            task = self.tasks[key]
            details = encode_details(task.details)
            hot.append(to_hot(key, task, details, self.flags[key], self._digests[key]))
        trees = self.new_trees + [self.trees[root] for root in sorted(self.changed_trees)]
        self.tx.save(
            Changes(
                new=self.new,
                tasks=hot,
                addresses=[self._address(key) for key in self._readdressed],
                events=events,
                effects=self.effects,
                artifacts=self.artifacts,
                spending=self._spending() if self._costs or self.submits else (),
                trees=trees,
                dedup=self.dedup,
                new_dedup=self.new_dedup,
                roles=self.roles,
                resources=list(self.resources.values()),
                circuits=self.circuits,
                system=system_rows(self.tx, [*map(circuit_note, self.circuits), *self.notes]),
                audit=self._audit,
                hook_outcomes=self.hook_outcomes,
                schedules=self.schedules,
                released=self._freed,
                topics=self.topics,
            )
        )

    def _address(self, key: int) -> AddressRow:
        spec = self.tasks[key].spec
        return AddressRow(key, self.role_id(spec.to), spec.priority.rank)

    def _resolve_dependents(self) -> None:
        ended, self._ended = dict(self._ended), []
        if not ended:
            return
        edges = [edge for edge in self.tx.edges_of(list(ended)) if edge[0] in ended]
        self.load(sorted({child for _, child in edges}))
        # One for all who waited for the same: it is encoded once.
        triggers = {key: DependencyEnded(self.tasks[key].id, ended[key]) for key in ended}
        for parent, child in edges:
            task, trigger = self.tasks.get(child), triggers[parent]
            if task is not None and not task.is_terminal and _concerns(task, trigger.dependency):
                self.apply(child, trigger)


def _concerns(task: Task, ended: str) -> bool:
    """Whether the task waits for what has ended, or has it as an open child."""
    return ended in task.details.waiting_on or ended in task.details.children
