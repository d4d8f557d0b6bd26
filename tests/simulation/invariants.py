"""After every step: what the database holds against what it must hold.

The checker reads the tables themselves. New events are told to the shadows and replayed through
`transition`; every changed row, outbox entry and held resource must then be exactly what follows
from them. A change that no event explains, an event that no call explains, and an effect that is
missing or too many each break a promise, and the promise is named.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from agentq.contracts.store import HAS_DEPENDENTS, HAS_RESOURCES, EventRow, HotRow
from agentq.core.errors import AgentqError
from agentq.core.limits import RoleLimits
from agentq.core.task import Spec
from agentq.core.transition import transition
from agentq.core.triggers import (
    AddArtifact,
    ClaimTask,
    Comment,
    DependencyEnded,
    Event,
    FailAttempt,
    RefuseReport,
    Report,
    Submit,
    Tick,
    Trigger,
)
from agentq.core.values import replace
from agentq.ledger.chain import first_digest, next_digest
from agentq.ledger.codec import decode_rate, decode_spec, to_task
from agentq.ledger.log_codec import to_event
from agentq.stores.sqlite.store import SqliteStore
from tests.simulation import circuits, leaders
from tests.simulation.calls import Call
from tests.simulation.endings import Expected
from tests.simulation.facts import StepFacts
from tests.simulation.following import following
from tests.simulation.model import Model, Remembered, body_of, names_of
from tests.simulation.relations import RelationChecker, is_explained
from tests.simulation.shadow import Shadow
from tests.simulation.standing import CANCELLED, COMPLETE, HOLDER_SAYS, RUNNING
from tests.simulation.violation import (
    ARTIFACTS,
    CANCEL,
    DEDUP,
    EFFECTS,
    FENCE,
    GRAPH,
    LEASE,
    LIMITS,
    LOG,
    LOST,
    REPLAY,
    RULES,
    TIMERS,
    Violation,
)

_EVENTS = (
    "SELECT position, key, version, at, kind, trigger, state, epoch, data, digest FROM events"
    " WHERE position > ? ORDER BY position"
)
_TASKS = (
    "SELECT key, state, version, epoch, wake_at, updated_at, holder, memo, flags, digest FROM tasks"
)
#: That files are to be removed is the pruner's own affair: `services.pruner` looks at the files.
#: What concerns no task, such as a role that needs a person, is no task's effect.
_OUTBOX = (
    "SELECT sequence, key, version, number, lane, payload FROM outbox"
    " WHERE lane <> 'forget' AND key > 0"
)
_LIMITS = "SELECT name, max_running, max_review, paused, rate FROM roles"
_CIRCUITS = "SELECT provider, open_until, failures, probing FROM circuits"
_ROLE_CIRCUITS = "SELECT name, circuit ->> 'reason' FROM roles WHERE circuit <> ''"
_TELLS = {"Announce": "role", "PublishResult": "name", "Reply": "status", "Notify": "kind"}


class Checker:
    """Holds the database against the model."""

    def __init__(self, store: SqliteStore, model: Model) -> None:
        self.model = model
        self.relations = RelationChecker(model)
        self.now = store.now
        self._database = store._writer
        self._changes = -1
        self._position = 0
        self._digests: dict[int, str] = {}
        self._rows: dict[int, tuple[Any, ...]] = {}
        self._owed: dict[tuple[int, int], Counter[Expected]] = {}
        #: Entries of the outbox: sequence -> (effect id, lane, payload).
        self.outbox: dict[int, tuple[str, str, str]] = {}
        #: Every effect that was ever stored.
        self.effects_seen: set[str] = set()

    def _all(self, sql: str, *bindings: object) -> list[tuple[Any, ...]]:
        return self._database.execute(sql, bindings).fetchall()

    def next_wake(self) -> int:
        """The moment at which the database wants to be looked at again, as it stands now."""
        return min((row[4] for row in self._rows.values() if row[4]), default=0)

    def take_in(self, call: Call) -> StepFacts:
        """Look at everything this step committed; raise if it should not have."""
        facts = StepFacts()
        changes = self._database.total_changes()
        if changes == self._changes:
            return facts
        self._changes = changes
        if call.verb in ("lanes", "submit"):
            self.model.lanes = frozenset(self._all("SELECT lanes FROM head")[0][0].split())
        if call.verb == "limits":
            self._read_limits()
        for row in self._new_events(call):
            self._take_event(call, facts, row)
        self._check_circuits(call, facts)
        self._check_graph(facts)
        if self.model.has_kin:
            self.relations.check(facts)
            self._check_terms(call)
        self._check_rows(call, facts)
        if call.verb == "prune":
            self._learn_kept_names()
        self._check_outbox(call, facts)
        self.model.quotas.check(self._all, self.now(), self.model.seen)
        return facts

    def _check_terms(self, call: Call) -> None:
        stored = self._all("SELECT name, holder, term, expires_at FROM terms")
        self.model.terms = leaders.check(call, self.model.terms, stored, self.now())

    def _read_limits(self) -> None:
        for name, running, review, paused, rate in self._all(_LIMITS):
            limits = RoleLimits(running, review, bool(paused), rate=decode_rate(rate))
            self.model.limits[name] = limits
        self.model.quotas.read(self._all, self.now())

    def _check_circuits(self, call: Call, facts: StepFacts) -> None:
        model, now = self.model, self.now()
        model.circuits.take_in(call, facts.events, now, model.seen)
        stored = circuits.read(self._all(_CIRCUITS), self._all(_ROLE_CIRCUITS))
        model.circuits = model.circuits.check(call, stored, now, model.seen)

    # -- events ----------------------------------------------------------------------------------

    def _new_events(self, call: Call) -> list[EventRow]:
        """What was appended, in the order in which it was decided.

        Positions are in the order of commits. Within one commit new tasks are written first; those
        that nobody submitted are told last, because of what caused them.
        """
        rows = []
        for position, *columns in self._all(_EVENTS, self._position):
            if position != self._position + 1:
                raise Violation(LOG, f"position {position} follows {self._position}")
            self._position = position
            row = EventRow(*columns)
            self.model.log.append((position, self._id_of(row.key), row.version))
            self.model.log_keys.append(row.key)
            rows.append(row)
        if call.verb != "submit" and any(row.trigger != "Submit" for row in rows):
            rows.sort(key=lambda row: row.trigger == "Submit")
        return rows

    def _take_event(self, call: Call, facts: StepFacts, row: EventRow) -> None:
        if row.trigger == "Submit":
            shadow = self._birth(call, facts, row)
        elif row.key in self.model.shadows:
            shadow = self.model.shadows[row.key]
        else:
            raise Violation(REPLAY, f"an event of a task that was never submitted: {row}")
        self._check_digest(row)
        event = to_event(row, shadow.submitted)
        self._check_explained(call, facts, shadow, event.trigger)
        before, was_over = shadow.state if shadow.version else "", shadow.over
        if event.at != max(self.now(), shadow.updated_at):
            raise Violation(TIMERS, f"{shadow.id}: {event} at {self.now()} of the store's clock")
        effects = self.model.apply(shadow, event)
        self._replay(shadow, event)
        if self.model.has_kin:
            self.relations.check_event(shadow, event, before)
        self.model.seen.add(f"{before} --{row.trigger}--> {event.state}")
        self._owed[shadow.key, event.version] = Counter(
            effect for effect in effects if effect[0] in self.model.lanes
        )
        facts.events.append((shadow, event))
        if isinstance(event.trigger, ClaimTask):
            facts.claimed.append(shadow.key)
            self.model.quotas.started(shadow, self.now())
        if isinstance(event.trigger, AddArtifact):
            self._check_artifacts(shadow)
        if shadow.over and not was_over:
            facts.ended[shadow.id] = shadow

    def _check_digest(self, row: EventRow) -> None:
        """Each event is chained to the one before it of the same task."""
        if row.version == 1:
            submitted_at, body = self._all(
                "SELECT submitted_at, body FROM specs WHERE key = ?", row.key
            )[0]
            digest = first_digest(row.at, row.kind, row.state, row.data, submitted_at, body)
        else:
            digest = next_digest(self._digests[row.key], row)
        if row.digest != digest:
            raise Violation(REPLAY, f"the digest of {row} is not that of what it says: {digest}")
        self._digests[row.key] = digest

    def _id_of(self, key: int) -> str:
        shadow = self.model.shadows.get(key)
        found = [] if shadow else self._all("SELECT id FROM specs WHERE key = ?", key)
        if shadow is None and not found:
            raise Violation(REPLAY, f"an event of task {key}, which does not exist")
        return shadow.id if shadow else str(found[0][0])

    def _birth(self, call: Call, facts: StepFacts, row: EventRow) -> Shadow:
        model = self.model
        if row.key <= model.last_key:
            raise Violation(LOST, f"key {row.key} was given to a second task")
        task_id, body = self._all("SELECT id, body FROM specs WHERE key = ?", row.key)[0]
        asked = {spec.id: spec for spec in call.specs} if call.verb == "submit" else {}
        spec = asked.get(task_id) or self._spawned(facts, task_id, row.at)
        if spec is None and self.model.has_kin:
            spec = self.relations.review_asked_for(facts, decode_spec(body))
        if spec is None:
            raise Violation(GRAPH, f"nobody asked for {task_id}")
        if decode_spec(body) != spec:
            raise Violation(
                REPLAY, f"the spec of {task_id} is not what was submitted, {spec}: {body}"
            )
        if task_id in model.by_id:
            raise Violation(DEDUP, f"{task_id} was accepted a second time")
        shadow = Shadow(row.key, spec, model)
        if task_id in asked:
            for name in names_of(spec, call.generated):
                known = model.names.get(name)
                if known and known.expires_at > row.at:
                    raise Violation(DEDUP, f"{name} stands for {known.task_id} and {task_id}")
        elif model.is_kept(task_id, row.at):
            raise Violation(DEDUP, f"{task_id} follows under the name of a task that was pruned")
        else:
            self._learn_names(shadow)
        model.born(shadow)
        return shadow

    def _learn_names(self, shadow: Shadow) -> None:
        """A spawned task may be remembered by its names; if it is, the ledger is held to that."""
        known = self._all("SELECT name, expires_at FROM dedup WHERE task_id = ?", shadow.id)
        for name, expires_at in known:
            remembered = Remembered(shadow.id, body_of(shadow.submitted), expires_at)
            self.model.names.setdefault(name, remembered)

    def _learn_kept_names(self) -> None:
        """Names of pruned tasks are kept for longer, while their files may be there; never for
        less long than was promised."""
        names, windows = self.model.names, self.model.windows
        for name, expires_at in self._all("SELECT name, expires_at FROM dedup"):
            if name in windows and name.removeprefix("id:") not in self.model.by_id:
                names[name] = replace(names[name], expires_at=max(expires_at, windows[name]))

    def _spawned(self, facts: StepFacts, task_id: str, at: int) -> Spec | None:
        """The spec by which a task that completed in this step named this one as next.

        It does not wait for tasks that were pruned meanwhile, nor for siblings whose names those
        still have, nor for what others spawn in the same step. Then the log says so.
        """
        just_born = {of.id for of, event in facts.events if isinstance(event.trigger, Submit)}
        there = self.model.by_id.keys() - just_born
        for shadow in facts.ended.values():
            family = following(shadow) if shadow.state is COMPLETE else {}
            if task_id not in family:
                continue
            asked = family[task_id].spec.after
            made = [each for each in family if not family[each].refused]
            born = {each for each in made if not self.model.is_kept(each, at)}
            after = tuple(each for each in asked if each in there or each in born)
            said = [event.trigger for of, event in facts.events if of is shadow]
            notes = [each.text for each in said if isinstance(each, Comment)]
            if after != asked and not any(task_id in note for note in notes):
                raise Violation(
                    GRAPH, f"{task_id} comes after {asked}, and nobody says what is gone"
                )
            return replace(family[task_id].spec, parent=shadow.id, after=after)
        return None

    def _check_explained(
        self, call: Call, facts: StepFacts, shadow: Shadow, trigger: Trigger
    ) -> None:
        """Every event has a cause: this call, or an end in this same step."""
        kind = type(trigger)
        if isinstance(trigger, Submit):
            return  # `_birth` has seen who asked for it
        if isinstance(trigger, ClaimTask):
            explained = call.role == shadow.spec.to and trigger.holder == call.actor
        elif isinstance(trigger, Tick):
            explained = call.verb in ("tick", "claim", "claim_named")
        elif isinstance(trigger, DependencyEnded):
            explained = trigger.dependency in facts.ended
        elif isinstance(trigger, RefuseReport):
            explained = trigger.epoch in [
                told.epoch
                for key, told in call.items
                if key == shadow.key and isinstance(told, Report | FailAttempt)
            ]
        elif isinstance(trigger, Comment) and trigger.by == "agentq":
            explained = shadow.id in facts.ended and bool(shadow.spec.next)
        else:
            explained = any(key == shadow.key and type(told) is kind for key, told in call.items)
            explained = explained or is_explained(call, facts, shadow, trigger)
        if not explained:
            broken = FENCE if isinstance(trigger, HOLDER_SAYS) else RULES
            raise Violation(broken, f"nobody asked for {trigger} of {shadow.id}")

    @staticmethod
    def _replay(shadow: Shadow, event: Event) -> None:
        task = shadow.task
        if task is not None and task.holder:
            # Heartbeats move the end of the lease without an event.
            task = replace(task, wake_at=shadow.lease_end)
        try:
            decision = transition(task, event.trigger, event.at)
        except AgentqError as refusal:
            raise Violation(REPLAY, f"{shadow.id}: {event} cannot be replayed: {refusal}") from None
        if decision.events != (event,):
            raise Violation(REPLAY, f"{shadow.id}: {event} is replayed as {decision.events}")
        shadow.task = decision.task

    def _check_artifacts(self, shadow: Shadow) -> None:
        rows = self._all("SELECT epoch, name, sha256 FROM artifacts WHERE key = ?", shadow.key)
        if {(epoch, name): sha256 for epoch, name, sha256 in rows} != shadow.artifacts:
            raise Violation(ARTIFACTS, f"{shadow.id} has {rows}, its log {shadow.artifacts}")

    def _check_graph(self, facts: StepFacts) -> None:
        """Whatever ended in this step told its dependents in this step, and spawned its next."""
        for task_id, shadow in facts.ended.items():
            for child in self.model.children.get(task_id, ()):
                if task_id in child.waiting:
                    raise Violation(GRAPH, f"{child.id} still waits for {task_id}, which is over")
            for name in following(shadow) if shadow.state is COMPLETE else ():
                taken = self.model.is_kept(name, self.now())
                if name not in self.model.by_id and not taken:
                    raise Violation(GRAPH, f"{task_id} is complete, {name} did not follow")

    # -- rows ------------------------------------------------------------------------------------

    def _check_rows(self, call: Call, facts: StepFacts) -> None:
        touched = {shadow.key for shadow, _ in facts.events}
        rows = {row[0]: row for row in self._all(_TASKS)}
        for key, row in rows.items():
            if key in touched or self._rows.get(key) != row:
                self._check_row(call, HotRow(*row))
        gone = (self._rows.keys() | touched) - rows.keys()
        if gone:
            self._check_gone(call, facts, gone)
        self._rows = rows

    def _check_row(self, call: Call, row: HotRow) -> None:
        shadow = self.model.shadows.get(row.key)
        if shadow is None or shadow.task is None:
            raise Violation(REPLAY, f"a task without a submission in the log: {row}")
        if row.version != shadow.version:
            raise Violation(
                REPLAY, f"{shadow.id} is at version {row.version}, its log at {shadow.version}"
            )
        if row.digest != self._digests[row.key]:
            raise Violation(REPLAY, f"{shadow.id} has not the digest of its last event: {row}")
        if row.wake_at != shadow.due_at():
            self._check_renewal(call, shadow, row)
        stored = to_task(row, shadow.submitted, shadow.submitted_at)
        if stored != replace(shadow.task, wake_at=row.wake_at):
            raise Violation(REPLAY, f"{shadow.id} is {stored}, its log gives {shadow.task}")
        if bool(row.flags & HAS_RESOURCES) is not bool(shadow.spec.resources):
            raise Violation(LIMITS, f"{shadow.id} forgot whether it needs resources")
        if self.model.children.get(shadow.id) and not row.flags & HAS_DEPENDENTS:
            raise Violation(GRAPH, f"{shadow.id} forgot that tasks come after it")

    def _check_renewal(self, call: Call, shadow: Shadow, row: HotRow) -> None:
        """The one field that may change without an event: a lease, extended by its holder."""
        for lease in call.leases:
            if lease.key == shadow.key and row.wake_at == self.now() + lease.lease_ms:
                if shadow.state is not RUNNING or lease.epoch != shadow.epoch:
                    broken = CANCEL if shadow.state is CANCELLED else FENCE
                    raise Violation(broken, f"attempt {lease.epoch} renewed {shadow.id}: {row}")
                shadow.lease_end = row.wake_at
                return
        broken = LEASE if shadow.holder else TIMERS
        raise Violation(
            broken, f"{shadow.id} ({shadow.state}) wakes at {row.wake_at}, not {shadow.due_at()}"
        )

    def _check_gone(self, call: Call, facts: StepFacts, gone: set[int]) -> None:
        waiting_to_leave = {effect_id.split(".")[0] for effect_id, _, _ in self.outbox.values()}
        for key in sorted(gone):
            shadow = self.model.shadows[key]
            may_go = (
                call.verb == "prune" and shadow.over and not shadow.holder
                and shadow.updated_at < call.before and str(key) not in waiting_to_leave
            )  # fmt: skip
            if not may_go:
                raise Violation(LOST, f"{shadow.id} ({shadow.state}) is gone after {call}")
            facts.vanished.append(key)
        wanted = self.model.wanted()
        for key in facts.vanished:
            if self.model.shadows[key].id in wanted:
                raise Violation(LOST, f"{self.model.shadows[key].id} is gone, which others need")
            self.model.forget(key, self.now())
        kept = {shadow.id: shadow.version for shadow in self.model.by_id.values()}
        count = self._all("SELECT count(*) FROM events")[0][0]
        if count != sum(kept.values()):
            raise Violation(LOG, f"{count} events after pruning, {sum(kept.values())} expected")

    # -- effects and resources -------------------------------------------------------------------

    def _check_outbox(self, call: Call, facts: StepFacts) -> None:
        found: dict[tuple[int, int], Counter[Expected]] = {}
        rows = self._all(_OUTBOX)
        for sequence, key, version, number, lane, payload in rows:
            if sequence in self.outbox:
                continue
            effect_id = f"{key}.{version}.{number}"
            if not key:  # of no task: its id is what it says, and when
                self._check_of_no_task(call, payload)
                self.outbox[sequence] = (effect_id, lane, payload)
                continue
            if effect_id in self.effects_seen:
                raise Violation(EFFECTS, f"effect {effect_id} was stored twice")
            self.effects_seen.add(effect_id)
            self.outbox[sequence] = (effect_id, lane, payload)
            counted = found.setdefault((key, version), Counter())
            counted[_described(lane, payload, self.model.shadows[key].id)] += 1
        for place, owed in self._owed.items():
            if owed != found.pop(place, Counter()):
                raise Violation(EFFECTS, f"{place} owes {owed}; the outbox has {self.outbox}")
        self._owed.clear()
        if found:
            raise Violation(EFFECTS, f"effects of events that never happened: {found}")
        if len(rows) == len(self.outbox):
            return
        for sequence in self.outbox.keys() - {row[0] for row in rows}:
            effect_id, lane, _ = self.outbox.pop(sequence)
            if effect_id not in self.model.delivered or sequence not in call.sequences:
                raise Violation(EFFECTS, f"effect {effect_id} ({lane}) vanished undelivered")

    @staticmethod
    def _check_of_no_task(call: Call, payload: str) -> None:
        """Only circuits are told without a task."""
        plain = msgspec.json.decode(payload)
        if call.verb != "circuit" or (plain["effect"], plain["kind"]) != ("Notify", "circuit_open"):
            raise Violation(EFFECTS, f"{call.verb} told {payload} of no task")


def _described(lane: str, payload: str, task_id: str) -> Expected:
    plain = msgspec.json.decode(payload)
    if plain["task_id"] != task_id:
        raise Violation(EFFECTS, f"an effect of {task_id} says {payload}")
    name = plain["effect"]
    if name == "StopHolder":
        return lane, name, f"{plain['holder']} {plain['epoch']}"
    return lane, name, plain[_TELLS[name]]
