"""After every step: parents and children, signals, reviews and approval policies, task by task.

Everything here follows from the log and the specs. What a task must know of its children is worked
out from who was submitted as whose child and who is over, not from what it was told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from agentq.core import triggers as t
from agentq.core.states import State
from agentq.core.task import NO_GATES, NO_POLICY, OnTimeout, Spec
from tests.simulation.calls import Call
from tests.simulation.facts import StepFacts
from tests.simulation.following import following
from tests.simulation.model import Model
from tests.simulation.shadow import Shadow
from tests.simulation.standing import COMPLETE, FAILED, PENDING, REVIEW
from tests.simulation.violation import (
    CANCEL,
    FAMILY,
    GRAPH,
    HOLDS,
    POLICY,
    REVIEWS,
    SIGNALS,
    Violation,
)

#: Who decides where time or a review did: no person's name belongs there.
SYSTEM, BY_POLICY = "agentq", "approval-policy"


def is_explained(call: Call, facts: StepFacts, shadow: Shadow, trigger: t.Trigger) -> bool:
    """Whether something that happened to a relative in this step caused this event."""
    said = [(of, event.trigger) for of, event in facts.events]
    if isinstance(trigger, t.ChildrenSubmitted):
        known = {spec.id for spec in call.specs if spec.parent == shadow.id}
        known |= {of.id for of, told in said if isinstance(told, t.Requeue)}
        return set(trigger.children) <= known
    if isinstance(trigger, t.Verdict):
        return trigger.review in facts.ended
    if isinstance(trigger, t.ReviewFailed):
        reported = any(of is shadow and isinstance(told, t.Report) for of, told in said)
        return trigger.review in facts.ended or reported
    if isinstance(trigger, t.Cancel):
        decided = {of.id for of, _ in said if of.state is not REVIEW}
        above = set(_ancestors(shadow))
        trees = {of.id for of, told in said if isinstance(told, t.Cancel) and told.tree}
        return bool(above & trees) or shadow.spec.reviews in decided
    return False


def _ancestors(shadow: Shadow) -> Iterator[str]:
    """By name, those that a task descends from."""
    here, seen = shadow.spec.parent, set[str]()
    while here and here not in seen:
        yield here
        seen.add(here)
        here = shadow.peers.parent_of(here)


class RelationChecker:
    """Holds what became of a task against its relatives, and its policy against the clock."""

    def __init__(self, model: Model) -> None:
        self.model = model

    # -- one event -------------------------------------------------------------------------------

    def check_event(self, shadow: Shadow, event: t.Event, before: State | str) -> None:
        """Compare what the task has noted with its shadow, and look who is said to have decided."""
        assert shadow.task is not None
        details = shadow.task.details
        if isinstance(event.trigger, t.Verdict) and event.trigger.review:
            self.model.delivered_reviews.add(event.trigger.review)
        if isinstance(event.trigger, t.Tick) and before in (PENDING, REVIEW):
            _check_silence(shadow, event, before)
        if shadow.over:
            return
        kept = Counter(each.name for each in details.signals if not each.is_taken)
        if kept != +shadow.kept or sorted(details.awaited_signals) != sorted(shadow.awaited):
            raise Violation(
                SIGNALS, f"{shadow.id} keeps {kept} and waits for {details.awaited_signals};"
                f" {+shadow.kept} and {shadow.awaited} were due",
            )  # fmt: skip
        held = (details.held.by, details.held.how) if details.held else None
        if held != shadow.held:
            raise Violation(HOLDS, f"{shadow.id} is held by {held}, not {shadow.held}")
        noted = (set(details.children), details.yielded)
        if noted != (set(shadow.children), shadow.yielded):
            raise Violation(FAMILY, f"{shadow.id} noted {noted}, not {shadow.children}")
        judged = (details.review_task, details.rounds)
        if judged != (shadow.review_task, shadow.rounds):
            raise Violation(REVIEWS, f"{shadow.id} noted {judged}, not {shadow.rounds} rounds")
        if details.escalations != shadow.escalations:
            raise Violation(
                POLICY, f"{shadow.id} took {details.escalations} steps, {shadow.escalations} due"
            )

    # -- one step --------------------------------------------------------------------------------

    def check(self, facts: StepFacts) -> None:
        """Every relative of whatever changed in this step knows of it by now."""
        model = self.model
        for shadow, event in facts.events:
            if isinstance(event.trigger, t.Submit):
                model.adopted(shadow)
                before = facts.ended.get(shadow.spec.parent)
                made = following(before).get(shadow.id) if before else None
                if bool(event.trigger.refused) is not (made is not None and made.refused):
                    raise Violation(GRAPH, f"{shadow.id} was refused: {event.trigger.refused!r}")
        for shadow, event in facts.events:
            self._check_children(shadow)
            if shadow.parent_key in model.shadows:
                self._check_children(model.shadows[shadow.parent_key])
            self._check_reviews(shadow)
            if isinstance(event.trigger, t.Cancel) and event.trigger.tree:
                left = [each.id for each in self._descendants(shadow) if not each.over]
                if left:
                    raise Violation(
                        CANCEL, f"{shadow.id} was cancelled with its tree, and {left} go on"
                    )

    def _check_children(self, parent: Shadow) -> None:
        if parent.over:
            return
        left = self.model.open_children(parent.key)
        if set(parent.children) != left:
            raise Violation(FAMILY, f"{parent.id} knows of {parent.children}; open are {left}")
        if parent.yielded and not left:
            raise Violation(FAMILY, f"{parent.id} waits for children, and all of them are over")

    def _descendants(self, shadow: Shadow) -> Iterator[Shadow]:
        model = self.model
        for child in (*model.kin.get(shadow.key, ()), *model.followers.get(shadow.key, ())):
            if child.key in model.shadows:
                yield child
                yield from self._descendants(child)

    def _check_reviews(self, shadow: Shadow) -> None:
        by_id = self.model.by_id
        if shadow.state is REVIEW and shadow.review_task:
            review = by_id.get(shadow.review_task)
            if review is None or review.over or review.spec.reviews != shadow.id:
                raise Violation(REVIEWS, f"{shadow.id} waits for a verdict of {review}")
        author = by_id.get(shadow.spec.reviews)
        waits = author is not None and author.state is REVIEW and author.review_task == shadow.id
        if waits and shadow.over:
            raise Violation(REVIEWS, f"{shadow.id} is over, {shadow.spec.reviews} waits for it")
        for review in self.model.reviews_of.get(shadow.id, ()):
            wanted = shadow.state is REVIEW and shadow.review_task == review.id
            if not (wanted or review.over or review.reopened_at):
                raise Violation(REVIEWS, f"{review.id} goes on, and {shadow.id} is decided")

    def review_asked_for(self, facts: StepFacts, spec: Spec) -> Spec | None:
        """The spec of a review, if a report of this step wanted just that one."""
        for author, event in facts.events:
            asked = isinstance(event.trigger, t.Report) and author.review_task == spec.id
            if not asked or spec.reviews != author.id:
                continue
            if spec.to == author.spec.to or spec.to != author.gates.reviewer:
                raise Violation(REVIEWS, f"{spec.to} judges {author.id}, of {author.spec.to}")
            if spec.parent or spec.inputs.get("epoch") != author.epoch or spec.sender != SYSTEM:
                raise Violation(REVIEWS, f"{author.id} is judged by {spec}")
            if (spec.gates, spec.approval, spec.after) != (NO_GATES, NO_POLICY, ()):
                raise Violation(REVIEWS, f"the review {spec} waits for others")
            return spec
        return None


def _check_silence(shadow: Shadow, event: t.Event, before: State | str) -> None:
    """That nobody answered is nobody's answer, and never lets start what cannot be undone."""
    assert shadow.task is not None
    details, policy = shadow.task.details, shadow.spec.approval
    if event.kind == "escalated":
        due = policy.escalate[shadow.escalations - 1]
        if details.asked_of != due.to or event.at < shadow.asked_at + due.after_seconds * 1000:
            raise Violation(POLICY, f"{shadow.id} asks {details.asked_of}, {due} was due")
    let_start = before is PENDING and event.kind == "approval_timed_out" and shadow.approved
    if let_start or shadow.state is COMPLETE:
        by = {note.by for note in details.notes if note.at == event.at and note.kind == "approval"}
        if policy.on_timeout is not OnTimeout.APPROVE or shadow.spec.irreversible:
            raise Violation(POLICY, f"silence approved {shadow.id}: {policy}")
        if by != {BY_POLICY} or (let_start and details.approved_by != BY_POLICY):
            raise Violation(POLICY, f"{by} are said to have approved {shadow.id}")
    if shadow.state is FAILED and details.reason_kind != "approval_timeout":
        raise Violation(POLICY, f"{shadow.id} was failed by silence as {details.reason_kind}")
