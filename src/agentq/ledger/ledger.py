"""The ledger: the only way state changes. Every verb is one transaction, batched if it can be."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.doorbell import ROOM_TOPIC, role_topic
from agentq.contracts.limit_rows import CircuitRow
from agentq.contracts.store import Changes, Lease, Store, Tx
from agentq.core import triggers as t
from agentq.core.effects import LANES, is_lane
from agentq.core.errors import AgentqError, Conflict, Invalid, Refused
from agentq.core.limits import BATCH_MAX, KeyLimits, RoleLimits
from agentq.core.rates import checked
from agentq.core.spec_types import check_usage
from agentq.core.states import TERMINAL
from agentq.core.task import NO_GATES, NO_USAGE, Gates, Spec, Task, Usage
from agentq.core.trigger_validation import check_trigger
from agentq.core.values import replace
from agentq.ledger import claims, resources, shared_budgets
from agentq.ledger.buckets import set_rate
from agentq.ledger.circuits import Circuits, Interruption, dated, interrupt
from agentq.ledger.claims import Held
from agentq.ledger.codec import STATES, SpecCache, encode_usage
from agentq.ledger.costs import amounts
from agentq.ledger.families import note_reopened
from agentq.ledger.pruning import Pruner
from agentq.ledger.queries import LedgerQueries
from agentq.ledger.request_keys import sweep
from agentq.ledger.submit import DEDUP_MS, BeforeSaving, Submitted, Submitter
from agentq.ledger.system_log import role_note, save_lanes, system_rows
from agentq.ledger.task_effects import check_reviewer
from agentq.ledger.unit_of_work import Fence, Items, UnitOfWork
from agentq.protocol.spec_validation import check_role, check_spec

if TYPE_CHECKING:
    from agentq.contracts.service_values import NextAttempt
    from agentq.ledger.deferred_submit import DeferredSubmitter
    from agentq.ledger.request_keys import KeyedRequest

T = TypeVar("T")
#: What became of reports or decisions, and what was taken.
Answered: TypeAlias = tuple[Sequence[Task | AgentqError], Sequence[Held]]

LEASE_MS_MAX = 366 * 24 * 3600 * 1000


class Ledger:
    """Tasks and what may be done to them, on one store.

    `chance` gives numbers in [0, 1) for backoff; it is injected so that a simulation can repeat.
    Verbs of an attempt take the task's key and the attempt's epoch, and raise `Stale` if fenced.
    """

    def __init__(self, store: Store, chance: Callable[[], float], dedup_ms: int = DEDUP_MS) -> None:
        self.store = store
        self._chance = chance
        self._dedup_ms = dedup_ms
        self._specs = SpecCache()
        self._limited: set[str] = set()
        self._submitter = Submitter(store, self._specs, dedup_ms)
        self.queries = LedgerQueries(store, self._specs)
        self.circuits = Circuits(store, self._role_id)
        self._request: KeyedRequest | None = None
        self._keyed_requests = itertools.count()

    def under(self, request: KeyedRequest) -> Ledger:
        """The same ledger for one request that may come again: what it does is remembered in the
        transaction that does it, and not done twice (see `request_keys`)."""
        sweep(self.store, next(self._keyed_requests))
        keyed = copy.copy(self)
        keyed._request = request  # noqa: SLF001 - a ledger of this class
        return keyed

    @cached_property
    def _deferred(self) -> DeferredSubmitter:
        from agentq.ledger.deferred_submit import DeferredSubmitter

        return DeferredSubmitter(self.store, self._specs, self._dedup_ms)

    def _work(self, tx: Tx) -> UnitOfWork:
        return self._submitter.work(tx, self._limited)

    def _change(
        self, decide: Callable[[UnitOfWork], T], answered: Callable[[T], Answered] | None = None
    ) -> T:
        """Let `decide` take its decisions and save what follows from them, in one transaction.
        `answered` says what of it is remembered under the key of the request, if it has one."""
        request = self._request if answered is not None else None

        def change(tx: Tx) -> T:
            work = self._work(tx)
            if request is None or answered is None:
                answer = decide(work)
            else:
                with request.checking(work):
                    answer = decide(work)
                request.note(work, *answered(answer))
            work.finish()
            return answer

        changed = self.store.write(change)
        if request is not None:
            request.committed()
        return changed

    def _role_id(self, role: str) -> int:
        return self.store.role_ids((check_role(role),))[role]

    def submit(
        self, specs: Sequence[Spec], generated: Collection[str] = (), fence: Fence = None,
        then: t.Yield | None = None, before_saving: BeforeSaving | None = None,
        begin: NextAttempt | None = None,
    ) -> list[Submitted]:  # fmt: skip
        """Accept tasks, all or none. The same id or key and body gives the task that is there. In
        that transaction the attempt of the fence begins and leaves, and what follows is noted."""
        return self._submitter.submit(specs, generated, fence, then, before_saving, begin)

    def defer(self, specs: Sequence[Spec], fence: Fence, connection: object) -> list[Submitted]:
        """Write down, in the caller's own transaction, what is to be submitted once it commits."""
        return self._deferred.defer(specs, fence, connection)

    def decide_deferred(self) -> list[Task]:
        """Submit what was written down in transactions that have committed; the new tasks."""
        return self._deferred.decide()

    # -- custody ---------------------------------------------------------------------------------

    def claim(
        self,
        role: str,
        count: int,
        holder: str,
        lease_ms: int = 0,
        provider: str = "",
        *,
        gated: bool = False,
        gates: Gates = NO_GATES,
    ) -> list[Held]:
        """Take up to `count` ready tasks of a role (see `contracts.service`)."""
        _check_count(count)
        claim = self._checked_claim(holder, lease_ms, provider, gated, gates)
        role_id = self._role_id(role)
        while True:
            held, look_again = self._change(
                lambda work: claims.claim_ready(work, role_id, count, claim, provider),
                lambda found: ((), found[0]),
            )
            if not look_again:
                return held

    def claim_task(
        self, key: int, holder: str, lease_ms: int = 0, provider: str = "", *, role: str = ""
    ) -> Held:
        """Take this very task; with a `role` only if it is still for that one."""
        claim = self._checked_claim(holder, lease_ms, provider)
        return self._change(
            lambda work: claims.claim_one(work, key, claim, provider, role),
            lambda held: ((), [held]),
        )

    def _checked_claim(
        self,
        holder: str,
        lease_ms: int,
        provider: str,
        gated: bool = False,
        gates: Gates = NO_GATES,
    ) -> t.ClaimTask:
        if type(lease_ms) is not int or not 0 <= lease_ms <= LEASE_MS_MAX:
            raise Invalid(f"A lease lasts up to a year, got {lease_ms} ms.", "Renew it instead.")
        claim = t.ClaimTask(holder, lease_ms, gated, gates)
        check_trigger(claim)
        if provider:
            check_role(provider, "provider")
        if gates.reviewer:
            self._role_id(gates.reviewer)  # made now, while no transaction is open
        return claim

    def heartbeat(self, leases: Sequence[Lease]) -> set[int]:
        """Renew leases, all in one statement. A key that is not in the answer is lost."""
        longest = max((lease.lease_ms for lease in leases), default=1)
        shortest = min((lease.lease_ms for lease in leases), default=1)
        if shortest < 1 or longest > LEASE_MS_MAX:
            raise Invalid(f"A lease lasts 1 ms to a year, got {shortest} to {longest} ms.")
        return self.store.write(lambda tx: tx.renew(leases))

    def apply_many(
        self,
        items: Items,
        fence: Fence = None,
        audit: AuditRow | None = None,
        *,
        if_version: int = 0,
    ) -> list[Task | AgentqError]:
        """Apply triggers in one transaction; each refused one gives its error instead of a task.
        None is applied unless the first task is still in that version. `audit` says who decided so,
        and is written with it."""

        def change(work: UnitOfWork) -> list[Task | AgentqError]:
            work.check_fence(fence, [key for key, _ in items])
            if if_version:
                work.check_version(items[0][0], if_version)
            outcomes = claims.apply_all(work, items)
            work.note_decision(audit)
            return outcomes

        return self._change(change, lambda outcomes: (outcomes, ()))

    def complete_and_claim(
        self,
        items: Items,
        role: str,
        count: int,
        holder: str,
        lease_ms: int = 0,
        provider: str = "",
        *,
        ids: Sequence[str] | None = None,
        gated: bool = False,
        gates: Gates = NO_GATES,
    ) -> tuple[list[Task | AgentqError], list[Held]]:
        """Apply these and claim the next in one transaction: `apply_many`, then `claim`. Of `ids`
        those that are over, held, expired or not this role's are left out."""
        claim = self._checked_claim(holder, lease_ms, provider, gated, gates)
        if ids is None:
            _check_count(count)
        role_id = self._role_id(role)
        outcomes, held = self._change(
            lambda work: claims.complete_and_claim(
                work, items, role_id, count, claim, provider, ids
            ),
            lambda both: both,
        )
        if not held and ids is None:
            # A role with limits, one that nobody asked for lately, or nothing there: as usual.
            held = self.claim(role, count, holder, lease_ms, provider, gated=gated, gates=gates)
        return outcomes, held

    def apply(
        self,
        key: int,
        trigger: t.Trigger,
        fence: Fence = None,
        audit: AuditRow | None = None,
        *,
        if_version: int = 0,
    ) -> Task:
        outcome = self.apply_many([(key, trigger)], fence, audit, if_version=if_version)[0]
        if isinstance(outcome, AgentqError):
            raise outcome
        return outcome

    def fail(
        self,
        key: int,
        epoch: int,
        reason: str,
        kind: t.FailureKind = t.FailureKind.TRANSIENT,
        cost: Usage = NO_USAGE,
    ) -> Task:
        return self.apply(key, t.FailAttempt(epoch, reason, kind, cost, self._chance()))

    def record_artifacts(self, key: int, artifacts: Sequence[t.AddArtifact]) -> Task:
        """Make files of an attempt visible, all or none. Refused if it no longer holds the task."""
        for artifact in artifacts:
            check_trigger(artifact)

        def change(work: UnitOfWork) -> Task:
            work.load([key])
            recorded = {(row.epoch, row.name): row.sha256 for row in work.tx.artifacts_of(key)}
            for each in artifacts:
                name = (each.epoch, each.name)
                if recorded.get(name) == each.sha256:
                    continue
                if name in recorded:
                    raise Conflict(
                        f"{work.task(key).id} has a {each.name} of attempt {each.epoch} already,"
                        " with other content. Nothing was recorded.",
                        "Evidence is never overwritten: choose another name.",
                    )
                recorded[name] = each.sha256
                work.record_artifact(key, each)
            return work.task(key)

        return self._change(change)

    def requeue(
        self,
        key: int,
        by: str,
        reason: str = "",
        how: str = "",
        fence: Fence = None,
        audit: AuditRow | None = None,
        *,
        if_version: int = 0,
    ) -> Task:
        """Open a dead letter again. It waits anew for those dependencies that are under way."""
        check_trigger(t.Requeue(by, reason))

        def change(work: UnitOfWork) -> Task:
            work.check_fence(fence, [key])
            work.load([key])
            work.check_version(key, if_version)
            edges = work.tx.edges_of([key])
            others = work.tx.tasks([parent for parent, child in edges if child == key])
            under_way = [
                self._specs.put(row.spec)[0]
                for row in others
                if STATES[row.hot.state] not in TERMINAL
            ]
            spec = work.task(key).spec
            waiting_on = tuple(each.id for each in under_way if each.id in spec.after)
            children = tuple(each.id for each in under_way if each.parent == spec.id)
            requeue = t.Requeue(by, reason, waiting_on, how, children, asks_again=True)
            task = work.apply(key, requeue)
            note_reopened(work, key, task)
            work.note_decision(audit)
            return task

        return self._change(change, _one)

    def edit(
        self, key: int, trigger: t.Edit, audit: AuditRow | None = None, *, if_version: int = 0
    ) -> Task:
        """Change what a waiting task asks for, unless a submission of that would be refused."""
        check_trigger(trigger)
        if trigger.to:
            self._role_id(trigger.to)  # made now, while no transaction is open

        def change(work: UnitOfWork) -> Task:
            work.load([key])
            work.check_version(key, if_version)
            task = work.apply(key, trigger)
            # A dead letter of a list that nobody gave may be reopened, and then be put in words.
            check_spec(replace(task.spec, each="") if task.spec.each else task.spec)
            if trigger.to and task.spec.reviews:
                check_reviewer(work, task)
            work.note_decision(audit)
            return task

        return self._change(change, _one)

    def tick(self, limit: int = 500) -> int:
        """Apply time to every task whose moment has come; how many changed."""
        changed = 0
        while True:
            found, moved = self.store.write(lambda tx: self._tick_once(tx, limit))
            changed += moved
            if found < limit or not moved:
                return changed

    def _tick_once(self, tx: Tx, limit: int) -> tuple[int, int]:
        work = self._work(tx)
        rows = tx.due(work.now, limit)
        for row in rows:
            work.adopt(row)
        for row in rows:
            work.apply(row.hot.key, t.Tick())
        work.finish()
        return len(rows), len(work.events)

    def open_lanes(self, *lanes: str, audit: AuditRow | None = None) -> None:
        """From the next commit on, effects of these lanes are stored until somebody acks them."""
        unknown = sorted(each for each in set(lanes) if not is_lane(each))
        if unknown:
            raise Invalid(f"Lanes are {', '.join(LANES)}, or LANE:NAME; got {', '.join(unknown)}.")

        def change(tx: Tx) -> None:
            known, wanted = tx.lanes(), tx.lanes() | frozenset(lanes)
            save_lanes(tx, wanted, dated(audit if wanted != known else None, tx))

        self.store.write(change)

    def close_lanes(self, *lanes: str) -> None:
        self.store.write(lambda tx: save_lanes(tx, tx.lanes() - frozenset(lanes)))

    # -- circuits and budgets --------------------------------------------------------------------

    def open_circuit(
        self, provider: str, until_ms: int, reason: str, by: str, audit: AuditRow | None = None
    ) -> CircuitRow:
        return self.circuits.open(provider, until_ms, reason, by, audit)

    def close_circuit(self, provider: str, by: str, audit: AuditRow | None = None) -> bool:
        return self.circuits.close(provider, by, audit)

    def interrupt(
        self, key: int, said: Interruption, by: str, audit: AuditRow | None = None
    ) -> Task:
        """Give a task back unharmed and open the circuit that its surroundings ask for, in one
        transaction. `audit` is written if that has changed a circuit."""
        if said.provider:
            check_role(said.provider, "provider")
        check_trigger(t.Comment(by, said.reason))
        check_trigger(t.Release(said.epoch, said.reason))

        def change(work: UnitOfWork) -> Task:
            task, changed = interrupt(work, key, said, by)
            work.note_decision(audit if changed else None)
            return task

        return self._change(change, _one)

    def raise_tree(
        self,
        key: int,
        by: str,
        extra: Usage,
        how: str = "",
        audit: AuditRow | None = None,
        *,
        if_version: int = 0,
    ) -> Task:
        """Add to the budget that a task shares with its descendants. Its log says who did."""
        check_usage("extra", extra)
        text = f"raised the budget of its tree by {amounts(extra)}"
        comment = t.Comment(by, text, how=how)
        check_trigger(comment)

        def change(work: UnitOfWork) -> Task:
            work.load([key])
            work.check_version(key, if_version)
            shared_budgets.load_trees(work, [key])
            task = work.task(key)
            if key not in work.trees:
                raise Refused(
                    f"{task.id} has no budget for a tree. Nothing was changed.",
                    "`agentq explain` names the task whose tree has used up its budget.",
                    code="no_tree",
                )
            task = work.apply(key, comment)
            shared_budgets.note(work, [shared_budgets.raised(work.trees[key], extra)])
            work.note_decision(audit)
            return task

        return self._change(change, _one)

    def set_limits(self, role: str, limits: RoleLimits, audit: AuditRow | None = None) -> None:
        for limit in (limits.max_running, limits.max_review):
            if type(limit) is not int or not 0 <= limit <= 1_000_000:
                raise Invalid(f"A limit is 0 (none) to 1000000, got {limit!r}.")
        check_usage("daily", limits.daily)
        checked(limits.rate)
        role_id = self._role_id(role)

        def change(tx: Tx) -> None:
            held = tx.lock_role(role_id)
            row = held._replace(
                max_running=limits.max_running,
                max_review=limits.max_review,
                paused=int(limits.paused),
                daily=encode_usage(limits.daily),
            )
            row = set_rate(row, limits.rate, tx.now())
            # There may be room now for whoever waits.
            noted = dated(audit if row != held else None, tx)
            topics = (role_topic(role), ROOM_TOPIC)
            said = system_rows(tx, [role_note(row)] if role_note(row) != role_note(held) else [])
            tx.save(Changes(roles=(row,), system=said, topics=topics, audit=noted))

        self.store.write(change)

    def set_key_limits(self, key: str, limits: KeyLimits, audit: AuditRow | None = None) -> None:
        resources.set_key_limits(self.store, key, limits, audit)

    def prune(
        self,
        before: int,
        forget: Callable[[str], None],
        limit: int = 500,
        audit: AuditRow | None = None,
        audit_before: int = 0,
    ) -> int:
        """Delete tasks that ended before that moment, and their files through `forget`; how many.

        What a live task refers to stays. Files that cannot be removed now are, by the next call:
        `FilesLeft` says so. Dedup records outlive tasks: the same key still gives the same answer.
        Rows of the audit log go that are older than `audit_before`."""
        pruner = Pruner(self.store, self._specs, forget, audit, audit_before)
        return pruner.prune(before, limit)


def _one(task: Task) -> Answered:
    return [task], ()


def _check_count(count: int) -> None:
    if not 1 <= count <= BATCH_MAX:
        raise Invalid(f"A claim takes 1 to {BATCH_MAX} tasks, got {count}.")
