"""Conditions of hooks: expressions in CEL, which always end and change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentq.core.errors import Invalid

CHARS_MAX = 4000
#: What a program in CEL raises, by the library: its faults are those of Python's own operators.
_FAULTS = (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError)
_REMEDY = (
    "It is CEL, over payload, headers, delivery and hook:"
    " has(payload.issue) && payload.action == 'opened'"
)


def check_condition(text: str, where: str) -> None:
    """Raise `Invalid` unless it is an expression that can be evaluated."""
    if len(text) > CHARS_MAX:
        raise Invalid(
            f"{where}: a condition may have {CHARS_MAX} characters.", "Use several rules."
        )
    try:
        _compiled(text)
    except _FAULTS as error:
        raise Invalid(f"{where}: {_words(error)}.", _REMEDY) from error


def condition_holds(text: str, values: Mapping[str, Any], where: str) -> bool:
    """Whether it holds for these values; `Invalid` if that cannot be said."""
    try:
        given = _compiled(text).execute(dict(values))
    except _FAULTS as error:
        said = f"it needs {error}, which is not there" if isinstance(error, KeyError) else (
            _words(error)
        )  # fmt: skip
        raise Invalid(f"{where}: {said}.", "Ask first: has(payload.field).") from error
    if not isinstance(given, bool):
        raise Invalid(
            f"{where}: it gives {type(given).__name__} {str(given)[:40]!r}, and not true or false.",
            "Compare it with something.",
        )
    return given


@lru_cache(maxsize=512)
def _compiled(text: str) -> Any:
    try:
        import cel
    except ImportError as error:
        raise Invalid(
            f"Conditions of hooks need a library that is not installed ({error}).",
            "pip install 'agentq-orchestrator[hooks]'",
        ) from error
    return cel.compile(text)


def _words(error: BaseException) -> str:
    """One line of what the library says, which draws the place below the expression."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".")
