"""Which tests are in `make test`, and which wait for `make test-long`.

A test is in `make test` unless it, its class or its module is marked `long`. What is long has a
quicker relative in `make test`: fewer kills, fewer seeds, one dialect instead of seven.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import hypothesis
import pytest
from _pytest.mark import ParameterSet


def long_but(quick: Collection[str], values: Iterable[str]) -> list[ParameterSet]:
    """Parameters of which only some are for `make test`."""
    return [
        pytest.param(value, marks=() if value in quick else pytest.mark.long) for value in values
    ]


def made_up(count: int) -> int:
    """How many examples a test tries that says how many itself: twenty times as many in `make
    fuzz`."""
    return count * (hypothesis.settings().max_examples // 100)
