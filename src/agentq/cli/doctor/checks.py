"""What a check of `agentq doctor` is, and what is made of a check that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from agentq.core.errors import AgentqError


class Check(NamedTuple):
    """What was looked at and how it is: ok, warning or failed."""

    name: str
    status: str
    detail: str
    remedy: str = ""


def guarded(name: str, look: Callable[[], Check]) -> Check:
    """The check, or why it could not be made."""
    try:
        return look()
    except AgentqError as error:
        return Check(name, "failed", error.cause, error.remedy)
    except OSError as error:
        return Check(name, "failed", f"{error.filename or ''}: {error.strerror or error}")


def guarded_checks(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    """The checks, or why they could not be made."""
    try:
        yield from checks
    except AgentqError as error:
        yield Check(name, "failed", error.cause, error.remedy)
