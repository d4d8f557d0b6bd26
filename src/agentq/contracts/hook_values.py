"""What the service says of webhooks: deliveries that came in, and targets that are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class HookState(StrEnum):
    """What became of a delivery."""

    #: It waits to be turned into tasks; on the way out, to be taken by its target.
    RECEIVED = "received"
    #: Tasks came of it; the target has taken it.
    DONE = "done"
    #: No rule was for it.
    IGNORED = "ignored"
    #: A rule could not be applied; the target did not take it.
    FAILED = "failed"


class Intake(StrEnum):
    """What became of a delivery at the door."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    BACKLOG = "backlog"


@dataclass(frozen=True, slots=True)
class IncomingDelivery:
    """A delivery whose signature was verified. It is known by its `id` for `remember_ms`, and not
    taken while `backlog` others of its hook wait."""

    hook: str
    id: str
    headers: Mapping[str, str]
    body: bytes
    backlog: int
    remember_ms: int


@dataclass(frozen=True, slots=True)
class HookDelivery:
    """A delivery as it is kept; `body` is empty where only a list was asked for. `number` grows
    with each that comes."""

    number: int
    hook: str
    id: str
    received_at: int
    state: HookState
    attempts: int = 0
    error: str = ""
    tasks: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class HookCounts:
    """How many deliveries of a hook, or to a target, are in each state; when the last one was."""

    hook: str
    counts: Mapping[str, int]
    last_at: int


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """How a target of webhooks stands: up to which position of the log it was told, how often in a
    row it has failed, when it is tried again. One that is disabled is not told of anything."""

    name: str
    position: int
    failures: int = 0
    due_at: int = 0
    disabled_at: int = 0
    sent: int = 0
    last_at: int = 0
    error: str = ""
