"""Small tables of agentq.toml: who may approve, and what agents may cause by themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentq.core.causation import LoopCaps
from agentq.core.errors import Invalid


def read_loops(table: Mapping[str, Any], file: Path) -> LoopCaps:
    for name, value in table.items():
        if type(value) is not int or value < 0:
            raise Invalid(f"{name} in [loops] of {file} is a number, 0 for no cap; got {value!r}.")
    return LoopCaps(**table)


def read_four_eyes(table: Mapping[str, Any], file: Path) -> bool | None:
    four_eyes = table.get("four_eyes")
    if four_eyes is not None and not isinstance(four_eyes, bool):
        raise Invalid(f"four_eyes in {file} is true or false, got {four_eyes!r}.")
    stated = [each for each in (four_eyes, wants_four_eyes()) if each is not None]
    return any(stated) if stated else None


def wants_four_eyes() -> bool | None:
    variable = os.environ.get("AGENTQ_FOUR_EYES", "")
    return variable != "0" if variable else None
