"""Custody: who may work on what. Limits and resources are checked under lock, here."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentq.contracts.limit_rows import RoleRow
from agentq.contracts.service_values import NextAttempt
from agentq.contracts.store import IN_TREE, TaskRow, Tx
from agentq.core.custody import already_accepted
from agentq.core.errors import AgentqError, Conflict, Refused, Stale
from agentq.core.limits import BATCH_MAX, SUMMARY_CHARS_MAX, RoleLimits, shorten
from agentq.core.reserved_names import is_worker_record
from agentq.core.states import State
from agentq.core.task import NO_USAGE, Task
from agentq.core.transition import transition
from agentq.core.trigger_validation import check_trigger
from agentq.core.triggers import (
    AddArtifact,
    Answer,
    ClaimTask,
    FailAttempt,
    RefuseReport,
    Report,
    Spend,
    Tick,
    Yield,
)
from agentq.core.values import replace
from agentq.ledger import circuits, shared_budgets
from agentq.ledger.buckets import ANY, empty_in_words, take, tokens_of
from agentq.ledger.codec import limits_of
from agentq.ledger.costs import spent_today
from agentq.ledger.families import check_yield
from agentq.ledger.resources import WantedResources
from agentq.ledger.unit_of_work import Items, UnitOfWork

#: How often a role notes that somebody asked for its work; `explain` reads it.
SEEN_EVERY_MS = 30_000
#: How many tasks that do not fit into the day's budget a claim passes over before it gives up.
PASSED_OVER_MAX = 1000
_PAGE = 100


class Held(msgspec.Struct, frozen=True, gc=False):
    """A claim as the ledger gives it: the task, and the key that later calls may use."""

    key: int
    task: Task


def claim_ready(
    work: UnitOfWork, role: int, count: int, claim: ClaimTask, provider: str
) -> tuple[list[Held], bool]:
    """Take up to `count` ready tasks; True beside them if there may be more to look at. A `claim`
    without a lease gets each task's own."""
    tx = work.tx
    row, open_until, picked = tx.pick(role, count, provider=provider, unless_limited=True)
    probe = circuits.probe(work, provider) if open_until else None
    if probe is not None:
        count = 1
        row, _, picked = tx.pick(role, count, unless_limited=True)
    limited = row.is_limited
    work.note_limits(row.name, limited)
    if limited:
        row = tx.lock_role(role)
        is_open = open_until and probe is None
        picked = [] if is_open else _pick_limited(tx, work, row, count)
    row = _note_asked(tx, work, row, provider)
    held = _take_all(work, picked, claim)
    if limited:
        _charge(work, row, len(held))
    if held and probe is not None:
        work.circuits.append(probe)
    return held, bool(picked) and not held


def _note_asked(tx: Tx, work: UnitOfWork, row: RoleRow, provider: str) -> RoleRow:
    """Note that a worker asked for tasks of the role, and which provider's quota it would use."""
    if work.now - row.seen_at > SEEN_EVERY_MS or (provider and not row.provider):
        # Read again under its lock: what is written back must not undo limits set meanwhile.
        row = tx.lock_role(row.id)._replace(seen_at=work.now, provider=provider)
        work.roles.append(row)
    return row


def _charge(work: UnitOfWork, row: RoleRow, count: int) -> None:
    """Take a token for each start from the bucket of the role, whose row is locked."""
    if not row.rate:
        return
    after = take(row, count, work.now)
    if count or after.level_at < row.level_at:  # the clock was set back
        work.roles.append(after)


def _take_all(work: UnitOfWork, picked: Sequence[TaskRow], claim: ClaimTask) -> list[Held]:
    held: list[Held] = []
    claims: dict[int, ClaimTask] = {}
    tasks = [(row.hot.key, work.adopt(row)) for row in picked]
    needy = [task for _, task in tasks if task.spec.resources]
    wanted = WantedResources(work, needy) if needy else None
    for key, task in tasks:
        lease = claim.lease_ms or task.spec.lease_seconds * 1000
        if lease not in claims:
            claims[lease] = replace(claim, lease_ms=lease)
        taken = _take(work, key, task, claims[lease], wanted)
        if taken is not None:
            held.append(Held(key, taken))
    return held


def complete_and_claim(
    work: UnitOfWork,
    items: Items,
    role: int,
    count: int,
    claim: ClaimTask,
    provider: str,
    ids: Sequence[str] | None,
) -> tuple[list[Task | AgentqError], list[Held]]:
    """End some attempts and take the next tasks, or those of `ids` that can be taken now.

    Without `ids` nothing is taken of a role with limits: how many more may run shows only once the
    ends are saved.
    """
    tx = work.tx
    outcomes = apply_all(work, items) if items else []
    if ids is not None:
        ids = list(dict.fromkeys(ids))
        count = len(ids)
    row, open_until, picked = tx.pick(
        role, count, provider=provider, ids=ids, unless_limited=ids is None
    )
    probe = circuits.probe(work, provider) if open_until else None
    if probe is not None:
        row, _, picked = tx.pick(role, count, ids=ids, unless_limited=ids is None)
        picked = picked[:1]
    limited = row.is_limited
    work.note_limits(row.name, limited)
    row = _note_asked(tx, work, row, provider)
    # A ready one that is among `items` (by a late report, say) has changed since it was saved.
    picked = [each for each in picked if each.hot.key not in work.tasks]
    if picked and limited:
        row = tx.lock_role(role)._replace(seen_at=row.seen_at, provider=row.provider)
        picked = _within_limits(tx, work, row, picked)
    held = _take_all(work, picked, claim)
    if held and limited:
        _charge(work, row, len(held))
    if held and probe is not None:
        work.circuits.append(probe)
    return outcomes, held


