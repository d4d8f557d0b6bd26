"""What the ledger needs from a database, and nothing more.

A store picks, locks, loads and saves; it knows no rules. Every change happens inside `write`, one
durable transaction around a function that may be run again (after a deadlock, a lost connection, a
lane that was opened meanwhile), so that function does nothing but talk to its `Tx` and think.
Rows are plain tuples because a batch of thousands passes through here; `ledger.codec` gives them
meaning. The suite in tests/contracts is the executable half of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")

#: States as the stores keep them. Live ones come first: `code < OVER` is what indexes cover.
PENDING, READY, IN_PROGRESS, REVIEW, BLOCKED, COMPLETE, FAILED, CANCELLED, EXPIRED = range(9)
OVER = COMPLETE

#: Bits of `flags`: what the ledger must look up when the task moves.
HAS_DEPENDENTS, HAS_RESOURCES, IN_TREE = 1, 2, 4


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


class SpecRow(NamedTuple):
    """The part that never changes."""

    key: int
    submitted_at: int
    body: str


class TaskRow(NamedTuple):
    """Both parts."""

    hot: HotRow
    spec: SpecRow


class NewRow(NamedTuple):
    """A task to be, with the event of its submission (always version 1)."""

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


class EventRow(NamedTuple):
    key: int
    version: int
    at: int
    kind: str
    trigger: str
    state: int
    epoch: int
    data: str


class LogRow(NamedTuple):
    """An event with its place in the order of commits."""

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
    sequence: int
    effect_id: str
    task_id: str
    lane: str
    payload: str
    tries: int


class LeavingRow(NamedTuple):
    """An effect on its way out, and the task it is about as that stands now."""

    effect: OutboxRow
    task: TaskRow


class TermRow(NamedTuple):
    """Who alone may run a loop, until when; `term` grows whenever it changes hands."""

    name: str
    holder: str
    term: int
    expires_at: int


class ArtifactRow(NamedTuple):
    key: int
    epoch: int
    name: str
    size: int
    sha256: str
    media_type: str
    at: int


class RoleRow(NamedTuple):
    id: int
    name: str
    max_running: int
    max_review: int
    paused: int
    seen_at: int
    #: Whose quota its workers use, as they last said; "" for nobody's.
    provider: str = ""
    #: What it may spend a day, as JSON; "" for any amount.
    daily: str = ""

    @property
    def is_limited(self) -> bool:
        return bool(self.paused or self.max_running or self.max_review or self.daily)


class CircuitRow(NamedTuple):
    """A provider that does not serve before `open_until`."""

    provider: str
    open_until: int
    reason: str
    opened_at: int
    opened_by: str


class SpendingRow(NamedTuple):
    """What was spent on one day under one name; `kind` says a name of what (role, label)."""

    kind: str
    name: str
    day: int
    usd: float
    tokens: float
    turns: float
    seconds: float


class TreeRow(NamedTuple):
    """The budget that a task shares with all that descend from it; amounts are JSON."""

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


class Lease(NamedTuple):
    key: int
    epoch: int
    lease_ms: int


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks to list. Empty fields do not restrict."""

    states: tuple[int, ...] = ()
    role: int = 0
    sender: str = ""
    type: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    before_key: int = 0
    limit: int = 100


class RunAgain(Exception):
    """Something changed under a transaction while it was being prepared; it is run again."""


