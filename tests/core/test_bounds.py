"""Bounds and defaults, to the last one: what may just be, what may just not be, and what is unsaid.

These numbers are promises: documents name them, other programs count on them, and ledgers out there
were written with them. Whoever changes one changes it here too.
"""

from __future__ import annotations

from typing import Any

import pytest

from agentq.core import limits, retry, spec_types
from agentq.core import triggers as t
from agentq.core.errors import Invalid
from agentq.core.limits import RoleLimits, overspent, shorten
from agentq.core.retry import backoff_ms
from agentq.core.spec_types import AMOUNT_MAX, check_kinds, check_usage, is_readable
from agentq.core.states import State
from agentq.core.task import (
    NO_DETAILS,
    NO_USAGE,
    ExpectedOutput,
    OnDependencyFailure,
    Priority,
    Reported,
    Spec,
    Task,
    TaskDetails,
    Usage,
)
from agentq.core.trigger_validation import check_comment, check_trigger
from agentq.core.values import fields_of
from agentq.protocol import messages
from agentq.protocol.spec_validation import check_spec
from tests.core.building import NOW, a_spec, claimed, submitted, then

WHOLE_MAX = 2**63 - 1


def refused(**changes: Any) -> Invalid:
    with pytest.raises(Invalid) as refusal:
        check_spec(a_spec(**changes))
    return refusal.value


# -- the numbers themselves --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "name", "number"),
    [
        (limits, "ENVELOPE_BYTES_MAX", 65_536),
        (limits, "INSTRUCTIONS_BYTES_MAX", 16_384),
        (limits, "CONTEXT_BYTES_MAX", 8_388_608),
        (limits, "SUMMARY_CHARS_MAX", 4_000),
        (limits, "NOTE_CHARS_MAX", 16_000),
        (limits, "PROGRESS_CHARS_MAX", 500),
        (limits, "NAME_CHARS_MAX", 200),
        (limits, "BATCH_MAX", 10_000),
        (limits, "NOTES_KEPT", 20),
        (limits, "REFUSED_REPORTS_KEPT", 10),
        (limits, "CRASHES_MAX", 3),
        (limits, "REMINDER_MS", 86_400_000),
        (limits, "WARN_SHARE", 0.8),
        (limits, "DAY_MS", 86_400_000),
        (limits, "CIRCUIT_MS_MAX", 31_622_400_000),
        (spec_types, "EXTRA_DEPTH_MAX", 32),
        (spec_types, "NEXT_DEPTH_MAX", 8),
        (spec_types, "AMOUNT_MAX", 1e15),
        (messages, "LEASE_SECONDS_MAX", 86_400),
        (messages, "FILES_MAX", 100),
        (retry, "BASE_MS", 10_000),
        (retry, "CEILING_MS", 300_000),
    ],
)
def test_the_numbers(module: Any, name: str, number: float) -> None:
    assert getattr(module, name) == number


# -- what is not said --------------------------------------------------------------------------


def test_what_is_not_said_of_a_task() -> None:
    assert Spec("task-1", "worker") == Spec(
        id="task-1", to="worker", sender="coordinator", type="task", title="",
        priority=Priority.NORMAL, instructions="", context_ref="", context_sha256="",
        expected_output=ExpectedOutput("markdown", ()), ttl_seconds=0, timeout_seconds=0,
        delay_seconds=0, lease_seconds=60, max_attempts=3, after=(), base=(),
        on_dependency_failure=OnDependencyFailure.FAIL, next=(), resources=(), idempotency_key="",
        irreversible=False, requires_approval=False, approval_timeout_seconds=0, review=False,
        budget=Usage(0.0, 0, 0, 0.0), tree_budget=Usage(0.0, 0, 0, 0.0), reply_to="",
        labels={}, traceparent="", parent="", extra={},
    )  # fmt: skip


