"""What a test does without a server it needs."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def go_without(what: str, reason: object) -> NoReturn:
    """Skip with a loud line on a laptop; fail in CI, where nothing may stay untested."""
    if IN_CI:
        pytest.fail(f"no {what}, and CI may not go without: {reason}", pytrace=False)
    pytest.skip(f"NO {what.upper()}: everything that needs it is untested in this run. {reason}")
