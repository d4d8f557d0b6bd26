"""Tables of agentq.toml that most installations do without: what they say, as settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentq.core.causation import LoopCaps
from agentq.core.errors import Invalid


def chosen_tables(tables: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """What these tables say, as fields of `Settings`; only what is used is imported."""
    found: dict[str, Any] = {}
    if tables["prices"]:
        from agentq.settings.prices import read_prices

        found["prices"] = read_prices(tables["prices"], file)
    if tables["limits"]:
        from agentq.settings.key_limits import read_key_limits

        found["keys"] = read_key_limits(tables["limits"], file)
    if tables["webhooks"]:
        from agentq.settings.webhooks import read_webhooks

        found["webhooks"] = read_webhooks(tables["webhooks"], file)
    if tables["loops"]:
        found["loops"] = _loops(tables["loops"], file)
    return found


def _loops(table: Mapping[str, Any], file: Path) -> LoopCaps:
    for name, value in table.items():
        if type(value) is not int or value < 0:
            raise Invalid(f"{name} in [loops] of {file} is a number, 0 for no cap; got {value!r}.")
    return LoopCaps(**table)