def test_what_a_new_task_remembers() -> None:
    assert NO_DETAILS == TaskDetails() == TaskDetails(
        failures=0, crashes=0, interruptions=0, rounds=0, waiting_on=(), not_before=0,
        approved_by="", approved_digest="", reason="", reason_kind="", notes=(), report=None,
        progress_percent=-1, progress_note="", spent=NO_USAGE, extra_budget=NO_USAGE,
        budget_warned=False, remind_at=0, asked_at=0, reopened_at=0, refused_reports=0,
        applied_at=0, applied_by="", applied_commit="", applied_branch="",
        gated=False,
    )  # fmt: skip
    assert Task(a_spec(), State.READY, 1, 0, NOW, NOW) == Task(
        a_spec(), State.READY, 1, 0, NOW, NOW, 0, "", NO_DETAILS
    )
    assert Reported(1, "ann") == Reported(1, "ann", "", "", "")


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        (t.Submit(a_spec()), t.Submit(a_spec(), (), ())),
        (t.ClaimTask("ann", 5), t.ClaimTask("ann", 5, gated=False)),
        (t.Progress(1, 5), t.Progress(1, 5, "")),
        (t.AddArtifact(1, "a", 2, "f"), t.AddArtifact(1, "a", 2, "f", "application/octet-stream")),
        (t.Spend(1, NO_USAGE), t.Spend(1, NO_USAGE, "", "")),
        (
            t.Report(1),
            t.Report(1, "", "", "", (), NO_USAGE, used_up="", running_low="", verified=False),
        ),
        (
            t.FailAttempt(1, "x"),
            t.FailAttempt(
                1, "x", t.FailureKind.TRANSIENT, NO_USAGE, 0.5, used_up="", running_low=""
            ),
        ),
        (t.Release(1), t.Release(1, "", 0)),
        (t.Comment("ann", "x"), t.Comment("ann", "x", 0)),
        (t.Requeue("ann"), t.Requeue("ann", "", ())),
        (t.Cancel("ann"), t.Cancel("ann", "")),
        (t.Applied("ann", "x"), t.Applied("ann", "x", "", "")),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_not_said_to_a_task(short: object, whole: object) -> None:
    assert short == whole


def test_the_order_of_urgency() -> None:
    assert [each.rank for each in Priority] == [0, 1, 2, 3]
    assert list(Priority) == ["urgent", "high", "normal", "low"]


# -- what is said to a task --------------------------------------------------------------------

TEXTS = [
    (t.Cancel("{}"), 200),
    (t.Cancel("boss", "{}"), 4_000),
    (t.ClaimTask("{}", 5), 200),
    (t.Progress(1, 5, "{}"), 500),
    (t.Report(1, "{}"), 4_000),
    (t.Report(1, "x", "{}"), 800),
    (t.Report(1, "x", "y", "{}"), 200),
    (t.AddArtifact(1, "{}", 2, "f"), 800),
    (t.AddArtifact(1, "a", 2, "{}"), 200),
    (t.AddArtifact(1, "a", 2, "f", "{}"), 200),
    (t.Approve("boss", "{}"), 200),
    (t.FailAttempt(1, "{}"), 4_000),
    (t.Answer("boss", "{}"), 16_000),
    (t.Comment("boss", "{}"), 16_000),
    (t.DependencyEnded("{}", State.COMPLETE), 200),
    (t.RefuseReport(1, "ann", "{}", "x"), 200),
]


def said(trigger: Any, text: str) -> Any:
    """The trigger with this text in the place that is marked."""
    values = (getattr(trigger, each.name) for each in fields_of(type(trigger)))
    return type(trigger)(*(text if value == "{}" else value for value in values))


@pytest.mark.parametrize(("trigger", "most"), TEXTS, ids=lambda each: str(each)[:50])
def test_how_long_each_text_may_be(trigger: t.Trigger, most: int) -> None:
    for letter in ("x", "é"):
        check_trigger(said(trigger, letter * most))
        with pytest.raises(Invalid, match=f"may have {most} characters"):
            check_trigger(said(trigger, letter * (most + 1)))


def test_how_long_the_word_for_how_somebody_is_known_may_be() -> None:
    check_trigger(t.Cancel("boss", how="x" * 400))
    with pytest.raises(Invalid, match="400"):
        check_trigger(t.Cancel("boss", how="x" * 401))


@pytest.mark.parametrize("name", ["", "two\nlines", "two\rlines"])
def test_whoever_speaks_has_a_name_of_one_line(name: str) -> None:
    for trigger in (t.Cancel(name), t.ClaimTask(name, 5), t.Comment(name, "x")):
        with pytest.raises(Invalid, match="must be one line"):
            check_trigger(trigger)
    # What they say need not be one line, nor anything at all.
    check_trigger(t.Comment("boss", name))
    check_trigger(t.Cancel("boss", name))


def test_a_comment_says_something() -> None:
    check_comment("x")
    for nothing in ("", " \n"):
        with pytest.raises(Invalid, match="needs some text"):
            check_comment(nothing)


