"""Versions of a hook file, and what each makes of a delivery, worked out apart from agentq."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from agentq.core.values import replace


@dataclass(frozen=True, slots=True)
class HookVersion:
    """What a hook file says at a time: two rules whose tasks name the version."""

    number: int
    is_broken: bool = False
    is_gone: bool = False

    def edited(self, rng: Random) -> HookVersion:
        """What somebody makes of it."""
        drawn = rng.random()
        if drawn < 0.2:
            return replace(self, is_broken=True, is_gone=False)
        if drawn < 0.3:
            return replace(self, is_gone=True)
        return HookVersion(self.number + (drawn < 0.8))  # or it is only mended

    def text(self) -> str:
        return f"""---
verify: bearer
secret: env:NOBODY
{"rulez" if self.is_broken else "rules"}:
  - when: payload.action == 'opened'
    task: {{to: worker, title: "action {self.number} {{{{ payload.number }}}}"}}
  - when: payload.loud
    task: {{to: worker, title: "loud {self.number} {{{{ payload.number }}}}"}}
---
Do it.
"""

    def judge(self, payload: Mapping[str, Any]) -> tuple[list[str], bool]:
        """The titles of the tasks that come of a delivery, and whether any rule fails."""
        if self.is_broken or self.is_gone:
            return [], True
        titles, number = [], f"{self.number} {payload['number']}"
        if payload.get("action") == "opened":
            titles.append(f"action {number}")
        if payload.get("loud"):
            titles.append(f"loud {number}")
        return titles, "action" not in payload or "loud" not in payload
