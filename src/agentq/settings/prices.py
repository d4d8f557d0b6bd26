"""`[prices.NAME]` of agentq.toml: what tokens cost, by model, for tools that name no money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentq.core.errors import Invalid
from agentq.core.prices import TokenPrice
from agentq.settings import only_known

_NAMES = ("input", "cached", "output")
_MOST = 1_000_000.0


def read_prices(tables: Mapping[str, Any], file: Path) -> dict[str, TokenPrice]:
    """Check the price list; `cached` costs as much as other input unless it says otherwise."""
    found = {}
    for name, table in tables.items():
        where = f"[prices.{name}] in {file}"
        only_known(table, _NAMES, where)
        amounts = {key: _amount(key, table[key], where) for key in table}
        missing = [key for key in ("input", "output") if key not in amounts]
        if missing:
            raise Invalid(
                f"{where} does not say what {' and '.join(missing)} cost.",
                "Give US dollars for a million tokens: input = 1.25, cached = 0.125, output = 10.",
            )
        cached = amounts.get("cached", amounts["input"])
        found[name] = TokenPrice(amounts["input"], cached, amounts["output"])
    return found


def _amount(key: str, value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MOST:
        raise Invalid(f"{key} of {where} must be dollars for a million tokens, got {value!r}.")
    return float(value)


def price_of(
    prices: Mapping[str, TokenPrice], command: Sequence[str], agent: str
) -> TokenPrice | None:
    """The price of the model that the command names (`-m`, `--model`), else that of the tool."""
    for number, word in enumerate(command):
        option, equals, value = word.partition("=")
        if option in ("-m", "--model"):
            model = value if equals else next(iter(command[number + 1 :]), "")
            if model in prices:
                return prices[model]
    return prices.get(agent)
