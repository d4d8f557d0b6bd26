"""The store contract: what the ledger needs from a database, and nothing more.

A store picks, locks, loads and saves; it knows no rules. Every change happens inside `write`, one
durable transaction around a function that may be run again (after a deadlock, a lost connection, a
row or a lane that changed meanwhile), so that function does nothing but talk to its `Tx` and think.
What it has decided it hands to `save`, once, as one value.
Rows are plain tuples because a batch of thousands passes through here; `ledger.codec` gives them
meaning. The suite in tests/contracts is the executable half of this file; a test counts the verbs.
"""

# Without `from __future__ import annotations`: a NamedTuple compiles every annotation that is text,
# at each start.
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from agentq.contracts.audit_rows import AuditRow, TokenRow
from agentq.contracts.limit_rows import CircuitRow, ResourceRow, RoleRow
from agentq.contracts.sample_rows import SampleRow
from agentq.contracts.schedule_rows import ScheduleRow
from agentq.contracts.system_rows import SystemRow
from agentq.contracts.task_filter import Filter

if TYPE_CHECKING:
    from agentq.contracts.hook_rows import HookOutcomeRow, HookRow, WebhookTargetRow
    from agentq.contracts.rebuilt_rows import Rebuilt

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

#: States as the stores keep them. Live ones come first: `code < OVER` is what indexes cover.
PENDING, READY, IN_PROGRESS, REVIEW, BLOCKED, COMPLETE, FAILED, CANCELLED, EXPIRED = range(9)
OVER = COMPLETE
LIVE = tuple(range(OVER))

#: The outbox lane of submissions that came in their submitters' own transactions and wait to be
#: decided. No decision makes these effects, so this lane is neither opened nor closed.
SUBMISSIONS_LANE = "submissions"

#: Bits of `flags`: what the ledger must look up when the task moves.
HAS_DEPENDENTS, HAS_RESOURCES, IN_TREE = 1, 2, 4
#: By which tasks are found that need an approval, given or not, or on which somebody is mentioned.
NEEDS_APPROVAL, HAS_MENTIONS = 8, 16


class HotRow(NamedTuple):
    """The narrow part of a task that changes on every step."""

    key: int
    state: int
    version: int
    epoch: int
    wake_at: int
    updated_at: int
    holder: str
    memo: str
    flags: int
    #: Of its last event; nothing if that was written by a version without digests.
    digest: str = ""


class SpecRow(NamedTuple):
    """The part of a task that never changes."""

    key: int
    submitted_at: int
    body: str


class TaskRow(NamedTuple):
    """A task's row: the part that changes and the part that does not."""

    hot: HotRow
    spec: SpecRow


class NewRow(NamedTuple):
    """A task to be, with the event of its submission (always version 1).

    It has no key before it is saved, so tasks of the same batch are named by id: what it comes
    after (`after`, always by id), and the roots of the trees it belongs to (`roots`: the keys of
    those that are there, the ids of new ones). `effects` are (number, lane, payload). `awaited_by`
    are the ids of tasks that want to know when it is over: its parent.
    """

    id: str
    role: int
    priority: int
    state: int
    wake_at: int
    at: int
    memo: str
    flags: int
    body: str
    kind: str
    data: str
    digest: str = ""
    effects: tuple[tuple[int, str, str], ...] = ()
    after: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    roots: tuple[int | str, ...] = ()
    awaited_by: tuple[str, ...] = ()


class AddressRow(NamedTuple):
    """The role that a task is for now, and its priority."""

    key: int
    role: int
    priority: int


class EventRow(NamedTuple):
    key: int
    version: int
    at: int
    kind: str
    trigger: str
    state: int
    epoch: int
    data: str
    #: Over what it says and the digest of its task's event before.
    digest: str = ""


class LogRow(NamedTuple):
    """An event with its place in the order of commits; 0 while it has none."""

    position: int
    task_id: str
    event: EventRow


class EffectRow(NamedTuple):
    """An effect to store; (key, version, number) is its stable id."""

    key: int
    version: int
    number: int
    lane: str
    payload: str


class OutboxRow(NamedTuple):
    """An effect that waits to leave, and how often that was tried."""

    sequence: int
    key: int
    effect_id: str
    lane: str
    payload: str
    tries: int


