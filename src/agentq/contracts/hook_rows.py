"""Rows of webhooks, as a store keeps them (see `contracts.store`)."""

# Without `from __future__ import annotations`: a NamedTuple compiles every annotation that is text,
# at each start.
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

#: The ways of a delivery.
IN, OUT = "in", "out"
#: Its states as the stores keep them; the first is what an index covers.
WAITS, DONE, IGNORED, FAILED = range(4)


class HookRow(NamedTuple):
    """What came for a hook, or was sent to a target: `headers` and `tasks` are JSON, `body` is
    base64. `number` orders the rows, and is 0 before it is saved."""

    way: str
    hook: str
    delivery_id: str
    received_at: int
    state: int
    attempts: int
    error: str
    tasks: str
    headers: str
    body: str
    number: int = 0


class HookOutcomeRow(NamedTuple):
    """What became of the delivery of this number."""

    number: int
    state: int
    attempts: int
    error: str
    tasks: str


class HookCountRow(NamedTuple):
    """How many deliveries of a hook are in a state, and when the last of them came."""

    way: str
    hook: str
    state: int
    deliveries: int
    last_at: int


class WebhookTargetRow(NamedTuple):
    """How far a target was told of the log, and how that goes: `failures` are those in a row."""

    name: str
    position: int
    failures: int = 0
    due_at: int = 0
    disabled_at: int = 0
    sent: int = 0
    last_at: int = 0
    error: str = ""


class HookFilter(NamedTuple):
    """Which deliveries to list, the newest first; empty fields and -1 do not restrict. Bodies are
    left out unless they are asked for."""

    way: str
    hook: str = ""
    delivery_id: str = ""
    state: int = -1
    before: int = 0
    with_body: bool = False
    limit: int = 100

    @property
    def listing(self) -> str:
        return "hook_deliveries"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], HookRow]:
        return HookRow._make


class WaitingHookFilter(NamedTuple):
    """Deliveries of a way that wait, the oldest first, with their bodies."""

    way: str
    limit: int = 100

    @property
    def listing(self) -> str:
        return "waiting_hook_deliveries"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], HookRow]:
        return HookRow._make


class LockedHookFilter(NamedTuple):
    """One delivery, by its number and without its body; nobody else changes it before the
    transaction that asks for it has ended."""

    number: int

    @property
    def listing(self) -> str:
        return "lock_hook_delivery"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], HookRow]:
        return HookRow._make


class HookBacklogFilter(NamedTuple):
    """How many deliveries of one hook wait, counted up to `at_most`."""

    way: str
    hook: str
    at_most: int

    @property
    def listing(self) -> str:
        return "hook_backlog"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], HookCountRow]:
        return HookCountRow._make


class HookCountFilter(NamedTuple):
    """How many deliveries there are, by hook and state."""

    way: str

    @property
    def listing(self) -> str:
        return "hook_counts"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], HookCountRow]:
        return HookCountRow._make


class WebhookTargetFilter(NamedTuple):
    """All targets that were told of anything, by name."""

    @property
    def listing(self) -> str:
        return "webhook_targets"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], WebhookTargetRow]:
        return WebhookTargetRow._make
