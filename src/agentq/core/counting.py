"""Numbers of things as people say them."""

from __future__ import annotations

from collections.abc import Iterable


def counted(count: int, noun: str, plural: str = "") -> str:
    """The number with its noun: `1 task`, `2 tasks`, `0 tasks`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def some_of(names: Iterable[str], most: int = 12) -> str:
    """The names in order, and how many more there are than can be read at a glance."""
    listed = sorted(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