def begin_attempt(work: UnitOfWork, begin: NextAttempt, role: int) -> None:
    """Take a task for what its attempt does in this same transaction. Raise `Refused` if it cannot
    be taken now, and `Conflict` if that was decided on another version of it."""
    claim = ClaimTask(begin.holder, 0)
    check_trigger(claim)
    _, held = complete_and_claim(work, [], role, 1, claim, "", [begin.task_id])
    if not held:
        raise Refused(
            f"{begin.task_id} cannot be claimed now: others have it, it waits, or its role has no"
            " room. Nothing was submitted.",
            "`agentq explain` says more.",
            code="not_ready",
        )
    version = held[0].task.version - 1
    if version != begin.version:
        raise Conflict(
            f"{begin.task_id} has changed: it was in version {version}, and this was decided on"
            f" version {begin.version}. Nothing was submitted.",
            "Look at it again, then decide.",
            code="version_changed",
        )


def _pick_limited(tx: Tx, work: UnitOfWork, row: RoleRow, count: int) -> list[TaskRow]:
    """Pick as many ready tasks as the limits of the role still allow."""
    if row.circuit:
        return []
    limits = limits_of(row)
    count = min(count, _room(tx, work, row, limits))
    if count <= 0:
        return []
    if limits.daily == NO_USAGE:
        return tx.pick(row.id, count).tasks
    return _pick_for_today(tx, work, row, limits, count)


def _room(tx: Tx, work: UnitOfWork, row: RoleRow, limits: RoleLimits) -> int:
    """How many more of a role may start now, by its limits and its rate."""
    room, _ = limits.room(*tx.occupancy(row.id)[:2])
    return min(BATCH_MAX if left == ANY else left for left in (room, tokens_of(row, work.now)))


def _pick_for_today(
    tx: Tx, work: UnitOfWork, row: RoleRow, limits: RoleLimits, count: int
) -> list[TaskRow]:
    """Those that fit into what is left of the day's budget; others are passed over."""
    today = spent_today(tx, row.name, work.now)
    if limits.used_up(today):
        return []
    fitting: list[TaskRow] = []
    looked_at, asked = 0, count
    rows = tx.pick(row.id, count).tasks
    while rows:
        tasks = [(each, work.adopt(each)) for each in rows]
        fitting += [each for each, task in tasks if not limits.too_small_for(task, today)]
        looked_at += len(rows)
        if len(fitting) >= count or len(rows) < asked or looked_at >= PASSED_OVER_MAX:
            break
        last, task = tasks[-1]
        asked = _PAGE
        rows = tx.pick(row.id, asked, after=(task.spec.priority.rank, last.hot.key)).tasks
    return fitting[:count]


def claim_one(
    work: UnitOfWork, key: int, claim: ClaimTask, provider: str = "", role: str = ""
) -> Held:
    """Take one named task under the same limits; raise `Refused` with the reason if impossible, or
    if it is not for this `role` any more."""
    tx = work.tx
    work.load([key])
    task = work.task(key)
    if role and task.to != role:
        raise Refused(
            f"{task.id} is for {task.to} now: it was edited a moment ago. Nothing was claimed.",
            f"Workers of {task.to} claim it.",
            code="wrong_role",
        )
    claim = replace(claim, lease_ms=claim.lease_ms or task.spec.lease_seconds * 1000)
    if task.state is not State.READY:
        return Held(key, work.apply(key, claim))
    if provider:
        circuits.check_circuit(work, task, provider)
    row = _check_room(tx, work, task)
    _check_tree(work, key, task)
    if task.spec.resources:
        transition(task, claim, work.now)  # nothing is held for a claim that is refused
        _hold_resources(work, key, task)
    held = Held(key, work.apply(key, claim))
    _charge(work, row, 1)
    return held


def _hold_resources(work: UnitOfWork, key: int, task: Task) -> None:
    wanted = WantedResources(work, [task])
    why, code = wanted.lack(task)
    if not why and not wanted.take(key, task):
        why, code = "another task has just taken what it needs", "resource_held"
    if why:
        raise Refused(
            f"{task.id} cannot be claimed now: {why}.", "`agentq explain` says more.", code=code
        )


def _within_limits(tx: Tx, work: UnitOfWork, row: RoleRow, ready: list[TaskRow]) -> list[TaskRow]:
    if row.circuit:
        return []
    limits = limits_of(row)
    room = _room(tx, work, row, limits)
    if limits.daily != NO_USAGE:
        today = spent_today(tx, row.name, work.now)
        if limits.used_up(today):
            return []
        ready = [each for each in ready if not limits.too_small_for(work.adopt(each), today)]
    return ready[:room]