class LeaseRow(NamedTuple):
    """Who has a name, until when: a loop's, which it alone may run, or a worker's own. `term` grows
    whenever it changes hands; `body` is what a worker says of itself."""

    name: str
    holder: str
    term: int
    expires_at: int
    body: str = ""


class ArtifactRow(NamedTuple):
    key: int
    epoch: int
    name: str
    size: int
    sha256: str
    media_type: str
    at: int


class SpendingRow(NamedTuple):
    """What was spent on one day under one name; `kind` says a name of what (role, label).

    Of the kind submits `turns` are tasks that attempts of a role have submitted, and `day` counts
    spans of ten minutes."""

    kind: str
    name: str
    day: int
    usd: float
    tokens: float
    turns: float
    seconds: float
    estimated: float = 0.0


class TreeRow(NamedTuple):
    """The budget that a task shares with all that descend from it; usage is JSON.

    `root` is 0 for a tree whose root is saved together with it: then `name`, the root's id, says
    which task that is.
    """

    root: int
    name: str
    budget: str
    extra: str
    spent: str
    used_up: int


class DedupRow(NamedTuple):
    """What an idempotency key stands for; `state` is filled in when the task is pruned."""

    name: str
    task_id: str
    digest: str
    state: int
    expires_at: int


class CountRow(NamedTuple):
    """How many tasks of a role are in a state, and when the one that is so longest got there."""

    role: str
    state: int
    tasks: int
    oldest_at: int


class Lease(NamedTuple):
    key: int
    epoch: int
    lease_ms: int


class Picked(NamedTuple):
    """What a claim may take: the role, until when its provider's circuit is open (0: it is not; in
    the past: it has failed and needs a probe), and the tasks, locked."""

    role: RoleRow
    open_until: int
    tasks: list[TaskRow]


class Expired(NamedTuple):
    """What is kept for a time of its own: moments (of labels the day) before which it may go."""

    dedup_before: int = 0
    labels_before_day: int = 0
    audit_before: int = 0
    workers_before: int = 0
    hooks_before: int = 0
    #: Of samples: how many spans one may be old at this moment.
    samples_at: int = 0
    samples_kept: int = 0


class Changes(msgspec.Struct, frozen=True, gc=False):
    """Everything that one transaction writes. `events` are those of `tasks`, in order.

    A row of `tasks` is written over the version it was decided on: that before its first event.
    `addresses` are those of `tasks` that are for another role now, or otherwise urgent. `topics`
    are rung after the commit. `released` are the tasks whose resources are free now; of `resources`
    all but the holders is written. `lanes`, if not None, are the open lanes from now on. One of
    `hook_deliveries` whose id is there already is written over it. Of `new_dedup` nobody has looked
    whether they are there: if one is, the change is run again. `rebuilt` is written first.
    """

    new: Sequence[NewRow] = ()
    tasks: Sequence[HotRow] = ()
    addresses: Sequence[AddressRow] = ()
    events: Sequence[EventRow] = ()
    effects: Sequence[EffectRow] = ()
    artifacts: Sequence[ArtifactRow] = ()
    spending: Sequence[SpendingRow] = ()
    trees: Sequence[TreeRow] = ()
    dedup: Sequence[DedupRow] = ()
    new_dedup: Sequence[DedupRow] = ()
    roles: Sequence[RoleRow] = ()
    resources: Sequence[ResourceRow] = ()
    circuits: Sequence[CircuitRow] = ()
    leases: Sequence[LeaseRow] = ()
    tokens: Sequence[TokenRow] = ()
    audit: Sequence[AuditRow] = ()
    hook_deliveries: "Sequence[HookRow]" = ()
    hook_outcomes: "Sequence[HookOutcomeRow]" = ()
    webhook_targets: "Sequence[WebhookTargetRow]" = ()
    schedules: Sequence[ScheduleRow] = ()
    dropped_schedules: Sequence[str] = ()
    samples: Sequence[SampleRow] = ()
    system: Sequence[SystemRow] = ()
    released: Sequence[int] = ()
    rebuilt: "Sequence[Rebuilt]" = ()
    lanes: frozenset[str] | None = None
    topics: Iterable[str] = ()


