"""The service interface: every question and verb that a client, a worker or a loop may use.

Whoever stands above the ledger speaks to this and to nothing below it: the SDK, the commands, the
worker and the daemon today, an HTTP server for others. Each call says who asks (a `Principal`, see
`core.access`), names tasks by their ids, and answers with plain values. What the table of access
does not allow raises `Refused` with the code `not_permitted`, before anything is changed.

`ref` is a task's id or the beginning of one that is unambiguous; `task_id` is the id itself. Verbs
of an attempt name its `epoch` and raise `Stale` once it is fenced out. Times are milliseconds of
the ledger's clock. The suite in tests/contracts/service is the executable half of this file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, Protocol

from agentq.contracts.service_edits import Edits
from agentq.contracts.service_graph import Waits
from agentq.contracts.service_hooks import Hooks
from agentq.contracts.service_lanes import Lanes
from agentq.contracts.service_notes import Notes
from agentq.contracts.service_overview import Overviews
from agentq.contracts.service_proofs import Proofs
from agentq.contracts.service_schedules import Schedules
from agentq.contracts.service_statistics import Statistics
from agentq.core.task import NO_GATES, NO_USAGE, Gates, Usage
from agentq.core.triggers import FailureKind, Resolution, Ruling

if TYPE_CHECKING:
    from agentq.contracts import overview_values as o
    from agentq.contracts import service_values as v
    from agentq.contracts.artifacts import LivePart, Source, Stored, Uploaded, UploadLink
    from agentq.contracts.inbound_messages import InboundMessage, IntakeResult
    from agentq.core.access import Principal
    from agentq.core.errors import AgentqError
    from agentq.core.limits import KeyLimits, RoleLimits
    from agentq.core.task import Spec, Task
    from agentq.core.triggers import LogEntry


class Queries(Overviews, Statistics, Protocol):
    """Queries. None of them changes anything."""

    def now(self) -> int:
        """Return the ledger's clock: the only one that leases are measured by."""

    def ledger_id(self, who: Principal) -> str:
        """Return the name of the ledger itself, which is the same however it is reached: a worker
        marks its agents with it."""

    def identity(self, who: Principal) -> v.KnownAs:
        """Return who asks, as the ledger knows them: through a server, whom their token names."""

    def next_wake(self, who: Principal) -> int:
        """Return the earliest moment at which time matters to a task, or to a rate that holds
        tasks back; 0 if there is none."""

    def task(self, who: Principal, ref: str) -> Task: ...
    def tasks_by_id(self, who: Principal, ids: Sequence[str]) -> dict[str, Task]:
        """Return the tasks of these exact ids; those that are not there are left out."""

    def list_tasks(self, who: Principal, wanted: v.Wanted) -> v.Page: ...
    def ids(self, who: Principal, prefix: str, limit: int = 50) -> list[str]:
        """Return ids that start with this."""

    def explain(self, who: Principal, ref: str) -> v.Explanation: ...
    def stats(self, who: Principal) -> v.Stats: ...
    def costs(self, who: Principal, by: str) -> dict[str, Usage]:
        """Return what was spent, summed up by `role`, `label` or `day`."""

    def limits(self, who: Principal) -> dict[str, RoleLimits]:
        """Return the limits of every role that the ledger has heard of."""

    def key_limits(self, who: Principal, keys: Sequence[str] = ()) -> dict[str, v.KeyStanding]:
        """Return how these resources stand, or all that have limits of their own."""

    def circuits(self, who: Principal) -> list[v.Circuit]:
        """Return the circuits that hold claims back now: of providers by name, then of roles."""

    def history(self, who: Principal, ref: str) -> list[LogEntry]:
        """Return everything that happened to one task, in order."""

    def events_after(self, who: Principal, position: int, limit: int = 500) -> list[LogEntry]:
        """Return what was committed after that position, in the order of commits, without gaps."""

    def last_position(self, who: Principal) -> int: ...
    def event_data(self, entry: LogEntry) -> dict[str, object]:
        """Return what the trigger of an event carried, as plain data."""

    def replay(self, who: Principal, ref: str) -> v.Replayed:
        """Decide a task's life anew from its log, and say whether that gives what is stored."""

    def verify(
        self, who: Principal, *, files: bool = True, seal: str = "", since_seal: bool = False
    ) -> Iterator[tuple[int, list[v.Problem]]]:
        """Replay every task's log and check every file, unless told otherwise: (looked at so far,
        problems found). With the digest of a `seal`, that it is a seal of this ledger. With
        `since_seal`, only what has changed since the newest seal."""

    # What attempts read and left.

    def context(self, who: Principal, ref: str) -> str:
        """Return the full text of a task: its context file, else its instructions."""

    def artifacts(self, who: Principal, ref: str) -> list[v.ArtifactInfo]: ...
    def open_artifact(
        self, who: Principal, ref: str, name: str, epoch: int = 0
    ) -> tuple[Task, v.ArtifactInfo, BinaryIO]:
        """Open a file of an attempt (the newest that has it), checked against its digest."""

    def artifact_link(
        self, who: Principal, ref: str, name: str, epoch: int = 0
    ) -> tuple[v.ArtifactInfo, str] | None:
        """Return what is recorded of a large file and a link that reads it for a while; None where
        it is read from the ledger's side. Whoever fetches it checks the digest."""

    def open_result(self, who: Principal, ref: str) -> tuple[Task, BinaryIO | None]:
        """Open the result file of a complete task, checked; None if it gave only its summary."""

    def live_read(
        self, who: Principal, ref: str, epoch: int, position: int, limit: int
    ) -> LivePart:
        """Return what the agent of a running attempt has printed from `position` on; `NotFound`
        once the attempt is over."""


