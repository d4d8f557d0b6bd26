"""Bugs on purpose. Each breaks the real code in one place; the simulation must notice every one.

A simulation that finds nothing proves nothing until it has shown that it can find. Each bug here is
one that queues have had: a fence left out, an event forgotten, an effect sent before its commit, a
lease by the wrong clock. A bug names the promises it breaks, and is only caught if the violation
speaks of one of them. `hunt` tries seeds one after the other until it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from unittest.mock import patch

from agentq.contracts.store import Changes, Lease
from agentq.core import (
    custody,
    editing,
    external_decisions,
    reviews,
    steps,
    transition,
    triggers,
    waiting,
)
from agentq.core.digests import spec_digest
from agentq.core.effects import SpawnNext
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.values import replace
from agentq.ledger import claims, unit_of_work
from agentq.ledger.submit import Submitter
from agentq.ledger.unit_of_work import UnitOfWork
from agentq.stores.sqlite.transaction import SqliteTx
from agentq.stores.statements import statements
from tests.simulation.violation import (
    ARTIFACTS,
    CANCEL,
    DRAIN,
    EFFECTS,
    FENCE,
    GRAPH,
    INPUT,
    IRREVERSIBLE,
    LEASE,
    ONCE,
    REPLAY,
    RULES,
    SURROUNDINGS,
    TIMERS,
    Violation,
)
from tests.simulation.world import World

#: A bug that this many histories do not show is not caught.
SEEDS_MAX = 1_000

Planting = Callable[[], AbstractContextManager[Any]]


class Playable(Protocol):
    """A history."""

    def run(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted bug: how to plant it, and the promises it breaks."""

    name: str
    breaks: tuple[str, ...]
    plant: Planting
    #: What is played with it: a history of this seed.
    world: Callable[[int], Playable] = World


BUGS: dict[str, Bug] = {}


def breaks(
    *invariants: str, world: Callable[[int], Playable] = World, among: dict[str, Bug] = BUGS
) -> Callable[[Planting], Planting]:
    """Register a context manager as a bug that breaks one of these promises."""

    def register(plant: Planting) -> Planting:
        name = plant.__name__
        among[name] = Bug(name, invariants, plant, world)
        return plant

    return register


def hunt(bug: Bug, seeds: Iterable[int]) -> tuple[int, Violation] | None:
    """The first seed that shows the bug, and what was violated."""
    with bug.plant():
        for seed in seeds:
            try:
                bug.world(seed).run()
            except Violation as violation:
                return seed, violation
    return None


def sql(name: str, old: str, new: str) -> AbstractContextManager[Any]:
    known = statements("sqlite")
    assert old in known[name], f"{name} no longer says {old!r}: {known[name]}"
    return patch.dict(known, {name: known[name].replace(old, new)})


def deciding(kind: type, decide: Callable[..., steps.Step]) -> AbstractContextManager[Any]:
    """Decide triggers of this kind otherwise, in every state that knows them."""
    cells = transition._CELLS
    changed = {cell: (decide, cells[cell][1]) for cell in cells if cell[1] is kind}
    assert changed
    return patch.dict(cells, changed)


def allowing(before: State, kind: type, after: State) -> AbstractContextManager[Any]:
    """Decide triggers of this kind also in a state that the table does not know them in."""
    assert (before, kind) not in transition._CELLS
    cell = (transition._STEPS[kind], frozenset({after, State.REVIEW}))
    return patch.dict(transition._CELLS, {(before, kind): cell})


def nothing(*_: object, **__: object) -> None:
    return None


# -- custody ---------------------------------------------------------------------------------------


@breaks(FENCE)
def the_epoch_is_not_checked() -> AbstractContextManager[Any]:
    return patch.object(custody, "holder_only", nothing)


@breaks(FENCE)
def a_cancelled_attempt_speaks_after_it_has_stopped() -> AbstractContextManager[Any]:
    def only_the_epoch(task: Task, epoch: int) -> None:
        if epoch != task.epoch:
            raise steps.stale(task, epoch)

    return patch.object(custody, "holder_only", only_the_epoch)


@breaks(FENCE)
def a_renewal_ignores_the_epoch() -> AbstractContextManager[Any]:
    return sql("renew", "AND epoch = ?", "AND epoch >= ? - 1000")


@breaks(CANCEL)
def a_renewal_revives_what_was_cancelled() -> AbstractContextManager[Any]:
    return sql("renew", "AND state = 2", "AND holder != ''")


@breaks(LEASE)
def leases_follow_the_workers_clock() -> AbstractContextManager[Any]:
    real = SqliteTx.renew

    def renew(self: SqliteTx, leases: Sequence[Lease]) -> set[int]:
        skew = self.now.__self__.worker_skew_ms  # type: ignore[attr-defined]
        return real(self, [lease._replace(lease_ms=lease.lease_ms + skew) for lease in leases])

    return patch.object(SqliteTx, "renew", renew)


