"""Tokens by a price list: what comes from a cache is cheaper; estimates stay told from facts."""

from __future__ import annotations

import pytest

from agentq.core.errors import Invalid
from agentq.core.prices import TokenCounts, TokenPrice
from agentq.core.spec_types import check_usage
from agentq.core.task import Usage

PRICE = TokenPrice(input=2.0, cached=0.5, output=10.0)


def test_each_kind_has_its_price() -> None:
    assert PRICE.of(TokenCounts(1_000_000, 0, 0)) == 2.0
    assert PRICE.of(TokenCounts(0, 0, 1_000_000)) == 10.0
    # What came from the cache is a part of the input, and not counted twice.
    assert PRICE.of(TokenCounts(1_000_000, 400_000, 100_000)) == 0.6 * 2 + 0.4 * 0.5 + 1.0


def test_more_from_the_cache_than_was_read_is_all_of_it() -> None:
    assert PRICE.of(TokenCounts(100, 5_000_000, 0)) == PRICE.of(TokenCounts(100, 100, 0)) > 0


def test_estimates_add_up_beside_the_money_they_are_part_of() -> None:
    total = Usage(usd=1.0, estimated_usd=0.25).plus(Usage(usd=0.5)).plus(Usage(0.1, 9, 0, 0, 0.1))
    assert (total.usd, total.estimated_usd, total.tokens) == (1.6, 0.35, 9)


def test_a_budget_is_no_estimate() -> None:
    check_usage("cost", Usage(usd=1, estimated_usd=1.0))
    with pytest.raises(Invalid, match="budget has no estimated_usd"):
        check_usage("budget", Usage(usd=1, estimated_usd=1.0))
    with pytest.raises(Invalid, match="estimated_usd"):
        check_usage("cost", Usage(estimated_usd=-1.0))