class Service(Queries, Edits, Notes, Waits, Hooks, Lanes, Schedules, Proofs, Protocol):
    """The whole service interface."""

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
        """Accept tasks, all or none. The same id or key and body gives the task that is there.

        `contexts` are long texts by task id, `generated` the ids that nobody chose, and `under` is
        the (task id, epoch) of the attempt that submits, if one does: its children are fenced.
        With `leave` ("all" or "any") that attempt yields to its children, in the same transaction;
        with `begin`, in place of `under`, it is also claimed there, which is refused once its task
        is not ready in that version any more.

        `connection` is a psycopg connection to the ledger's database with the caller's open
        transaction (or a `LoopConnection`): the tasks are there once it commits, and never if it
        does not. Until then they are answered as pending, in version 0.
        """

    # Claiming tasks, and the reports of the attempts that hold them.

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
        """Take up to `count` ready tasks of a role. `lease_ms` 0 means as each task says.

        `provider` is whose quota doing them will use: nothing is taken while its circuit is open.
        Of `ids`, if they are given: those that are ready and within the limits of the role.
        `gated` ones complete only by a report which says that they were verified. `gates` are what
        the settings of the role ask for beside the tasks' own.
        """

    def claim_task(
        self, who: Principal, ref: str, holder: str, lease_ms: int = 0, provider: str = ""
    ) -> Task:
        """Take this very task; raises `Refused` with the reason if it cannot be taken now."""

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
        """Report these complete and take the next, in one transaction; of `ids`, if they are given.
        Returns what became of each report, and what was taken."""

    def renew(self, who: Principal, leases: Sequence[v.AttemptLease]) -> set[str]:
        """Renew leases, all in one statement. A task id that is not in the answer is lost."""

    def report_worker(
        self, who: Principal, holder: str, report: o.WorkerReport, lease_ms: int
    ) -> None:
        """Say that a process claims for a role, and what it is doing: it counts as there for so
        long. 0 says that it has ended."""

    def progress(
        self, who: Principal, task_id: str, epoch: int, percent: int, note: str = ""
    ) -> Task: ...
    def spend(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        cost: Usage,
        *,
        unless_used_up: bool = False,
    ) -> Task:
        """Record a cost. One that uses a budget up blocks the task; with `unless_used_up` it is
        refused instead, so that the holder can hand in what it has before it reports."""

    def upload_links(
        self, who: Principal, task_id: str, epoch: int, count: int = 1
    ) -> list[UploadLink]:
        """Return links by which a worker sends large files straight to the artifact store, before
        it names them in `put_artifacts`; none where settings do not offer links."""

    def put_artifacts(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        files: Sequence[tuple[str, Source | Uploaded]],
    ) -> list[Stored]:
        """Store files and make them visible, all or none. A fenced-out attempt leaves nothing, and
        nobody but a worker a file under a name that stands for the worker's word."""

    def live_append(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        data: bytes,
        keep_bytes: int,
        position: int = -1,
    ) -> int:
        """Add to the live log of an attempt, of which at most so many bytes are kept. Return where
        it ends now, -1 if that is not known. Whoever says by `position` where the data begins may
        send it again: what is there already is left out."""

    def live_end(self, who: Principal, task_id: str, epoch: int) -> None:
        """Remove the live log of an attempt that is over."""

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
        """Report an attempt complete. `result` is a file to store, or one that is stored already;
        `data` is a structured result, as JSON. Once the report is accepted, the result is
        published. Of an attempt that is `verified` its worker says that the promised check has
        passed; the attempt itself may not. Refused over open children, unless they are left."""

    def complete_many(
        self, who: Principal, done: Sequence[v.Completion]
    ) -> list[Task | AgentqError]:
        """Report many in one transaction; a refusal refuses only itself."""

    def fail(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        reason: str,
        kind: FailureKind = FailureKind.TRANSIENT,
        cost: Usage = NO_USAGE,
    ) -> Task: ...
    def block(self, who: Principal, task_id: str, epoch: int, reason: str) -> Task: ...
    def release(
        self, who: Principal, task_id: str, epoch: int, reason: str = "", not_before: int = 0
    ) -> Task:
        """Give a task back without using an attempt."""

    def interrupt(
        self, who: Principal, task_id: str, epoch: int, reason: str, provider: str = ""
    ) -> Task:
        """Give a task back without using an attempt, and open a circuit in the same transaction: of
        the provider, which did not serve, for longer each time; without one of the task's role,
        which cannot work, until somebody closes it. Not for the agent of the attempt."""

    def stopped(self, who: Principal, task_id: str, epoch: int) -> Task | None:
        """Say of a cancelled task that its agent is gone; None if there is nothing to say."""

    # What is decided about a task from outside. The principal's name stands in the log. With
    # `if_version` it is decided only if the task is still as it was in that version.

    def approve(self, who: Principal, ref: str, digest: str = "", *, if_version: int = 0) -> Task:
        """Let a task start; or, if it waits for review, accept its report."""

    def reject(
        self,
        who: Principal,
        ref: str,
        reason: str = "",
        *,
        changes: bool = False,
        if_version: int = 0,
    ) -> Task:
        """Refuse to let a task start; or, of a report, ask for changes or reject it for good."""

    def verdict(
        self, who: Principal, ref: str, ruling: Ruling, feedback: str = "", *, if_version: int = 0
    ) -> Task: ...
    def answer(
        self,
        who: Principal,
        ref: str,
        text: str = "",
        resolution: Resolution = Resolution.RETRY,
        extra_budget: Usage = NO_USAGE,
        *,
        if_version: int = 0,
    ) -> Task: ...
    def cancel(
        self, who: Principal, ref: str, reason: str = "", *, if_version: int = 0, tree: bool = False
    ) -> Task:
        """Withdraw a task; with `tree` also its open children, and theirs, all at once."""

    def requeue(
        self, who: Principal, ref: str, reason: str = "", *, if_version: int = 0
    ) -> Task: ...

    def take_messages(self, who: Principal, task_id: str, epoch: int) -> Task:
        """Take the messages that no attempt was given yet. They are marked in the task that is
        returned, and nobody else can take them; from then on messages are taken live."""

    # What a role may have, what may be spent, what is kept.

    def set_limits(self, who: Principal, role: str, limits: RoleLimits) -> None: ...
    def set_key_limits(self, who: Principal, key: str, limits: KeyLimits) -> None: ...
    def open_circuit(
        self, who: Principal, provider: str, until_ms: int, reason: str = ""
    ) -> v.Circuit:
        """Let nobody claim for this provider before that moment; how its circuit stands now."""

    def close_circuit(self, who: Principal, provider: str) -> bool:
        """Let claims for this provider begin again at once; whether its circuit was open."""

    def reset_circuit(self, who: Principal, provider: str) -> bool:
        """Say that the provider served an attempt; whether that has closed a circuit which its
        failures had opened. One that was opened until a moment stays open."""

    def open_role_circuit(self, who: Principal, role: str, reason: str) -> bool:
        """Let nobody claim tasks of this role before its circuit is closed: it cannot work, and
        needs a person. Whether that is news."""

    def close_role_circuit(self, who: Principal, role: str) -> bool:
        """Let claims of this role begin again at once; whether its circuit was open."""

    def raise_tree_budget(
        self, who: Principal, ref: str, extra: Usage, *, if_version: int = 0
    ) -> Task:
        """Let a task and all that descend from it spend more together."""

    def prune(self, who: Principal, before_ms: int) -> int:
        """Delete tasks that ended by that moment, with their files; how many. `FilesLeft` if
        some files could not be removed: the next call does."""

    def task_files(
        self, who: Principal, after: int = 0, limit: int = 500
    ) -> tuple[list[tuple[Task, list[v.ArtifactInfo]]], int]:
        """Return tasks with what is recorded of their files, the oldest first; and what to go on
        `after`, 0 at the end."""

    def files_to_remove(self, who: Principal) -> int:
        """Return of how many deleted tasks the files are still to be removed."""

    def create_token(
        self, who: Principal, name: str, scopes: Sequence[str], lifetime_ms: int = 0
    ) -> tuple[v.TokenInfo, str]:
        """Make a token for whoever goes by this name (see `core.scopes`), good for that long or
        until it is revoked. Returns its secret, which nobody can be shown again."""

    def tokens(self, who: Principal) -> list[v.TokenInfo]:
        """Return all tokens, the oldest first, those that are no longer good among them."""

    def revoke_token(self, who: Principal, ref: str) -> v.TokenInfo:
        """End a token at once. `ref` is its id, the beginning of one, or the name that one good
        token alone has. One that was revoked before stays as it was."""

    def principal_of_token(self, token: str) -> Principal | None:
        """Return whoever shows this secret; None if it is unknown, expired or revoked."""

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
        """Return what was decided and what was refused, the newest first: with this outcome, by
        whoever goes by this name, about this task, since that moment. `cursor` comes from the page
        before."""

    def note_refusal(
        self,
        who: Principal | None,
        error: AgentqError,
        action: str = "",
        subject: str = "",
        origin: str = "",
    ) -> None:
        """Write down that somebody else has refused this, and why; None if nobody knows who asked.
        Never raises: whoever is refused is refused, whether it can be written down or not."""

    # What the loops of an installation need.

    def tick(self, who: Principal) -> int:
        """Apply time to every task whose moment has come; how many changed."""

    def check_writable(self, who: Principal) -> None:
        """Raise `Unavailable` unless the ledger can be written to now."""

    def hold_leader_leases(
        self, who: Principal, names: Sequence[str], holder: str, length_ms: int
    ) -> dict[str, v.LeaderLease]:
        """Renew those that are the holder's, take those that are nobody's; how all stand."""

    def give_up_leader_leases(self, who: Principal, names: Sequence[str], holder: str) -> list[str]:
        """End those that are the holder's, so that others may take them at once; which."""

    def publish_results(self, who: Principal, count: int = 100) -> v.PublishedResults:
        """Publish accepted results that are not published yet. This is the one place that does."""

    def roles(self, who: Principal) -> list[v.RoleStanding]: ...
    def ready_counts(self, who: Principal) -> dict[str, int]:
        """Return how many tasks of each role are ready; roles without any are left out."""

    def most_urgent_ready(
        self,
        who: Principal,
        role: str,
        count: int,
        before_ms: int,
        passed_over: Collection[tuple[str, int]] = (),
    ) -> list[Task]:
        """Return tasks of a role that have been ready since before that moment, the most urgent
        first, without those that are passed over: (task id, version)."""

    def capacity(self, who: Principal, role: str) -> v.Capacity: ...
    def judge_messages(
        self, who: Principal, inbound_messages: Sequence[InboundMessage]
    ) -> list[IntakeResult]:
        """Take in what programs that speak only messages say, in their order; each verdict is
        committed. One that brings files waits until they are stored."""

    def store_message_files(self, who: Principal, inbound: InboundMessage, epoch: int) -> None:
        """Store what came with a message of an attempt that holds its task."""

    def discard_message_files(self, who: Principal, inbound: InboundMessage) -> None:
        """Remove what was stored for a message that was refused."""
