"""`Queue`: the SDK. One API over a ledger, wherever it lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from agentq.client.claim import Claim
from agentq.client.heartbeats import Heartbeats
from agentq.client.reading import POLL_SECONDS
from agentq.client.speaking import Speaking, brief
from agentq.client.specs import Draft, check_reply_to, draft, draft_many, with_reply_to
from agentq.contracts.delivery import Hint, Inbox
from agentq.contracts.doorbell import role_topic
from agentq.core.durations import parse_duration
from agentq.core.errors import (
    AgentqError,
    Conflict,
    Invalid,
    NotFound,
    Refused,
)
from agentq.core.limits import RoleLimits
from agentq.core.task import Spec, Task
from agentq.core.triggers import Report, Trigger
from agentq.core.validate import check_role
from agentq.ledger.claims import Held
from agentq.ledger.pruning import Named, touch
from agentq.settings import default_holder, load_settings
from agentq.wiring import Parts, open_parts

if TYPE_CHECKING:
    from agentq.client.results import Outcome

#: A staged context older than this whose task never came is an orphan.
_ORPHAN_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Refusal:
    """One of a batch that was not accepted, and why."""

    claim: Claim
    error: AgentqError


class Queue(Speaking):
    """A durable work queue.

    `Queue()` finds the nearest `agentq.toml` upward or `AGENTQ_URL`; `Queue("sqlite:///work.db")`
    and `Queue("postgresql://…")` name a ledger that is there. `Queue.create(…)` makes one first if
    it is not. Safe to use from several threads.

    >>> q = Queue.create("sqlite://:memory:")
    >>> task = q.submit(to="review-worker", instructions="Look for risks.")
    >>> with q.claim("review-worker") as claim:
    ...     _ = claim.complete(summary="none found")
    >>> q.wait(task.id).state.value, q.result(task.id).text()
    ('complete', 'none found')
    """

    def __init__(self, url: str | None = None, *, parts: Parts | None = None) -> None:
        super().__init__(parts or open_parts(load_settings(url)))
        self.heartbeats = Heartbeats(self.ledger)
        self.holder = default_holder()

    @classmethod
    def create(cls, url: str | None = None) -> Self:
        """Open a ledger, and make it first if it is not there; doing it again is safe.

        `sqlite://:memory:` gives one that ends with the program, for tests and examples.
        """
        return cls(parts=open_parts(load_settings(url), create=True))

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
        super().close()

    # -- asking for work -------------------------------------------------------------------------

    def submit(self, to: str | None = None, instructions: str | None = None, **fields: Any) -> Task:
        """Submit one task; returns once it is durable.

        Fields are those of a task file: `id, title, from_ (sender), type, priority, ttl, timeout,
        delay, max_attempts, after, on_dependency_failure, next, resource, idempotency_key,
        irreversible, requires_approval, review, expect, budget_usd, tree_budget_usd, reply_to,
        labels, file, context`. The same id or idempotency key with the same body gives the task
        that is there.
        """
        return self.submit_drafts([draft(_fields(to, instructions, fields))])[0]

    def submit_many(self, tasks: Iterable[Mapping[str, Any] | Spec]) -> list[Task]:
        """Submit tasks in one transaction: all are accepted or none. They may depend on each other
        by id, in any order."""
        return self.submit_drafts(draft_many(tasks))

    def submit_under(self, key: int, epoch: int, fields: Mapping[str, Any]) -> Task:
        """Submit as part of an attempt: refused if that attempt holds its task no longer."""
        return self.submit_drafts([draft(_plain(fields))], under=(key, epoch))[0]

    def submit_drafts(
        self, drafts: Sequence[Draft], under: tuple[int, int] | None = None
    ) -> list[Task]:
        """Submit what `client.specs.draft` has checked already."""
        if self.has_broker:
            for each in drafts:
                check_reply_to(each.spec)
            if under is None:
                # What an attempt submits is its own affair: its task has the outcome that is sent.
                drafts = [each._replace(spec=with_reply_to(each.spec)) for each in drafts]
        staged: list[tuple[str, str]] = []
        try:
            specs = [self._stage(each.spec, each.contexts, staged) for each in drafts]
            generated = {each.spec.id for each in drafts if each.generated}
            submitted = self.ledger.submit(specs, generated, under)
        except (Invalid, Conflict, Refused, NotFound):
            # Refused for certain. Of anything else (a lost answer, an interrupt) nobody knows
            # whether it was committed: then the context stays, and `prune` sweeps what is orphaned.
            for task_id, sha256 in staged:
                self.artifacts.discard_context(task_id, sha256)
            raise
        if staged:
            self._settle_contexts(staged, {each.task.id for each in submitted}, specs)
        return [each.task for each in submitted]

    def _settle_contexts(
        self, staged: Sequence[tuple[str, str]], accepted: set[str], specs: Sequence[Spec]
    ) -> None:
        waiting = {child.id for spec in specs if spec.id in accepted for child in _all_next(spec)}
        for task_id, sha256 in staged:
            if task_id in accepted:
                self.publish_context(task_id, sha256)
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
        provider: str = "",
        gated: bool = False,
    ) -> Claim | None:
        """Claim the most urgent ready task of a role; waits up to `wait` seconds for one.

        `provider` is whose quota doing it will use: none is given while its circuit is open. One
        that is `gated` completes only with `complete(verified=True)`: whoever claims it so checks
        the work of somebody else, who cannot report past that check.
        """
        claims = self.claim_many(
            role, 1, wait=wait, holder=holder, lease=lease, provider=provider, gated=gated
        )
        return claims[0] if claims else None

    def claim_many(
        self,
        role: str,
        n: int = 1,
        *,
        wait: float = 0,
        holder: str | None = None,
        lease: int | str | None = None,
        provider: str = "",
        gated: bool = False,
    ) -> list[Claim]:
        """Claim up to `n` ready tasks in one transaction; waits for the first of them."""
        check_role(role)
        who = holder or self.holder
        lease_ms = parse_duration(lease) * 1000 if lease is not None else 0
        self.tick_now_and_then()

        def attempt() -> list[Held]:
            return self.ledger.claim(role, n, who, lease_ms, provider, gated=gated)

        held = attempt()
        if not held and wait > 0:
            held = self._claim_patiently(attempt, role, provider, wait)
        return [self._claim(each, lease_ms) for each in held]

    def _claim_patiently(
        self, attempt: Callable[[], list[Held]], role: str, provider: str, wait: float
    ) -> list[Held]:
        deadline = time.monotonic() + wait
        waiter = self.parts.bell.listen((role_topic(role),))
        try:
            while True:
                # Look after listening: a task that came in between has not rung for us.
                held = attempt()
                left = deadline - time.monotonic()
                if held or left <= 0:
                    return held
                self.nap(waiter, min(left, self._until_closed(provider)))
        finally:
            waiter.close()

    def _until_closed(self, provider: str) -> float:
        """Seconds until the provider's circuit closes by itself: nobody rings for that."""
        for row in self.circuits() if provider else ():
            if row.provider == provider:
                return max((row.open_until - self.store.now()) / 1000, 0.001)
        return POLL_SECONDS

    def claim_hinted(
        self,
        role: str,
        hints: Sequence[Hint],
        *,
        lease: int | str | None = None,
        provider: str = "",
        gated: bool = False,
    ) -> list[Claim]:
        """Claim those of the named tasks that can be claimed now, in one transaction."""
        lease_ms = parse_duration(lease) * 1000 if lease is not None else 0
        ids = [hint.task_id for hint in hints]
        _, held = self.ledger.claim_named(ids, role, self.holder, lease_ms, provider, gated=gated)
        return [self._claim(each, lease_ms) for each in held]

    def inbox(self, role: str) -> Inbox:
        """Where hints for this process as a worker of a role come in; close it in the end."""
        return self.parts.inbox(check_role(role), self.holder)

    def results(
        self,
        coordinator: str = "coordinator",
        *,
        wait: float | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> Iterator[Outcome]:
        """Outcomes of the tasks whose `reply_to` is `results.<coordinator>`, as they come. With a
        broker each is taken from its queue when the next is asked for; else the log is read."""
        from agentq.client.results import results

        return results(self, coordinator, wait=wait, after=after, limit=limit)

    def claim_task(
        self,
        ref: str,
        *,
        holder: str | None = None,
        lease: int | str | None = None,
        provider: str = "",
    ) -> Claim:
        """Claim this very task; raises `Refused` with the reason if it cannot be claimed now."""
        lease_ms = parse_duration(lease) * 1000 if lease is not None else 0
        held = self.ledger.claim_task(self.key(ref), holder or self.holder, lease_ms, provider)
        return self._claim(held, lease_ms)

    def _claim(self, held: Held, lease_ms: int) -> Claim:
        return Claim(self, held.key, held.task, lease_ms or held.task.spec.lease_seconds * 1000)

    def complete_many(self, done: Iterable[tuple[Claim, str]]) -> list[Refusal]:
        """Report many attempts complete in one transaction; returns which were refused, and why."""
        pairs = list(done)
        return self._completed(pairs, self.ledger.tell_many(_reports(pairs)))

    def complete_and_claim(
        self,
        done: Iterable[tuple[Claim, str]],
        role: str,
        n: int = 1,
        *,
        holder: str | None = None,
        lease: int | str | None = None,
        provider: str = "",
        hints: Sequence[Hint] | None = None,
    ) -> tuple[list[Refusal], list[Claim]]:
        """Report these complete and claim the next, in one transaction: half the commits of a
        worker that never runs out of work. Returns what was refused, and the new claims.

        With `hints` the next are those of the named tasks that can be claimed.
        """
        pairs = list(done)
        lease_ms = parse_duration(lease) * 1000 if lease is not None else 0
        self.tick_now_and_then()
        who, reports = holder or self.holder, _reports(pairs)
        if hints is None:
            outcomes, held = self.ledger.turn_over(reports, role, n, who, lease_ms, provider)
        else:
            ids = [hint.task_id for hint in hints[:n]]
            outcomes, held = self.ledger.claim_named(
                ids, role, who, lease_ms, provider, items=reports
            )
        return self._completed(pairs, outcomes), [self._claim(each, lease_ms) for each in held]

    def _completed(
        self, pairs: Sequence[tuple[Claim, str]], outcomes: Sequence[Task | AgentqError]
    ) -> list[Refusal]:
        refusals = []
        for (claim, _), outcome in zip(pairs, outcomes, strict=True):
            if isinstance(outcome, AgentqError):
                refusals.append(Refusal(claim, outcome))
            else:
                self.after_completion(outcome)
        return refusals

    # -- care ------------------------------------------------------------------------------------

    def prepare_broker(self, roles: Sequence[str]) -> list[str]:
        """Declare what the broker must have for these roles, and let messages leave from now on;
        what was declared."""
        declared = self.parts.declare(roles)
        lanes = {"delivery", "reply"}
        if not lanes <= self.store.read(lambda reader: reader.lanes()):
            self.ledger.open_lanes(*lanes)
            declared.append("tasks that become ready are announced from now on")
        return declared

    def set_limits(self, role: str, limits: RoleLimits) -> None:
        self.ledger.set_limits(check_role(role), limits)

    def prune(self, older_than: int | str) -> int:
        """Delete tasks that ended longer ago than this, with their evidence; how many.

        What a task that is not over refers to stays. `Unavailable` if files could not be removed:
        the next call does.
        """
        seconds = parse_duration(older_than, allow_zero=True)
        before = self.store.now() - seconds * 1000
        # A ledger that was moved refuses this: contexts it does not know may be of the other one.
        self.store.write(touch)
        # Before tasks, so that none is deleted while the files are out of reach.
        self._sweep_contexts()
        return self.ledger.prune(before + 1, self.artifacts.remove)

    def _sweep_contexts(self) -> None:
        """Drop contexts that submitters staged and never committed; young ones may be under way."""
        named = Named()
        self.store.read(named.look)

        def is_wanted(task_id: str, sha256: str) -> bool:
            if (task_id, sha256) in named.contexts:
                return True
            task = self.views.by_id([task_id]).get(task_id)
            return task is not None and task.spec.context_sha256 == sha256

        self.artifacts.sweep(self.store.now() - _ORPHAN_MS, is_wanted)


def _all_next(spec: Spec) -> list[Spec]:
    """Everything that a task names as next, to any depth."""
    return [each for child in spec.next for each in (child, *_all_next(child))]


def _reports(done: Sequence[tuple[Claim, str]]) -> list[tuple[int, Trigger]]:
    # The same words for many are one report: what is said is then checked and written once.
    said: dict[tuple[int, str], Report] = {}
    reports: list[tuple[int, Trigger]] = []
    for claim, summary in done:
        words = (claim.epoch, summary)
        if words not in said:
            said[words] = Report(claim.epoch, brief(summary))
        reports.append((claim.key, said[words]))
    return reports


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
