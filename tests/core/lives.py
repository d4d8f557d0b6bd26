"""Random lives of a task: what Hypothesis draws from to find a rule that does not always hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from hypothesis import event
from hypothesis import strategies as st

from agentq.core import triggers as t
from agentq.core.errors import AgentqError
from agentq.core.states import TABLE, TERMINAL, State
from agentq.core.task import (
    NO_GATES,
    NO_POLICY,
    NO_USAGE,
    ApprovalPolicy,
    Escalation,
    ExpectedOutput,
    Gates,
    OnDependencyFailure,
    OnTimeout,
    Spec,
    Task,
    Usage,
)
from agentq.core.transition import Decision, transition
from tests.core.building import NOW

DEPENDENCIES = ("task-a", "task-b")
#: What a person may be called; the second submitted the task, the third may hold it.
PEOPLE = ("boss", "coordinator", "ann")
COSTS = (NO_USAGE, Usage(usd=0.1), Usage(usd=0.5, tokens=10), Usage(usd=3))
LATER = NOW + 500_000

#: Epochs are relative to the task's own: mostly right, sometimes one off.
Said = Callable[[Task], t.Trigger]
OFFSETS = (0, 0, 0, 0, -1, 1)

CHILDREN = ("task-8", "task-9")


def _policy(then: OnTimeout) -> ApprovalPolicy:
    return ApprovalPolicy(40, (Escalation(30, "lead"), Escalation(90, "head")), then)


seconds = st.sampled_from([0, 0, 1, 60, 100_000])
specs = st.builds(
    Spec,
    id=st.just("task-1"),
    to=st.just("worker"),
    expected_output=st.sampled_from([ExpectedOutput(), ExpectedOutput(artifacts=("patch",))]),
    ttl_seconds=seconds,
    delay_seconds=seconds,
    max_attempts=st.integers(1, 4),
    after=st.sampled_from([(), (), DEPENDENCIES[:1], DEPENDENCIES]),
    on_dependency_failure=st.sampled_from(OnDependencyFailure),
    irreversible=st.booleans(),
    requires_approval=st.booleans(),
    approval_timeout_seconds=seconds,
    review=st.booleans(),
    budget=st.sampled_from([NO_USAGE, NO_USAGE, Usage(usd=1), Usage(usd=5, tokens=100)]),
    reply_to=st.sampled_from(["", "results.boss"]),
    gates=st.sampled_from([NO_GATES, NO_GATES, Gates("", "reviewer", 50, 1), Gates(person=True)]),
    approval=st.sampled_from([NO_POLICY, NO_POLICY, *map(_policy, OnTimeout)]),
    wait_for=st.sampled_from([(), (), (), ("deployed",), ("deployed", "seen")]),
)


def _of_attempt(kind: Callable[..., t.Trigger], *choices: tuple[object, ...]) -> list[Said]:
    def say(offset: int, rest: Sequence[object]) -> Said:
        return lambda task: kind(task.epoch + offset, *rest)

    return [say(offset, rest) for offset, rest in product(OFFSETS, product(*choices))]


def _of_anybody(kind: Callable[..., t.Trigger], *choices: tuple[object, ...]) -> list[Said]:
    def say(rest: Sequence[object]) -> Said:
        return lambda task: kind(*rest)

    return [say(rest) for rest in product(*choices)]


def _of_review(kind: Callable[[str, int], t.Trigger]) -> list[Said]:
    """Said by the review that is waited for, and by one that is not."""

    def say(offset: int) -> Said:
        return lambda task: kind(
            task.details.review_task if not offset else "another", task.epoch + offset
        )

    return [say(0), say(0), say(-1)]


def _judged(ruling: t.Ruling, score: int) -> Callable[[str, int], t.Trigger]:
    return lambda review, epoch: t.Verdict("rae", ruling, "", "", score, review or "x", epoch)


#: Everything that can be said, in the variants that might decide differently.
SAYINGS: dict[str, list[Said]] = {
    "DependencyEnded": _of_anybody(
        t.DependencyEnded, (*DEPENDENCIES, *CHILDREN), (*[State.COMPLETE] * 6, *sorted(TERMINAL))
    ),
    "ChildrenSubmitted": _of_anybody(
        t.ChildrenSubmitted, (CHILDREN[:1], CHILDREN[1:], CHILDREN, DEPENDENCIES[:1])
    ),
    "Yield": _of_attempt(
        t.Yield, ("all", "any", "none"), ("", "so far"), ((), (), ("deployed",), ("seen", "seen"))
    ),
    "Signal": _of_anybody(t.Signal, PEOPLE, ("deployed", "seen"), ("", '{"to":"prod"}')),
    "ReviewFailed": _of_review(lambda review, _: t.ReviewFailed(review, State.FAILED, "no time")),
    "Approve": _of_anybody(t.Approve, PEOPLE),
    "Reject": _of_anybody(t.Reject, PEOPLE, ("", "too risky")),
    "Claim": _of_anybody(t.ClaimTask, ("ann", "bob"), (1, 60_000), (False, False, True)),
    "Progress": _of_attempt(t.Progress, (0, 100), ("", "reading")),
    "AddArtifact": _of_attempt(t.AddArtifact, ("patch",), (1,), ("0",)),
    "Spend": _of_attempt(t.Spend, COSTS),
    "Report": _of_attempt(
        t.Report,
        ("", "done"),
        ("", "result.md"),
        ("",),
        ((), ("patch",)),
        COSTS[::2],
        ("",),
        ("",),
        (True, True, False),
        ("",),
        (True, False),
    ),
    "Fail": _of_attempt(t.FailAttempt, ("", "no"), tuple(t.FailureKind), COSTS[::2], (0.0, 0.99)),
    "Block": _of_attempt(t.BlockTask, ("which branch?",)),
    "Release": _of_attempt(t.Release, ("", "quota"), (0, LATER)),
    "Answer": _of_anybody(t.Answer, PEOPLE, ("", "yes"), tuple(t.Resolution), COSTS),
    "Verdict": [
        *_of_anybody(t.Verdict, PEOPLE, tuple(t.Ruling), ("", "add tests")),
        *(
            each
            for ruling, score in product(t.Ruling, (-1, 20, 90))
            for each in _of_review(_judged(ruling, score))
        ),
    ],
    "Cancel": _of_anybody(t.Cancel, PEOPLE, ("", "no need"), ("",), (False, True)),
    "Stopped": _of_attempt(t.Stopped),
    "Requeue": _of_anybody(
        t.Requeue, PEOPLE, ("",), ((), DEPENDENCIES[:1]), ("",), ((), CHILDREN[:1]), (True, False)
    ),
    "Applied": _of_anybody(t.Applied, PEOPLE, ("0" * 40, "1" * 40), ("", "main")),
    "Edit": _of_anybody(
        t.Edit, PEOPLE, ("", "other"), ("",), ("", "high"), ("", "do that"), ("", "0" * 64)
    ),
    "Hold": _of_anybody(t.Hold, PEOPLE, ("", "not now"), ("stated", "coordinator")),
    "Dispatch": _of_anybody(t.Dispatch, PEOPLE, ("stated", "coordinator")),
    "Tick": _of_anybody(t.Tick),
    "Comment": [
        *_of_anybody(t.Comment, PEOPLE, ("hm",)),
        *_of_attempt(lambda epoch: t.Comment("ann", "hm", epoch)),
    ],
    "Tell": _of_anybody(t.Tell, PEOPLE, ("keep the old page",)),
    "TakeMessages": _of_attempt(t.TakeMessages),
    "RefuseReport": _of_attempt(t.RefuseReport, ("ann",), ("completed", "failed")),
}
#: What leads somewhere is drawn more often than what ends everything.
_RARE = {"Cancel", "Reject", "Hold", "Comment", "Tell", "TakeMessages", "RefuseReport"}
_ALLOWED: dict[State, list[str]] = {
    state: [
        name
        for (before, name) in TABLE
        if before is state
        for _ in range(1 if name in _RARE else 4)
    ]
    for state in State
}

#: How far the clock moves before each word; `None` is exactly to the next moment that matters.
PAUSES = (0, 0, 1, 500, 61_000, 10**8, -5_000, None, None, None)


@dataclass
class Life:
    """One task, its log, and everything it went through."""

    spec: Spec
    task: Task
    log: list[t.Event]
    now: int = NOW
    steps: list[tuple[Task, t.Trigger, Decision]] = field(default_factory=list)
    refused: list[tuple[Task, t.Trigger, AgentqError]] = field(default_factory=list)

    @classmethod
    def begin(cls, spec: Spec, *, ended: bool) -> Life:
        over = tuple((each, State.COMPLETE) for each in spec.after) if ended else ()
        decision = transition(None, t.Submit(spec, () if ended else spec.after, over), NOW)
        return cls(spec, decision.task, list(decision.events))

    def apply(self, said: Said, pause: int | None) -> None:
        if pause is None:
            self.now = max(self.now, self.task.wake_at)
        else:
            self.now += pause
        trigger = said(self.task)
        try:
            decision = transition(self.task, trigger, self.now)
        except AgentqError as refusal:
            self.refused.append((self.task, trigger, refusal))
            return
        self.steps.append((self.task, trigger, decision))
        self.log += decision.events
        self.task = decision.task

    def tasks(self) -> Iterator[Task]:
        """Every version there was, the first included."""
        yield from (before for before, _, _ in self.steps)
        yield self.task


#: One number is one step: whether anything goes, which word, which variant of it, and when.
#: A single draw per step keeps long lives cheap.
_numbers = st.lists(st.integers(0, 2**40), min_size=1, max_size=40)


@st.composite
def lived(draw: st.DrawFn) -> Life:
    """A life in which most of what is said may be said in the state it is said in."""
    life = Life.begin(draw(specs), ended=draw(st.booleans()))
    for number in draw(_numbers):
        rest, anything = divmod(number, 5)
        names = list(SAYINGS) if anything == 4 else _ALLOWED[life.task.state]
        rest, name = divmod(rest, len(names))
        sayings = SAYINGS[names[name]]
        rest, variant = divmod(rest, len(sayings))
        life.apply(sayings[variant], PAUSES[rest % len(PAUSES)])
    event(f"ends {life.task.state}")
    return life
