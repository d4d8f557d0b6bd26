"""The part of the service interface for webhooks, in both directions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.contracts import hook_values as h
    from agentq.core.access import Principal
    from agentq.core.task import Spec, Task


class Hooks(Protocol):
    """Takes deliveries in, turns them into tasks, and notes what targets were told."""

    def hook_deliveries(
        self,
        who: Principal,
        hook: str = "",
        delivery_id: str = "",
        state: str = "",
        before: int = 0,
        limit: int = 50,
        *,
        out: bool = False,
        bodies: bool = False,
    ) -> list[h.HookDelivery]:
        """Return deliveries, the newest first, before the one of this number: those that came for
        hooks, or with `out` those that were sent to targets."""

    def hook_counts(self, who: Principal, *, out: bool = False) -> list[h.HookCounts]:
        """Return how many deliveries each hook, or each target, has had, by their state."""

    def webhook_targets(self, who: Principal) -> list[h.WebhookTarget]:
        """Return how targets stand that were told of the log at least once, by name."""

    def take_deliveries(
        self, who: Principal, deliveries: Sequence[h.IncomingDelivery]
    ) -> list[h.Intake]:
        """Store deliveries that came, in one transaction; what became of each. One that is known by
        its id changes nothing, and one of a hook with too many waiting is not taken."""

    def waiting_deliveries(self, who: Principal, limit: int) -> list[h.HookDelivery]:
        """Return deliveries that wait to be turned into tasks, the oldest first, whole."""

    def settle_delivery(
        self,
        who: Principal,
        delivery: h.HookDelivery,
        specs: Sequence[Spec] = (),
        contexts: Mapping[str, bytes] | None = None,
        generated: Collection[str] = (),
        error: str = "",
    ) -> list[Task]:
        """Submit what comes of a delivery and write down that it did, in one transaction; it has
        failed with an `error`, and was ignored if nothing comes of it. Nothing is submitted or
        written of one that was decided since it was read."""

    def replay_delivery(self, who: Principal, hook: str, delivery_id: str) -> h.HookDelivery:
        """Have the rules of today look at a delivery once more."""

    def save_webhook(
        self, who: Principal, target: h.WebhookTarget, delivery: h.HookDelivery | None = None
    ) -> None:
        """Write down how far a target was told, and what was sent to it last."""

    def enable_webhook(self, who: Principal, name: str, *, skip: bool = False) -> h.WebhookTarget:
        """Tell a target again that has failed, at once; with `skip` of what comes after the event
        that it did not take."""
