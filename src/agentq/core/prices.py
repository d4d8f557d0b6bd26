"""What tokens cost by a price list, for tools that count tokens and name no money."""

from __future__ import annotations

import msgspec

_PER_MILLION = 1_000_000


class TokenCounts(msgspec.Struct, frozen=True):
    """Tokens that a model read and wrote. Those from its cache are a part of the input."""

    input: int
    cached: int
    output: int


class TokenPrice(msgspec.Struct, frozen=True):
    """US dollars for a million tokens of each kind."""

    input: float
    cached: float
    output: float

    def of(self, counts: TokenCounts) -> float:
        """What these tokens cost; an estimate, since no list has discounts, tiers and taxes."""
        cached = min(counts.cached, counts.input)
        dollars = (
            (counts.input - cached) * self.input
            + cached * self.cached
            + counts.output * self.output
        )
        return round(dollars / _PER_MILLION, 9)
