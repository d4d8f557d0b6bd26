"""Structured results: JSON in one spelling, bounded, without secrets."""

from __future__ import annotations

import pytest

from agentq.core.errors import Invalid
from agentq.core.limits import DATA_CHARS_MAX
from agentq.protocol.structured_data import structured_data


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        (" \n", ""),
        ("{}", "{}"),
        ('{ "b": 1,\n "a": [true, null, 1.50, "é"] }', '{"a":[true,null,1.5,"é"],"b":1}'),
        (" [1, 2] ", "[1,2]"),
    ],
)
def test_it_is_kept_in_one_spelling(text: str, kept: str) -> None:
    assert structured_data(text) == kept
    assert structured_data(kept) == kept


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "no JSON"),
        ('{"a": NaN}', "NaN"),
        ('{"a": Infinity}', "Infinity"),
        ("5", "object or a list"),
        ("null", "object or a list"),
        ('"text"', "object or a list"),
        ("[" * 40 + "]" * 40, "nests deeper"),
        ("[" * 30_000, "no JSON"),
        ('{"a": 123456789012345678901234567890}', "too big"),
        ('["' + "x" * DATA_CHARS_MAX + '"]', f"may have {DATA_CHARS_MAX} characters"),
        # Short as it was sent, and long as it is kept.
        ("[" + ",".join(["1e15"] * 6000) + "]", f"may have {DATA_CHARS_MAX} characters"),
    ],
)
def test_anything_else_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        structured_data(text, "The data")


def test_secrets_are_covered_in_keys_and_values() -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4
    kept = structured_data(f'{{"{secret}": ["{secret}", {{"x": "{secret}"}}, 5]}}')
    assert secret not in kept and "5" in kept
