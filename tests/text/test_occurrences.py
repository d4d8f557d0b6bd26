"""When schedules occur: cron on clocks that jump, intervals, once; and what was missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from agentq.core.errors import Invalid
from agentq.protocol import occurrences as o
from agentq.protocol.occurrences import CatchUp, Timing

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def ms(text: str, zone: str = "UTC") -> int:
    return o.read_moment(text, zone)


def upcoming(timing: Timing, after: str, count: int, since: int = 0) -> list[str]:
    found = islice(o.occurrences(timing, ms(after, timing.zone), since), count)
    return [o.iso(each, timing.zone) for each in found]


def cron(text: str, zone: str = "UTC", until: int = 0) -> Timing:
    return Timing(cron=o.read_cron(text), zone=zone, until_at=until)


class TestForward:
    """The night on which the clock is put forward."""

    def test_a_fixed_time_that_is_skipped_occurs_when_the_clock_has_jumped(self) -> None:
        # Berlin, 2027-03-28: 02:00 becomes 03:00.
        assert upcoming(cron("30 2 * * *", "Europe/Berlin"), "2027-03-27T12:00", 2) == [
            "2027-03-28T03:00:00+02:00",
            "2027-03-29T02:30:00+02:00",
        ]

    def test_fixed_times_that_are_skipped_together_occur_once(self) -> None:
        timing = cron("0,15,30,45 2,3 * * *", "Europe/Berlin")
        assert upcoming(timing, "2027-03-28T01:59", 4) == [
            f"2027-03-28T03:{minute:02}:00+02:00" for minute in (0, 15, 30, 45)
        ]

    def test_what_recurs_leaves_the_skipped_hour_out(self) -> None:
        timing = cron("*/30 * * * *", "America/New_York")
        assert upcoming(timing, "2027-03-14T01:00", 3) == [
            "2027-03-14T01:30:00-05:00",
            "2027-03-14T03:00:00-04:00",
            "2027-03-14T03:30:00-04:00",
        ]

    def test_half_an_hour_on_lord_howe(self) -> None:
        # 2026-10-04: 02:00 becomes 02:30.
        zone = "Australia/Lord_Howe"
        assert upcoming(cron("15 2 * * *", zone), "2026-10-03T12:00", 1) == [
            "2026-10-04T02:30:00+11:00"
        ]
        assert upcoming(cron("*/15 2-3 * * *", zone), "2026-10-04T01:20", 4) == [
            "2026-10-04T02:30:00+11:00",
            "2026-10-04T02:45:00+11:00",
            "2026-10-04T03:00:00+11:00",
            "2026-10-04T03:15:00+11:00",
        ]


class TestBack:
    """The night on which the clock is put back."""

    def test_a_fixed_time_that_comes_twice_occurs_the_first_time(self) -> None:
        # Berlin, 2026-10-25: 03:00 becomes 02:00.
        assert upcoming(cron("30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00", 2) == [
            "2026-10-25T02:30:00+02:00",
            "2026-10-26T02:30:00+01:00",
        ]

    def test_nor_again_for_whoever_looks_in_the_second_hour(self) -> None:
        timing = cron("30 2 * * *", "Europe/Berlin")
        second = ms("2026-10-25T02:10+01:00")
        assert o.iso(o.next_after(timing, second, 0), timing.zone) == "2026-10-26T02:30:00+01:00"

    def test_what_recurs_occurs_in_both_hours(self) -> None:
        timing = cron("*/30 * * * *", "America/New_York")
        assert upcoming(timing, "2026-11-01T01:00", 5) == [
            "2026-11-01T01:30:00-04:00",
            "2026-11-01T01:00:00-05:00",
            "2026-11-01T01:30:00-05:00",
            "2026-11-01T02:00:00-05:00",
            "2026-11-01T02:30:00-05:00",
        ]

    def test_half_an_hour_on_lord_howe(self) -> None:
        # 2026-04-05: 02:00 becomes 01:30.
        zone = "Australia/Lord_Howe"
        assert upcoming(cron("45 1 * * *", zone), "2026-04-04T12:00", 2) == [
            "2026-04-05T01:45:00+11:00",
            "2026-04-06T01:45:00+10:30",
        ]
        assert upcoming(cron("*/15 1-3 * * *", zone), "2026-04-05T01:40", 4) == [
            "2026-04-05T01:45:00+11:00",
            "2026-04-05T01:30:00+10:30",
            "2026-04-05T01:45:00+10:30",
            "2026-04-05T02:00:00+10:30",
        ]
        after = ms("2026-04-05T01:45+10:30")
        assert o.iso(o.next_after(cron("*/15 3 * * *", zone), after, 0), zone) == (
            "2026-04-05T03:00:00+10:30"
        )


class TestOtherTimes:
    def test_an_interval_counts_from_when_it_was_first_seen(self) -> None:
        timing = Timing(every_ms=8 * HOUR)
        since = ms("2026-03-28T20:00", "Europe/Berlin")
        assert o.next_after(timing, since, since) == since + 8 * HOUR
        assert o.next_after(timing, since + 8 * HOUR, since) == since + 16 * HOUR
        assert o.next_after(timing, since - DAY, since) == since + 8 * HOUR

    def test_or_from_its_start_which_is_the_first(self) -> None:
        timing = Timing(every_ms=HOUR, start_at=10 * HOUR)
        assert [o.next_after(timing, each, 3) for each in (0, 10 * HOUR, 10 * HOUR + 1)] == [
            10 * HOUR, 11 * HOUR, 11 * HOUR,
        ]  # fmt: skip

    def test_once(self) -> None:
        timing = Timing(at=5 * HOUR)
        assert o.next_after(timing, 0, 0) == 5 * HOUR
        assert o.next_after(timing, 5 * HOUR, 0) == 0

    def test_nothing_occurs_after_its_end(self) -> None:
        timing = cron("0 8 * * *", until=ms("2026-01-02T08:00"))
        assert upcoming(timing, "2026-01-01T00:00", 5) == [
            "2026-01-01T08:00:00+00:00",
            "2026-01-02T08:00:00+00:00",
        ]

    def test_rare_ones_are_found_and_rules_tell_them_apart(self) -> None:
        assert upcoming(cron("0 0 29 2 *"), "2026-01-01T00:00", 1) == ["2028-02-29T00:00:00+00:00"]
        assert upcoming(cron("*/5 0 29 2 *", "Europe/Berlin"), "2026-01-01T00:00", 1) == [
            "2028-02-29T00:00:00+01:00"
        ]
        rules = {
            cron("0 8 * * *").rule, cron("0 8 * * *", "Europe/Berlin").rule,
            cron("0 8 * * *", until=9).rule, Timing(every_ms=9).rule, Timing(at=9).rule,
            Timing(every_ms=9, start_at=1).rule,
        }  # fmt: skip
        assert len(rules) == 6

    def test_what_never_occurs_is_told_and_refused(self) -> None:
        # The second Monday of a month is never its first or its twenty-ninth day.
        for never in ("0 0 */28 2 1#2", "* 0 */28 2 1#2"):
            assert o.next_after(Timing(cron=never, zone="Europe/Berlin"), 0, 0) == 0
            with pytest.raises(Invalid, match="never occurs"):
                o.read_cron(never)


class TestWriting:
    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "five fields"),
            ("* * * *", "five fields"),
            ("* * * * * *", "five fields"),
            ("61 * * * *", "bad minute"),
            ("* 25 * * *", "bad hour"),
            ("0 0 30 2 *", "bad day-of-month"),
            ("0 0 * 13 *", "bad month"),
            ("0 0 * * FOO", "bad day-of-week"),
            ("*/0 * * * *", "bad minute"),
            ("L/2 * * * *", "bad minute"),
            ("0 0 * 2 MON#5,9#9", "bad day-of-week"),
            ("@never", "five fields"),
        ],
    )  # fmt: skip
    def test_a_bad_expression_is_named(self, text: str, problem: str) -> None:
        with pytest.raises(Invalid, match=problem):
            o.read_cron(text)

    def test_nicknames_and_capitals(self) -> None:
        assert o.read_cron(" @daily ") == "0 0 * * *"
        assert o.read_cron("0  8 * * mon-fri") == "0 8 * * MON-FRI"

    @pytest.mark.parametrize(
        "name", ["Mars/Olympus", "", "../etc/passwd", "/etc", "a\0b", "Europe"]
    )
    def test_a_bad_zone_is_named(self, name: str) -> None:
        with pytest.raises(Invalid, match="there is no time zone"):
            o.read_zone(name)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("2026-02-30T08:00", "there is no date"),
            ("tomorrow", "there is no date"),
            ("2027-03-28T02:30", "does not exist in Europe/Berlin"),
            ("9999-12-31T23:59", "not of this age"),
        ],
    )
    def test_a_bad_moment_is_named(self, text: str, problem: str) -> None:
        with pytest.raises(Invalid, match=problem):
            o.read_moment(text, "Europe/Berlin")

    def test_a_moment_may_name_its_offset_and_the_first_of_two_is_meant(self) -> None:
        assert ms("2026-12-01T08:00+01:00", "America/New_York") == ms("2026-12-01T07:00")
        assert ms("2026-10-25T02:30", "Europe/Berlin") == ms("2026-10-25T00:30")
        assert o.iso(1500) == "1970-01-01T00:00:01.500+00:00"


class TestMissed:
    """What becomes of occurrences that nobody was there for."""

    TIMING = Timing(every_ms=HOUR, start_at=HOUR)

    def test_nothing_is_due_early(self) -> None:
        for policy in CatchUp:
            assert o.due(self.TIMING, 5 * HOUR, 5 * HOUR - 1, 0, policy) == o.DueOccurrences(
                (), 0, 5 * HOUR
            )
            assert o.due(self.TIMING, 0, DAY, 0, policy) == o.DueOccurrences()

    def test_one_for_all_of_them(self) -> None:
        found = o.due(self.TIMING, 2 * HOUR, 5 * HOUR + 1, 0, CatchUp.ONE)
        assert found == o.DueOccurrences((5 * HOUR,), 3, 6 * HOUR)

    def test_all_that_a_cron_expression_has_missed(self) -> None:
        first, now = ms("2026-11-18T10:00"), ms("2026-11-18T12:30")
        found = o.due(cron("0 * * * *"), first, now, 0, CatchUp.ALL)
        assert [o.iso(each)[11:16] for each in found.occurrences] == ["10:00", "11:00", "12:00"]
        assert (found.missed, o.iso(found.next_at)[11:16]) == (0, "13:00")

    def test_all_of_them_in_batches_but_only_the_newest_thousand(self) -> None:
        now, waits, total = 2000 * HOUR, 2 * HOUR, 0
        seen: list[int] = []
        while waits <= now:
            found = o.due(self.TIMING, waits, now, 0, CatchUp.ALL)
            assert len(found.occurrences) <= o.BATCH_MAX
            seen += found.occurrences
            total += found.missed
            waits = found.next_at
        assert seen == [hour * HOUR for hour in range(1001, 2001)]
        assert total == 999
        assert waits == 2001 * HOUR

    def test_none_that_are_late(self) -> None:
        late = o.due(self.TIMING, 2 * HOUR, 5 * HOUR + o.GRACE_MS + 1, 0, CatchUp.SKIP)
        assert late == o.DueOccurrences((), 4, 6 * HOUR)
        in_time = o.due(self.TIMING, 2 * HOUR, 5 * HOUR + o.GRACE_MS, 0, CatchUp.SKIP)
        assert in_time == o.DueOccurrences((5 * HOUR,), 3, 6 * HOUR)

    def test_the_last_ones_before_the_end(self) -> None:
        timing = Timing(every_ms=HOUR, start_at=HOUR, until_at=3 * HOUR)
        assert o.due(timing, 2 * HOUR, DAY, 0, CatchUp.ALL) == o.DueOccurrences(
            (2 * HOUR, 3 * HOUR), 0, 0
        )
        once = Timing(at=HOUR)
        assert o.due(once, HOUR, DAY, 0, CatchUp.ONE) == o.DueOccurrences((HOUR,), 0, 0)

    def test_weeks_of_every_minute_are_not_counted_one_by_one(self) -> None:
        timing, first = cron("* * * * *"), ms("2026-01-01T00:00")
        now = first + 3 * DAY
        found = o.due(timing, first, now, 0, CatchUp.ONE)
        assert found.occurrences == (now,)
        assert found.next_at == now + MINUTE
        ended = cron("* * * * *", until=now - MINUTE)
        assert o.due(ended, first, now, 0, CatchUp.ONE).occurrences == (now - MINUTE,)
        made_up = o.due(timing, first, now, 0, CatchUp.ALL)
        assert made_up.occurrences[0] == now - (o.CATCH_UP_MAX - 1) * MINUTE

    def test_nor_those_that_stopped_long_ago(self) -> None:
        # Every minute of four hours a day in January; seen again in March.
        timing, first = cron("* 0-3 * 1 *"), ms("2026-01-01T00:00")
        found = o.due(timing, first, ms("2026-03-01T00:00"), 0, CatchUp.ONE)
        assert [o.iso(each) for each in found.occurrences] == ["2026-01-31T03:59:00+00:00"]


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Africa/Casablanca"]
CRONS = [
    "*/15 * * * *", "0 * * * *", "30 2 * * *", "15 1,2,3 * * *", "*/20 1-3 * * *",
    "0 8 * * MON-FRI",
    "59 23 L * *", "5 */6 * * *",
]  # fmt: skip
timings = st.one_of(
    st.builds(
        lambda expression, zone: Timing(cron=o.read_cron(expression), zone=zone),
        st.sampled_from(CRONS), st.sampled_from(ZONES),
    ),
    st.builds(
        lambda every, start: Timing(every_ms=every * 1000, start_at=start * 1000),
        st.integers(600, 200_000), st.integers(0, 2_000_000_000),
    ),
)  # fmt: skip
#: Around the nights on which clocks jump, and any other time.
moments = st.one_of(
    st.builds(
        lambda night, seconds: ms(night) + seconds * 1000,
        st.sampled_from(
            ["2026-03-08T04:00", "2026-03-28T23:00", "2026-04-04T13:00", "2026-10-03T13:00",
             "2026-10-24T22:00", "2026-11-01T03:00"]
        ),
        st.integers(0, 6 * 3600),
    ),
    st.integers(1_700_000_000_000, 1_900_000_000_000),
)  # fmt: skip


@given(timings, moments)
def test_the_next_one_is_later_and_there_is_none_between(timing: Timing, after: int) -> None:
    found = o.next_after(timing, after, after)
    assert found > after
    # Whoever looks a moment later, or just before it, finds the same.
    middle = (after + found) // 2
    if middle > after and not (timing.every_ms and not timing.start_at):
        assert o.next_after(timing, middle, after) == found
        assert o.next_after(timing, found - 1, after) == found


@given(st.sampled_from(CRONS), st.sampled_from(ZONES), moments)
def test_what_recurs_is_whenever_the_clock_shows_it(expression: str, zone: str, after: int) -> None:
    """Found the slow way: minute by minute, by what the clock of the zone shows."""
    timing = Timing(cron=o.read_cron(expression), zone=zone)
    found = o.next_after(timing, after, 0)
    if expression[0] != "*" and expression.split()[1][0] != "*":
        return
    clock, minute = ZoneInfo(zone), (after // MINUTE + 1) * MINUTE
    while minute < found:
        assert not _matches(expression, _wall(minute, clock)), o.iso(minute, zone)
        minute += MINUTE
    assert _matches(expression, _wall(found, clock))


def _matches(expression: str, wall: datetime) -> bool:
    return next(iter(CronSim(expression, wall - timedelta(seconds=1)))) == wall


def _wall(moment: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(moment // 1000, UTC).astimezone(zone).replace(tzinfo=None, fold=0)


@given(timings, moments, st.lists(st.integers(1, 40 * 3600), min_size=1, max_size=8))
def test_none_is_early_none_comes_twice_and_with_all_none_is_left_out(
    timing: Timing, start: int, pauses: list[int]
) -> None:
    waits, now, seen = o.next_after(timing, start, start), start, list[int]()
    for pause in pauses:
        now += pause * 1000
        while waits and waits <= now:
            found = o.due(timing, waits, now, start, CatchUp.ALL)
            assert all(each <= now for each in found.occurrences)
            assert found.missed == 0
            seen += found.occurrences
            assert found.next_at > waits
            waits = found.next_at
    assert seen == sorted(set(seen))
    expected = []
    for each in o.occurrences(timing, start, start):
        if each > now:
            break
        expected.append(each)
    assert seen == expected


@given(timings, moments, st.integers(1, 10 * 24 * 3600))
def test_one_stands_for_all_that_were_missed(timing: Timing, start: int, away: int) -> None:
    waits, now = o.next_after(timing, start, start), start + away * 1000
    found = o.due(timing, waits, now, start, CatchUp.ONE)
    if waits > now:
        assert found.occurrences == ()
        return
    (last,) = found.occurrences
    assert last <= now < found.next_at
    assert o.next_after(timing, last, start) == found.next_at