@breaks(LEASE)
def a_claim_follows_the_workers_clock() -> AbstractContextManager[Any]:
    real = custody.claim

    def claim(task: Task, trigger: triggers.ClaimTask, now: int) -> steps.Step:
        step = real(task, trigger, now)
        step.lease_end += 3_600_000
        return step

    return deciding(triggers.ClaimTask, claim)


@breaks(LEASE, TIMERS)
def a_lease_has_no_timer() -> AbstractContextManager[Any]:
    real = SqliteTx.save

    def save(self: SqliteTx, changes: Changes) -> None:
        rows = [row._replace(wake_at=0) if row.state == 2 else row for row in changes.tasks]
        real(self, replace(changes, tasks=rows))

    return patch.object(SqliteTx, "save", save)


@breaks(LEASE, TIMERS)
def time_runs_ahead_for_the_ticker() -> AbstractContextManager[Any]:
    real = transition.transition

    def hasty(task: Task | None, trigger: triggers.Trigger, now: int) -> transition.Decision:
        return real(task, trigger, now + 20_000 * isinstance(trigger, triggers.Tick))

    return patch.object(unit_of_work, "transition", hasty)


@breaks(TIMERS)
def a_claim_ignores_the_time_to_live() -> AbstractContextManager[Any]:
    real = claims._take

    def take(work: UnitOfWork, key: int, task: Task, *rest: Any) -> Task | None:
        return real(work, key, replace(task, wake_at=0), *rest)

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(claims, "_take", take), patch.object(custody, "expiry", lambda *_: 0):
            yield

    return both()


@breaks(CANCEL, INPUT)
def a_cancelled_task_can_be_claimed() -> AbstractContextManager[Any]:
    @contextmanager
    def both() -> Iterator[None]:
        allowed = allowing(State.CANCELLED, triggers.ClaimTask, State.IN_PROGRESS)
        query = statements("sqlite")["pick"]
        query = query.replace("INDEXED BY tasks_live", "").replace(
            "t.state = 1 AND t.state < 5", "t.state IN (1, 7)"
        )
        with allowed, patch.dict(statements("sqlite"), {"pick": query}):
            yield

    return both()


@breaks(ONCE, FENCE)
def a_completion_is_accepted_twice() -> AbstractContextManager[Any]:
    return allowing(State.COMPLETE, triggers.Report, State.COMPLETE)


@breaks(RULES, TIMERS, SURROUNDINGS)
def a_crash_is_not_counted() -> AbstractContextManager[Any]:
    real = custody.lease_ended

    def lease_ended(task: Task, now: int) -> steps.Step:
        step = real(task, now)
        assert step.details is not None
        if step.kind == "quarantined":
            return steps.waits(task.spec, task.details, now, "lease_ended")
        step.details = replace(step.details, crashes=task.details.crashes)
        return step

    return patch.object(waiting, "lease_ended", lease_ended)


# -- gates -----------------------------------------------------------------------------------------


@breaks(IRREVERSIBLE)
def an_irreversible_task_is_retried() -> AbstractContextManager[Any]:
    def tries_again(task: Task, details: Any, now: int, reason: str) -> steps.Step:
        if reason.startswith("The attempt failed"):
            details = replace(details, not_before=now + 1_000)
            return steps.Step(State.PENDING, "retrying", (), details)
        return steps.waits(task.spec, details, now, "lease_ended")

    return patch.object(custody, "unknown_outcome", tries_again)


@breaks(IRREVERSIBLE, TIMERS)
def an_approval_serves_for_ever() -> AbstractContextManager[Any]:
    def again(task: Task, details: Any, now: int, kind: str) -> steps.Step:
        return steps.waits(task.spec, details, now, kind)

    def blocked(task: Task, details: Any, now: int, reason: str, kind: str) -> steps.Step:
        step = real(task, details, now, reason, kind)
        assert step.details is not None
        step.details = replace(
            step.details, approved_by=details.approved_by, approved_digest=details.approved_digest
        )
        return step

    real = steps.blocked

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patch.object(external_decisions, "again", again),
            patch.object(steps, "blocked", blocked),
        ):
            yield

    return both()


@breaks(IRREVERSIBLE)
def a_submitter_approves_its_own_task() -> AbstractContextManager[Any]:
    real = waiting.approve

    def approve(task: Task, trigger: triggers.Approve, now: int) -> steps.Step:
        spec = replace(task.spec, sender="nobody")
        step = real(replace(task, spec=spec), replace(trigger, digest=""), now)
        assert step.details is not None
        step.details = replace(step.details, approved_digest=spec_digest(task.spec))
        return step

    return deciding(triggers.Approve, approve)


@breaks(IRREVERSIBLE)
def an_approval_is_not_bound_to_the_payload() -> AbstractContextManager[Any]:
    real = waiting.approve

    def approve(task: Task, trigger: triggers.Approve, now: int) -> steps.Step:
        return real(task, replace(trigger, digest=""), now)

    return deciding(triggers.Approve, approve)


