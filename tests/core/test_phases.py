"""A life is divided into phases: every millisecond into one, by what the log says happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given

from agentq.core import triggers as t
from agentq.core.phases import Phase, TaskLife, divide, in_words
from agentq.core.states import State
from agentq.core.task import NO_USAGE, RUN_ROLE, Task, Usage
from agentq.core.transition import transition
from tests.core.building import LEASE_MS, NOW, a_spec
from tests.core.lives import Life, lived

CLAIM = t.ClaimTask("ann", LEASE_MS)
NO = t.FailureKind.INVALID


def replayed(log: Sequence[t.Event]) -> Iterator[tuple[t.Event, Task]]:
    task = None
    for event in log:
        task = transition(task, event.trigger, event.at).task
        yield event, task


def life(
    *said: tuple[int, t.Trigger],
    until: int,
    waiting_on: tuple[str, ...] = (),
    **fields: Any,
) -> TaskLife:
    """The life of a task to which these happened at so many milliseconds after its submission."""
    first = transition(None, t.Submit(a_spec(after=waiting_on, **fields), waiting_on), NOW)
    task, log = first.task, list(first.events)
    for at, trigger in said:
        decision = transition(task, trigger, NOW + at)
        assert decision.events, f"{trigger} changes nothing"
        task, log = decision.task, [*log, *decision.events]
    found = divide(replayed(log), NOW + until)
    assert_whole(found)
    return found


def assert_whole(found: TaskLife) -> None:
    """One span begins where the one before ends, from the submission to the end."""
    moments = [found.submitted_at, *(span.end for span in found.spans)]
    assert [span.begin for span in found.spans] == moments[:-1]
    assert moments[-1] == found.ended_at


def phases(found: TaskLife) -> list[tuple[str, int]]:
    return [(str(span.phase), span.end - span.begin) for span in found.spans]


def test_a_plain_life() -> None:
    found = life((100, CLAIM), (350, t.Report(1)), until=900)
    assert phases(found) == [("waiting_for_slot", 100), ("working", 250)]
    assert (found.attempts, found.attempts_ms, found.running) == (1, 250, False)
    assert (found.ended_at, found.last_attempt_end) == (NOW + 350, NOW + 350)


def test_what_is_not_over_lasts_until_now() -> None:
    assert phases(life(until=70)) == [("waiting_for_slot", 70)]
    running = life((10, CLAIM), until=70)
    assert phases(running) == [("waiting_for_slot", 10), ("working", 60)] and running.running
    # A clock that was read before the last event was written does not make a life shorter.
    assert phases(life((10, CLAIM), until=5)) == [("waiting_for_slot", 10)]
    with pytest.raises(AssertionError, match="begins with a submission"):
        divide([], NOW)


def test_what_a_pending_task_waits_for() -> None:
    """Dependencies first, then the time, and an approval only once nothing else is missing."""
    found = life(
        (100, t.DependencyEnded("task-a", State.COMPLETE)),
        (300, t.DependencyEnded("task-b", State.COMPLETE)),
        (2000, t.Tick()),
        (2500, t.Approve("boss")),
        (2600, CLAIM),
        until=2700, waiting_on=("task-a", "task-b"), delay_seconds=2, requires_approval=True,
    )  # fmt: skip
    assert phases(found) == [
        ("waiting_for_dependencies", 300), ("delayed", 1700), ("waiting_for_approval", 500),
        ("waiting_for_slot", 100), ("working", 100),
    ]  # fmt: skip


def test_an_approval_that_nobody_gave_in_time_is_still_waited_for() -> None:
    found = life(
        (1000, t.Tick()), (1500, t.Approve("boss")), until=1600,
        requires_approval=True, approval_timeout_seconds=1,
    )  # fmt: skip
    assert phases(found)[-1] == ("waiting_for_slot", 100)
    assert {phase for phase, _ in phases(found)[:-1]} == {"waiting_for_approval"}


def test_an_edit_takes_the_approval_back() -> None:
    found = life(
        (10, t.Approve("boss")), (30, t.Edit("kim", instructions="other")),
        (70, t.Approve("boss")), until=100, requires_approval=True,
    )  # fmt: skip
    assert phases(found) == [
        ("waiting_for_approval", 10), ("waiting_for_slot", 20), ("waiting_for_approval", 40),
        ("waiting_for_slot", 30),
    ]  # fmt: skip


def test_a_failed_attempt_and_the_pause_after_it_are_retrying() -> None:
    failed = t.FailAttempt(1, "no", cost=Usage(usd=1), jitter=0.5)
    pause = transition(_claimed(), failed, NOW + 10).task.details.not_before - NOW - 10
    found = life(
        (0, CLAIM), (10, failed), (10 + pause, t.Tick()), (20 + pause, CLAIM),
        (50 + pause, t.Report(2, cost=Usage(usd=2, tokens=7))), until=10**9,
    )  # fmt: skip
    assert phases(found) == [
        ("retrying", 10), ("retrying", pause), ("waiting_for_slot", 10), ("working", 30),
    ]  # fmt: skip
    assert (found.attempts, found.attempts_ms) == (2, 40)
    assert dict(found.costs) == {
        Phase.RETRYING: Usage(usd=1), Phase.WORKING: Usage(usd=2, tokens=7)
    }  # fmt: skip


def _claimed() -> Task:
    return transition(transition(None, t.Submit(a_spec()), NOW).task, CLAIM, NOW).task


@pytest.mark.parametrize(
    ("ending", "after"),
    [
        (t.Release(1, "shutdown"), "waiting_for_slot"),
        (t.Release(1, "quota", NOW + 10**6), "retrying"),
        (t.BlockTask(1, "which?"), "blocked"),
        (t.Spend(1, Usage(usd=9)), "blocked"),
    ],
    ids=["released", "released until later", "blocked", "budget used up"],
)
def test_attempts_that_ended_without_a_report(ending: t.Trigger, after: str) -> None:
    found = life((10, CLAIM), (30, ending), until=100, budget=Usage(usd=5))
    assert phases(found) == [("waiting_for_slot", 10), ("retrying", 20), (after, 70)]


def test_a_crash() -> None:
    found = life((10, CLAIM), (10 + LEASE_MS, t.Tick()), until=20 + LEASE_MS)
    assert phases(found) == [
        ("waiting_for_slot", 10), ("retrying", LEASE_MS), ("waiting_for_slot", 10)
    ]  # fmt: skip


def test_a_review_decides_whether_the_attempt_was_work() -> None:
    handed_in = ((0, CLAIM), (30, t.Report(1, cost=Usage(tokens=5))))
    waiting = life(*handed_in, until=50, review=True)
    assert phases(waiting) == [("working", 30), ("waiting_for_review", 20)]
    again = ((60, t.Verdict("bob", t.Ruling.CHANGES)), (70, CLAIM), (90, t.Report(2)))
    accepted = life(
        *handed_in, *again, (100, t.Verdict("bob", t.Ruling.ACCEPT)), until=500, review=True
    )
    assert phases(accepted) == [
        ("retrying", 30), ("waiting_for_review", 30), ("waiting_for_slot", 10), ("working", 20),
        ("waiting_for_review", 10),
    ]  # fmt: skip
    assert dict(accepted.costs) == {Phase.RETRYING: Usage(tokens=5)}
    for ending in (t.Verdict("bob", t.Ruling.REJECT), t.Cancel("bob")):
        in_vain = life(*handed_in, (60, ending), until=99, review=True)
        assert phases(in_vain) == [("retrying", 30), ("waiting_for_review", 30)]


def test_the_answer_done_makes_work_of_the_attempt_that_asked() -> None:
    asked = ((0, CLAIM), (30, t.BlockTask(1, "is it done?")))
    done = life(*asked, (50, t.Answer("kim", resolution=t.Resolution.DONE)), until=99)
    assert phases(done) == [("working", 30), ("blocked", 20)]
    given_up = life(*asked, (50, t.Answer("kim", resolution=t.Resolution.GIVE_UP)), until=99)
    assert phases(given_up) == [("retrying", 30), ("blocked", 20)]


def test_a_cancelled_attempt_lasts_until_its_holder_has_stopped() -> None:
    cancelled = ((10, CLAIM), (30, t.Cancel("kim")), (35, t.Spend(1, Usage(usd=1))))
    still = life(*cancelled, until=60)
    assert phases(still) == [("waiting_for_slot", 10), ("retrying", 50)] and still.running
    gone = life(*cancelled, (40, t.Stopped(1)), (45, t.Comment("kim", "ok")), until=60)
    assert phases(gone) == [("waiting_for_slot", 10), ("retrying", 30)] and not gone.running
    assert dict(gone.costs) == {Phase.RETRYING: Usage(usd=1)}
    lost = life(*cancelled, (10 + LEASE_MS, t.Tick()), until=10**9)
    assert phases(lost) == [("waiting_for_slot", 10), ("retrying", LEASE_MS)]
    waiting = life((30, t.Cancel("kim")), until=60)
    assert phases(waiting) == [("waiting_for_slot", 30)]


def test_a_dead_letter_that_is_reopened_has_waited_for_a_person() -> None:
    failed = ((0, CLAIM), (30, t.FailAttempt(1, "no", NO)))
    assert phases(life(*failed, until=99)) == [("retrying", 30)]
    reopened = life(*failed, (80, t.Requeue("kim")), until=99)
    assert phases(reopened) == [("retrying", 30), ("blocked", 50), ("waiting_for_slot", 19)]
    waiting = life(*failed, (80, t.Requeue("kim", waiting_on=("task-a",))), until=99)
    assert phases(waiting)[-1] == ("waiting_for_dependencies", 19)
    expired = life((1000, t.Tick()), (1500, t.Requeue("kim")), until=1600, ttl_seconds=1)
    assert phases(expired) == [
        ("waiting_for_slot", 1000), ("blocked", 500), ("waiting_for_slot", 100)
    ]  # fmt: skip


def test_one_that_never_was_ready() -> None:
    skipped = life((40, t.DependencyEnded("a", State.FAILED)), until=99, waiting_on=("a",))
    assert phases(skipped) == [("waiting_for_dependencies", 40)]
    refused = divide(
        replayed(transition(None, t.Submit(a_spec(), refused="no"), NOW).events), NOW + 9
    )
    assert refused.spans == () and refused.ended_at == NOW


@pytest.mark.parametrize("kind", ["run", "review"])
def test_attempts_that_coordinate_others_supervise(kind: str) -> None:
    failed = t.FailAttempt(1, "no", cost=Usage(usd=1), jitter=0.0)
    found = life(
        (0, CLAIM), (10, failed), (20, t.Tick()), (30, CLAIM), (40, t.Report(2, cost=Usage(usd=2))),
        until=99, type=kind,
    )  # fmt: skip
    assert phases(found)[0] == ("retrying", 10) and phases(found)[-1] == ("supervising", 10)
    assert found.coordinates and dict(found.costs) == {
        Phase.RETRYING: Usage(usd=1), Phase.SUPERVISING: Usage(usd=2)
    }  # fmt: skip


def test_an_attempt_that_yields_to_its_children_has_not_failed() -> None:
    found = life(
        (10, CLAIM), (20, t.ChildrenSubmitted(("a", "b"))), (30, t.Yield(1)),
        (50, t.DependencyEnded("a", State.COMPLETE)), (90, t.DependencyEnded("b", State.FAILED)),
        (95, CLAIM), (99, t.Report(2)), until=200,
    )  # fmt: skip
    assert phases(found) == [
        ("waiting_for_slot", 10), ("supervising", 20), ("waiting_for_dependencies", 60),
        ("waiting_for_slot", 5), ("supervising", 4),
    ]  # fmt: skip
    # Nor has one whose children are over already, which goes on at once;
    at_once = life(
        (10, CLAIM), (20, t.ChildrenSubmitted(("a",))),
        (30, t.DependencyEnded("a", State.COMPLETE)), (40, t.Yield(1)), until=50,
    )  # fmt: skip
    assert phases(at_once) == [
        ("waiting_for_slot", 10), ("supervising", 30), ("waiting_for_slot", 10)
    ]  # fmt: skip
    # and one that waits for a signal works: it coordinates nobody.
    signalled = life(
        (0, CLAIM), (10, t.Yield(1, signals=("go",))), (30, t.Signal("kim", "go")), until=40
    )
    assert phases(signalled) == [
        ("working", 10), ("waiting_for_dependencies", 20), ("waiting_for_slot", 10)
    ]  # fmt: skip


@given(lived())
def test_every_millisecond_is_in_one_phase(history: Life) -> None:
    now = max(history.now, history.task.updated_at) + 1
    found = divide(replayed(history.log), now)
    assert_whole(found)
    assert all(span.begin < span.end for span in found.spans)
    over = history.task.is_terminal and not history.task.holder
    assert found.ended_at <= history.task.updated_at if over else found.ended_at == now
    assert found.attempts == history.task.epoch
    spent = NO_USAGE
    for _, cost in found.costs:
        spent = spent.plus(cost)
    assert spent == history.task.details.spent


def test_a_hold_counts_before_an_approval_and_after_the_rest() -> None:
    found = life(
        (10, t.Hold("kim")), (20, t.Edit("ed", title="other")), (30, t.Dispatch("kim")), until=40
    )
    assert phases(found) == [("waiting_for_slot", 10), ("held", 20), ("waiting_for_slot", 10)]
    asked = life((10, t.Hold("kim")), (30, t.Approve("boss")), until=40, requires_approval=True)
    assert phases(asked) == [("waiting_for_approval", 10), ("held", 30)]
    delayed = life((10, t.Hold("kim")), (60_000, t.Tick()), until=60_005, delay_seconds=60)
    assert phases(delayed) == [("delayed", 60_000), ("held", 5)]


def test_a_bottleneck_in_words() -> None:
    for phase in set(Phase) - {Phase.WORKING}:
        said = in_words(phase, "builder", 90_000)
        assert "role builder" in said and ": 1m30s; " in said
    assert ": 999 ms; " in in_words(Phase.BLOCKED, "builder", 999)
    # Runs have no slots that somebody could raise.
    waited = in_words(Phase.WAITING_FOR_SLOT, RUN_ROLE, 90_000)
    assert waited == "runs that waited to be advanced: 1m30s; see that `agentq up` is not too busy"
    for span_ms in (1000, 1999):
        assert ": 1s; " in in_words(Phase.BLOCKED, "builder", span_ms)
