"""Which notices a target wants, and when it gets them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from agentq.core.rates import Rate
from agentq.plugins.notice_text import TOLD_MAX, body_of, subject_of
from agentq.plugins.routing import KINDS, SEVERITIES, MessageRate, NoticeRules, QuietHours
from tests.plugins.conftest import notice

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = QuietHours(22 * 60, 7 * 60, BERLIN)
NOON = QuietHours(12 * 60, 13 * 60, BERLIN)


def ms(text: str, zone: ZoneInfo = BERLIN) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        pytest.param(NoticeRules(), True, id="everything"),
        pytest.param(NoticeRules(events=("blocked",)), True, id="this event"),
        pytest.param(NoticeRules(events=("reminder",)), False, id="another event"),
        pytest.param(NoticeRules(roles=("work*",)), True, id="a pattern of roles"),
        pytest.param(NoticeRules(roles=("review-*",)), False, id="other roles"),
        pytest.param(NoticeRules(severity="warning"), True, id="severe enough"),
        pytest.param(NoticeRules(severity="urgent"), False, id="not severe enough"),
    ],
)
def test_rules_choose_by_event_role_and_severity(rules: NoticeRules, wanted: bool) -> None:
    assert rules.wants(notice()) is wanted


def test_settings_change_how_severe_a_kind_is() -> None:
    rules = NoticeRules(severities={"blocked": "urgent"})
    assert rules.severity_of("blocked") == "urgent"
    assert rules.severity_of("dead_letter") == "warning"
    assert rules.severity_of("something new") == "warning"
    assert set(KINDS.values()) <= set(SEVERITIES)


@pytest.mark.parametrize(
    ("quiet", "now", "end"),
    [
        pytest.param(NIGHT, "2026-01-05T21:59", 0, id="before"),
        pytest.param(NIGHT, "2026-01-05T22:00", "2026-01-06T07:00", id="evening"),
        pytest.param(NIGHT, "2026-01-06T06:59", "2026-01-06T07:00", id="morning"),
        pytest.param(NIGHT, "2026-01-06T07:00", 0, id="after"),
        pytest.param(NOON, "2026-01-06T12:30", "2026-01-06T13:00", id="within a day"),
        pytest.param(NOON, "2026-01-06T13:00", 0, id="later that day"),
        # The clocks are set forward and back in these nights: the wall clock counts.
        pytest.param(NIGHT, "2026-03-28T23:00", "2026-03-29T07:00", id="a short night"),
        pytest.param(NIGHT, "2026-10-24T23:00", "2026-10-25T07:00", id="a long night"),
    ],
)
def test_quiet_hours_end_by_the_clock_of_their_zone(
    quiet: QuietHours, now: str, end: str | int
) -> None:
    assert quiet.ends_at(ms(now)) == (ms(end) if isinstance(end, str) else end)


def test_a_quiet_time_always_ends_later_than_now() -> None:
    # Given quiet hours that end in the hour that comes twice, in its second half.
    quiet = QuietHours(60, 2 * 60 + 30, BERLIN)
    now = int(datetime(2026, 10, 25, 1, 15, tzinfo=UTC).timestamp() * 1000)  # 02:15 again
    assert quiet.ends_at(now) > now


def test_what_is_urgent_waits_for_nothing() -> None:
    rules = NoticeRules(digest=3600, quiet=NIGHT)
    night, day = ms("2026-01-05T23:10"), ms("2026-01-05T10:10")
    assert rules.held_until(notice(severity="urgent"), night, was_held=False) == 0
    assert rules.held_until(notice(), night, was_held=True) == ms("2026-01-06T07:00")
    assert rules.held_until(notice(), day, was_held=False) == ms("2026-01-05T11:00")
    assert rules.held_until(notice(), day, was_held=True) == 0
    assert NoticeRules().held_until(notice(), night, was_held=False) == 0


def test_many_at_once_become_one_message() -> None:
    assert NoticeRules(digest=60).grouped(2)
    assert not NoticeRules(digest=60).grouped(1)
    assert not NoticeRules().grouped(10)
    assert NoticeRules().grouped(11)


def test_a_rate_bounds_messages() -> None:
    rate = MessageRate(Rate(2, 60), 0)
    assert rate.take(5, 0) == 2
    assert rate.take(1, 0) == 0
    assert rate.next_at() == 30_000
    assert rate.take(5, 30_000) == 1
    free = MessageRate(Rate(), 0)
    assert (free.take(5, 0), free.next_at()) == (5, 0)


def test_notices_are_told_in_words() -> None:
    assert subject_of([notice()]) == "agentq: blocked: Deploy"
    assert subject_of([notice(title="")]) == "agentq: blocked: task-1"
    both = [notice(), notice(2), notice(3, kind="run_failed")]
    assert subject_of(both) == "agentq: 2 × blocked, 1 × run failed"
    about_role = notice(kind="circuit_open", task="", title="", text="out of quota " * 200)
    assert body_of([about_role]).startswith("circuit open: (worker)")
    assert "and 2 more" in body_of([notice(each) for each in range(TOLD_MAX + 2)])
    assert subject_of([notice(kind="something_new")]) == "agentq: something new: Deploy"
