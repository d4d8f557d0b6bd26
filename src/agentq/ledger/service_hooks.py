"""The verbs of the service interface for webhooks: what came in, and what targets were told."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from agentq.contracts.doorbell import HOOKS_TOPIC
from agentq.contracts.hook_rows import IN, OUT
from agentq.core.access import Action, Principal
from agentq.core.errors import Conflict, Invalid, NotFound, Refused
from agentq.ledger.service_notes import NoteService
from agentq.ledger.submission_rules import check_reviews

if TYPE_CHECKING:
    from agentq.contracts import hook_values as h
    from agentq.core.task import Spec, Task
    from agentq.ledger.hook_deliveries import HookLedger
    from agentq.ledger.submit import Submitted
    from agentq.ledger.unit_of_work import UnitOfWork


_DECIDED = "decided"


class HookService(NoteService):
    """Takes deliveries of webhooks in, turns them into tasks, and notes what targets were told."""

    @property
    def _hooks(self) -> HookLedger:
        from agentq.ledger.hook_deliveries import HookLedger

        return HookLedger(self._store)

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
        self._check(who, Action.READ, "the deliveries of webhooks")
        way = OUT if out else IN
        return self._hooks.listed(way, hook, delivery_id, state, before, limit, bodies=bodies)

    def hook_counts(self, who: Principal, *, out: bool = False) -> list[h.HookCounts]:
        self._check(who, Action.READ, "the deliveries of webhooks")
        return self._hooks.counts(OUT if out else IN)

    def webhook_targets(self, who: Principal) -> list[h.WebhookTarget]:
        self._check(who, Action.READ, "the targets of webhooks")
        return self._hooks.targets()

    def take_deliveries(
        self, who: Principal, deliveries: Sequence[h.IncomingDelivery]
    ) -> list[h.Intake]:
        self._check(who, Action.OPERATE)
        return self._hooks.take(deliveries)

    def waiting_deliveries(self, who: Principal, limit: int) -> list[h.HookDelivery]:
        self._check(who, Action.OPERATE)
        return self._hooks.waiting(limit)

    def settle_delivery(
        self,
        who: Principal,
        delivery: h.HookDelivery,
        specs: Sequence[Spec] = (),
        contexts: Mapping[str, bytes] | None = None,
        generated: Collection[str] = (),
        error: str = "",
    ) -> list[Task]:
        from agentq.ledger.hook_deliveries import is_undecided, outcome

        self._check(who, Action.OPERATE)
        if not specs:
            self._hooks.settle(delivery, error)
            return []
        check_reviews(specs)

        def note(work: UnitOfWork, submitted: Sequence[Submitted]) -> None:
            if not is_undecided(work.tx, delivery):
                raise Conflict("This delivery was decided meanwhile.", code=_DECIDED)
            ids = [each.task.id for each in submitted]
            work.hook_outcomes.append(outcome(delivery, ids, error))
            work.topics.add(HOOKS_TOPIC)

        staged: list[tuple[str, str]] = []
        try:
            specs = [self._stage(spec, contexts or {}, staged) for spec in specs]
            submitted = self._ledger.submit(specs, generated, before_saving=note)
        except (Invalid, Conflict, Refused, NotFound) as refusal:
            # Refused for certain (see `submit`).
            for task_id, sha256 in staged:
                self._artifacts.discard_context(task_id, sha256)
            if refusal.code == _DECIDED:
                return []
            raise
        tasks = [each.task for each in submitted]
        self._settle_contexts(staged, {task.id for task in tasks}, specs)
        return tasks

    def replay_delivery(self, who: Principal, hook: str, delivery_id: str) -> h.HookDelivery:
        self._check(who, Action.OPERATE)
        audit = self._decision(who, Action.OPERATE, "", f"replayed {delivery_id} of hook {hook}")
        return self._hooks.replay(hook, delivery_id, audit)

    def save_webhook(
        self, who: Principal, target: h.WebhookTarget, delivery: h.HookDelivery | None = None
    ) -> None:
        self._check(who, Action.OPERATE)
        self._hooks.save_target(target, delivery)

    def enable_webhook(self, who: Principal, name: str, *, skip: bool = False) -> h.WebhookTarget:
        self._check(who, Action.OPERATE)
        said = f"enabled webhook {name}{', without the event that it did not take' * skip}"
        return self._hooks.enable(name, self._decision(who, Action.OPERATE, "", said), skip=skip)