@pytest.mark.parametrize("text", ["nul\x00", "caf\udce9", "é\x00"])
def test_what_could_not_be_written_down_is_not_said(text: str) -> None:
    for trigger in (t.Cancel(text), t.Cancel("boss", text), t.Report(1, artifacts=(text,))):
        with pytest.raises(Invalid, match="not text"):
            check_trigger(trigger)
    assert not is_readable(text)
    assert is_readable("café") and is_readable("plain") and is_readable("")


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (t.Progress(1, 0), t.Progress(1, -1)),
        (t.Progress(1, 100), t.Progress(1, 101)),
        (t.Progress(0, 5), t.Progress(-1, 5)),
        (t.Progress(WHOLE_MAX, 5), t.Progress(WHOLE_MAX + 1, 5)),
        (t.FailAttempt(1, "x", jitter=0.0), t.FailAttempt(1, "x", jitter=-0.001)),
        (t.FailAttempt(1, "x", jitter=1.0), t.FailAttempt(1, "x", jitter=1.001)),
        (t.Spend(1, Usage(usd=0.0)), t.Spend(1, Usage(usd=-0.001))),
        (t.Report(1, artifacts=("x" * 16_000,)), t.Report(1, artifacts=("x" * 16_001,))),
        (
            t.Submit(a_spec(), ended=(("task-0", State.COMPLETE),)),
            t.Submit(a_spec(), ended=(5,)),  # type: ignore[arg-type]
        ),
    ],
    ids=str,
)
def test_numbers_and_lists_that_may_be_said(good: t.Trigger, bad: t.Trigger) -> None:
    check_trigger(good)
    with pytest.raises(Invalid):
        check_trigger(bad)


def test_the_first_field_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(Invalid, match="The field percent takes a whole number, got '5'"):
        check_trigger(t.Progress(1, "5", 7))  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="The field title takes text, got '7'"):
        check_kinds(a_spec(title=7, review="yes"))


# -- what may be asked for ---------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["usd", "tokens", "turns", "seconds"])
def test_amounts_reach_from_nothing_to_their_bound(unit: str) -> None:
    check_usage("cost", Usage(**{unit: 0}))
    check_usage("cost", Usage(**{unit: int(AMOUNT_MAX)}))
    for beyond in (-1, int(AMOUNT_MAX) + 1):
        with pytest.raises(Invalid, match=f"cost.{unit} must be from 0 to 1e"):
            check_usage("cost", Usage(**{unit: beyond}))


@pytest.mark.parametrize("unit", ["tokens", "turns"])
def test_tokens_and_turns_are_whole(unit: str) -> None:
    with pytest.raises(Invalid, match="a whole number"):
        check_usage("cost", Usage(**{unit: 0.5}))  # type: ignore[arg-type]
    check_usage("cost", Usage(usd=0.5, seconds=0.5))


def test_what_is_no_amount_at_all_is_named() -> None:
    with pytest.raises(Invalid, match="cost takes Usage"):
        check_usage("cost", {"usd": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [WHOLE_MAX, -WHOLE_MAX - 1, 0, True, None, 1.5, "x", [], {}])
def test_fields_that_nobody_knows_hold_whatever_json_holds(number: object) -> None:
    check_spec(a_spec(extra={"a": [number, {"b": number}]}))


@pytest.mark.parametrize("number", [WHOLE_MAX + 1, -WHOLE_MAX - 2])
def test_but_no_number_that_does_not_fit(number: int) -> None:
    assert "too big a number" in refused(extra={"a": number}).cause


def nested(depth: int) -> Any:
    inner: Any = 1
    for _ in range(depth):
        inner = [inner]
    return inner


def test_what_is_expected_is_a_list_of_names() -> None:
    for artifacts in (["patch"], "patch", (5,)):
        assert "expected_output" in refused(expected_output=ExpectedOutput("md", artifacts)).cause  # type: ignore[arg-type]


def test_how_deep_fields_may_nest_that_nobody_knows() -> None:
    check_spec(a_spec(extra={"a": nested(29)}))
    assert "nests deeper than 32 levels" in refused(extra={"a": nested(30)}).cause


def a_line_of_tasks(length: int) -> tuple[Spec, ...]:
    following: tuple[Spec, ...] = ()
    for number in range(length, 0, -1):
        following = (Spec(f"n-{number}", "worker", next=following),)
    return following


def test_how_far_ahead_tasks_may_be_named() -> None:
    check_spec(a_spec(next=a_line_of_tasks(7)))
    assert "nest deeper than 8 levels" in refused(next=a_line_of_tasks(8)).cause


def test_what_follows_is_a_task() -> None:
    assert "next takes Spec" in refused(next=("task-2",)).cause


DURATIONS = (
    "ttl_seconds", "timeout_seconds", "delay_seconds", "lease_seconds", "approval_timeout_seconds",
)  # fmt: skip


@pytest.mark.parametrize("name", DURATIONS)
def test_how_long_anything_may_last(name: str) -> None:
    most = 10 * 366 * 86_400
    check_spec(a_spec(**{name: most}))
    assert name in refused(**{name: most + 1}).cause
    least = 1 if name == "lease_seconds" else 0
    check_spec(a_spec(**{name: least}))
    assert name in refused(**{name: least - 1}).cause


def test_how_often_it_may_be_tried() -> None:
    check_spec(a_spec(max_attempts=1))
    check_spec(a_spec(max_attempts=1000))
    assert "1001" in refused(max_attempts=1001).cause


@pytest.mark.parametrize("name", ["after", "resources", "labels"])
def test_how_many_there_may_be(name: str) -> None:
    def some(count: int) -> Any:
        names = [f"x{number}" for number in range(count)]
        return dict.fromkeys(names, "") if name == "labels" else tuple(names)

    check_spec(a_spec(**{name: some(1000)}))
    assert "1001" in refused(**{name: some(1001)}).cause


def test_how_long_a_line_may_be() -> None:
    check_spec(a_spec(title="é" * 800))
    assert "at most 800 characters" in refused(title="x" * 801).cause


# -- small sums --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "window_ms"),
    [(0, 10_000), (1, 10_000), (2, 20_000), (3, 40_000), (5, 160_000), (6, 300_000),
     (60, 300_000)],
)  # fmt: skip
def test_the_wait_after_failures(failures: int, window_ms: int) -> None:
    assert backoff_ms(failures, 1.0) == window_ms
    assert backoff_ms(failures, 7.0) == window_ms
    assert backoff_ms(failures, 0.25) == window_ms // 4
    assert backoff_ms(failures, -7.0) == 0