class Reader(Protocol):
    """Looking without changing. Each call sees one committed state."""

    def now(self) -> int: ...
    def keys(self, ids: Iterable[str]) -> dict[str, int]: ...
    def ids_starting(self, prefix: str, limit: int) -> list[str]: ...
    def tasks(self, keys: Sequence[int]) -> list[TaskRow]: ...
    def list_tasks(self, wanted: Filter) -> list[TaskRow]: ...
    def keys_after(self, key: int, limit: int) -> list[int]: ...
    def events_of(self, key: int) -> list[LogRow]: ...
    def events_after(self, position: int, limit: int) -> list[LogRow]: ...
    def last_position(self) -> int: ...
    def counts(self) -> list[tuple[str, int, int]]: ...
    def oldest_ready(self) -> list[tuple[str, int]]: ...
    def artifacts_of(self, key: int) -> list[ArtifactRow]: ...
    def roles(self) -> list[RoleRow]: ...
    def occupancy(self, role: int) -> tuple[int, int]: ...
    def holders_of(self, resources: Sequence[str]) -> dict[str, str]: ...
    def outbox_counts(self) -> dict[str, int]: ...
    def outbox_after(self, lane: str, sequence: int, limit: int) -> list[OutboxRow]:
        """Effects of a lane after this one, due or not, whether or not their task is there still;
        `task_id` is empty. Hides nothing from others."""

    def parents_of(self, key: int) -> list[int]: ...
    def ahead(self, role: int, priority: int, key: int) -> int:
        """How many ready tasks of a role would be picked before this one."""

    def halves(self, limit: int) -> list[int]:
        """Keys of which only one half, row or spec, is there: damage."""

    def role(self, role: int) -> RoleRow: ...
    def next_wake(self) -> int:
        """The earliest `wake_at` of all tasks; 0 if there is none."""

    def prunable(self, before: int, after_key: int, limit: int) -> list[int]:
        """Keys of tasks that ended before that moment, with no holder and no effect under way, and
        of which no task that is not over comes after or belongs to the tree."""

    def still_prunable(self, before: int, keys: Sequence[int]) -> list[int]:
        """The same of these very tasks."""

    def last_key(self) -> int:
        """Of the newest task that is there; 0 if there is none."""

    def naming(self, after_key: int, limit: int) -> list[SpecRow]:
        """Specs of tasks that are not over and name a parent or what comes next, by key."""

    def circuits(self) -> list[CircuitRow]:
        """By provider; those that have closed by themselves may be among them."""

    def spent_on(self, kind: str, name: str, day: int) -> SpendingRow | None: ...
    def spending(self, kind: str) -> list[SpendingRow]:
        """Everything spent under names of this kind, by name and day."""

    def trees_of(self, keys: Sequence[int]) -> list[TreeRow]:
        """The trees that these tasks belong to, by root."""

    def membership(self, ids: Iterable[str]) -> list[tuple[str, int]]:
        """(task id, root) for each tree that a task of these ids belongs to."""

    def leaving(self, lane: str, count: int) -> list[LeavingRow]:
        """The oldest effects of a lane that are due, and their tasks. Hides nothing from others."""

    def ready_counts(self) -> dict[str, int]:
        """How many tasks of each role are ready; roles without any are left out."""

    def ready_after(
        self, role: int, before: int, count: int, priority: int, key: int
    ) -> list[TaskRow]:
        """Ready tasks of a role that have been so since before that moment, the most urgent first,
        after a task of this priority and key."""

    def terms(self) -> list[TermRow]: ...


