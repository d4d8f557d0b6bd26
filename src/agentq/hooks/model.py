"""What a hook file says, as values: how its deliveries are proved, and the rules for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentq.hooks.signatures import Proof

DAY_SECONDS = 24 * 3600
#: What is larger is refused at the door, unless the hook's file says more.
BYTES_MAX = 1 << 20
BACKLOG_MAX = 10_000
#: How long a delivery is known by its id.
REMEMBER_SECONDS = 30 * DAY_SECONDS


@dataclass(frozen=True, slots=True)
class HookRule:
    """One rule: a condition in CEL, "" for any delivery, and what comes of it: a task, by the
    fields of a task file, or a run of a workflow."""

    name: str
    line: int
    when: str = ""
    task: Mapping[str, Any] = field(default_factory=dict)
    workflow: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook file, read and checked. `secret` is a reference, never the secret itself."""

    name: str
    path: Path
    proof: Proof
    secret: str
    rules: tuple[HookRule, ...]
    description: str = ""
    #: The header with the id of a delivery, in small letters; "" if each is new.
    id_header: str = ""
    bytes_max: int = BYTES_MAX
    backlog: int = BACKLOG_MAX
    remember_seconds: int = REMEMBER_SECONDS
    #: The Markdown below the front matter: the instructions of tasks that have none of their own.
    body: str = ""