def test_a_text_is_shortened_beyond_its_limit_only() -> None:
    assert shorten("x" * 100, 100) == "x" * 100
    text = "a" * 60 + "b" * 60
    half = "a" * 30
    assert shorten(text, 100) == f"{half}\n[… 60 characters left out …]\n{'b' * 30}"


def test_a_budget_is_used_up_when_it_is_reached() -> None:
    budget, extra = Usage(usd=1, turns=4), Usage(turns=2)
    assert overspent(budget, extra, Usage(usd=0.99, turns=5)) == ""
    assert overspent(budget, extra, Usage(turns=6)) == "6 of 6 turns are spent"
    assert overspent(budget, extra, Usage(turns=3), 0.5) == "3 of 6 turns are spent"
    # A unit without a budget is skipped, not the end of looking.
    assert overspent(Usage(seconds=5), NO_USAGE, Usage(usd=9, seconds=5)) != ""


def test_what_is_left_of_a_day_counts_what_the_task_has_had() -> None:
    day = RoleLimits(daily=Usage(tokens=100))
    task = then(claimed(budget=Usage(tokens=60)), t.Spend(1, Usage(tokens=20)))
    # It may take 40 more,
    assert day.too_small_for(task, Usage(tokens=60)) == ""
    assert "may spend 40 tokens, and 39 of the 100" in day.too_small_for(task, Usage(tokens=61))
    # and 50 if it is given ten more.
    more = then(
        claimed(budget=Usage(tokens=20)),
        t.Spend(1, Usage(tokens=20)),
        t.Answer("boss", "", extra_budget=Usage(tokens=10)),
    )
    assert "may spend 10 tokens" in day.too_small_for(more, Usage(tokens=91))
    assert day.too_small_for(more, Usage(tokens=90)) == ""
    # Units without a limit, or without a budget, do not count and do not end the looking.
    both = RoleLimits(daily=Usage(usd=1, tokens=5))
    assert both.too_small_for(submitted(budget=Usage(tokens=6)), NO_USAGE) != ""


def test_what_is_left_of_a_day_is_compared_to_the_last_digit() -> None:
    day = RoleLimits(daily=Usage(usd=5e-9))
    task = submitted(budget=Usage(usd=3e-9))
    assert day.too_small_for(task, Usage(usd=2e-9)) == ""
    assert day.too_small_for(task, Usage(usd=3e-9)) != ""


def test_amounts_add_up_without_drift() -> None:
    assert Usage(0.1, 1, 2, 0.1).plus(Usage(0.2, 3, 4, 0.2)) == Usage(0.3, 4, 6, 0.3)
    assert Usage(usd=1e-9).plus(Usage(usd=1e-9)) == Usage(usd=2e-9)
    assert Usage(seconds=0.001).plus(Usage(seconds=0.001)) == Usage(seconds=0.002)
    assert Usage(usd=1e-10).plus(NO_USAGE) == NO_USAGE
    assert Usage(seconds=0.0001).plus(NO_USAGE) == NO_USAGE


def test_structured_data_has_32_kilobytes() -> None:
    text = '"' + "x" * (32 * 1024 - 2) + '"'
    check_trigger(t.Signal("ci", "deployed", text))
    with pytest.raises(Invalid):
        check_trigger(t.Signal("ci", "deployed", f"{text} "))


def test_where_a_change_went_is_kept() -> None:
    done = then(claimed(), t.Report(1, "done"), t.Applied("ann", "0" * 40, "main"))
    kept = done.details
    assert (kept.applied_by, kept.applied_branch) == ("ann", "main")
    assert (kept.applied_commit, kept.applied_at) == ("0" * 40, NOW)
