"""`Admin`: looking after an installation. Programs that only use the queue do not need it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from agentq.client.durations import Duration, seconds_of
from agentq.client.references import id_of

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.client.evidence import Evidence
    from agentq.client.task_fields import TaskRef
    from agentq.contracts.delivery import DeadMessage
    from agentq.contracts.number_values import Numbers
    from agentq.contracts.overview_values import AwaitedDecisions
    from agentq.contracts.proof_values import Repair, Seal
    from agentq.contracts.service_values import (
        AuditPage,
        Circuit,
        KeyStanding,
        Overhead,
        Problem,
        Quality,
        Replayed,
        Stats,
        TokenInfo,
    )
    from agentq.core.limits import KeyLimits, RoleLimits
    from agentq.core.task import Task, Usage


class Admin:
    """What operators do with a ledger: `queue.admin`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    # -- how it stands -----------------------------------------------------------------------------

    def now(self) -> int:
        """Return the ledger's clock in milliseconds: what leases and timers are measured by."""
        return self._client.now()

    def tick(self) -> int:
        """Apply due timers: ended leases, backoffs, expiry; how many tasks changed. Every process
        that waits or claims does this by itself."""
        return self._client.tick()

    def stats(self) -> Stats:
        """Count tasks by role and state, with the age of the oldest that is ready."""
        return self._client.stats()

    def approvals(
        self, role: str = "", asked_of: str = "", limit: int = 50, *, with_reviewers: bool = False
    ) -> AwaitedDecisions:
        """Return what waits for an approval or a verdict of people: the irreversible first, then
        the oldest. Of a role, or what a policy asks of somebody now; `with_reviewers` also what the
        task of a reviewer is about to judge."""
        return self._client.approvals(role, asked_of, limit, with_reviewers=with_reviewers)

    def evidence(self, task: TaskRef) -> Evidence:
        """Return what somebody should have seen who approves or rejects a task: what it asks for,
        or its report with gates, files and comments."""
        from agentq.client.evidence import evidence_of

        return evidence_of(self._client, id_of(task))

    def costs(self, by: str = "role") -> dict[str, Usage]:
        """Return what was spent, summed up by `role`, `label` or `day`."""
        return self._client.costs(by)

    def overhead(self, tasks: Iterable[TaskRef], *, below: bool = False) -> Overhead:
        """Say where the time and the money of these tasks went, and compare the work that they were
        with the time they took together; with `below` also all that descend from them.

        >>> from agentq.testing import MemoryQueue
        >>> queue = MemoryQueue()
        >>> task = queue.submit("builder", "Build it.")
        >>> _ = queue.advance("10m")
        >>> claim = queue.claim_task(task.id)
        >>> _ = queue.advance("30s")
        >>> found = queue.admin.overhead([task])
        >>> [(each.phase.value, each.span_ms // 1000) for each in found.phases if each.span_ms]
        [('working', 30), ('waiting_for_slot', 600)]
        >>> found.bottleneck.text
        'waiting for a slot of role builder: 10m; raise its slots or max_running'
        """
        return self._client.overhead([id_of(each) for each in tasks], below=below)

    def run_overhead(self, run: TaskRef) -> Overhead:
        """The same of a run and all its steps."""
        return self._client.run_overhead(id_of(run))

    def recent_overhead(self, since: Duration = "7d", role: str = "") -> Overhead:
        """The same of the tasks that were submitted no longer ago than this, of one role or of all:
        the newest 10,000, and `cut` if there were more."""
        return self._client.recent_overhead(self._ago(since), role)

    def quality(self, since: Duration = "30d", role: str = "") -> Quality:
        """Sum up how reviewers judged the work of each role, or of this one: their verdicts and
        scores on tasks that were submitted no longer ago than this."""
        return self._client.quality(self._ago(since), role)

    def numbers(self, period: str = "24h", role: str = "") -> Numbers:
        """Return how the work of each role, or of this one, went in the last hour (`1h`), day
        (`24h`) or month (`30d`), or ever (`total`): samples of what was done, how long it waited
        and ran, what failed and what it cost.

        >>> from agentq.testing import MemoryQueue
        >>> queue = MemoryQueue()
        >>> task = queue.submit("builder", "Build it.")
        >>> _ = queue.advance("10m")
        >>> _ = queue.claim_task(task.id).complete("built")
        >>> found = queue.admin.numbers("24h").by_role()["builder"]
        >>> found.completed, found.failed, found.waiting.sum_ms // 1000
        (1, 0, 600)
        """
        return self._client.numbers(period, role)

    def _ago(self, since: Duration) -> int:
        return max(self._client.now() - round(seconds_of(since, "since") * 1000), 0)

    # -- proof -------------------------------------------------------------------------------------

    def verify(
        self, *, seal: str = "", since_seal: bool = False
    ) -> Iterator[tuple[int, list[Problem]]]:
        """Replay every task's log and check every file: (looked at so far, problems found).

        With the digest of a seal that you kept, also whether that is a seal of this ledger; with
        `since_seal` only what has changed since the newest seal.
        """
        return self._client.verify(seal=seal, since_seal=since_seal)

    def seal(self) -> Seal:
        """Prove what has changed since the last seal, and seal all that the log says. Keep the
        digest where nobody who can write the ledger can reach it.

        >>> from agentq.testing import MemoryQueue
        >>> queue = MemoryQueue()
        >>> task = queue.submit("builder", "Build it.")
        >>> seal = queue.admin.seal()
        >>> seal.tasks, seal.events
        (1, 1)
        >>> [found for _, found in queue.admin.verify(seal=seal.digest) if found]
        []
        """
        return self._client.seal()

    def last_seal(self, *, signed: bool = False) -> Seal | None:
        """Return the newest seal, or the newest that somebody has signed; None if there is none."""
        return self._client.last_seal(signed=signed)

    def repair(self, *, dry_run: bool = True) -> list[Repair]:
        """Prove everything, and write again what is otherwise than the log implies; what was, or
        with `dry_run` what would be. `verify` afterwards shows what nothing but a backup has.

        >>> from agentq.testing import MemoryQueue
        >>> queue = MemoryQueue()
        >>> task = queue.submit("builder", "Build it.")
        >>> queue.admin.repair()
        []
        """
        return self._client.repair(dry_run=dry_run)

    def replay(self, task: TaskRef) -> Replayed:
        """Decide one task's life anew from its log, and say whether that gives what is stored."""
        return self._client.replay(id_of(task))

    # -- limits, quotas, budgets -------------------------------------------------------------------

    def limits(self) -> dict[str, RoleLimits]:
        """Return the limits of every role that the ledger has heard of."""
        return self._client.limits()

    def set_limits(self, role: str, limits: RoleLimits) -> None:
        """Limit how many tasks of a role run, wait for review, how often they start, or what they
        spend in a day.

        >>> from agentq import Rate, RoleLimits
        >>> from agentq.testing import MemoryQueue
        >>> queue = MemoryQueue()
        >>> queue.admin.set_limits("builder", RoleLimits(rate=Rate.parse("10/1m")))
        >>> str(queue.admin.limits()["builder"].rate)
        '10/1m'
        """
        self._client.set_limits(role, limits)

    def key_limits(self, keys: Sequence[str] = ()) -> dict[str, KeyStanding]:
        """Return how these resources stand, or all that have limits: who holds them, and how many
        more tasks that need them may start now."""
        return self._client.key_limits(keys)

    def set_key_limits(self, key: str, limits: KeyLimits) -> None:
        """Let so many tasks hold a resource at once, and so many start that need it.

        >>> from agentq import KeyLimits, Rate
        >>> from agentq.testing import MemoryQueue
        >>> queue = MemoryQueue()
        >>> queue.admin.set_key_limits("gpu", KeyLimits(max_held=2, rate=Rate(5, 3600)))
        >>> queue.admin.key_limits()["gpu"].free
        2
        """
        self._client.set_key_limits(key, limits)

    def circuits(self) -> list[Circuit]:
        """Return the providers that are out of quota now, and until when."""
        return self._client.circuits()

    def open_circuit(
        self, provider: str, duration: Duration, reason: str = "", by: str = ""
    ) -> Circuit:
        """Let nobody claim for this provider for so long. A circuit that is open for longer already
        stays so; returns how it stands."""
        until = self._client.now() + round(seconds_of(duration) * 1000)
        return self._client.open_circuit(provider, until, reason, by)

    def close_circuit(self, provider: str, by: str = "") -> bool:
        """Let claims for this provider begin again at once; whether its circuit was open."""
        return self._client.close_circuit(provider, by)

    def close_role_circuit(self, role: str, by: str = "") -> bool:
        """Let claims of a role begin again, because whatever it needed a person for is mended;
        whether its circuit was open."""
        return self._client.close_role_circuit(role, by)

    def raise_tree_budget(self, task: TaskRef, by: str, extra: Usage) -> Task:
        """Let a task and all that descend from it spend more together."""
        return self._client.raise_tree_budget(id_of(task), by, extra)

    # -- what may start --------------------------------------------------------------------------

    def hold(self, task: TaskRef, by: str, reason: str = "", *, if_version: int = 0) -> Task:
        """Keep a waiting task from starting until it is dispatched. Holding it twice is fine.

        >>> from agentq.testing import MemoryQueue
        >>> queue = MemoryQueue()
        >>> task = queue.submit("builder", "Build it.")
        >>> queue.admin.hold(task, "ann", "not before the release").state.value
        'pending'
        >>> queue.claim("builder") is None, queue.admin.dispatch(task, "ann").state.value
        (True, 'ready')
        """
        return self._client.hold(id_of(task), by, reason, if_version=if_version)

    def dispatch(self, task: TaskRef, by: str, *, if_version: int = 0) -> Task:
        """Let a task start that is held, or delayed, as soon as nothing else keeps it."""
        return self._client.dispatch(id_of(task), by, if_version=if_version)

    # -- tokens ------------------------------------------------------------------------------------

    def create_token(
        self, name: str, scopes: Sequence[str], lifetime: Duration | None = None
    ) -> tuple[TokenInfo, str]:
        """Make a token for whoever goes by this name, good for that long or until it is revoked.
        Returns its secret too, which nobody can be shown again.

        >>> from agentq.testing import MemoryQueue
        >>> queue = MemoryQueue()
        >>> info, secret = queue.admin.create_token("ci", ["submit:builder"], "90d")
        >>> secret[:4], [each.name for each in queue.admin.tokens()]
        ('agq_', ['ci'])
        >>> queue.admin.revoke_token("ci").is_good(queue.admin.now())
        False
        """
        return self._client.create_token(name, scopes, lifetime)

    def tokens(self) -> list[TokenInfo]:
        """Return all tokens, the oldest first, those that are no longer good among them."""
        return self._client.tokens()

    def revoke_token(self, ref: str) -> TokenInfo:
        """End a token at once, by its id, the beginning of one, or its name."""
        return self._client.revoke_token(ref)

    # -- who did what ------------------------------------------------------------------------------

    def audit(
        self,
        *,
        refused: bool = False,
        by: str = "",
        task: TaskRef | None = None,
        since: Duration | None = None,
        cursor: int = 0,
        limit: int = 100,
    ) -> AuditPage:
        """Return who decided what and who was refused, the newest first. The next page goes on with
        the `cursor` of this one.

        >>> from agentq.testing import MemoryQueue
        >>> queue = MemoryQueue()
        >>> _ = queue.admin.create_token("ci", ["read"])
        >>> [(each.action, each.detail) for each in queue.admin.audit().entries]
        [('manage_tokens', 'made for ci: read')]
        """
        ref = id_of(task) if task is not None else ""
        return self._client.audit(
            refused=refused, by=by, task=ref, since=since, cursor=cursor, limit=limit
        )

    # -- care --------------------------------------------------------------------------------------

    def prune(self, older_than: Duration) -> int:
        """Delete tasks that ended longer ago than this, with their evidence; how many."""
        return self._client.prune(older_than)

    def prepare_broker(self, roles: Sequence[str]) -> list[str]:
        """Declare what the broker must have for these roles, and let messages leave from now on;
        what was declared."""
        return self._client.prepare_broker(roles)

    def dead_messages(self, limit: int = 100) -> list[DeadMessage]:
        """Return messages of the broker that nobody could read, the oldest first."""
        return self._client.dead_messages(limit)

    def requeue_messages(self, keys: Sequence[str]) -> None:
        """Send unreadable messages to where they were read from, once more."""
        self._client.requeue_messages(keys)

    def purge_messages(self, keys: Sequence[str] | None = None) -> int:
        """Delete these unreadable messages, or all; how many it were."""
        return self._client.purge_messages(keys)