def _check_room(tx: Tx, work: UnitOfWork, task: Task) -> RoleRow:
    """The locked row of its role; raises `Refused` if that has no room for the task."""
    row = tx.lock_role(work.role_id(task.to))
    work.note_limits(row.name, row.is_limited)
    if not row.is_limited:
        return row
    if row.circuit:
        raise Refused(
            f"{task.id} cannot be claimed now: {circuits.needs_person(row)}.",
            f"Mend that, then `agentq circuits close --role {row.name}`; `agentq roles check"
            f" {row.name}` says whether it is mended.",
            code="circuit_open",
        )
    limits, code = limits_of(row), "limit"
    room, why = limits.room(*tx.occupancy(row.id)[:2])
    if room and limits.daily != NO_USAGE:
        today, code = spent_today(tx, row.name, work.now), "budget"
        why = limits.used_up(today) or limits.too_small_for(task, today)
    if not why and (why := empty_in_words(row, work.now)):
        code = "limit"
    if why:
        raise Refused(
            f"{task.id} cannot be claimed now: {why}.", "Wait, or raise the limit.", code=code
        )
    return row


def _check_tree(work: UnitOfWork, key: int, task: Task) -> None:
    shared_budgets.load_trees(work, [key])
    for root in work.roots.get(key, ()):
        tree = work.trees[root]
        if tree.used_up:
            raise Refused(
                f"{task.id} cannot be claimed now: the budget of its tree is used up:"
                f" {shared_budgets.used_up(tree)}.",
                f"`agentq limits --tree {tree.name} --extra-usd N` raises it.",
                code="budget",
            )


def _take(
    work: UnitOfWork, key: int, task: Task, claim: ClaimTask, wanted: WantedResources | None
) -> Task | None:
    # A clock that was set back must not make one task refuse the claim of all others.
    if task.wake_at and task.wake_at <= max(work.now, task.updated_at):
        work.apply(key, Tick())  # its time to live passed while it waited
        return None
    if wanted is not None and task.spec.resources and not wanted.take(key, task):
        return None
    return work.apply(key, claim)


def apply_all(work: UnitOfWork, items: Items) -> list[Task | AgentqError]:
    """Apply triggers to their tasks in order; a refusal refuses only itself.

    A report that comes too late is refused, and that it came is kept in the log as evidence.
    """
    work.load(sorted({key for key, _ in items}))
    if any(bits & IN_TREE for bits in work.flags.values()):
        shared_budgets.load_trees(
            work, [key for key, said in items if isinstance(said, _CONCERNING)]
        )
    outcomes: list[Task | AgentqError] = []
    for key, trigger in items:
        assert not isinstance(trigger, AddArtifact), "artifacts are recorded with record_artifacts"
        try:
            check_trigger(trigger)
            said = trigger
            if isinstance(said, Report):
                if already_accepted(work.task(key), said):
                    outcomes.append(work.task(key))
                    continue
                said = _with_evidence(work, key, said)
            elif isinstance(said, Yield):
                check_yield(work, work.task(key), {})
            if work.roots and isinstance(said, _CONCERNING):
                outcomes.append(_apply_in_tree(work, key, said))
            else:
                outcomes.append(work.apply(key, said))
        except AgentqError as refusal:
            outcomes.append(refusal)
            if isinstance(refusal, Stale) and isinstance(trigger, (Report, FailAttempt)):
                _keep_as_evidence(work, key, trigger)
    return outcomes


#: What may spend from a tree's budget, or raise it.
_CONCERNING = (Spend, Report, FailAttempt, Answer)


def _with_evidence(work: UnitOfWork, key: int, report: Report) -> Report:
    """A report with the names of what its attempt left, where its task expects any."""
    if not work.task(key).spec.expected_output.artifacts:
        return report
    rows = work.artifacts_of(key)
    names = tuple(
        row.name
        for row in rows
        if row.epoch == report.epoch and row.size and not is_worker_record(row.name)
    )
    return replace(report, artifacts=names)


def _apply_in_tree(
    work: UnitOfWork, key: int, trigger: Spend | Report | FailAttempt | Answer
) -> Task:
    """The same where a tree's budget is touched: it changes only if the trigger is accepted."""
    if isinstance(trigger, Answer):
        trigger, after = shared_budgets.answered(work, key, trigger)
    else:
        trigger, after = shared_budgets.charged(work, key, trigger)
    task = work.apply(key, trigger)  # raises if it is refused, and then nothing was spent
    shared_budgets.note(work, after)
    return task


def _keep_as_evidence(work: UnitOfWork, key: int, trigger: Report | FailAttempt) -> None:
    text = trigger.summary if isinstance(trigger, Report) else trigger.reason
    word = "completed" if isinstance(trigger, Report) else "failed"
    by = f"attempt {trigger.epoch}"
    work.apply(key, RefuseReport(trigger.epoch, by, word, shorten(text, SUMMARY_CHARS_MAX)))
