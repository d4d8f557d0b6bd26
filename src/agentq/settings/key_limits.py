"""Rates, and `[limits.keys.NAME]` of agentq.toml: how many tasks may hold a resource at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentq.core.errors import Invalid
from agentq.core.limits import KeyLimits
from agentq.core.rates import Rate
from agentq.settings import only_known


def read_rate(table: Mapping[str, Any], where: str) -> Rate:
    """The rate that a table names, or none."""
    rate, burst = table.get("rate", "0"), table.get("burst", 0)
    if not isinstance(rate, str):
        raise Invalid(f'rate of {where} must be a text like "10/1m", got {rate!r}.')
    if type(burst) is not int or ("burst" in table and burst < 1):
        raise Invalid(f"burst of {where} must be a whole number from 1, got {burst!r}.")
    try:
        return Rate.parse(rate, burst)
    except Invalid as error:
        raise Invalid(f"In {where}: {error.cause}", error.remedy) from error


def read_key_limits(table: Mapping[str, Any], file: Path) -> dict[str, KeyLimits]:
    """The limits of resources, by name."""
    only_known(table, ("keys",), f"[limits] in {file}")
    keys = table.get("keys", {})
    only_known(keys, keys, f"[limits.keys] in {file}")
    return {name: _read_one(row, f"[limits.keys.{name}] in {file}") for name, row in keys.items()}


def _read_one(row: Any, where: str) -> KeyLimits:
    only_known(row, ("max", "rate", "burst"), where)
    most = row.get("max", 1)
    if type(most) is not int or not 1 <= most <= 1_000_000:
        raise Invalid(f"max of {where} must be a whole number from 1, got {most!r}.")
    return KeyLimits(most, read_rate(row, where))
