"""Custody: who may work on what. Limits and exclusive resources are checked under lock, here."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.contracts.store import Lease, Tx
from agentq.core.custody import already_accepted
from agentq.core.errors import AgentqError, Refused, Stale
from agentq.core.limits import SUMMARY_CHARS_MAX, shorten
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.triggers import AddArtifact, Claim, Fail, RefuseReport, Report, Tick, Trigger
from agentq.core.value import value
from agentq.core.words import check_trigger
from agentq.ledger.codec import limits_of
from agentq.ledger.work import Work

#: How often a role notes that somebody asked for its work; `explain` reads it.
SEEN_EVERY_MS = 30_000


@value
class Held:
    """A claim as the ledger gives it: the task, and the key that later calls may use."""

    key: int
    task: Task


def claim_ready(
    tx: Tx, work: Work, role: int, count: int, holder: str, lease_ms: int
) -> tuple[list[Held], bool]:
    """Take up to `count` ready tasks; True beside them if there may be more to look at."""
    row, picked = tx.pick_freely(role, count)
    work.note_limits(row.name, row.is_limited)
    if row.is_limited:
        row = tx.lock_role(role)
        room, _ = limits_of(row).room(*tx.occupancy(role))
        count = count if room < 0 else min(count, room)
        picked = tx.pick(role, count) if count > 0 else []
    if work.now - row.seen_at > SEEN_EVERY_MS:
        # Read again under its lock: what is written back must not undo limits set meanwhile.
        tx.set_role(tx.lock_role(role)._replace(seen_at=work.now))
    held: list[Held] = []
    claims: dict[int, Claim] = {}
    for task_row in picked:
        task = work.adopt(task_row)
        lease = lease_ms or task.spec.lease_seconds * 1000
        claim = claims.get(lease) or claims.setdefault(lease, Claim(holder, lease))
        taken = _take(tx, work, task_row.hot.key, task, claim)
        if taken is not None:
            held.append(Held(task_row.hot.key, taken))
    work.finish()
    return held, bool(picked) and not held


def claim_one(tx: Tx, work: Work, key: int, holder: str, lease_ms: int) -> Held:
    """Take this very task, under the same limits; says why not."""
    work.load([key])
    task = work.task(key)
    if task.state is State.READY:
        _check_room(tx, work, task)
        if task.spec.resources and not tx.hold(key, sorted(set(task.spec.resources))):
            raise Refused(
                f"{task.id} needs {', '.join(task.spec.resources)}, which another task holds.",
                "`agentq explain` says who.",
                code="resource_held",
            )
    lease_ms = lease_ms or task.spec.lease_seconds * 1000
    taken = work.apply(key, Claim(holder, lease_ms))
    work.finish()
    return Held(key, taken)


def _check_room(tx: Tx, work: Work, task: Task) -> None:
    row = tx.role(work.role_id(task.to))
    if row.is_limited:
        row = tx.lock_role(row.id)
        room, why = limits_of(row).room(*tx.occupancy(row.id))
        if room == 0:
            raise Refused(
                f"{task.id} cannot be claimed now: {why}.",
                "Wait, or raise the limit.",
                code="limit",
            )


def _take(tx: Tx, work: Work, key: int, task: Task, claim: Claim) -> Task | None:
    # A clock that was set back must not make one task refuse the claim of all others.
    if task.wake_at and task.wake_at <= max(work.now, task.updated_at):
        work.apply(key, Tick())  # its time to live passed while it waited
        return None
    if task.spec.resources and not tx.hold(key, sorted(set(task.spec.resources))):
        return None
    return work.apply(key, claim)


def heartbeat(tx: Tx, leases: Sequence[Lease]) -> set[int]:
    """Renew leases, all in one statement; the keys that are still held."""
    return tx.renew(leases)


def tell(tx: Tx, work: Work, items: Sequence[tuple[int, Trigger]]) -> list[Task | AgentqError]:
    """Apply triggers to their tasks in order, in one transaction; a refusal refuses only itself.

    A report that comes too late is refused, and that it came is kept in the log as evidence.
    """
    work.load(sorted({key for key, _ in items}))
    outcomes: list[Task | AgentqError] = []
    for key, trigger in items:
        try:
            outcomes.append(_tell_one(tx, work, key, trigger))
        except AgentqError as refusal:
            outcomes.append(refusal)
            if isinstance(refusal, Stale) and isinstance(trigger, (Report, Fail)):
                _keep_as_evidence(work, key, trigger)
    work.finish()
    return outcomes


def _tell_one(tx: Tx, work: Work, key: int, trigger: Trigger) -> Task:
    check_trigger(trigger)
    if isinstance(trigger, Report):
        task = work.task(key)
        if already_accepted(task, trigger):
            return task
        if task.spec.expected_output.artifacts:
            names = tuple(
                row.name for row in tx.artifacts_of(key) if row.epoch == trigger.epoch and row.size
            )
            trigger = _with_artifacts(trigger, names)
    if isinstance(trigger, AddArtifact):
        raise AssertionError("artifacts are recorded with record_artifact")
    return work.apply(key, trigger)


def _with_artifacts(report: Report, names: tuple[str, ...]) -> Report:
    return Report(
        report.epoch, report.summary, report.result, report.result_sha256, names, report.cost
    )


def _keep_as_evidence(work: Work, key: int, trigger: Report | Fail) -> None:
    text = trigger.summary if isinstance(trigger, Report) else trigger.reason
    word = "completed" if isinstance(trigger, Report) else "failed"
    by = f"attempt {trigger.epoch}"
    work.apply(key, RefuseReport(trigger.epoch, by, word, shorten(text, SUMMARY_CHARS_MAX)))