@breaks(IRREVERSIBLE, RULES, EFFECTS)
def an_approval_survives_an_edit() -> AbstractContextManager[Any]:
    real = editing.edit

    def edit(task: Task, trigger: triggers.Edit, now: int) -> steps.Step:
        step = real(task, trigger, now)
        if step.spec is None or step.details is None or not task.details.approved_by:
            return step
        details = replace(step.details, approved_by=task.details.approved_by)
        kept = steps.waits(step.spec, details, now, step.kind)
        kept.spec = step.spec
        return kept

    return deciding(triggers.Edit, edit)


@breaks(RULES, DRAIN, INPUT)
def an_edited_task_stays_in_its_old_queue() -> AbstractContextManager[Any]:
    return sql("set_address", "role = ?", "role = coalesce(role, ?)")


@breaks(RULES)
def a_review_is_skipped() -> AbstractContextManager[Any]:
    real = custody.report

    def report(task: Task, trigger: triggers.Report, now: int) -> steps.Step:
        return real(replace(task, spec=replace(task.spec, review=False)), trigger, now)

    return deciding(triggers.Report, report)


@breaks(RULES)
def a_worker_judges_its_own_work() -> AbstractContextManager[Any]:
    real = reviews.verdict

    def verdict(task: Task, trigger: triggers.Verdict, now: int) -> steps.Step:
        return real(task, replace(trigger, by="somebody"), now)

    return deciding(triggers.Verdict, verdict)


@breaks(INPUT)
def a_report_needs_no_evidence() -> AbstractContextManager[Any]:
    return patch.object(custody, "missing_evidence", lambda *_: [])


@breaks(RULES, EFFECTS)
def a_budget_is_never_used_up() -> AbstractContextManager[Any]:
    return patch.object(custody, "overspent", lambda *_: "")


@breaks(ARTIFACTS, FENCE, REPLAY)
def an_artifact_is_recorded_without_an_event() -> AbstractContextManager[Any]:
    return sql("add_artifact", "VALUES (?, ?, ?, ?, ?, ?, ?)", "SELECT ?, ?, ?, ?, ?, ?, ? WHERE 0")


# -- the graph -------------------------------------------------------------------------------------


@breaks(GRAPH)
def dependents_are_not_told() -> AbstractContextManager[Any]:
    def forget(self: UnitOfWork) -> None:
        self._ended = []

    return patch.object(UnitOfWork, "_resolve_dependents", forget)


@breaks(GRAPH)
def dependents_are_told_in_a_later_transaction() -> AbstractContextManager[Any]:
    real, late = UnitOfWork._resolve_dependents, dict[int, State]()

    def resolve(self: UnitOfWork) -> None:
        ended = dict(self._ended)
        self._ended = [(key, state) for key, state in late.items() if key in self.tasks]
        real(self)
        late.update(ended)

    return patch.object(UnitOfWork, "_resolve_dependents", resolve)


@breaks(GRAPH)
def a_parent_forgets_that_it_has_dependents() -> AbstractContextManager[Any]:
    return sql("mark_parent", "flags | 1", "flags")


@breaks(GRAPH)
def a_reopened_task_forgets_its_dependencies() -> AbstractContextManager[Any]:
    return sql("edges_of", "WHERE child IN (SELECT value FROM json_each(:keys))", "WHERE 0")


@breaks(GRAPH)
def the_next_task_is_spawned_twice() -> AbstractContextManager[Any]:
    real = Submitter.spawn

    def spawn(self: Submitter, work: UnitOfWork, key: int) -> None:
        real(self, work, key)
        for child in work.tasks[key].spec.next[:1]:
            copy = replace(child, id=f"{child.id}-again", parent=work.tasks[key].id)
            self._give_birth(work, [copy], self._store.role_ids({child.to}))

    return patch.object(Submitter, "spawn", spawn)


@breaks(GRAPH)
def the_next_task_is_never_spawned() -> AbstractContextManager[Any]:
    return patch.object(Submitter, "spawn", nothing)


@breaks(GRAPH, RULES)
def the_next_task_does_not_wait_for_the_verdict() -> AbstractContextManager[Any]:
    real = custody.report

    def report(task: Task, trigger: triggers.Report, now: int) -> steps.Step:
        step = real(task, trigger, now)
        if step.state is State.REVIEW and task.spec.next:
            step.effects = (*step.effects, SpawnNext())
        return step

    return deciding(triggers.Report, report)


@breaks(INPUT, REPLAY, RULES, FENCE, LEASE, TIMERS, ONCE)
def whatever_is_told_the_same_is_decided_alike() -> AbstractContextManager[Any]:
    """However the tasks differ: a batch goes by its first."""
    real = transition.transition
    last: list[tuple[triggers.Trigger, int, State]] = [(triggers.Tick(), 0, State.READY)]
    decisions: list[transition.Decision] = []

    def hasty(task: Task | None, trigger: triggers.Trigger, now: int) -> transition.Decision:
        said = (trigger, now, task.state if task else State.READY)
        if task is None or last[0][0] is not trigger or said != last[0]:
            last[0], decisions[:] = said, [real(task, trigger, now)]
            return decisions[0]
        alike = decisions[0].task
        return replace(decisions[0], task=replace(alike, spec=task.spec))

    return patch.object(unit_of_work, "transition", hasty)
