"""`Queue`: the SDK. One API over a ledger, wherever it lives."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from agentq.client.claim import Claim, as_source, result_source
from agentq.client.heartbeats import Heartbeats
from agentq.client.reading import Reading
from agentq.client.specs import Draft, draft, task_id_run
from agentq.contracts.artifacts import Stored
from agentq.contracts.doorbell import role_topic
from agentq.contracts.store import Lease
from agentq.core.durations import parse_duration
from agentq.core.errors import AgentqError, Invalid, Refused, Stale
from agentq.core.limits import SUMMARY_CHARS_MAX, RoleLimits, shorten
from agentq.core.secrets import redact
from agentq.core.states import State
from agentq.core.task import NOTHING, Amounts, Spec, Task
from agentq.core.triggers import AddArtifact, FailureKind, Report, Resolution, Ruling, Trigger
from agentq.core.validate import check_role
from agentq.ledger.claims import Held
from agentq.settings import default_holder, load_settings
from agentq.wiring import Parts, open_parts

RESULTS_LANE = "results"
#: A claim made for one command, whose process does not stay to renew it.
COMMAND_LEASE_MS = 15 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Refusal:
    """One of a batch that was not accepted, and why."""

    claim: Claim
    error: AgentqError


class Queue(Reading):
    """A durable work queue.

    `Queue()` finds the nearest `agentq.toml` upward or `AGENTQ_URL`; `Queue("sqlite:///work.db")`
    and `Queue("postgresql://…")` name a ledger. Safe to use from several threads.

    >>> q = Queue("sqlite://:memory:")
    >>> task = q.submit(to="review-worker", instructions="Look for risks.")
    >>> with q.claim("review-worker") as claim:
    ...     _ = claim.complete(summary="none found")
    >>> q.wait(task.id).state.value, q.result(task.id).text()
    ('complete', 'none found')
    """

    def __init__(self, url: str | None = None, *, parts: Parts | None = None) -> None:
        self.parts = parts or open_parts(load_settings(url))
        super().__init__(self.parts.ledger, self.parts.bell, self.parts.artifacts)
        self.heartbeats = Heartbeats(self.ledger)
        self.holder = default_holder()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop renewing leases and let go of the database. Closing twice is fine."""
        self.heartbeats.close()
        self.parts.close()

    # -- asking for work -------------------------------------------------------------------------

    def submit(self, to: str | None = None, instructions: str | None = None, **fields: Any) -> Task:
        """Submit one task; returns once it is durable.

        Fields are those of a task file: `id, title, from_ (sender), type, priority, ttl, timeout,
        delay, max_attempts, after, on_dependency_failure, next, resource, idempotency_key,
        irreversible, requires_approval, review, expect, budget_usd, reply_to, labels, file,
        context`. The same id or idempotency key with the same body gives the task that is there.
        """
        return self.submit_drafts([draft(_fields(to, instructions, fields))])[0]

    def submit_many(self, tasks: Iterable[Mapping[str, Any] | Spec]) -> list[Task]:
        """Submit tasks in one transaction: all are accepted or none. They may depend on each other
        by id, in any order."""
        ids = task_id_run()
        drafts = [
            Draft(each, {}, False) if isinstance(each, Spec) else draft(_plain(each), None, ids)
            for each in tasks
        ]
        return self.submit_drafts(drafts)

    def submit_under(self, key: int, epoch: int, fields: Mapping[str, Any]) -> Task:
        """Submit as part of an attempt: refused if that attempt holds its task no longer."""
        return self.submit_drafts([draft(_plain(fields))], under=(key, epoch))[0]

    def submit_drafts(
        self, drafts: Sequence[Draft], under: tuple[int, int] | None = None
    ) -> list[Task]:
        """Submit what `client.specs.draft` has checked already."""
        staged: list[tuple[str, str]] = []
        try:
            specs = [self._stage(each.spec, each.contexts, staged) for each in drafts]
            generated = {each.spec.id for each in drafts if each.generated}
            submitted = self.ledger.submit(specs, generated, under)
        except BaseException:
            for task_id, sha256 in staged:
                self.artifacts.discard_context(task_id, sha256)
            raise
        if staged:
            self._settle_contexts(staged, {each.task.id for each in submitted}, specs)
        return [each.task for each in submitted]

    def _settle_contexts(
        self, staged: Sequence[tuple[str, str]], accepted: set[str], specs: Sequence[Spec]
    ) -> None:
        waiting = {child.id for spec in specs if spec.id in accepted for child in spec.next}
        for task_id, sha256 in staged:
            if task_id in accepted:
                self.artifacts.publish_context(task_id, sha256)
            elif task_id not in waiting:
                # The same words had made a task before, under another id: ours is not needed.
                self.artifacts.discard_context(task_id, sha256)

    def _stage(
        self, spec: Spec, contexts: Mapping[str, bytes], staged: list[tuple[str, str]]
    ) -> Spec:
        if not contexts:
            return spec
        if spec.next:
            children = tuple(self._stage(child, contexts, staged) for child in spec.next)
            spec = replace(spec, next=children)
        if spec.id not in contexts:
            return spec
        stored = self.artifacts.stage_context(spec.id, contexts[spec.id])
        staged.append((spec.id, stored.sha256))
        return replace(spec, context_sha256=stored.sha256)

    # -- custody ---------------------------------------------------------------------------------

    def claim(
        self,
        role: str,
        wait: float = 0,
        *,
        holder: str | None = None,
        lease: int | str | None = None,
    ) -> Claim | None:
        """Claim the most urgent ready task of a role; waits up to `wait` seconds for one."""
        claims = self.claim_many(role, 1, wait=wait, holder=holder, lease=lease)
        return claims[0] if claims else None

    def claim_many(
        self,
        role: str,
        n: int = 1,
        *,
        wait: float = 0,
        holder: str | None = None,
        lease: int | str | None = None,
    ) -> list[Claim]:
        """Claim up to `n` ready tasks in one transaction; waits for the first of them."""
        check_role(role)
        who = holder or self.holder
        lease_ms = parse_duration(lease) * 1000 if lease is not None else 0
        self.tick_now_and_then()
        held = self.ledger.claim(role, n, who, lease_ms)
        if not held and wait > 0:
            held = self._claim_patiently(role, n, who, lease_ms, wait)
        return [self._claim(each, lease_ms) for each in held]

    def _claim_patiently(
        self, role: str, n: int, who: str, lease_ms: int, wait: float
    ) -> list[Held]:
        deadline = time.monotonic() + wait
        waiter = self._bell.listen((role_topic(role),))
        try:
            while True:
                # Look after listening: a task that came in between has not rung for us.
                held = self.ledger.claim(role, n, who, lease_ms)
                left = deadline - time.monotonic()
                if held or left <= 0:
                    return held
                self.nap(waiter, left)
        finally:
            waiter.close()

    def claim_task(
        self, ref: str, *, holder: str | None = None, lease: int | str | None = None
    ) -> Claim:
        """Claim this very task; raises `Refused` with the reason if it cannot be claimed now."""
        lease_ms = parse_duration(lease) * 1000 if lease is not None else 0
        held = self.ledger.claim_task(self.key(ref), holder or self.holder, lease_ms)
        return self._claim(held, lease_ms)

    def _claim(self, held: Held, lease_ms: int) -> Claim:
        return Claim(self, held.key, held.task, lease_ms or held.task.spec.lease_seconds * 1000)

    def complete_many(self, done: Iterable[tuple[Claim, str]]) -> list[Refusal]:
        """Report many attempts complete in one transaction; returns which were refused, and why."""
        pairs = list(done)
        items: list[tuple[int, Trigger]] = []
        for claim, summary in pairs:
            items.append((claim.key, Report(claim.epoch, _summary(summary))))
        outcomes = self.ledger.tell_many(items)
        refusals = []
        for (claim, _), outcome in zip(pairs, outcomes, strict=True):
            if isinstance(outcome, AgentqError):
                refusals.append(Refusal(claim, outcome))
            else:
                self._after_completion(outcome)
        return refusals

    def heartbeat(
        self, ref: str, epoch: int | None = None, *, lease: int | str | None = None
    ) -> Task:
        """Renew the lease of an attempt; raises `Stale` if it is lost."""
        key, task, epoch = self._attempt(ref, epoch, "")
        lease_ms = parse_duration(lease) * 1000 if lease is not None else COMMAND_LEASE_MS
        if not self.ledger.heartbeat([Lease(key, epoch, lease_ms)]):
            raise Stale(
                f"Attempt {epoch} does not hold {task.id}: it is {task.state}, at attempt"
                f" {task.epoch}.",
                "Stop working on it.",
            )
        return self.task(task.id)

    def _attempt(self, ref: str, epoch: int | None, who: str) -> tuple[int, Task, int]:
        """The key, task and epoch that a caller without a `Claim` speaks for.

        The epoch may be left out only while there has been just one attempt: then it cannot be
        mistaken. A task that nobody has claimed yet is claimed for a caller that names its role.
        """
        key, task = self.ledger.views.find(ref)
        if epoch is not None:
            return key, task, epoch
        if task.epoch == 0 and who and task.state is State.READY:
            if who != task.to:
                raise Refused(
                    f"{task.id} is for {task.to} and not claimed; {who} cannot report it.",
                    f"Claim it first: `agentq claim {task.id} --as {task.to}`.",
                    code="not_claimed",
                )
            held = self.ledger.claim_task(key, who, COMMAND_LEASE_MS)
            return key, held.task, held.task.epoch
        if task.epoch <= 1:
            return key, task, task.epoch
        raise Stale(
            f"{task.id} has had {task.epoch} attempts, so it matters which one speaks."
            " Nothing was recorded.",
            "Say which with --epoch (a claim prints it, workers set AGENTQ_EPOCH).",
            code="epoch_needed",
        )

    # -- how attempts end ------------------------------------------------------------------------

    def complete(
        self,
        ref: str,
        summary: str = "",
        result: str | bytes | os.PathLike[str] | None = None,
        *,
        epoch: int | None = None,
        sender: str = "",
        cost: Amounts = NOTHING,
    ) -> Task:
        """Report an attempt complete by the task's id. See `_attempt` for when to say the epoch."""
        key, task, epoch = self._attempt(ref, epoch, sender)
        return self.report(key, task, epoch, summary, result, cost)

    def report(
        self,
        key: int,
        task: Task,
        epoch: int,
        summary: str,
        result: str | bytes | os.PathLike[str] | None,
        cost: Amounts = NOTHING,
    ) -> Task:
        name, sha256 = "", ""
        if result is not None:
            stored = self.put_artifact(key, task.id, epoch, "result.md", result_source(result))
            name, sha256 = stored.name, stored.sha256
        report = Report(epoch, _summary(summary), name, sha256, cost=cost)
        done = self.ledger.report(key, report)
        self._after_completion(done)
        return done

    def _after_completion(self, task: Task) -> None:
        """What a completion makes visible outside the ledger; mended later if we die here."""
        if task.state is not State.COMPLETE:
            return
        for child in task.spec.next:
            if child.context_sha256:
                self.artifacts.publish_context(child.id, child.context_sha256)
        report = task.memo.report
        if report is not None and report.result:
            self.relay_results()

    def relay_results(self, count: int = 100) -> int:
        """Publish accepted results that are not published yet; how many."""
        effects = self.ledger.take_effects(RESULTS_LANE, count)
        done = []
        for effect in effects:
            report = self.task(effect.task_id).memo.report
            if report is not None and report.result:
                self.artifacts.publish_result(
                    effect.task_id, report.epoch, report.result, report.result_sha256
                )
            done.append(effect.sequence)
        if done:
            self.ledger.ack_effects(done)
        return len(done)

    def fail(
        self,
        ref: str,
        reason: str,
        *,
        kind: FailureKind | str = FailureKind.TRANSIENT,
        epoch: int | None = None,
        sender: str = "",
    ) -> Task:
        key, _, epoch = self._attempt(ref, epoch, sender)
        return self.ledger.fail(key, epoch, _summary(reason), FailureKind(kind))

    def progress(self, ref: str, percent: int, note: str = "", *, epoch: int | None = None) -> Task:
        key, _, epoch = self._attempt(ref, epoch, "")
        return self.ledger.progress(key, epoch, percent, redact(note))

    def block(self, ref: str, reason: str, *, epoch: int | None = None) -> Task:
        key, _, epoch = self._attempt(ref, epoch, "")
        return self.ledger.block(key, epoch, _summary(reason))

    def release(self, ref: str, reason: str = "", *, epoch: int | None = None) -> Task:
        key, _, epoch = self._attempt(ref, epoch, "")
        return self.ledger.release(key, epoch, _summary(reason))

    def put(
        self,
        ref: str,
        name: str,
        content: str | bytes | os.PathLike[str],
        *,
        epoch: int | None = None,
    ) -> Stored:
        key, task, epoch = self._attempt(ref, epoch, "")
        return self.put_artifact(key, task.id, epoch, name, content)

    def put_artifact(
        self,
        key: int,
        task_id: str,
        epoch: int,
        name: str,
        content: str | bytes | os.PathLike[str],
    ) -> Stored:
        """Store a file, then make it visible in the ledger; a fenced-out attempt leaves nothing."""
        held = self.ledger.views.get_many([key]).get(key)
        if held is None or held.epoch != epoch or held.state is not State.IN_PROGRESS:
            raise Stale(
                f"Attempt {epoch} does not hold {task_id}; {name} was not stored.",
                "Stop working on it.",
            )
        stored = self.artifacts.put(task_id, epoch, name, as_source(content))
        artifact = AddArtifact(epoch, stored.name, stored.size, stored.sha256, stored.media_type)
        try:
            self.ledger.record_artifact(key, artifact)
        except Stale:
            recorded = {(row.epoch, row.name) for row in self.ledger.views.artifacts(key)}
            if (epoch, stored.name) not in recorded:
                self.artifacts.discard(task_id, epoch, stored.name)
            raise
        return stored

    # -- people ----------------------------------------------------------------------------------

    def approve(self, ref: str, by: str, digest: str = "") -> Task:
        """Let a task start; or, if it waits for review, accept its report."""
        key, task = self.ledger.views.find(ref)
        if task.state is State.REVIEW:
            return self._verdict(key, by, Ruling.ACCEPT, "")
        return self.ledger.approve(key, by, digest)

    def reject(self, ref: str, by: str, reason: str = "", *, changes: bool = False) -> Task:
        """Refuse to let a task start; or, of a report, ask for changes or reject it for good."""
        key, task = self.ledger.views.find(ref)
        if task.state is State.REVIEW:
            return self._verdict(key, by, Ruling.CHANGES if changes else Ruling.REJECT, reason)
        if changes:
            raise Refused(
                f"{task.id} is {task.state}: there is no report to ask changes of. Nothing was"
                " changed.",
                "Changes can be asked for while a task is in review.",
            )
        return self.ledger.reject(key, by, reason)

    def verdict(self, ref: str, by: str, ruling: Ruling | str, feedback: str = "") -> Task:
        return self._verdict(self.key(ref), by, Ruling(ruling), feedback)

    def _verdict(self, key: int, by: str, ruling: Ruling, feedback: str) -> Task:
        task = self.ledger.verdict(key, by, ruling, feedback)
        self._after_completion(task)
        return task

    def answer(
        self,
        ref: str,
        by: str,
        text: str = "",
        *,
        resolution: Resolution | str = Resolution.RETRY,
        extra_usd: float = 0.0,
    ) -> Task:
        """Answer a blocked task: try again (default), `done`, or `give_up`."""
        extra = Amounts(usd=extra_usd)
        task = self.ledger.answer(self.key(ref), by, text, Resolution(resolution), extra)
        self._after_completion(task)
        return task

    def cancel(self, ref: str, by: str, reason: str = "") -> Task:
        return self.ledger.cancel(self.key(ref), by, reason)

    def requeue(self, ref: str, by: str, reason: str = "") -> Task:
        return self.ledger.requeue(self.key(ref), by, reason)

    def comment(self, ref: str, by: str, text: str, *, epoch: int = 0) -> Task:
        return self.ledger.comment(self.key(ref), by, redact(text), epoch)

    # -- care ------------------------------------------------------------------------------------

    def set_limits(self, role: str, limits: RoleLimits) -> None:
        self.ledger.set_limits(check_role(role), limits)

    def prune(self, older_than: int | str) -> int:
        """Delete tasks that ended longer ago than this, with their evidence; how many."""
        seconds = parse_duration(older_than, allow_zero=True)
        before = self.ledger.store.now() - seconds * 1000
        return self.ledger.prune(before + 1, self.artifacts.remove)

    def tick(self) -> int:
        changed = super().tick()
        self.relay_results()
        return changed


def _summary(text: str) -> str:
    return shorten(redact(text), SUMMARY_CHARS_MAX)


def _plain(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(fields, Mapping):
        raise Invalid(f"A task is a mapping of fields, got {type(fields).__name__}.")
    return fields


def _fields(to: str | None, instructions: str | None, fields: dict[str, Any]) -> dict[str, Any]:
    if "from_" in fields:
        fields["from"] = fields.pop("from_")
    if to is not None:
        fields["to"] = to
    if instructions is not None:
        fields["instructions"] = instructions
    return fields
