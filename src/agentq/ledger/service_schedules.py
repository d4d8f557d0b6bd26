"""The verbs of the service interface about schedules (see `ledger.schedules`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from agentq.core.access import Action, Principal
from agentq.core.values import replace
from agentq.ledger.service_notes import NoteService
from agentq.ledger.submission_rules import check_reviews

if TYPE_CHECKING:
    from agentq.contracts import schedule_values as s
    from agentq.ledger.schedules import ScheduleLedger


class ScheduleService(NoteService):
    """Says how schedules stand, takes what people say about them, and carries out what is due."""

    @cached_property
    def _schedules(self) -> ScheduleLedger:
        from agentq.ledger.codec import SpecCache
        from agentq.ledger.schedules import ScheduleLedger

        return ScheduleLedger(self._store, SpecCache())

    def schedules(self, who: Principal) -> list[s.ScheduleState]:
        self._check(who, Action.READ, "the schedules")
        return self._schedules.every()

    def change_schedule(
        self, who: Principal, name: str, change: s.ScheduleChange, asked_at: int = 0
    ) -> s.ScheduleState:
        from agentq.contracts.schedule_values import ScheduleChange

        self._check(who, Action.SCHEDULE, name)
        wanted = ScheduleChange(change)
        audit = self._decision(who, Action.SCHEDULE, name, str(wanted))
        with self._noting(who, Action.SCHEDULE, name):
            return self._schedules.change(name, wanted, asked_at, audit)

    def waking_schedules(self, who: Principal, limit: int = 100) -> list[s.ScheduleState]:
        self._check(who, Action.OPERATE)
        return self._schedules.waking(limit)

    def declare_schedules(
        self, who: Principal, declared: Sequence[s.DeclaredSchedule], dropped: Sequence[str] = ()
    ) -> int:
        self._check(who, Action.OPERATE)
        return self._schedules.declare(declared, dropped)

    def fire_schedule(
        self,
        who: Principal,
        firing: s.ScheduleFiring,
        contexts: Mapping[str, bytes] | None = None,
    ) -> s.FiredSchedule:
        self._check(who, Action.OPERATE)
        for each in firing.occurrences:
            check_reviews(each.specs)
        staged: list[tuple[str, str]] = []
        if contexts:
            firing = replace(
                firing,
                occurrences=tuple(
                    replace(
                        each,
                        specs=tuple(self._stage(spec, contexts, staged) for spec in each.specs),
                    )
                    for each in firing.occurrences
                ),
            )
        fired = self._schedules.fire(firing)
        if fired.done:
            # If not, whoever was faster has staged the same under the same name: it stays, and
            # `prune` sweeps what is orphaned.
            specs = [spec for each in firing.occurrences for spec in each.specs]
            self._settle_contexts(staged, {task.id for task in fired.tasks}, specs)
        return fired
