"""Structured results and the data of signals: JSON that the log keeps, bounded, without secrets."""

from __future__ import annotations

from typing import Any

from agentq.core.errors import Invalid
from agentq.core.limits import DATA_CHARS_MAX
from agentq.core.spec_types import check_plain
from agentq.protocol.secret_detection import redact


def structured_data(text: str, what: str = "The structured result") -> str:
    """The same data as the log keeps it: an object or a list, in one spelling; "" stays "".

    Raises `Invalid` for what is no such JSON, too much, or too deep. Secrets in it are covered.
    """
    if not text.strip():
        return ""
    if len(text) > DATA_CHARS_MAX:
        raise Invalid(
            f"{what} may have {DATA_CHARS_MAX} characters, this one has {len(text)}. Nothing was"
            " recorded.",
            "Put the long parts into an artifact, and name it.",
            code="too_large",
        )
    import json  # start-up: most commands that write have no such data

    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"{what} is no JSON: {error}. Nothing was recorded.", "Send an object or a list."
        ) from error
    if not isinstance(value, (dict, list)):
        raise Invalid(
            f"{what} is an object or a list, got {text[:60]!r}. Nothing was recorded.",
            'For example: {"files": ["a.py"]}.',
        )
    check_plain(what, value)
    kept = json.dumps(_covered(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if len(kept) > DATA_CHARS_MAX:
        raise Invalid(f"{what} may have {DATA_CHARS_MAX} characters, this one has {len(kept)}.")
    return kept


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number that JSON knows")


def _covered(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): _covered(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_covered(inner) for inner in value]
    return value
