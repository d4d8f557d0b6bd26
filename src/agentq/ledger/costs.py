"""What was spent, by role, label and day, and how many tasks attempts have submitted, by role and
time: added up beside the tasks, in the transaction that records it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agentq.contracts.store import Reader, SpendingRow
from agentq.core.causation import HOUR_MS
from agentq.core.digests import usage_to_dict
from agentq.core.limits import DAY_MS, NAME_CHARS_MAX
from agentq.core.task import NO_USAGE, Spec, Usage

ROLE, LABEL = "role", "label"
#: Tasks that attempts of a role have submitted; what is the day of a cost is their span of time.
SUBMITS = "submits"
_SPAN_MS = 10 * 60 * 1000
#: By what costs can be summed up. Every cost is on one role's account, so days are sums of those.
GROUPINGS = (ROLE, LABEL, "day")


def day_of(now: int) -> int:
    """The number of the day, in UTC."""
    return now // DAY_MS


def usage_of(row: SpendingRow | None) -> Usage:
    if row is None:
        return NO_USAGE
    usd, estimated = round(row.usd, 9), round(row.estimated, 9)
    return Usage(usd, round(row.tokens), round(row.turns), round(row.seconds, 3), estimated)


def spent_by_role_today(reader: Reader, now: int) -> dict[str, Usage]:
    """What every role has spent on this day; those that spent nothing are left out."""
    return {row.name: usage_of(row) for row in reader.spending(ROLE, day=day_of(now))}


def spent_today(reader: Reader, role: str, now: int) -> Usage:
    return usage_of(next(iter(reader.spending(ROLE, role, day_of(now))), None))


def bookings(costs: Iterable[tuple[Spec, Usage]], now: int) -> list[SpendingRow]:
    """One row for each account that these costs land on."""
    totals: dict[tuple[str, str], Usage] = {}
    for spec, cost in costs:
        for account in _accounts(spec):
            totals[account] = totals.get(account, NO_USAGE).plus(cost)
    day = day_of(now)
    return [
        SpendingRow(
            kind, name, day,
            float(total.usd), float(total.tokens), float(total.turns), float(total.seconds),
            float(total.estimated_usd),
        )
        for (kind, name), total in sorted(totals.items())
    ]  # fmt: skip


def submits_of(counts: Mapping[str, int], now: int) -> list[SpendingRow]:
    """One row for each role whose attempts submit so many tasks now."""
    span = now // _SPAN_MS
    return [
        SpendingRow(SUBMITS, role, span, 0.0, 0.0, float(count), 0.0)
        for role, count in sorted(counts.items())
    ]


def submitted_within_hour(reader: Reader, role: str, now: int) -> int:
    """About how many tasks the attempts of a role have submitted within the last hour.

    Of the oldest span that part counts which is still within the hour: a few rows are read, however
    many tasks there are.
    """
    span, past_ms = divmod(now, _SPAN_MS)
    oldest, *later = (
        sum(row.turns for row in reader.spending(SUBMITS, role, each))
        for each in range(span - HOUR_MS // _SPAN_MS, span + 1)
    )
    return int(sum(later) + oldest * (_SPAN_MS - past_ms) / _SPAN_MS)


def amounts(usage: Usage) -> str:
    """A cost or a budget in words."""
    return (
        ", ".join(f"{value:g} {unit}" for unit, value in usage_to_dict(usage).items()) or "nothing"
    )


def _accounts(spec: Spec) -> Iterator[tuple[str, str]]:
    yield ROLE, spec.to
    for name, value in spec.labels.items():
        # An index holds keys of limited length; what begins alike for so long shares an account.
        yield LABEL, f"{name}={value}"[:NAME_CHARS_MAX]


def summed(rows: Iterable[SpendingRow], by: str) -> dict[str, Usage]:
    """Totals by name, or by day (as 2026-01-31)."""
    from datetime import UTC, datetime

    totals: dict[str, Usage] = {}
    for row in rows:
        name = row.name
        if by == "day":
            name = f"{datetime.fromtimestamp(row.day * DAY_MS // 1000, UTC):%Y-%m-%d}"
        totals[name] = totals.get(name, NO_USAGE).plus(usage_of(row))
    return dict(sorted(totals.items()))
