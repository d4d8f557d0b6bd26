"""The service interface over a ledger in this process (see `contracts.service`).

It is put together by topic: `service_queries` checks whether the principal may and answers queries,
`service_custody` submits, hands out and takes in, `service_circuits` stops claims for a provider or
a role, `service_graph` lets tasks wait for each other, `service_edits` changes what is asked for,
`service_notes` leaves something with a task, `service_hooks` minds webhooks, `service_schedules`
has tasks occur in time. Here is what else is decided from outside about tasks, roles and files, and
what the loops of an installation need.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from agentq.contracts import service_values as v
from agentq.contracts.audit_rows import AuditFilter
from agentq.contracts.store import (
    READY,
)
from agentq.contracts.task_filter import Filter, Order
from agentq.core import triggers as t
from agentq.core.access import (
    RUN_TYPE,
    Action,
    Principal,
    PrincipalKind,
    approves_own,
    own_run_refusal,
)
from agentq.core.errors import Refused
from agentq.core.schedule import awaits_approval
from agentq.core.states import State
from agentq.core.task import NO_USAGE, Task, Usage
from agentq.core.values import replace
from agentq.core.waiting import check_digest
from agentq.ledger.buckets import ANY, next_token_at, tokens_of
from agentq.ledger.codec import decode_spec, limits_of, to_task
from agentq.ledger.costs import amounts, spent_today
from agentq.ledger.families import open_below
from agentq.ledger.leader_leases import LeaderLeases
from agentq.ledger.pruning import Named, files_to_remove, touch
from agentq.ledger.request_keys import KeyedRequest, repeatable, the_task
from agentq.ledger.service_hooks import HookService
from agentq.ledger.service_lanes import LaneService
from agentq.ledger.service_proofs import ProofService
from agentq.ledger.service_queries import recorded
from agentq.ledger.service_schedules import ScheduleService

if TYPE_CHECKING:
    from agentq.contracts.inbound_messages import InboundMessage, IntakeResult
    from agentq.contracts.store import Reader, TaskRow
    from agentq.core.limits import KeyLimits, RoleLimits
    from agentq.ledger.tokens import Tokens

_PAGE = 500
#: A staged context older than this whose task never came is an orphan.
_ORPHAN_MS = 24 * 3600 * 1000


class EmbeddedService(HookService, LaneService, ProofService, ScheduleService):
    """Implements `contracts.service.Service` with the ledger and artifact store of this process.

    Who decided stands in the log, by name and by how it is known.
    """

    @repeatable(the_task)
    def approve(self, who: Principal, ref: str, digest: str = "", *, if_version: int = 0) -> Task:
        key, task = self._locate(who, ref)
        if task.state is State.REVIEW:
            self._check_task(who, Action.VERDICT, task, ref)
            with self._noting(who, Action.VERDICT, task.id):
                check_digest(task, digest)
            return self._judge(who, key, task, ref, t.Ruling.ACCEPT, "", if_version)
        self._check_task(who, Action.APPROVE, task, ref)
        own = self._may_approve_own(who, task)
        trigger = t.Approve(who.name, digest, who.how, own)
        return self._decide(who, Action.APPROVE, key, task, trigger, if_version=if_version)

    def _may_approve_own(self, who: Principal, task: Task) -> bool:
        """Whether a person approves what they asked for themselves, and may. Of what they submitted
        or edited the ledger refuses it; of what belongs to a run of theirs it is refused here."""
        if who.kind is not PrincipalKind.PERSON or not awaits_approval(task.spec, task.details):
            return False
        run = self._own_run(who.name, task)
        if not run and who.name not in (task.spec.sender, *task.editors):
            return False
        roles, four_eyes = self._queries.limits(), self._four_eyes
        may = approves_own(who.name, task, roles, four_eyes=four_eyes, own_run=run)
        if run and not may:
            with self._noting(who, Action.APPROVE, task.id):
                raise own_run_refusal(who.name, task.id, run)
        return may

    def _own_run(self, name: str, task: Task) -> str:
        """The run that a person of this name started or edited, and that the task belongs to."""
        above, _ = self._ancestors(task)
        found = self._queries.by_id(above) if above else {}
        for each in above:
            run = found.get(each)
            if run is not None and run.spec.type == RUN_TYPE and name in (
                run.spec.sender, *run.editors
            ):  # fmt: skip
                return run.id
        return ""

    @repeatable(the_task)
    def reject(
        self,
        who: Principal,
        ref: str,
        reason: str = "",
        *,
        changes: bool = False,
        if_version: int = 0,
    ) -> Task:
        key, task = self._locate(who, ref)
        if task.state is State.REVIEW:
            ruling = t.Ruling.CHANGES if changes else t.Ruling.REJECT
            return self._judge(who, key, task, ref, ruling, reason, if_version)
        self._check_task(who, Action.REJECT, task, ref)
        if changes:
            raise Refused(
                f"{task.id} is {task.state}: there is no report to ask changes of. Nothing was"
                " changed.",
                "Changes can be asked for while a task is in review.",
            )
        trigger = t.Reject(who.name, reason, who.how)
        return self._decide(who, Action.REJECT, key, task, trigger, reason, if_version=if_version)

    @repeatable(the_task)
    def verdict(
        self,
        who: Principal,
        ref: str,
        ruling: t.Ruling,
        feedback: str = "",
        *,
        if_version: int = 0,
    ) -> Task:
        key, task = self._locate(who, ref)
        return self._judge(who, key, task, ref, t.Ruling(ruling), feedback, if_version)

    def _judge(
        self,
        who: Principal,
        key: int,
        task: Task,
        ref: str,
        ruling: t.Ruling,
        feedback: str,
        if_version: int,
    ) -> Task:
        self._check_task(who, Action.VERDICT, task, ref)
        trigger = t.Verdict(who.name, ruling, feedback, who.how)
        said = f"{ruling}: {feedback}" if feedback else str(ruling)
        judged = self._decide(who, Action.VERDICT, key, task, trigger, said, if_version=if_version)
        self._after_completion(judged)
        return judged

    @repeatable(the_task)
    def answer(
        self,
        who: Principal,
        ref: str,
        text: str = "",
        resolution: t.Resolution = t.Resolution.RETRY,
        extra_budget: Usage = NO_USAGE,
        *,
        if_version: int = 0,
    ) -> Task:
        key, task = self._find(who, Action.ANSWER, ref)
        if extra_budget != NO_USAGE:
            self._check_task(who, Action.RAISE_BUDGET, task)
        answer = t.Answer(who.name, text, t.Resolution(resolution), extra_budget, how=who.how)
        said = f"{answer.resolution}: {text}" if text else str(answer.resolution)
        if extra_budget != NO_USAGE:
            said = f"{said} (and {amounts(extra_budget)} more)"
        answered = self._decide(who, Action.ANSWER, key, task, answer, said, if_version=if_version)
        self._after_completion(answered)
        return answered

    @repeatable(the_task)
    def cancel(
        self, who: Principal, ref: str, reason: str = "", *, if_version: int = 0, tree: bool = False
    ) -> Task:
        key, task = self._find(who, Action.CANCEL, ref)
        if tree and who.roles:
            self._check_below(who, task)
        trigger = t.Cancel(who.name, reason, who.how, tree)
        return self._decide(who, Action.CANCEL, key, task, trigger, reason, if_version=if_version)

    def _check_below(self, who: Principal, task: Task) -> None:
        """Refuse whoever may decide about some roles only, if an open task below is of another."""
        for each in open_below(task, lambda names: self._queries.by_id(names).values()):
            self._check_task(who, Action.CANCEL, each)

    @repeatable(the_task)
    def requeue(self, who: Principal, ref: str, reason: str = "", *, if_version: int = 0) -> Task:
        key, task = self._find(who, Action.REQUEUE, ref)
        audit = self._decision(who, Action.REQUEUE, task.id, reason)
        fence = self._fence(who)
        with self._noting(who, Action.REQUEUE, task.id):
            return self._ledger_for(who).requeue(
                key, who.name, reason, who.how, fence, audit, if_version=if_version
            )

    def set_limits(self, who: Principal, role: str, limits: RoleLimits) -> None:
        self._check(who, Action.SET_LIMITS, role)
        audit = self._decision(who, Action.SET_LIMITS, role, _in_words(limits))
        self._ledger.set_limits(role, limits, audit)

    def set_key_limits(self, who: Principal, key: str, limits: KeyLimits) -> None:
        self._check(who, Action.SET_LIMITS, f"key {key}")
        said = f"max_held {limits.max_held}, rate {limits.rate}"
        audit = self._decision(who, Action.SET_LIMITS, f"key {key}", said)
        self._ledger.set_key_limits(key, limits, audit)

    @repeatable(the_task)
    def raise_tree_budget(
        self, who: Principal, ref: str, extra: Usage, *, if_version: int = 0
    ) -> Task:
        key, task = self._find(who, Action.RAISE_BUDGET, ref)
        said = f"{amounts(extra)} more for its tree"
        audit = self._decision(who, Action.RAISE_BUDGET, task.id, said)
        with self._noting(who, Action.RAISE_BUDGET, task.id):
            return self._ledger_for(who).raise_tree(
                key, who.name, extra, who.how, audit, if_version=if_version
            )

    # -- files -------------------------------------------------------------------------------------

    def prune(self, who: Principal, before_ms: int) -> int:
        self._check(who, Action.PRUNE)
        # A ledger that was moved refuses this: contexts it does not know may be of the other one.
        self._store.write(touch)
        # What has committed is a task before anything it names, or its context, may go.
        self._publish_contexts(self._ledger.decide_deferred())
        # Before tasks, so that none is deleted while the files are out of reach.
        self._sweep_contexts()
        audit = self._decision(who, Action.PRUNE)
        old = self._store.now() - self._resources.keep_audit_ms
        return self._ledger.prune(
            before_ms + 1, self._artifacts.remove, audit=audit, audit_before=old
        )

    def _sweep_contexts(self) -> None:
        """Drop contexts that submitters staged and never committed; young ones may be under way."""

        named = Named()
        self._store.read(named.look)

        def is_wanted(task_id: str, sha256: str) -> bool:
            if (task_id, sha256) in named.contexts:
                return True
            task = self._queries.by_id([task_id]).get(task_id)
            return task is not None and task.spec.context_sha256 == sha256

        self._artifacts.sweep(self._store.now() - _ORPHAN_MS, is_wanted)

    def task_files(
        self, who: Principal, after: int = 0, limit: int = 500
    ) -> tuple[list[tuple[Task, list[v.ArtifactInfo]]], int]:
        self._check(who, Action.READ, "every task")
        page = self._queries.with_artifacts(after, limit)
        return [(task, recorded(rows)) for _, task, rows in page], page[-1][0] if page else 0

    def files_to_remove(self, who: Principal) -> int:
        self._check(who, Action.READ, "every task")
        return self._store.read(files_to_remove)

    # -- tokens, and who did what ------------------------------------------------------------------

    def create_token(
        self, who: Principal, name: str, scopes: Sequence[str], lifetime_ms: int = 0
    ) -> tuple[v.TokenInfo, str]:
        self._check(who, Action.MANAGE_TOKENS)
        audit = self._decision(who, Action.MANAGE_TOKENS)
        request = None if who.request is None else KeyedRequest(who)
        return self._tokens.create(name, scopes, lifetime_ms, who.name, audit, request)

    def tokens(self, who: Principal) -> list[v.TokenInfo]:
        self._check(who, Action.MANAGE_TOKENS)
        return self._tokens.listed()

    def revoke_token(self, who: Principal, ref: str) -> v.TokenInfo:
        self._check(who, Action.MANAGE_TOKENS)
        return self._tokens.revoke(ref, who.name, self._decision(who, Action.MANAGE_TOKENS))

    def principal_of_token(self, token: str) -> Principal | None:
        return self._tokens.principal(token)

    @property
    def _tokens(self) -> Tokens:
        from agentq.ledger.tokens import Tokens

        return Tokens(self._store, self._resources.random_bytes)

    def audit(
        self,
        who: Principal,
        cursor: int = 0,
        limit: int = 100,
        outcome: str = "",
        by: str = "",
        task: str = "",
        since_ms: int = 0,
    ) -> v.AuditPage:
        from agentq.ledger.audit import page, storable

        self._check(who, Action.AUDIT)
        self._write_held_refusals(all_of_them=True)
        by, task = storable(by), storable(task)  # as they are written down
        # One that was pruned is asked for by its whole id, which others may begin with.
        whole = AuditFilter(subject=task, limit=1)
        if task and not self._store.read(lambda reader: reader.records(whole)):
            task = self._meant(task)
        return page(self._store, AuditFilter(outcome, by, task, since_ms, cursor, limit))

    # -- what the loops of an installation need ----------------------------------------------------

    def tick(self, who: Principal) -> int:
        self._check(who, Action.TICK)
        born = self._ledger.decide_deferred()
        self._publish_contexts(born)
        changed = self._ledger.tick() + len(born)
        self._write_held_refusals()
        self._try_to_publish()
        return changed

    def check_writable(self, who: Principal) -> None:
        self._check(who, Action.OPERATE)
        self._store.write(lambda tx: tx.next_wake())

    def hold_leader_leases(
        self, who: Principal, names: Sequence[str], holder: str, length_ms: int
    ) -> dict[str, v.LeaderLease]:
        self._check(who, Action.OPERATE)
        return LeaderLeases(self._store).hold(names, holder, length_ms)

    def give_up_leader_leases(self, who: Principal, names: Sequence[str], holder: str) -> list[str]:
        self._check(who, Action.OPERATE)
        return LeaderLeases(self._store).give_up(names, holder)

    def publish_results(self, who: Principal, count: int = 100) -> v.PublishedResults:
        self._check(who, Action.OPERATE)
        return self._publish_waiting(count)

    def roles(self, who: Principal) -> list[v.RoleStanding]:
        self._check(who, Action.READ, "the roles")
        rows = self._store.read(lambda reader: reader.roles())
        return [
            v.RoleStanding(row.name, limits_of(row), row.is_limited, row.provider, row.seen_at)
            for row in rows
        ]

    def ready_counts(self, who: Principal) -> dict[str, int]:
        self._check(who, Action.READ, "the counts of all tasks")
        rows = self._store.read(lambda reader: reader.counts(live_only=True))
        return {row.role: row.tasks for row in rows if row.state == READY}

    def most_urgent_ready(
        self,
        who: Principal,
        role: str,
        count: int,
        before_ms: int,
        passed_over: Collection[tuple[str, int]] = (),
    ) -> list[Task]:
        self._check(who, Action.READ, "the list of tasks")
        role_id = self._store.role_ids((role,))[role]
        found: list[Task] = []
        size = min(count + len(passed_over), _PAGE)
        page = Filter(role=role_id, updated_before=before_ms + 1, order=Order.URGENT, limit=size)
        while len(found) < count:
            rows = self._store.read(partial(_listed, wanted=page))
            for hot, spec in rows:
                task = to_task(hot, decode_spec(spec.body), spec.submitted_at)
                page = replace(page, priority=task.spec.priority.rank, key=hot.key)
                if (task.id, task.version) not in passed_over:
                    found.append(task)
            if len(rows) < size:
                break
        return found[:count]

    def capacity(self, who: Principal, role: str) -> v.Capacity:
        self._check(who, Action.READ, "the limits of roles")
        role_id = self._store.role_ids((role,))[role]

        def look(reader: Reader) -> v.Capacity:
            row = next(row for row in reader.roles() if row.id == role_id)
            limits, today = limits_of(row), NO_USAGE
            if not row.is_limited:
                return v.Capacity(ANY, today)
            free, tokens = limits.room(*reader.occupancy(role_id)[:2])[0], ANY
            if row.rate:
                tokens = tokens_of(row, reader.now())
                free = tokens if free == ANY else min(free, tokens)
            if row.circuit:
                free = 0
            elif free and limits.daily != NO_USAGE:
                today = spent_today(reader, role, reader.now())
                if limits.used_up(today):
                    free = 0
            return v.Capacity(free, today, 0 if tokens else next_token_at(row, reader.now()))

        return self._store.read(look)

    def judge_messages(
        self, who: Principal, inbound_messages: Sequence[InboundMessage]
    ) -> list[IntakeResult]:
        from agentq.ledger.ingest import judge

        self._check(who, Action.OPERATE)
        return judge(self._ledger, inbound_messages)

    def store_message_files(self, who: Principal, inbound: InboundMessage, epoch: int) -> None:
        from agentq.ledger.ingest import store_files

        self._check(who, Action.OPERATE)
        store_files(self._artifacts, inbound, epoch)

    def discard_message_files(self, who: Principal, inbound: InboundMessage) -> None:
        from agentq.ledger.ingest import discard_unrecorded

        self._check(who, Action.OPERATE)
        discard_unrecorded(self._queries, self._artifacts, inbound)


def _in_words(limits: RoleLimits) -> str:
    daily = f", {amounts(limits.daily)} a day" if limits.daily != NO_USAGE else ""
    paused = ", paused" if limits.paused else ""
    rate = f", rate {limits.rate}" if limits.rate.starts else ""
    running = f"max_running {limits.max_running}, max_review {limits.max_review}"
    return f"{running}{daily}{rate}{paused}"


def _listed(reader: Reader, wanted: Filter) -> list[TaskRow]:
    return reader.list_tasks(wanted)