class Tx(Reader, Protocol):
    """One transaction. What it locks stays locked until it ends."""

    def insert(self, rows: Sequence[NewRow]) -> dict[str, int]:
        """Insert tasks and their first events; ids already taken are left out of the answer."""

    def lock(self, keys: Sequence[int]) -> list[HotRow]:
        """Lock and load, by ascending key; keys that do not exist are left out."""

    def pick(self, role: int, count: int) -> list[TaskRow]:
        """Lock up to `count` ready tasks that nobody else has locked, the most urgent first.
        Tasks whose exclusive resources are held, or whose tree is used up, are passed over."""

    def pick_after(self, role: int, count: int, priority: int, key: int) -> list[TaskRow]:
        """What `pick` would give after a task of this priority and key."""

    def pick_freely(
        self, role: int, count: int, provider: str = ""
    ) -> tuple[RoleRow, int, list[TaskRow]]:
        """The role; until when the provider's circuit is open (0: it is not); and, if the role is
        neither paused nor limited and the circuit not open, what `pick` gives; else nothing."""

    def pick_named(
        self, role: int, ids: Sequence[str], provider: str = ""
    ) -> tuple[RoleRow, int, list[TaskRow]]:
        """The same of these very tasks, in this order: those of the role that are ready and that
        nobody else has locked. What a role may have at once is for the caller to look at."""

    def foresee(self, role: int, count: int, provider: str = "") -> None:
        """`pick_freely` will be asked for this, after the next `lock`: a store may begin it then,
        while the caller is busy with what was locked."""

    def due(self, now: int, count: int) -> list[TaskRow]:
        """Lock up to `count` tasks with `wake_at <= now` that nobody else has locked."""

    def save(
        self,
        hot: Sequence[HotRow],
        events: Sequence[EventRow],
        effects: Sequence[EffectRow],
    ) -> None:
        """Write changed tasks, append their events, store effects. The last call of a change."""

    def ring(self, topics: Iterable[str]) -> None:
        """Wake whoever listens for these topics, once this transaction has committed."""

    def renew(self, leases: Sequence[Lease]) -> set[int]:
        """Extend leases that are still held by that epoch, never shorten; the keys that were."""

    def lanes(self) -> frozenset[str]: ...
    def set_lanes(self, lanes: frozenset[str]) -> None: ...
    def link(self, edges: Sequence[tuple[int, int]]) -> None:
        """Record (parent, child) and mark the parents as having dependents."""

    def children(self, keys: Sequence[int]) -> list[tuple[int, int]]: ...
    def lock_role(self, role: int) -> RoleRow: ...
    def set_role(self, row: RoleRow) -> None: ...
    def want(self, key: int, resources: Sequence[str]) -> None:
        """Record which exclusive resources a task will need."""

    def hold(self, key: int, resources: Sequence[str]) -> bool:
        """Take all of them for this task, or none."""

    def unhold(self, keys: Sequence[int]) -> None: ...
    def recall(self, names: Sequence[str]) -> dict[str, DedupRow]: ...
    def remember(self, rows: Sequence[DedupRow]) -> None: ...
    def add_artifacts(self, rows: Sequence[ArtifactRow]) -> None: ...
    def take_effects(self, lane: str, now: int, count: int, until: int) -> list[OutboxRow]:
        """The oldest effects that are due, hidden from others until `until`."""

    def ack_effects(self, sequences: Sequence[int]) -> None: ...
    def postpone_effects(self, sequences: Sequence[int], until: int) -> None:
        """They could not be carried out: not due again before that moment, one try more."""

    def relax(self) -> None:
        """A crash of the machine may undo this transaction once it has committed. For what is done
        again anyway if it was lost: the commit need not wait for the disk."""

    def lock_terms(self, names: Sequence[str]) -> list[TermRow]:
        """Lock and load, by name; one that never was has nobody's name and the number 0."""

    def set_terms(self, rows: Sequence[TermRow]) -> None: ...
    def delete(self, keys: Sequence[int]) -> None:
        """Forget tasks with their events and artifact records. Dedup records stay."""

    def forget_dedup(self, now: int) -> int: ...
    def extend_circuit(self, row: CircuitRow) -> CircuitRow:
        """Open it, or keep it open for longer, never shorter; how it stands now."""

    def close_circuit(self, provider: str, at: int, reason: str) -> bool:
        """End it at this moment, if it is open for longer; whether it was."""

    def add_spending(self, rows: Sequence[SpendingRow]) -> None:
        """Add to what was spent under each name and day, each at most once per call."""

    def forget_spending(self, kind: str, before_day: int) -> None: ...
    def lock_trees(self, keys: Sequence[int]) -> list[tuple[int, TreeRow]]:
        """Lock the trees that these tasks belong to: (task, tree), by root."""

    def set_trees(self, rows: Sequence[TreeRow]) -> None:
        """Write trees, new ones and changed ones."""

    def join_trees(self, members: Sequence[tuple[int, int]]) -> None:
        """Record (task, root)."""

    def waiting_roles(self, roots: Sequence[int]) -> list[str]:
        """Roles that have a ready task in one of these trees."""


class Store(Protocol):
    """A database that keeps the promises of DESIGN section 4 with the verbs of `Tx`."""

    def submit(
        self,
        rows: Sequence[NewRow],
        effects: Mapping[str, Sequence[tuple[str, str]]],
        lanes: frozenset[str],
        topics: Iterable[str],
    ) -> set[str]:
        """Insert tasks in one transaction of its own: all of them, or none if an id is taken.

        The ids that were inserted, so all or nothing. `effects` are (lane, payload) by task id.
        Raises RunAgain unless `lanes` are open."""

    def submit_alike(
        self,
        row: NewRow,
        words: Sequence[tuple[str, str]],
        lanes: frozenset[str],
        topics: Iterable[str],
        effects: Sequence[tuple[str, Sequence[str]]] = (),
    ) -> bool:
        """The same for tasks that differ in nothing but id and body, as most of one batch do:
        `words` has those, `row` the rest. Each effect is a lane, and what it says of each task.
        False if an id is taken."""

    def write(self, change: Callable[[Tx], T]) -> T:
        """Run `change` in one durable transaction, again if the database asks for it."""

    def read(self, look: Callable[[Reader], T]) -> T: ...
    def role_ids(self, names: Iterable[str]) -> dict[str, int]:
        """Ids of roles, made where there are none yet. Roles are never deleted."""

    def known_lanes(self) -> frozenset[str]: ...
    def now(self) -> int:
        """The store's clock, in milliseconds: the only clock that leases are measured by."""

    def schema_version(self) -> int: ...
    def migrate(self) -> list[str]:
        """Bring the schema up to date under a lock; the names of what was applied."""

    def facts(self) -> dict[str, str]:
        """What `agentq doctor` should know: versions, durability settings, sizes."""

    def backup(self, target: str) -> None: ...
    def close(self) -> None: ...
