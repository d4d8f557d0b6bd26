"""Buckets as the rows of roles and resources keep them; the arithmetic is in `core.rates`."""

from __future__ import annotations

from typing import TypeVar

from agentq.contracts.limit_rows import ResourceRow, RoleRow
from agentq.core import rates
from agentq.core.rates import Rate, TokenBucket
from agentq.ledger.codec import decode_rate, encode_rate
from agentq.protocol.envelope import iso

Row = TypeVar("Row", RoleRow, ResourceRow)
#: What stands for any number.
ANY = -1


def tokens_of(row: RoleRow | ResourceRow, now: int) -> int:
    """How many more may start now by the rate of this row; -1 without one."""
    if not row.rate:
        return ANY
    rate = decode_rate(row.rate)
    return rates.tokens(_refilled(row, rate, now), rate)


def take(row: Row, count: int, now: int) -> Row:
    """The row after so many starts."""
    rate = decode_rate(row.rate)
    return _with(row, rates.taken(_refilled(row, rate, now), rate, count), rate)


def set_rate(row: Row, rate: Rate, now: int) -> Row:
    """The row with this rate. One that had it already keeps what is in its bucket."""
    before = decode_rate(row.rate)
    if rate == before:
        return row
    if not rate.starts:
        return row._replace(rate="", level=0, level_at=0, next_at=0)
    bucket = rates.changed(TokenBucket(row.level, row.level_at), before, rate, now)
    return _with(row._replace(rate=encode_rate(rate)), bucket, rate)


def next_token_at(row: RoleRow | ResourceRow, now: int) -> int:
    """When the next may start by the rate of this row; 0 if one may now."""
    if not row.rate:
        return 0
    rate = decode_rate(row.rate)
    return rates.next_at(_refilled(row, rate, now), rate)


def empty_in_words(row: RoleRow | ResourceRow, now: int, when: str = "") -> str:
    """Why nothing may start by the rate of this row now, and when; "" if something may."""
    moment = next_token_at(row, now)
    whose = f"role {row.name}" if isinstance(row, RoleRow) else f"resource {row.name}"
    rate = decode_rate(row.rate)
    return f"rate limit {rate} of {whose}: next at {iso(moment)}{when}" if moment else ""


def _refilled(row: RoleRow | ResourceRow, rate: Rate, now: int) -> TokenBucket:
    return rates.refilled(TokenBucket(row.level, row.level_at), rate, now)


def _with(row: Row, bucket: TokenBucket, rate: Rate) -> Row:
    return row._replace(
        level=bucket.level, level_at=bucket.level_at, next_at=rates.next_at(bucket, rate)
    )
