"""Webhooks of a ledger at the other end of a connection."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from agentq.core.access import Principal
from agentq.remote.custody import RemoteCustody
from agentq.remote.local_only import only_there

if TYPE_CHECKING:
    from agentq.contracts.hook_values import (
        HookCounts,
        HookDelivery,
        IncomingDelivery,
        Intake,
        WebhookTarget,
    )
    from agentq.core.task import Spec, Task


class RemoteHooks(RemoteCustody):
    """Looks at deliveries and replays them; taking them in is for the server itself."""

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
    ) -> list[HookDelivery]:
        from agentq.contracts.hook_values import HookDelivery

        found: list[HookDelivery] = self._caller.value(
            list[HookDelivery], "hook_deliveries", who, hook=hook, delivery_id=delivery_id,
            state=state, before=before, limit=limit, out=out, bodies=bodies,
        )  # fmt: skip
        return found

    def hook_counts(self, who: Principal, *, out: bool = False) -> list[HookCounts]:
        from agentq.contracts.hook_values import HookCounts

        return list(self._caller.value(list[HookCounts], "hook_counts", who, out=out))

    def webhook_targets(self, who: Principal) -> list[WebhookTarget]:
        from agentq.contracts.hook_values import WebhookTarget

        return list(self._caller.value(list[WebhookTarget], "webhook_targets", who))

    def replay_delivery(self, who: Principal, hook: str, delivery_id: str) -> HookDelivery:
        from agentq.contracts.hook_values import HookDelivery

        found: HookDelivery = self._caller.value(
            HookDelivery, "replay_delivery", who, hook=hook, delivery_id=delivery_id
        )
        return found

    def enable_webhook(self, who: Principal, name: str, *, skip: bool = False) -> WebhookTarget:
        from agentq.contracts.hook_values import WebhookTarget

        found: WebhookTarget = self._caller.value(
            WebhookTarget, "enable_webhook", who, name=name, skip=skip
        )
        return found

    def take_deliveries(
        self, who: Principal, deliveries: Sequence[IncomingDelivery]
    ) -> list[Intake]:
        raise only_there("take webhooks in")

    def waiting_deliveries(self, who: Principal, limit: int) -> list[HookDelivery]:
        raise only_there("take webhooks in")

    def settle_delivery(
        self,
        who: Principal,
        delivery: HookDelivery,
        specs: Sequence[Spec] = (),
        contexts: Mapping[str, bytes] | None = None,
        generated: Collection[str] = (),
        error: str = "",
    ) -> list[Task]:
        raise only_there("take webhooks in")

    def save_webhook(
        self, who: Principal, target: WebhookTarget, delivery: HookDelivery | None = None
    ) -> None:
        raise only_there("send webhooks")
