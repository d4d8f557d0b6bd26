"""The verbs of the service interface that hand work out and take its results in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts import service_values as v
from agentq.contracts.artifacts import LINK_SECONDS, Stored, Uploaded, UploadLink
from agentq.contracts.store import Lease
from agentq.core import triggers as t
from agentq.core.access import Action, Principal, PrincipalKind, allowed
from agentq.core.custody import must_be_verified
from agentq.core.errors import (
    AgentqError,
    Conflict,
    Invalid,
    NotFound,
    Refused,
    Stale,
)
from agentq.core.graph import all_next
from agentq.core.limits import SUMMARY_CHARS_MAX, shorten
from agentq.core.reserved_names import is_reserved, reserved
from agentq.core.states import State
from agentq.core.steps import stale
from agentq.core.task import NO_GATES, NO_USAGE, Gates, Spec, Task, Usage
from agentq.core.values import replace
from agentq.ledger.request_keys import (
    repeatable,
    the_outcomes,
    the_outcomes_and_tasks_taken,
    the_task,
    the_task_if_any,
    the_task_taken,
    the_tasks_taken,
)
from agentq.ledger.service_submissions import SubmissionService
from agentq.ledger.submission_rules import check_reviews, child, signed
from agentq.protocol.secret_detection import redact
from agentq.protocol.structured_data import structured_data

if TYPE_CHECKING:
    from agentq.contracts.artifacts import Source
    from agentq.ledger.claims import Held
    from agentq.ledger.unit_of_work import Fence

RESULT_NAME = "result.md"


def brief(text: str) -> str:
    """A text as it goes into the log: without secrets, and not endless."""
    return shorten(redact(text), SUMMARY_CHARS_MAX)


#: More large files than this at once go through the server.
_LINKS_MAX = 100


class CustodyService(SubmissionService):
    """Submits tasks, hands them out to workers and takes their reports in."""

    def submit(
        self,
        who: Principal,
        specs: Sequence[Spec],
        contexts: Mapping[str, bytes] | None = None,
        generated: Collection[str] = (),
        under: tuple[str, int] | None = None,
        *,
        leave: str = "",
        begin: v.NextAttempt | None = None,
        connection: object = None,
    ) -> list[Task]:
        if begin is not None:
            self._check(who, Action.CLAIM, role=begin.role)
            under = (begin.task_id, begin.epoch)
        elif who.kind is PrincipalKind.ATTEMPT and under is None:
            under = (who.task_id, who.epoch)
        fence = None
        if under is None:
            self._check_submission(who, specs)
        else:
            self._check_attempt(who, Action.SUBMIT, *under)
            with self._noting(who, Action.SUBMIT, under[0]):
                specs = [child(spec, under[0]) for spec in specs]
                self._check_children(who, specs, under[0])
            fence = (self._key(under[0]), under[1])
            if begin is not None:
                self._remember(begin.task_id, fence[0])
        # One that begins here is over here, too: nobody would renew its lease.
        then = _leaving(under, leave, connection) if leave or begin else None
        check_reviews(specs)
        specs = [signed(spec, who) for spec in specs]
        if not contexts:
            return self._submit(specs, generated, fence, connection, then, begin)
        staged: list[tuple[str, str]] = []
        try:
            specs = [self._stage(spec, contexts, staged) for spec in specs]
            tasks = self._submit(specs, generated, fence, connection, then, begin)
        except (Invalid, Conflict, Refused, NotFound):
            # Refused for certain. Of anything else (a lost answer, an interrupt) nobody knows
            # whether it was committed: then the context stays, and `prune` sweeps what is orphaned.
            for task_id, sha256 in staged:
                self._artifacts.discard_context(task_id, sha256)
            raise
        # What waits for its transaction is published by whoever decides it.
        later = {task.id for task in tasks if not task.version} if connection else set()
        left = [each for each in staged if each[0] not in later]
        self._settle_contexts(left, {task.id for task in tasks}, specs)
        return tasks

    def _submit(
        self,
        specs: Sequence[Spec],
        generated: Collection[str],
        fence: Fence,
        connection: object,
        then: t.Yield | None,
        begin: v.NextAttempt | None,
    ) -> list[Task]:
        if connection is not None:
            return [each.task for each in self._ledger.defer(specs, fence, connection)]
        submit = partial(self._ledger.submit, specs, generated, fence, then, begin=begin)
        try:
            return [each.task for each in submit()]
        except Invalid as error:
            # What it comes after may have committed, and nobody has decided it yet.
            if error.code != "unknown_dependency" or not self._decide_deferred():
                raise
            return [each.task for each in submit()]

    def _stage(
        self, spec: Spec, contexts: Mapping[str, bytes], staged: list[tuple[str, str]]
    ) -> Spec:
        if spec.next:
            children = tuple(self._stage(child, contexts, staged) for child in spec.next)
            spec = replace(spec, next=children)
        if spec.id not in contexts:
            return spec
        stored = self._artifacts.stage_context(spec.id, contexts[spec.id])
        staged.append((spec.id, stored.sha256))
        return replace(spec, context_sha256=stored.sha256)

    def _settle_contexts(
        self, staged: Sequence[tuple[str, str]], accepted: set[str], specs: Sequence[Spec]
    ) -> None:
        waiting = {child.id for spec in specs if spec.id in accepted for child in all_next(spec)}
        for task_id, sha256 in staged:
            if task_id in accepted:
                self._publish_context(task_id, sha256)
            elif task_id not in waiting:
                # The same words had made a task before, under another id: ours is not needed.
                self._artifacts.discard_context(task_id, sha256)

    # -- claims ----------------------------------------------------------------------------------

    @repeatable(the_tasks_taken)
    def claim(
        self,
        who: Principal,
        role: str,
        count: int,
        holder: str,
        lease_ms: int = 0,
        provider: str = "",
        *,
        ids: Sequence[str] | None = None,
        gated: bool = False,
        gates: Gates = NO_GATES,
    ) -> list[Task]:
        self._check(who, Action.CLAIM, role=role)
        ledger = self._ledger_for(who)
        if ids is not None:
            _, held = ledger.complete_and_claim(
                [], role, count, holder, lease_ms, provider, ids=ids[:count], gated=gated,
                gates=gates,
            )  # fmt: skip
            return self._taken(held)
        claim = partial(
            ledger.claim, role, count, holder, lease_ms, provider, gated=gated, gates=gates
        )
        return self._taken(claim() or (claim() if self._decide_deferred() else []))

    @repeatable(the_task_taken)
    def claim_task(
        self, who: Principal, ref: str, holder: str, lease_ms: int = 0, provider: str = ""
    ) -> Task:
        key, task = self._find(who, Action.CLAIM, ref)
        ledger = self._ledger_for(who)
        return self._taken([ledger.claim_task(key, holder, lease_ms, provider, role=task.to)])[0]

    @repeatable(the_outcomes_and_tasks_taken)
    def complete_and_claim(
        self,
        who: Principal,
        done: Sequence[v.Completion],
        role: str,
        count: int,
        holder: str,
        lease_ms: int = 0,
        provider: str = "",
        *,
        ids: Sequence[str] | None = None,
    ) -> tuple[list[Task | AgentqError], list[Task]]:
        self._check(who, Action.CLAIM, role=role)
        reports = self._reports(who, done)
        ids = None if ids is None else ids[:count]
        ledger = self._ledger_for(who)
        outcomes, held = ledger.complete_and_claim(
            reports, role, count, holder, lease_ms, provider, ids=ids
        )
        if not held and ids is None and self._decide_deferred():
            held = ledger.claim(role, count, holder, lease_ms, provider)
        self._after_many(outcomes)
        return outcomes, self._taken(held)

    def _taken(self, held: Sequence[Held]) -> list[Task]:
        for each in held:
            self._remember(each.task.id, each.key)
        return [each.task for each in held]

    # -- reports of the holder ---------------------------------------------------------------------

    def renew(self, who: Principal, leases: Sequence[v.AttemptLease]) -> set[str]:
        asked_for = [(each.task_id, each.epoch) for each in leases]
        self._check_attempts(who, Action.RENEW, asked_for)
        keys = self._claimed_keys
        unknown = [each.task_id for each in leases if each.task_id not in keys]
        if unknown:
            # Of those that are gone no lease can be renewed.
            keys = keys | self._store.read(lambda reader: reader.keys(unknown))
        asked = {keys[each.task_id]: each for each in leases if each.task_id in keys}
        rows = [Lease(key, each.epoch, each.lease_ms) for key, each in asked.items()]
        return {asked[key].task_id for key in self._ledger.heartbeat(rows)} if rows else set()

    @repeatable(the_task)
    def progress(
        self, who: Principal, task_id: str, epoch: int, percent: int, note: str = ""
    ) -> Task:
        self._check_attempt(who, Action.PROGRESS, task_id, epoch)
        return self._apply(who, task_id, t.Progress(epoch, percent, redact(note)))

    @repeatable(the_task)
    def spend(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        cost: Usage,
        *,
        unless_used_up: bool = False,
    ) -> Task:
        self._check_attempt(who, Action.SPEND, task_id, epoch)
        return self._apply(who, task_id, t.Spend(epoch, cost, unless_used_up=unless_used_up))

    @repeatable(the_task)
    def take_messages(self, who: Principal, task_id: str, epoch: int) -> Task:
        self._check_attempt(who, Action.RECEIVE, task_id, epoch)
        return self._apply(who, task_id, t.TakeMessages(epoch))

    @repeatable(the_task)
    def fail(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        reason: str,
        kind: t.FailureKind = t.FailureKind.TRANSIENT,
        cost: Usage = NO_USAGE,
    ) -> Task:
        self._check_attempt(who, Action.FAIL, task_id, epoch)
        return self._ledger_for(who).fail(
            self._key(task_id), epoch, brief(reason), t.FailureKind(kind), cost
        )

    @repeatable(the_task)
    def block(self, who: Principal, task_id: str, epoch: int, reason: str) -> Task:
        self._check_attempt(who, Action.BLOCK, task_id, epoch)
        return self._apply(who, task_id, t.BlockTask(epoch, brief(reason)))

    @repeatable(the_task)
    def release(
        self, who: Principal, task_id: str, epoch: int, reason: str = "", not_before: int = 0
    ) -> Task:
        self._check_attempt(who, Action.RELEASE, task_id, epoch)
        return self._apply(who, task_id, t.Release(epoch, brief(reason), not_before))

    @repeatable(the_task_if_any)
    def stopped(self, who: Principal, task_id: str, epoch: int) -> Task | None:
        self._check_attempt(who, Action.STOP, task_id, epoch)
        key = self._key(task_id)
        task = self._queries.get(key)
        if task is None or task.state is not State.CANCELLED or task.epoch != epoch:
            return None
        return self._ledger_for(who).apply(key, t.Stopped(epoch))

    def _apply(self, who: Principal, task_id: str, trigger: t.Trigger) -> Task:
        return self._ledger_for(who).apply(self._key(task_id), trigger)

    def live_append(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        data: bytes,
        keep_bytes: int,
        position: int = -1,
    ) -> int:
        self._check_attempt(who, Action.PUT_ARTIFACT, task_id, epoch)
        return self._artifacts.live_append(
            task_id, epoch, data, keep_bytes=keep_bytes, position=position
        )

    def live_end(self, who: Principal, task_id: str, epoch: int) -> None:
        self._check_attempt(who, Action.PUT_ARTIFACT, task_id, epoch)
        self._artifacts.live_end(task_id, epoch)

    def upload_links(
        self, who: Principal, task_id: str, epoch: int, count: int = 1
    ) -> list[UploadLink]:
        self._check_attempt(who, Action.PUT_ARTIFACT, task_id, epoch)
        # An agent gives files to its worker, and never has a link that it could hand on.
        if not self._resources.artifact_links or who.kind is PrincipalKind.ATTEMPT:
            return []
        wanted = range(min(count, _LINKS_MAX))
        return [self._artifacts.upload_link(task_id, epoch, LINK_SECONDS) for _ in wanted]

    def put_artifacts(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        files: Sequence[tuple[str, Source | Uploaded]],
    ) -> list[Stored]:
        self._check_attempt(who, Action.PUT_ARTIFACT, task_id, epoch)
        by_link = any(isinstance(source, Uploaded) for _, source in files)
        if by_link and who.kind is PrincipalKind.ATTEMPT:
            raise self._refused(who, Action.RECORD, task_id)
        if not allowed(who, Action.RECORD):
            with self._noting(who, Action.RECORD, task_id):
                for name, _ in files:
                    if is_reserved(name):
                        raise reserved(name)
        key = self._key(task_id)
        task = self._queries.get(key)
        if task is not None and task.state is State.CANCELLED and not allowed(who, Action.RECORD):
            raise stale(task, epoch)  # the last words are the worker's, not the agent's
        return self._put(key, task, task_id, epoch, files)

    def _put(
        self,
        key: int,
        task: Task | None,
        task_id: str,
        epoch: int,
        files: Sequence[tuple[str, Source | Uploaded]],
    ) -> list[Stored]:
        """Store files of an attempt that holds its task, as that was read just now, or has just
        reported: then what its worker keeps of it, and the ledger decides."""
        late = task is not None and task.state in (State.REVIEW, State.COMPLETE)
        late = late and all(is_reserved(name) for name, _ in files)
        if task is None or task.epoch != epoch or not (task.holder or late):
            names = ", ".join(name for name, _ in files)
            raise Stale(
                f"Attempt {epoch} does not hold {task_id}; {names} was not stored.",
                "Stop working on it.",
            )
        artifacts = self._artifacts
        stored = [
            artifacts.take_in(task_id, epoch, name, source)
            if isinstance(source, Uploaded)
            else artifacts.put(task_id, epoch, name, source)
            for name, source in files
        ]
        added = [t.AddArtifact(epoch, s.name, s.size, s.sha256, s.media_type) for s in stored]
        try:
            self._ledger.record_artifacts(key, added)
        except Stale:
            recorded = {(row.epoch, row.name) for row in self._queries.artifacts(key)}
            for each in stored:
                if (epoch, each.name) not in recorded:
                    artifacts.discard(task_id, epoch, each.name)
            raise
        return stored

    # -- completion --------------------------------------------------------------------------------

    @repeatable(the_task)
    def complete(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        summary: str = "",
        result: Source | Stored | None = None,
        cost: Usage = NO_USAGE,
        *,
        verified: bool = False,
        data: str = "",
        leave_children: bool = False,
    ) -> Task:
        self._check_attempt(who, Action.COMPLETE, task_id, epoch)
        data = structured_data(data)
        if verified:
            self._check_attempt(who, Action.ATTEST, task_id, epoch)
        key = self._key(task_id)
        name, sha256 = "", ""
        if isinstance(result, Stored):
            name, sha256 = result.name, result.sha256
            self._check_recorded(key, task_id, epoch, result)
        elif result is not None:
            name, sha256 = self._put_result(key, task_id, epoch, result, verified=verified)
        report = t.Report(
            epoch, brief(summary), name, sha256, cost=cost, verified=verified, data=data,
            leaves_children=leave_children,
        )  # fmt: skip
        task = self._ledger_for(who).apply(key, report)
        self._after_completion(task)
        return task

    def _check_recorded(self, key: int, task_id: str, epoch: int, result: Stored) -> None:
        """A result that is said to be stored already is one of the files of its own attempt: what
        nobody could publish would be accepted."""
        rows = self._queries.artifacts(key)
        known = {(row.epoch, row.name, row.sha256) for row in rows}
        if (epoch, result.name, result.sha256) not in known:
            raise Invalid(
                f"Attempt {epoch} of {task_id} has stored no {result.name[:200]!r} of that digest."
                " The report was not accepted.",
                "Store the file first, or send it with the report.",
            )

    def _put_result(
        self, key: int, task_id: str, epoch: int, result: Source, *, verified: bool
    ) -> tuple[str, str]:
        task = self._queries.get(key)
        if task is not None and not verified and must_be_verified(task):
            return "", ""  # the ledger refuses the report: nothing is kept of it
        try:
            stored = self._put(key, task, task_id, epoch, [(RESULT_NAME, result)])[0]
        except Stale:
            # Too late for the file. The ledger judges the report all the same: it is a retry of
            # one that was accepted, or it comes too late and is kept as evidence.
            return RESULT_NAME, _sha256(result)
        return RESULT_NAME, stored.sha256

    @repeatable(the_outcomes)
    def complete_many(
        self, who: Principal, done: Sequence[v.Completion]
    ) -> list[Task | AgentqError]:
        outcomes = self._ledger_for(who).apply_many(self._reports(who, done))
        self._after_many(outcomes)
        return outcomes

    def _reports(self, who: Principal, done: Sequence[v.Completion]) -> list[tuple[int, t.Trigger]]:
        reported = [(each.task_id, each.epoch) for each in done]
        self._check_attempts(who, Action.COMPLETE, reported)
        keys = self._keys([each.task_id for each in done])
        return [
            (
                keys[each.task_id],
                t.Report(each.epoch, brief(each.summary), data=structured_data(each.data)),
            )
            for each in done
        ]


def _sha256(source: Source) -> str:
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    if isinstance(source, os.PathLike):
        with Path(source).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    source.seek(0)
    return hashlib.sha256(source.read()).hexdigest()


def _leaving(under: tuple[str, int] | None, leave: str, connection: object) -> t.Yield:
    """The yield of the attempt that submits, which comes after its children."""
    if under is None or connection is not None:
        raise Invalid(
            "Only an attempt that submits children in a transaction of the ledger's can leave with"
            " it. Nothing was submitted.",
            "Submit first, then yield.",
        )
    return t.Yield(under[1], leave)
