"""Numbers of things as people say them."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """The number with its noun: `1 task`, `2 tasks`, `0 tasks`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
