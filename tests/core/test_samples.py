"""What events add up to: lengths in buckets, failures by kind, and sums of sums."""

from __future__ import annotations

import pytest

from agentq.core.samples import (
    BOUNDS_MS,
    Latencies,
    LogLine,
    Sample,
    SampleCounter,
    Standing,
    latencies_of,
    total_of,
)
from agentq.core.states import State
from agentq.core.task import Usage

SUBMITTED = LogLine(1_000, "submitted", "Submit", State.READY)
CLAIMED = LogLine(1_030, "claimed", "Claim", State.IN_PROGRESS)


def counted(*lines: LogLine) -> Sample:
    counter, standing = SampleCounter(), Standing()
    for line in lines:
        counter.add(standing, line)
        standing = standing.after(line)
    return counter.sample()


def test_bounds_are_round_numbers_from_ten_milliseconds_to_six_days() -> None:
    assert BOUNDS_MS[:5] == (10, 20, 50, 100, 200)
    assert (len(BOUNDS_MS), BOUNDS_MS[-1]) == (24, 500_000_000)


def test_a_length_that_is_a_bound_belongs_to_the_bucket_that_ends_there() -> None:
    found = latencies_of([0, 10, 11, 50, 600_000_000])
    assert found.counts == (2, 1, 1, *[0] * 21, 1) and found.sum_ms == 600_000_071
    assert found.count == 5
    assert latencies_of([]) == Latencies()


@pytest.mark.parametrize(
    ("lengths", "share", "expected"),
    [
        ([], 0.5, None),
        ([5], 1.0, 10),
        ([30, 30, 30, 30], 0.5, 35),
        ([5, 30], 0.5, 10),
        ([5, 30], 1.0, 50),
        ([5, 30], 0.0, 0),
        ([600_000_000], 0.95, 500_000_000),
        ([10] * 95 + [2_000] * 5, 0.95, 10),
        ([10] * 94 + [2_000] * 6, 0.95, 1_167),
    ],
)
def test_a_quantile_is_estimated_within_its_bucket(
    lengths: list[int], share: float, expected: int | None
) -> None:
    assert latencies_of(lengths).quantile_ms(share) == expected


def test_histograms_of_different_length_add_up() -> None:
    short, long = latencies_of([5]), latencies_of([5, 600])
    assert short.plus(long) == long.plus(short) == latencies_of([5, 5, 600])


def test_an_attempt_that_succeeds() -> None:
    found = counted(
        SUBMITTED,
        CLAIMED,
        LogLine(1_040, "progress", "Progress", State.IN_PROGRESS),
        LogLine(1_060, "spent", "Spend", State.IN_PROGRESS, cost=Usage(usd=0.5)),
        LogLine(1_330, "completed", "Report", State.COMPLETE, cost=Usage(usd=1.0, tokens=7)),
        LogLine(9_000, "commented", "Comment", State.COMPLETE),
    )
    assert found == Sample(
        submitted=1, started=1, completed=1, waiting=latencies_of([30]),
        processing=latencies_of([300]), cost=Usage(usd=1.5, tokens=7),
    )  # fmt: skip
    assert (found.failed, found.failure_rate) == (0, 0.0)


def test_failures_are_counted_by_kind_and_lease_ends_as_crashes() -> None:
    found = counted(
        SUBMITTED,
        CLAIMED,
        LogLine(1_050, "retrying", "Fail", State.PENDING, "transient"),
        LogLine(2_000, "waited", "Tick", State.READY),
        LogLine(2_500, "claimed", "Claim", State.IN_PROGRESS),
        LogLine(3_500, "lease_ended", "Tick", State.READY),
        LogLine(3_600, "edited", "Edit", State.READY),
        LogLine(4_500, "claimed", "Claim", State.IN_PROGRESS),
        LogLine(4_600, "failed", "Fail", State.FAILED, "crashed"),
        LogLine(9_600, "commented", "Comment", State.FAILED),
    )
    assert found.failures == {"crashed": 1, "lease_ended": 1, "transient": 1}
    assert (found.failed, found.crashed, found.retried, found.dead) == (3, 2, 2, 1)
    # An edit does not make a ready task ready anew.
    assert found.waiting == latencies_of([30, 500, 1_000])
    assert found.processing == latencies_of([20, 1_000, 100])
    assert found.failure_rate == 1.0


def test_children_and_cancellations() -> None:
    found = counted(
        SUBMITTED,
        CLAIMED,
        LogLine(1_040, "children_submitted", "ChildrenSubmitted", State.IN_PROGRESS),
        LogLine(1_050, "cancelled", "Cancel", State.CANCELLED),
        LogLine(1_090, "stopped", "Stopped", State.CANCELLED),
    )
    assert (found.cancelled, found.processing) == (1, latencies_of([20]))


def test_what_expires_or_is_refused_at_birth_is_dead() -> None:
    assert counted(SUBMITTED, LogLine(2_000, "expired", "Tick", State.EXPIRED)).dead == 1
    assert counted(LogLine(5, "failed", "Submit", State.FAILED)).dead == 1


def test_a_clock_that_goes_back_makes_no_length_negative() -> None:
    found = counted(SUBMITTED, CLAIMED._replace(at=990), LogLine(980, "x", "Report", State.REVIEW))
    assert found.waiting == found.processing == latencies_of([0])


def test_samples_add_up() -> None:
    one = Sample(1, 2, 3, 4, 5, 6, {"b": 1}, latencies_of([5]), latencies_of([6]), Usage(usd=1))
    other = Sample(failures={"a": 2, "b": 3}, cost=Usage(usd=0.5))
    both = Sample(
        1, 2, 3, 4, 5, 6, {"a": 2, "b": 4}, latencies_of([5]), latencies_of([6]), Usage(usd=1.5)
    )
    assert total_of([one, other]) == both == other.plus(one)
    assert list(both.failures) == list(other.plus(one).failures)
    assert total_of([]) == Sample() and Sample().failure_rate is None
    twice = one.plus(one)
    assert (twice.submitted, twice.started, twice.completed) == (2, 4, 6)
    assert (twice.dead, twice.cancelled, twice.retried) == (8, 10, 12)


def test_a_task_that_nobody_holds_was_claimed_at_no_time() -> None:
    assert Standing() == Standing(None, 0, 0)
    standing = Standing().after(SUBMITTED)
    assert standing == Standing(State.READY, 1_000, 0)
    standing = standing.after(CLAIMED)
    assert standing == Standing(State.IN_PROGRESS, 0, 1_030)
    progress = LogLine(1_040, "progress", "Progress", State.IN_PROGRESS)
    assert standing.after(progress) == standing
    assert standing.after(LogLine(1_050, "released", "Release", State.READY)) == Standing(
        State.READY, 1_050, 0
    )


def test_what_leaves_a_task_in_its_state_without_standing_still_begins_anew() -> None:
    # Edited, a ready task stays ready: since then it has waited. A claim after a claim is another.
    ready = Standing().after(SUBMITTED)
    assert ready.after(LogLine(2_000, "edited", "Edit", State.READY)).ready_at == 1_000
    running = ready.after(CLAIMED)
    assert running.after(LogLine(3_000, "claimed", "Claim", State.IN_PROGRESS)).claimed_at == 3_000
    assert running.after(LogLine(3_000, "commented", "Comment", State.IN_PROGRESS)) is running


def test_failures_of_another_kind_are_no_crashes() -> None:
    assert Sample(failures={"timeout": 2}).crashed == 0
    assert Sample(failures={"timeout": 2, "lease_ended": 1}).crashed == 1