class RunAgain(Exception):
    """Something changed under a transaction while it was being prepared; it is run again."""


class RecordFilter(Protocol[R_co]):
    """Which records to list; a named tuple, whose fields are the values of its listing."""

    @property
    def listing(self) -> str:
        """The name of the statement that lists them."""

    @property
    def make_row(self) -> Callable[[Iterable[Any]], R_co]: ...
    def _asdict(self) -> dict[str, Any]: ...


class Reader(Protocol):
    """Looking without changing. Each call sees one committed state."""

    def now(self) -> int: ...
    def keys(self, ids: Iterable[str]) -> dict[str, int]:
        """The keys of these tasks; ids of no task are left out."""

    def ids_starting(self, prefix: str, limit: int) -> list[str]: ...
    def tasks(self, keys: Sequence[int] = (), ids: Sequence[str] = ()) -> list[TaskRow]:
        """The tasks of these keys, or of these ids; those that are not there are left out."""

    def list_tasks(self, wanted: Filter) -> list[TaskRow]: ...
    def history(self, *keys: int) -> list[LogRow]:
        """All events of these tasks, by task and version."""

    def events_after(self, position: int, limit: int) -> list[LogRow]:
        """Events that have a position, after this one (see `Store.number_events`)."""

    def counts(self, *, live_only: bool = False, at_most: int = 0) -> list[CountRow]:
        """By role and state; with `live_only` tasks that are over are neither counted nor read.
        With `at_most` no more than so many are counted of each role and live state; and for the
        role "", of all roles, of pending tasks that need an approval, given or not, and of failed
        and expired ones. Moments are left out."""

    def effects(
        self, lane: str, limit: int, *, after: int = 0, due_only: bool = False
    ) -> list[OutboxRow]:
        """The oldest effects of a lane after this sequence. Hides nothing from others."""

    def artifacts_of(self, *keys: int) -> list[ArtifactRow]:
        """What is recorded of these tasks' artifacts, by task, attempt and name."""

    def roles(self) -> list[RoleRow]: ...
    def occupancy(self, role: int, priority: int = 0, key: int = 0) -> tuple[int, int, int]:
        """How many tasks of a role run, wait for review, and are ready and would be picked before
        a task of this priority and key (0 without a key)."""

    def resources(self, names: Sequence[str] = ()) -> list[ResourceRow]:
        """These resources, or all that have limits, by name. A transaction locks their limits."""

    def edges_of(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        """(parent, child) for each dependency in which one of these tasks is either."""

    def orphan_rows(self, limit: int) -> list[int]:
        """Keys of tasks of which a part is missing (row, spec, place of an event): damage."""

    def next_wake(self) -> int:
        """The earliest `wake_at` of all tasks, or token still to come; 0 if there is none."""

    def prunable(
        self, before: int, limit: int, *, after_key: int = 0, keys: Sequence[int] | None = None
    ) -> list[int]:
        """Keys of tasks (of these, if given) that ended before that moment, with no holder and no
        effect under way, and of which no task that is not over comes after or is in the tree."""

    def circuits(self) -> list[CircuitRow]:
        """By provider, closed ones among them. In a transaction nobody else changes them."""

    def spending(self, kind: str, name: str = "", day: int = 0) -> list[SpendingRow]:
        """What was spent under names of this kind, by name and day; of one day, or one name and
        day."""

    def trees_of(self, keys: Sequence[int]) -> list[tuple[int, TreeRow]]:
        """(task, tree) for the trees that these tasks belong to, by root. A transaction locks
        them."""

    def leader_leases(self, names: Sequence[str] = ()) -> list[LeaseRow]:
        """By name, all or these. A transaction locks those it names; one that never was has
        nobody's name and the number 0."""

    def tokens(self, sha256: str = "") -> list[TokenRow]:
        """The oldest first, those that are no longer good among them; or the one whose secret has
        this digest. In a transaction nobody else changes them."""

    def records(self, wanted: RecordFilter[R]) -> list[R]:
        """Records that stand beside the tasks and are locked by nobody: what was decided and
        refused (`AuditFilter`), what came for hooks and went to targets (`contracts.hook_rows`),
        how many effects wait in each lane (`LaneCounts`)."""

    def schedules(self, names: Sequence[str] | None = None, first: int = 0) -> list[ScheduleRow]:
        """By name, all or these; or with `first` so many of those that wake, the earliest first. A
        transaction locks those it names."""

    def dedup_records(self, names: Sequence[str]) -> dict[str, DedupRow]:
        """What is remembered under these names, expired records among it."""

    def lanes(self) -> frozenset[str]:
        """The open outbox lanes."""

    def ledger_id(self) -> str:
        """The name that this ledger was given when it was made; a copy has the same."""


class Tx(Reader, Protocol):
    """One transaction. What it locks stays locked until it ends."""

    def lock(self, keys: Sequence[int], specs: dict[int, SpecRow] | None = None) -> list[HotRow]:
        """Lock and load, by ascending key; keys that do not exist are left out. What never changes
        of them is put into `specs`, by key, if that is given.

        A store may answer from what it last saved, if it makes sure before the commit that nobody
        has written since, and else runs the change again.
        """

    def lock_role(self, role: int) -> RoleRow: ...
    def pick(
        self,
        role: int,
        count: int,
        *,
        provider: str = "",
        ids: Sequence[str] | None = None,
        after: tuple[int, int] | None = None,
        unless_limited: bool = False,
    ) -> Picked:
        """Lock up to `count` ready tasks that nobody else has locked, the most urgent first.

        Of those with these `ids`, in that order; or after a task of this (priority, key). Passed
        over are those that need a resource without a free place or a token, and whose tree is used
        up. None while the provider's circuit is open or counts failures, nor, with
        `unless_limited`, of a role that is paused, limited or needs a person.
        """

    def due(self, now: int, count: int) -> list[TaskRow]:
        """Lock up to `count` tasks with `wake_at <= now` that nobody else has locked."""

    def save(self, changes: Changes) -> None:
        """Write all of this. The last call of a change; what it writes may be sent with COMMIT.

        An id that is taken, a dedup record or a task that others have changed since it was read
        here, lanes that are not those it was prepared for: the change is run again.
        """

    def renew(self, leases: Sequence[Lease]) -> set[int]:
        """Extend leases that are still held by that epoch, never shorten; the keys that were."""

    def hold_resources(self, key: int, places: Sequence[tuple[str, int]]) -> bool:
        """Take these places of resources for this task; none of them if others have one."""

    def settle_effects(self, sequences: Sequence[int], until: int | None = None) -> None:
        """Forget effects that were carried out; with `until` they were not, and are not due again
        before that moment, one try more."""

    def delete(self, keys: Sequence[int], expired: Expired | None = None) -> int:
        """Forget tasks with their events and artifact records, but not what outlives them. Of that
        what has `expired`: dedup records, what was spent under labels, audit rows, deliveries of
        hooks that wait for nothing. Returns how many dedup records it were."""


class Store(Protocol):
    """A database that keeps the promises of DESIGN section 4 with the verbs of `Tx`."""

    def write(
        self, change: Callable[[Tx], T], *, durable: bool = True, connection: object = None
    ) -> T:
        """Run `change` in one transaction, again if the database asks for it.

        One that need not be `durable` may be undone by a crash of the machine after it committed:
        for what is done again anyway if it was lost.

        With a `connection` it is the caller's open transaction on that connection: `change` takes
        effect when, and if, the caller commits. It must lock nothing that others wait for. Refused
        by a store that no other program shares transactions with.
        """

    def read(self, look: Callable[[Reader], T]) -> T: ...
    def number_events(self) -> int:
        """Give every event that has committed its position in the log; the last position. There
        are no gaps, and an event that others could see before another was written comes before it.
        Whoever follows the log calls this first."""

    def role_ids(self, names: Iterable[str]) -> dict[str, int]:
        """Ids of roles, made where there are none yet. Roles are never deleted."""

    def now(self) -> int:
        """The store's clock, in milliseconds: the only clock that leases are measured by."""

    def schema_version(self) -> int: ...
    def migrate(self) -> list[str]:
        """Bring the schema up to date under a lock; the names of what was applied."""

    def facts(self) -> dict[str, str]:
        """What `agentq doctor` should know: versions, durability settings, sizes."""

    def backup(self, target: str) -> None: ...
    def close(self) -> None: ...
