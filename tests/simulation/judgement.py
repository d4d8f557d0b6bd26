"""What the ledger must answer, predicted before the call and compared with what it did answer.

`expect` looks at the model only. `judge` then knows three things: what should have happened, what
the caller was told, and what was committed (`StepFacts`), and all three must agree. A lost answer
leaves the caller in doubt, never the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentq.contracts.store import Lease
from agentq.core.task import Spec, Task
from agentq.core.triggers import (
    AddArtifact,
    Cancel,
    ChildrenSubmitted,
    ClaimTask,
    DependencyEnded,
    Dispatch,
    Event,
    Hold,
    RefuseReport,
    Report,
    ReviewFailed,
    Stopped,
    Tick,
    Trigger,
    Verdict,
    Yield,
)
from agentq.ledger.claims import Held
from agentq.ledger.submit import Submitted
from tests.simulation import leaders
from tests.simulation.calls import MANY_TRANSACTIONS, Call, Outcome
from tests.simulation.circuits import ModelCircuits
from tests.simulation.facts import StepFacts
from tests.simulation.model import Model, Remembered, body_of, names_of
from tests.simulation.shadow import Shadow
from tests.simulation.standing import CANCELLED, COMPLETE, REVIEW, RUNNING, Objection
from tests.simulation.violation import (
    CANCEL,
    DEDUP,
    DRAIN,
    FAMILY,
    FENCE,
    HOLDS,
    INPUT,
    LEASE,
    LIMITS,
    LOST,
    ONCE,
    POLICY,
    SURROUNDINGS,
    TIMERS,
    Violation,
)


@dataclass(slots=True)
class Expectation:
    """The answer that the model calls for."""

    #: How circuits stand once the call is committed, if it is about nothing else.
    circuits: ModelCircuits
    #: One per item: the promise that accepting it would break, or None.
    objections: list[Objection] = field(default_factory=list)
    #: Submits: the id each spec must get, in order; empty if the call must be refused.
    ids: list[str] = field(default_factory=list)
    refusal: Objection = None
    #: Submits: what the names of these specs stand for from now on.
    named: list[tuple[Spec, str]] = field(default_factory=list)
    #: Claims: the task that must come first, and how many may start.
    first: Shadow | None = None
    room: int = 0
    held: set[int] = field(default_factory=set)


class Judge:
    """Predicts and compares."""

    def __init__(self, model: Model) -> None:
        self.model = model
        #: Completions that callers were told of, by task: counted outside the ledger.
        self.completions: dict[int, set[tuple[str, int, str]]] = {}
        self.acknowledged: set[str] = set()

    # -- before ----------------------------------------------------------------------------------

    def expect(self, call: Call, now: int) -> Expectation:
        expected = Expectation(circuits=self.model.circuits.after(call, now))
        if call.items:
            expected.objections = [self._objection(key, told, now) for key, told in call.items]
            if self.model.has_kin and len(call.items) > 1:
                self._object_to_yields(call, expected)
        if call.verb == "claim":
            expected.first = self.model.next_up(call.role, now)
            allowed = self.model.circuits.allowed(call.provider, now)
            tokens = self.model.quotas.left(f"role {call.role}", now)
            expected.room = min(self.model.room(call.role), allowed, tokens)
        elif call.verb == "claim_task":
            expected.objections = [self._claim_objection(call, now)]
        elif call.verb == "heartbeat":
            expected.held = {lease.key for lease in call.leases if self._is_held(lease)}
        elif call.verb == "submit":
            self._expect_submit(call, expected, now)
        return expected

    def _is_held(self, lease: Lease) -> bool:
        shadow = self.model.shadows.get(lease.key)
        return shadow is not None and shadow.state is RUNNING and shadow.epoch == lease.epoch

    def _objection(self, key: int, trigger: Trigger, now: int) -> Objection:
        shadow = self.model.shadows.get(key)
        if shadow is None:
            return LOST, f"task {key} was pruned"
        if isinstance(trigger, Report) and _was_accepted(shadow, trigger):
            return None
        if isinstance(trigger, AddArtifact):
            known = shadow.artifacts.get((trigger.epoch, trigger.name))
            if known == trigger.sha256:
                return None
            if known is not None:
                return INPUT, f"{trigger.name} of {shadow.id} stands for other content"
        if isinstance(trigger, Stopped) and shadow.state is CANCELLED:
            return None
        return shadow.why_not(trigger, max(now, shadow.updated_at))

    def _object_to_yields(self, call: Call, expected: Expectation) -> None:
        """Of several that leave at once, the last must not close a ring."""
        left: list[Shadow] = []
        try:
            for place, (key, told) in enumerate(call.items):
                if not isinstance(told, Yield) or expected.objections[place] is not None:
                    continue
                shadow = self.model.shadows[key]
                children = self.model.open_children(key)
                if self.model.waits_for_itself(shadow.id, children):
                    expected.objections[place] = (FAMILY, f"{shadow.id} closes a ring of waits")
                    continue
                is_over = told.wait == "any" and shadow.ended_since
                shadow.yielded = told.wait if children and not is_over else ""
                left.append(shadow)
        finally:
            for shadow in left:
                shadow.yielded = ""

    def _claim_objection(self, call: Call, now: int) -> Objection:
        key = call.items[0][0]
        shadow = self.model.shadows.get(key)
        if shadow is None:
            return LOST, f"task {key} was pruned"
        objection = shadow.why_not(call.items[0][1], max(now, shadow.updated_at))
        if objection is None and not self.model.circuits.allowed(call.provider, now):
            return LIMITS, f"the circuit of {call.provider} is open"
        if objection is None and not self.model.room(shadow.spec.to):
            return LIMITS, f"{shadow.spec.to} has no room for {shadow.id}"
        if objection is None and not self.model.quotas.left(f"role {shadow.spec.to}", now):
            return LIMITS, f"the rate of {shadow.spec.to} allows none now"
        if objection is None and not self.model.is_claimable(shadow, now):
            return LIMITS, f"a resource of {shadow.id} is held"
        return objection

    def _expect_submit(self, call: Call, expected: Expectation, now: int) -> None:
        if call.fence and not self._is_held(Lease(*call.fence, 0)):
            expected.refusal = (FENCE, f"attempt {call.fence} submitted {call.specs}")
            return
        batch: dict[str, Spec] = {}
        keys: dict[str, Spec] = {}
        fresh: dict[str, Spec] = {}
        for spec in call.specs:
            known = self._known_as(spec, call, now)
            first = keys.setdefault(spec.idempotency_key, spec) if spec.idempotency_key else spec
            if isinstance(known, tuple):
                expected.refusal = known
            elif spec.id in spec.after:
                expected.refusal = (INPUT, f"{spec.id} comes after itself")
            elif batch.setdefault(spec.id, spec) != spec or body_of(first) != body_of(spec):
                expected.refusal = (DEDUP, f"{spec.id} stands for two bodies in one batch")
            else:
                expected.ids.append(known or first.id)
                if known or first is spec:
                    expected.named.append((spec, known or spec.id))
                if not known and first is spec:
                    fresh[spec.id] = spec
        if any(spec.each for spec in call.specs):
            expected.refusal = (INPUT, f"{call} is for the parts of nobody's result")
        for spec in fresh.values():
            expected.refusal = expected.refusal or self._refusal(spec, fresh, now)

    def _refusal(self, spec: Spec, fresh: dict[str, Spec], now: int) -> Objection:
        """Why a spec cannot be accepted, beside those that come with it."""
        model = self.model
        family = [spec, *spec.next]
        silent = [s.id for s in family if s.irreversible and s.approval.on_timeout == "approve"]
        if silent:
            return POLICY, f"silence would approve {silent}"
        if spec.parent and self._closes_a_ring(spec, fresh):
            return FAMILY, f"{spec.id} and {spec.parent} wait for each other"
        kept = [child.id for child in spec.next if model.is_kept(child.id, now)]
        if kept:
            return DEDUP, f"{kept} were pruned"
        unknown = [d for d in spec.after if d not in model.by_id and d not in fresh]
        if unknown or _is_in_a_loop(spec, fresh):
            return INPUT, f"{spec.id} comes after {unknown}, or after itself"
        return None

    def _closes_a_ring(self, spec: Spec, fresh: dict[str, Spec]) -> bool:
        """Whether a new child waits for its parent, which waits for its children already."""
        parent = self.model.by_id.get(spec.parent)
        if parent is None or not parent.yielded:
            return False
        seen, left = set[str](), [spec.id]
        while left:
            here = left.pop()
            if here in fresh and here not in seen:
                seen.add(here)
                left += fresh[here].after
        awaited = {each for new in seen for each in fresh[new].after}
        return self.model.waits_for_itself(parent.id, seen | awaited)

    def _known_as(self, spec: Spec, call: Call, now: int) -> str | tuple[str, str]:
        """The id of the task that these words made before, "" if none, or why they conflict."""
        found = ""
        for name in names_of(spec, call.generated):
            known = self.model.names.get(name)
            if known is None or known.expires_at <= now:
                continue
            if known.body != body_of(spec):
                return DEDUP, f"{name} was accepted with a second body"
            found = found or known.task_id
        there = self.model.by_id.get(spec.id)
        if there and body_of(there.submitted) != body_of(spec):
            return DEDUP, f"the id {spec.id} was accepted with a second body"
        return found or (spec.id if there else "")

    # -- after -----------------------------------------------------------------------------------

    def judge(
        self, call: Call, outcome: Outcome, expected: Expectation, facts: StepFacts, now: int
    ) -> None:
        if outcome.unserved and facts.events and call.verb not in MANY_TRANSACTIONS:
            raise Violation(INPUT, f"{call} failed and yet changed {facts.events}")
        if call.verb == "submit" and (outcome.ok or outcome.unknown) and not expected.refusal:
            self._remember(call, expected, now)
        if outcome.unknown or outcome.unserved:
            return
        if call.verb == "submit":
            self._judge_submit(call, outcome, expected, facts)
        elif call.verb == "heartbeat":
            self._judge_heartbeat(call, outcome, expected, now)
        elif call.verb == "claim":
            self._judge_claim(call, outcome, expected, facts)
        elif call.items:
            self._judge_items(call, outcome, expected, facts)
        elif outcome.refused:
            raise Violation(INPUT, f"{call} was refused: {outcome.error}")
        elif call.circuit and self.model.circuits != expected.circuits:
            raise Violation(
                SURROUNDINGS, f"{call} left {self.model.circuits}, not {expected.circuits}"
            )
        elif call.verb == "tick":
            self._judge_tick(facts, now)
        elif call.verb == "hold":
            leaders.judge(call, outcome.value, self.model.terms, now)

    def _judge_items(
        self, call: Call, outcome: Outcome, expected: Expectation, facts: StepFacts
    ) -> None:
        answers = [outcome.error or outcome.value] * len(call.items)
        if outcome.ok and call.verb == "apply_many":
            answers = outcome.value
        for (key, told), objection, answer in zip(
            call.items, expected.objections, answers, strict=True
        ):
            task = answer.task if isinstance(answer, Held) else answer
            if isinstance(task, Task):
                if objection is not None:
                    raise Violation(objection[0], f"accepted: {objection[1]}")
                self._check_answer(key, told, task, facts)
                continue
            if objection is None:
                raise Violation(INPUT, f"{call} is right and was refused: {answer}")
            traces = [
                event
                for shadow, event in facts.events
                if shadow.key == key and not _is_of_others(event)
            ]
            # Whoever ends some and claims the next may be given what it has lost.
            may_leave = (RefuseReport, ClaimTask) if call.role else RefuseReport
            if any(not isinstance(event.trigger, may_leave) for event in traces):
                raise Violation(FENCE, f"{call} was refused and left {traces}")

    def _check_answer(self, key: int, told: Trigger, answer: Task, facts: StepFacts) -> None:
        shadow = self.model.shadows[key]
        # What others come to in the same step may carry it on, after it was answered.
        carried_on = any(
            of is shadow and _is_of_others(event) and type(event.trigger) is not type(told)
            for of, event in facts.events
        )
        if (answer.state, answer.epoch) != (shadow.state, shadow.epoch) and not carried_on:
            raise Violation(LOST, f"the answer {answer} to {told} is not what was committed")
        if isinstance(told, Hold) and answer.details.held is None:
            raise Violation(HOLDS, f"{told} was accepted, and {answer} is not held")
        if isinstance(told, Dispatch) and (answer.details.held or answer.details.not_before):
            raise Violation(HOLDS, f"{told} was accepted, and {answer} is kept back")
        if answer.state is COMPLETE and not isinstance(told, ClaimTask):
            told_by = (type(told).__name__, answer.epoch, answer.summary)
            accepted = self.completions.setdefault(key, set())
            accepted.add(told_by)
            completing = {each for each in accepted if each[0] in ("Report", "Verdict", "Answer")}
            if len({(epoch, summary) for _, epoch, summary in completing}) > 1:
                raise Violation(ONCE, f"{shadow.id} was completed as {completing}")
        if shadow.completions > 1:
            raise Violation(ONCE, f"{shadow.id} has {shadow.completions} completions")

    def _remember(self, call: Call, expected: Expectation, now: int) -> None:
        """The submit was committed: its names stand for its tasks, unless they stood for some.

        An id that was asked for and not given, because a key gave another task, stays free.
        """
        names = self.model.names
        for spec, task_id in expected.named:
            for name in names_of(spec, call.generated):
                if name == f"id:{spec.id}" and task_id != spec.id:
                    continue
                if name not in names or names[name].expires_at <= now:
                    until = now + self.model.dedup_ms
                    names[name] = Remembered(task_id, body_of(spec), until)

    def _judge_submit(
        self, call: Call, outcome: Outcome, expected: Expectation, facts: StepFacts
    ) -> None:
        if outcome.refused:
            if facts.events:
                raise Violation(INPUT, f"{call} was refused and left {facts.events}")
            if expected.refusal is None:
                raise Violation(INPUT, f"{call} is right and was refused: {outcome.error}")
            return
        if expected.refusal is not None:
            raise Violation(*expected.refusal)
        answers: list[Submitted] = outcome.value
        for wanted, answer in zip(expected.ids, answers, strict=True):
            if answer.task.id != wanted:
                raise Violation(DEDUP, f"{call} gave {answer.task.id} instead of {wanted}")
            if wanted not in self.model.by_id and wanted not in self.model.pruned:
                raise Violation(LOST, f"{wanted} was acknowledged and is not there")
            there = self.model.by_id.get(wanted)
            if answer.task.state is not (there.state if there else self.model.pruned[wanted]):
                raise Violation(LOST, f"{wanted} is not as the submitter was told: {answer.task}")
            self.acknowledged.add(wanted)

    def _judge_heartbeat(
        self, call: Call, outcome: Outcome, expected: Expectation, now: int
    ) -> None:
        if outcome.refused:
            raise Violation(INPUT, f"{call} was refused: {outcome.error}")
        kept: set[int] = outcome.value
        for lease in call.leases:
            shadow = self.model.shadows.get(lease.key)
            if lease.key in kept and lease.key not in expected.held:
                cancelled = shadow is not None and shadow.state is CANCELLED
                raise Violation(CANCEL if cancelled else FENCE, f"{lease} of {shadow} was renewed")
            if lease.key in expected.held:
                end = now + lease.lease_ms
                if lease.key not in kept or shadow is None or shadow.lease_end < end:
                    raise Violation(LEASE, f"the living holder of {lease} was not renewed")

    def _judge_claim(
        self, call: Call, outcome: Outcome, expected: Expectation, facts: StepFacts
    ) -> None:
        if outcome.refused:
            raise Violation(INPUT, f"{call} was refused: {outcome.error}")
        answers: list[Held] = outcome.value
        if [answer.key for answer in answers] != facts.claimed:
            raise Violation(LOST, f"{call} was given {answers}, committed were {facts.claimed}")
        if len(answers) > min(call.count, expected.room):
            raise Violation(LIMITS, f"{len(answers)} claimed, room for {expected.room}: {call}")
        first = expected.first if expected.room else None
        # What expires under a claim may free others to come before it.
        expired = any(isinstance(event.trigger, Tick) for _, event in facts.events)
        if first and not (answers and (expired or answers[0].key == first.key)):
            raise Violation(DRAIN, f"{call} did not take {first.id} first but {answers}")
        for answer in answers:
            shadow = self.model.shadows[answer.key]
            if (answer.task.state, answer.task.epoch) != (RUNNING, shadow.epoch):
                raise Violation(FENCE, f"{call} was told {answer.task}")

    def _judge_tick(self, facts: StepFacts, now: int) -> None:
        """Whatever was due has moved; a second timer of a task may wait for the next tick."""
        moved = {shadow.key for shadow, _ in facts.events}
        for key, shadow in self.model.shadows.items():
            due = shadow.due_at()
            if due and due <= now and key not in moved:
                broken = LEASE if shadow.holder else TIMERS
                raise Violation(broken, f"{shadow.id} was due at {due}; ticked at {now} in vain")


def _is_in_a_loop(spec: Spec, fresh: dict[str, Spec]) -> bool:
    seen: set[str] = set()
    left = [each for each in spec.after if each in fresh]
    while left:
        each = left.pop()
        if each == spec.id:
            return True
        if each not in seen:
            seen.add(each)
            left += [parent for parent in fresh[each].after if parent in fresh]
    return False


def _is_of_others(event: Event) -> bool:
    """Whether a task's event was caused by what became of another one."""
    told = event.trigger
    if isinstance(told, Verdict):
        return bool(told.review)
    return isinstance(told, DependencyEnded | ChildrenSubmitted | ReviewFailed | Cancel)


def _was_accepted(shadow: Shadow, told: Report) -> bool:
    """The same report again, after a lost answer: it stands, and is accepted only once."""
    if shadow.state not in (COMPLETE, REVIEW) or shadow.report is None:
        return False
    epoch, _, *words = shadow.report
    said = [told.epoch, told.summary, told.result, told.result_sha256, told.data]
    return [epoch, *words] == said
