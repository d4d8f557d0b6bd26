"""The queries of the service interface, and the access checks that every call begins with.

The access table is applied to the tasks that are there. Only an attempt's rights depend on how it
stands to a task. Its relation is found by following `spec.parent` upward, with reads of its own:
parents never change, so nothing can come in between. Everybody else is judged by the table alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Protocol

from agentq.contracts.store import SUBMISSIONS_LANE
from agentq.core.access import (
    ALL,
    Action,
    Principal,
    PrincipalKind,
    Relation,
    allowed,
    is_of_role,
)
from agentq.core.errors import (
    AgentqError,
    Conflict,
    Invalid,
    NotFound,
    Refused,
    Unavailable,
)
from agentq.core.states import State
from agentq.ledger.service_audit import AuditedService

if TYPE_CHECKING:
    from agentq.contracts import service_values as v
    from agentq.contracts.artifacts import ArtifactStore, LivePart
    from agentq.contracts.store import ArtifactRow, Reader, Store
    from agentq.core.causation import LoopCaps
    from agentq.core.limits import RoleLimits
    from agentq.core.task import Task, Usage
    from agentq.core.triggers import LogEntry
    from agentq.ledger.ledger import Ledger
    from agentq.ledger.queries import LedgerQueries

#: Actions whose refusals are worded by what many tasks have in common, not by what is asked for.
_ABOUT_MANY = (Action.READ, Action.SUBMIT)
#: Keys of claimed tasks that are remembered, so that their holders' calls need no look-up.
_KEYS_MAX = 20_000


class Resources(Protocol):
    """What a service is made of, each part opened when it is first asked for."""

    @property
    def store(self) -> Store: ...
    @property
    def ledger_queries(self) -> LedgerQueries: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def artifacts(self) -> ArtifactStore: ...
    @property
    def four_eyes(self) -> bool | None:
        """Whether nobody may approve what they submitted themselves; None if settings leave it
        open."""

    @property
    def artifact_links(self) -> bool:
        """Whether workers elsewhere reach the artifact store by links."""

    @property
    def local_user(self) -> str:
        """The user of the operating system that this process runs as."""

    @property
    def local_origin(self) -> str:
        """The same by number, and the machine: where a principal of this process speaks from."""

    @property
    def keep_audit_ms(self) -> int:
        """How long the audit log is kept."""

    @property
    def loop_caps(self) -> LoopCaps:
        """What agents may cause by themselves."""

    @property
    def random_bytes(self) -> Callable[[int], bytes]:
        """What secrets are made of: so many bytes that nobody can guess."""


class QueryService(AuditedService):
    """Answers queries and changes nothing, but that it writes down whom it refuses."""

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        self._claimed_keys: dict[str, int] = {}

    @property
    def _queries(self) -> LedgerQueries:
        return self._resources.ledger_queries

    @property
    def _ledger(self) -> Ledger:
        return self._resources.ledger

    @property
    def _artifacts(self) -> ArtifactStore:
        return self._resources.artifacts

    # -- access ----------------------------------------------------------------------------------

    @property
    def _four_eyes(self) -> bool:
        """Whether nobody may approve what they submitted. Where settings leave it open: as soon as
        there is somebody else who could."""
        wanted = self._resources.four_eyes
        if wanted is not None:
            return wanted
        from agentq.ledger.tokens import count_approvers

        return self._store.read(count_approvers) >= 2

    def _check(
        self, who: Principal, action: Action, about: str = "", role: str | None = None
    ) -> None:
        """Check a request that concerns no single task."""
        may = allowed(who, action)
        if may is ALL:
            return
        own_role = role is not None and is_of_role(who, role)
        if (Relation.ROLE if own_role else Relation.NONE) not in may:
            subject = role or ("" if action in _ABOUT_MANY else about)
            raise self._refused(who, action, about or role or "", subject)

    def _check_attempt(self, who: Principal, action: Action, task_id: str, epoch: int) -> None:
        """Check what the holder of an attempt asks for. Whoever names the epoch is fenced by it;
        an attempt has no other to name than its own, and a worker whose token names a role has none
        of another role."""
        self._check_attempts(who, action, [(task_id, epoch)])

    def _check_attempts(
        self, who: Principal, action: Action, attempts: Sequence[tuple[str, int]]
    ) -> None:
        may = allowed(who, action)
        if may is ALL:
            return
        strangers = self._of_other_roles(who, [task_id for task_id, _ in attempts])
        for task_id, epoch in attempts:
            foreign = task_id in strangers or (
                who.kind is PrincipalKind.ATTEMPT and (who.task_id, who.epoch) != (task_id, epoch)
            )
            if (Relation.NONE if foreign else Relation.OWN) not in may:
                raise self._refused(who, action, task_id)

    def _of_other_roles(self, who: Principal, ids: list[str]) -> set[str]:
        """Those of these tasks that a worker's token is not for. A worker beside the ledger is
        taken at its word: it could open the ledger itself."""
        if who.kind is not PrincipalKind.WORKER or who.proof != "token" or not who.role:
            return set()
        found = self._queries.by_id(ids)
        return {each for each, task in found.items() if not is_of_role(who, task.to)}

    def _check_task(self, who: Principal, action: Action, task: Task, ref: str = "") -> None:
        """Check a request about one task that is not its holder's, and was asked for as `ref`."""
        may = allowed(who, action)
        if may is not ALL and (not may or self._relation(who, task) not in may):
            # By its whole id only to whoever may see it: `ref` may be the beginning of any.
            sees = not ref or allowed(who, Action.READ) is ALL
            raise self._refused(who, action, task.id if sees else ref, task.id)

    def _find(self, who: Principal, action: Action, ref: str) -> tuple[int, Task]:
        """The task that is meant and its key, if the principal may do this with it."""
        may = allowed(who, action)
        if not may:
            raise self._refused(who, action, ref, self._meant(ref))
        try:
            key, task = self._locate(who, ref)
        except NotFound:
            # Its transaction may have committed, and nobody has decided it yet.
            if not self._decide_deferred():
                raise
            key, task = self._locate(who, ref)
        self._check_task(who, action, task, ref)
        return key, task

    def _locate(self, who: Principal, ref: str) -> tuple[int, Task]:
        """The task that is meant and its key. Of ids that it may not list nobody is told which
        begin alike."""
        try:
            return self._queries.find(ref)
        except Invalid as error:
            if error.code != "ambiguous" or allowed(who, Action.READ) is ALL:
                raise
            raise Invalid(
                f"{ref!r} could be any of several tasks.", "Give more of the id.", code=error.code
            ) from None

    def _meant(self, ref: str) -> str:
        """The id of the task that is meant, for the audit log; what was said, if it is no task."""
        from agentq.ledger.audit import storable

        ref = storable(ref)
        try:
            return self._queries.find(ref)[1].id
        except AgentqError:
            return ref

    def _relation(self, who: Principal, task: Task) -> Relation:
        if who.kind is PrincipalKind.ATTEMPT:
            found = self._kinship(who, task)
            if found is not None:
                return found
        return Relation.ROLE if is_of_role(who, task.to) else Relation.NONE

    def _kinship(self, who: Principal, task: Task) -> Relation | None:
        """How an attempt's own task is related to this one; None if it is not."""
        if task.id == who.task_id:
            return Relation.OWN
        above, complete = self._ancestors(task)
        if who.task_id in above:
            return Relation.DESCENDANT
        own = self._queries.by_id([who.task_id]).get(who.task_id)
        if own is None:
            return Relation.UNKNOWN
        above_own, complete_own = self._ancestors(own)
        if {task.id, *above} & {own.id, *above_own}:
            return Relation.TREE
        if task.id in (*own.spec.after, own.spec.reviews):
            return Relation.INPUT
        return None if complete and complete_own else Relation.UNKNOWN

    def _ancestors(self, task: Task) -> tuple[list[str], bool]:
        """Ids of the tasks above this one; and whether that are all: those that are over may be
        pruned before what descends from them."""
        above: list[str] = []
        while task.spec.parent and task.spec.parent not in above:
            above.append(task.spec.parent)
            parent = self._queries.by_id([task.spec.parent]).get(task.spec.parent)
            if parent is None:
                return above, False
            task = parent
        return above, True

    # -- submissions that wait for whoever looks next ----------------------------------------------

    def _decide_deferred(self) -> int:
        """Decide submissions whose transactions have committed; how many tasks came of it. Whoever
        only looks is not kept from it by a ledger that cannot be written."""
        if not self._store.read(has_deferred):
            return 0
        try:
            born = self._ledger.decide_deferred()
        except Unavailable as error:
            import logging

            log = logging.getLogger("agentq.service")
            log.warning("submissions are decided later: %s", error)
            return 0
        self._publish_contexts(born)
        return len(born)

    def _publish_contexts(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if task.spec.context_sha256:
                self._publish_context(task.id, task.spec.context_sha256)

    def _publish_context(self, task_id: str, sha256: str, *, edited: bool = False) -> None:
        # The task is accepted whatever happens here: whoever reads its context publishes it first.
        with contextlib.suppress(Unavailable, Conflict):
            self._artifacts.publish_context(task_id, sha256, edited=edited)

    # -- keys ------------------------------------------------------------------------------------

    def _key(self, task_id: str) -> int:
        """The key of a task by its exact id. That of one claimed here stays known: should the task
        be pruned and its id be used again, the old attempt does not speak for the new task."""
        key = self._claimed_keys.get(task_id)
        return key if key is not None else self._keys([task_id])[task_id]

    def _keys(self, ids: Sequence[str]) -> dict[str, int]:
        known = {each: self._claimed_keys[each] for each in ids if each in self._claimed_keys}
        unknown = [each for each in ids if each not in known]
        if unknown:
            known |= self._store.read(lambda reader: reader.keys(unknown))
        missing = next((each for each in ids if each not in known), None)
        if missing is not None:
            raise NotFound(
                f"There is no task {missing!r}.", "`agentq list` shows the tasks that are there."
            )
        return known

    def _remember(self, task_id: str, key: int) -> None:
        keys = self._claimed_keys
        if len(keys) >= _KEYS_MAX:
            for oldest in list(keys)[: _KEYS_MAX // 10]:
                keys.pop(oldest, None)
        keys[task_id] = key

    def now(self) -> int:
        return self._store.now()

    def ledger_id(self, who: Principal) -> str:
        self._check(who, Action.READ, "the ledger's name")
        return self._store.read(lambda reader: reader.ledger_id())

    def identity(self, who: Principal) -> v.KnownAs:
        from agentq.contracts import service_values as v

        self._check(who, Action.READ, "who asks")
        return v.KnownAs(str(who.kind), who.name, who.role)

    def next_wake(self, who: Principal) -> int:
        self._check(who, Action.TICK)
        # Submissions that can be decided are due: whoever waits for a moment to come ticks then.
        return self._store.read(lambda reader: 1 if has_deferred(reader) else reader.next_wake())

    def task(self, who: Principal, ref: str) -> Task:
        return self._find(who, Action.READ, ref)[1]

    def tasks_by_id(self, who: Principal, ids: Sequence[str]) -> dict[str, Task]:
        found = self._queries.by_id(list(ids))
        if len(found) < len(set(ids)) and self._decide_deferred():
            found = self._queries.by_id(list(ids))
        if allowed(who, Action.READ) is not ALL:
            for task in found.values():
                self._check_task(who, Action.READ, task)
        return found

    def list_tasks(self, who: Principal, wanted: v.Wanted) -> v.Page:
        self._check(who, Action.READ, "the list of tasks")
        self._decide_deferred()
        return self._queries.list_tasks(wanted)

    def ids(self, who: Principal, prefix: str, limit: int = 50) -> list[str]:
        self._check(who, Action.READ, "the list of tasks")
        return self._store.read(lambda reader: reader.ids_starting(prefix, limit))

    def explain(self, who: Principal, ref: str) -> v.Explanation:
        key, _ = self._find(who, Action.READ, ref)
        return self._queries.explain(key, four_eyes=self._four_eyes)

    def stats(self, who: Principal) -> v.Stats:
        self._check(who, Action.READ, "the counts of all tasks")
        self._decide_deferred()
        return self._queries.stats()

    def costs(self, who: Principal, by: str) -> dict[str, Usage]:
        self._check(who, Action.READ, "what all tasks cost")
        return self._queries.costs(by)

    def limits(self, who: Principal) -> dict[str, RoleLimits]:
        self._check(who, Action.READ, "the limits of roles")
        return self._queries.limits()

    def circuits(self, who: Principal) -> list[v.Circuit]:
        from agentq.contracts.service_values import Circuit

        self._check(who, Action.READ, "the circuits of providers")
        return [Circuit(*row[:6], bool(row.probing)) for row in self._queries.circuits()] + [
            Circuit("", 0, each.reason, each.opened_at, each.opened_by, role=role)
            for role, each in self._queries.role_circuits().items()
        ]

    # -- the log ---------------------------------------------------------------------------------

    def history(self, who: Principal, ref: str) -> list[LogEntry]:
        return self._queries.history(self._find(who, Action.READ, ref)[0])

    def events_after(self, who: Principal, position: int, limit: int = 500) -> list[LogEntry]:
        self._check(who, Action.READ, "the events of all tasks")
        return self._queries.events_after(position, limit)

    def last_position(self, who: Principal) -> int:
        self._check(who, Action.READ, "the events of all tasks")
        return self._queries.last_position()

    def event_data(self, entry: LogEntry) -> dict[str, object]:
        from agentq.ledger.log_codec import trigger_data

        return trigger_data(entry.event.trigger)

    def replay(self, who: Principal, ref: str) -> v.Replayed:
        from agentq.contracts.service_values import Replayed
        from agentq.ledger.replay import prove_task, replay

        key, task = self._find(who, Action.READ, ref)
        # The log may have grown since the task was read; what it held then has not changed.
        entries = self._queries.history(key)[: task.version]
        events = [entry.event for entry in entries]
        problems = self._store.read(lambda reader: prove_task(reader, key))
        steps: list[tuple[LogEntry, Task]] = []
        with contextlib.suppress(Exception):  # a log that cannot be replayed is a problem above
            for entry, (_, left) in zip(entries, replay(events), strict=False):
                steps.append((entry, left))
        return Replayed(task, tuple(steps), tuple(problems))

    def verify(
        self, who: Principal, *, files: bool = True, seal: str = "", since_seal: bool = False
    ) -> Iterator[tuple[int, list[v.Problem]]]:
        self._check(who, Action.READ, "every task")
        from agentq.ledger.implied_files import ImpliedFiles

        check = ImpliedFiles(self._artifacts) if files else None
        return self._queries.verify(check, seal=seal, since_seal=since_seal)

    # -- evidence --------------------------------------------------------------------------------

    def context(self, who: Principal, ref: str) -> str:
        task = self.task(who, ref)
        if not task.spec.context_sha256:
            return task.spec.instructions
        return self._context_of(task).decode("utf-8", "replace")

    def _context_of(self, task: Task) -> bytes:
        sha256, edited = task.spec.context_sha256, bool(task.edited_context)
        return self._artifacts.context(task.id, sha256, edited=edited)

    def artifacts(self, who: Principal, ref: str) -> list[v.ArtifactInfo]:
        return recorded(self._queries.artifacts(self._find(who, Action.READ, ref)[0]))

    def live_read(
        self, who: Principal, ref: str, epoch: int, position: int, limit: int
    ) -> LivePart:
        _, task = self._find(who, Action.READ, ref)
        return self._artifacts.live_read(task.id, epoch, position, limit)

    def open_artifact(
        self, who: Principal, ref: str, name: str, epoch: int = 0
    ) -> tuple[Task, v.ArtifactInfo, BinaryIO]:
        from agentq.contracts.artifacts import Stored

        task, row = self._recorded_file(who, ref, name, epoch)
        stored = Stored(row.name, row.size, row.sha256, row.media_type)
        return task, row, self._artifacts.open(task.id, row.epoch, row.name, stored)

    def artifact_link(
        self, who: Principal, ref: str, name: str, epoch: int = 0
    ) -> tuple[v.ArtifactInfo, str] | None:
        from agentq.contracts.artifacts import LINK_SECONDS, LINKED_BYTES_MIN

        # An agent gets files, and never a link that it could hand on.
        if not self._resources.artifact_links or who.kind is PrincipalKind.ATTEMPT:
            return None
        task, row = self._recorded_file(who, ref, name, epoch)
        if row.size < LINKED_BYTES_MIN:
            return None
        return row, self._artifacts.presign(task.id, row.epoch, row.name, LINK_SECONDS)

    def _recorded_file(
        self, who: Principal, ref: str, name: str, epoch: int
    ) -> tuple[Task, v.ArtifactInfo]:
        key, task = self._find(who, Action.READ, ref)
        rows = [
            row
            for row in recorded(self._queries.artifacts(key))
            if row.name == name and (not epoch or row.epoch == epoch)
        ]
        if not rows:
            raise NotFound(
                f"{task.id} has no artifact {name!r}" + (f" in attempt {epoch}." if epoch else "."),
                f"`agentq artifacts ls {task.id}` shows what there is.",
            )
        return task, rows[-1]

    def open_result(self, who: Principal, ref: str) -> tuple[Task, BinaryIO | None]:
        task = self.task(who, ref)
        report = task.details.report
        if task.state is not State.COMPLETE or report is None:
            raise Refused(
                f"{task.id} is {task.state}; only a complete task has a result.",
                f"`agentq wait {task.id}` waits for it, `agentq explain {task.id}` says why.",
                code="no_result",
            )
        if not report.result:
            return task, None
        sha256 = report.result_sha256
        # Repeating it is free, and mends a crash between the commit and the publishing.
        self._artifacts.publish_result(task.id, report.epoch, report.result, sha256)
        return task, self._artifacts.open_result(task.id, sha256)


def has_deferred(reader: Reader) -> bool:
    return bool(reader.effects(SUBMISSIONS_LANE, 1, due_only=True))


def recorded(rows: Sequence[ArtifactRow]) -> list[v.ArtifactInfo]:
    """What is recorded of files, without the key that only the ledger knows."""
    from agentq.contracts.artifacts import ArtifactInfo

    return [ArtifactInfo(*row[1:]) for row in rows]
