"""`Client`: all that the SDK, the commands and the worker may do with a ledger.

`Queue` is the public face of it and explains what both have; this class may change with what the
commands and the worker need.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

from agentq.client.claim import Claim
from agentq.client.durations import Duration, milliseconds_of, seconds_of, whole_seconds
from agentq.client.heartbeats import Heartbeats
from agentq.client.reader import POLL_SECONDS
from agentq.client.task_fields import ClaimOptions
from agentq.client.task_input.specs import Draft, check_reply_to, draft, draft_many, with_reply_to
from agentq.client.writer import QueueWriter
from agentq.contracts.delivery import Hint, Inbox
from agentq.contracts.doorbell import role_topic
from agentq.contracts.service_values import Completion
from agentq.core.access import Action
from agentq.core.errors import AgentqError, Invalid
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.task import NO_GATES, Gates, Spec, Task
from agentq.protocol.spec_validation import check_resource, check_role
from agentq.settings import default_holder
from agentq.wiring import WiredInstallation

if TYPE_CHECKING:
    from agentq.client.login import LoginLink
    from agentq.contracts.proof_values import Repair, Seal
    from agentq.contracts.service_values import AuditPage, TokenInfo
    from agentq.core.access import Principal


@dataclass(frozen=True, slots=True)
class Refusal:
    """One of a batch that was not accepted, and why."""

    claim: Claim
    error: AgentqError


class Client(QueueWriter):
    """Submits, claims and reports, on top of looking and deciding. Any thread may use it."""

    def __init__(self, installation: WiredInstallation, who: Principal | None = None) -> None:
        super().__init__(installation, who)
        self.heartbeats = Heartbeats(self)
        self.holder = default_holder()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop renewing leases and let go of the database. Closing twice is fine."""
        self.heartbeats.close()
        super().close()

    # -- asking for work -------------------------------------------------------------------------

    def submit(self, *, connection: object = None, **fields: Any) -> Task:
        """Submit one task by the names of its fields; returns once it is durable, or, with a
        `connection`, part of the transaction that is open there."""
        drafted = draft(fields, role=self._default_role)
        return self.submit_drafts([drafted], connection=connection)[0]

    def _default_role(self) -> str:
        from agentq.settings.default_role import default_role

        return default_role(self.installation.settings)

    def submit_many(
        self, tasks: Iterable[Mapping[str, Any] | Spec], *, connection: object = None
    ) -> list[Task]:
        return self.submit_drafts(draft_many(tasks), connection=connection)

    def submit_under(self, task_id: str, epoch: int, fields: Mapping[str, Any]) -> Task:
        """Submit as part of an attempt: refused if that attempt holds its task no longer."""
        return self.submit_drafts([draft(_plain(fields))], under=(task_id, epoch))[0]

    def submit_drafts(
        self,
        drafts: Sequence[Draft],
        under: tuple[str, int] | None = None,
        *,
        connection: object = None,
    ) -> list[Task]:
        """Submit what `client.task_input.specs.draft` has checked already."""
        if self.has_broker:
            for each in drafts:
                check_reply_to(each.spec)
            if under is None:
                # What an attempt submits is its own affair: its task has the outcome that is sent.
                drafts = [each._replace(spec=with_reply_to(each.spec)) for each in drafts]
        contexts = {name: data for each in drafts for name, data in each.contexts.items()}
        generated = {each.spec.id for each in drafts if each.generated}
        specs = [each.spec for each in drafts]
        return self.service.submit(
            self.who, specs, contexts, generated, under, connection=connection
        )

    # -- custody ---------------------------------------------------------------------------------

    def claim(
        self,
        role: str,
        wait: Duration = 0,
        *,
        gated: bool = False,
        **options: Unpack[ClaimOptions],
    ) -> Claim | None:
        claims = self.claim_many(role, 1, wait=wait, gated=gated, **options)
        return claims[0] if claims else None

    def claim_many(
        self,
        role: str,
        n: int = 1,
        *,
        wait: Duration = 0,
        gated: bool = False,
        gates: Gates = NO_GATES,
        **options: Unpack[ClaimOptions],
    ) -> list[Claim]:
        """Claim up to `n` ready tasks in one transaction; waits for the first of them. `gates` are
        what the settings of the role ask for beside the tasks' own."""
        check_role(role)
        holder, lease_ms, provider = self._options(**options)
        self.tick_now_and_then()

        attempt = partial(
            self.service.claim, self.who, role, n, holder, lease_ms, provider, gated=gated,
            gates=gates,
        )  # fmt: skip
        patience = seconds_of(wait, "wait")
        taken = attempt()
        if not taken and patience > 0:
            taken = self._claim_patiently(attempt, role, provider, patience)
        return [self._claim(task, lease_ms) for task in taken]

    def _options(
        self, holder: str | None = None, lease: Duration | None = None, provider: str = ""
    ) -> tuple[str, int, str]:
        """Who claims, for how many milliseconds, and whose quota that uses."""
        return holder or self.holder, milliseconds_of(lease), provider

    def _claim_patiently(
        self, attempt: Callable[[], list[Task]], role: str, provider: str, wait: float
    ) -> list[Task]:
        deadline = time.monotonic() + wait
        with closing(self.installation.doorbell.listen((role_topic(role),))) as waiter:
            while True:
                # Look after listening: a task that came in between has not rung for us.
                taken = attempt()
                left = deadline - time.monotonic()
                if taken or left <= 0:
                    return taken
                self.wait_for_change(waiter, min(left, self._until_closed(provider)))

    def _until_closed(self, provider: str) -> float:
        """Seconds until the provider's circuit closes by itself: nobody rings for that."""
        for row in self.circuits() if provider else ():
            left = (row.open_until - self.now()) / 1000 if row.provider == provider else 0
            if left > 0:
                return max(left, 0.001)
        return POLL_SECONDS

    def claim_hinted(
        self,
        role: str,
        hints: Sequence[Hint],
        *,
        gated: bool = False,
        gates: Gates = NO_GATES,
        **options: Unpack[ClaimOptions],
    ) -> list[Claim]:
        """Claim those of the named tasks that can be claimed now, in one transaction."""
        holder, lease_ms, provider = self._options(**options)
        ids = [hint.task_id for hint in hints]
        taken = self.service.claim(
            self.who, role, len(ids), holder, lease_ms, provider, ids=ids, gated=gated,
            gates=gates,
        )  # fmt: skip
        return [self._claim(task, lease_ms) for task in taken]

    def inbox(self, role: str) -> Inbox:
        """Where hints for this process as a worker of a role come in; close it in the end."""
        return self.installation.inbox(check_role(role), self.holder)

    def claim_task(self, ref: str, **options: Unpack[ClaimOptions]) -> Claim:
        """Claim this very task; raises `Refused` with the reason if it cannot be claimed now."""
        holder, lease_ms, provider = self._options(**options)
        task = self.service.claim_task(self.who, ref, holder, lease_ms, provider)
        return self._claim(task, lease_ms)

    def _claim(self, task: Task, lease_ms: int) -> Claim:
        return Claim(self, task, lease_ms or task.spec.lease_seconds * 1000)

    def complete_many(self, done: Iterable[tuple[Claim, str]]) -> list[Refusal]:
        """Report many attempts complete in one transaction; returns which were refused, and why."""
        pairs = list(done)
        return _refusals(pairs, self.service.complete_many(self.who, _completions(pairs)))

    def complete_and_claim(
        self,
        done: Iterable[tuple[Claim, str]],
        role: str,
        n: int = 1,
        *,
        hints: Sequence[Hint] | None = None,
        **options: Unpack[ClaimOptions],
    ) -> tuple[list[Refusal], list[Claim]]:
        """Report these complete and claim the next, in one transaction. Returns what was refused,
        and the new claims. With `hints` the next are those of the named tasks that can be claimed.
        """
        pairs = list(done)
        holder, lease_ms, provider = self._options(**options)
        self.tick_now_and_then()
        ids = None if hints is None else [hint.task_id for hint in hints[:n]]
        outcomes, taken = self.service.complete_and_claim(
            self.who, _completions(pairs), role, n, holder, lease_ms, provider, ids=ids
        )
        return _refusals(pairs, outcomes), [self._claim(task, lease_ms) for task in taken]

    # -- care ------------------------------------------------------------------------------------

    def prepare_broker(self, roles: Sequence[str]) -> list[str]:
        self.check_may(Action.OPERATE)
        declared = self.installation.declare(roles)
        lanes = ("delivery", "reply")
        if not self.service.lanes(self.who).issuperset(lanes):
            self.service.open_lanes(self.who, lanes)
            declared.append("tasks that become ready are announced from now on")
        return declared

    def set_limits(self, role: str, limits: RoleLimits) -> None:
        self.service.set_limits(self.who, check_role(role), limits)

    def set_key_limits(self, key: str, limits: KeyLimits) -> None:
        self.service.set_key_limits(self.who, check_resource(key), limits)

    def create_token(
        self, name: str, scopes: Sequence[str], lifetime: Duration | None = None
    ) -> tuple[TokenInfo, str]:
        """Make a token, good for that long or until it is revoked; with its secret, which nobody
        can be shown again."""
        return self.service.create_token(
            self.who, name, scopes, milliseconds_of(lifetime, "expires")
        )

    def login_link(self, server: str = "") -> LoginLink:
        """Return a link that logs a browser in at this server; see `client.login`."""
        from agentq.client.login import login_link

        return login_link(self, server)

    def tokens(self) -> list[TokenInfo]:
        """Return all tokens, the oldest first, those that are no longer good among them."""
        return self.service.tokens(self.who)

    def revoke_token(self, ref: str) -> TokenInfo:
        """End a token at once, by its id, the beginning of one, or its name."""
        return self.service.revoke_token(self.who, ref)

    def audit(
        self,
        *,
        refused: bool = False,
        by: str = "",
        task: str = "",
        since: Duration | None = None,
        cursor: int = 0,
        limit: int = 100,
    ) -> AuditPage:
        """Return who decided what and who was refused, the newest first."""
        since_ms = self.now() - milliseconds_of(since, "since") if since is not None else 0
        outcome = "refused" if refused else ""
        return self.service.audit(self.who, cursor, limit, outcome, by, task, since_ms)

    def seal(self) -> Seal:
        """Prove what has changed since the last seal, and seal all that the log says."""
        from agentq.settings.reloading import deciding_settings

        settings = deciding_settings(self.installation.settings)
        made = self.service.seal(self.who, settings=settings)
        assert made is not None
        return made

    def sign_seal(self, digest: str, signature: str) -> Seal:
        return self.service.sign_seal(self.who, digest, signature)

    def repair(self, *, dry_run: bool = True) -> list[Repair]:
        return self.service.repair(self.who, dry_run=dry_run)

    def prune(self, older_than: Duration) -> int:
        """Delete tasks that ended longer ago than this, with their evidence; how many.

        What a task that is not over refers to stays. `Unavailable` if files could not be removed:
        the next call does.
        """
        seconds = whole_seconds(older_than, allow_zero=True)
        return self.service.prune(self.who, self.now() - seconds * 1000)


def _completions(done: Sequence[tuple[Claim, str]]) -> list[Completion]:
    return [Completion(claim.id, claim.epoch, summary) for claim, summary in done]


def _refusals(
    done: Sequence[tuple[Claim, str]], outcomes: Sequence[Task | AgentqError]
) -> list[Refusal]:
    return [
        Refusal(claim, outcome)
        for (claim, _), outcome in zip(done, outcomes, strict=True)
        if isinstance(outcome, AgentqError)
    ]


def _plain(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(fields, Mapping):
        raise Invalid(f"A task is a mapping of fields, got {type(fields).__name__}.")
    return fields
