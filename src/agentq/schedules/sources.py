"""What schedules are made from: files of their own here; agent profiles elsewhere.

A source keeps the ledger's rows in step with its files, and says what one that is due asks for. Of
thousands of files it reads those that were written since: the others cost a `stat` each.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentq.client.task_input.named_files import SUFFIX
from agentq.contracts.schedule_values import DeclaredSchedule, ScheduleState
from agentq.core.access import SYSTEM
from agentq.core.counting import some_of
from agentq.core.errors import AgentqError, Invalid, NotFound
from agentq.protocol.occurrences import next_after
from agentq.schedules.firing import PlannedFiring, draft_of, plan_firing
from agentq.schedules.folder import (
    Signature,
    content_of,
    digest_of,
    doubles,
    parsed,
    scan,
)
from agentq.schedules.model import Schedule

if TYPE_CHECKING:
    from agentq.contracts.service import Service

log = logging.getLogger("agentq.daemon.schedules")

#: How often rows are held against files that look the same, and broken ones are read again.
_COMPARE_SECONDS = 60.0
#: How many are declared in one transaction.
_BATCH = 500

#: The roles that there are, or None if nobody knows them all; asked for the sake of one of them.
KnownRoles = Callable[[str], Collection[str] | None]


class ScheduleSource(Protocol):
    """Where schedules of one kind come from."""

    #: What the names of its schedules start with, before a colon; "" for none.
    kind: str

    def sync(self, service: Service) -> int:
        """Bring the rows in step with the files; how many changed. Called every few seconds."""

    def firing(self, service: Service, state: ScheduleState, now: int) -> PlannedFiring | None:
        """What a schedule that is due asks for; None if its row was changed instead. Raises
        `Invalid` or `NotFound` if nothing can come of it until a file is mended."""


def same_name(path: Path, other: str) -> Invalid:
    """The error of two files whose names differ in capitals only."""
    return Invalid(
        f"{path}, line 1: there is a schedule called {other} already.",
        "Rename one of them by more than its capitals.",
    )


class FileSchedules:
    """The schedules of one folder."""

    kind = ""

    def __init__(
        self, folder: Path, workflows: Path, roles: KnownRoles = lambda role: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.folder = folder
        self._workflows = workflows
        self._roles = roles
        self._monotonic = monotonic
        #: Of each file as it was last read: its signature, and the digest of its bytes.
        self._seen: dict[str, Signature] = {}
        self._digests: dict[str, str] = {}
        self._compare_at = 0.0

    # ---- files into rows -----------------------------------------------------------------------

    def sync(self, service: Service) -> int:
        files = scan(self.folder)
        if files == self._seen and self._monotonic() < self._compare_at:
            return 0
        rows = {each.name: each for each in service.schedules(SYSTEM) if each.kind == self.kind}
        twice = doubles(files)
        declared = []
        for name, signature in files.items():
            row = rows.get(name)
            said = self._look_at(service, name, signature, row, twice)
            if said is not None and not (said.problem and row and said.problem == row.problem):
                declared.append(said)
        dropped = [name for name in rows if name not in files]
        changed = self._declare(service, declared, dropped)
        self._seen = files
        self._compare_at = self._monotonic() + _COMPARE_SECONDS
        return changed

    def _look_at(
        self,
        service: Service,
        name: str,
        signature: Signature,
        row: ScheduleState | None,
        twice: Mapping[str, str],
    ) -> DeclaredSchedule | None:
        """What a file says, unless that is what its row says already."""
        same = self._seen.get(name) == signature and row is not None
        if same and row is not None and not row.problem and self._digests.get(name) == row.digest:
            return None
        try:
            content = content_of(self.folder, name)
        except AgentqError as error:
            return self._broken(name, "", error)
        digest = self._digests[name] = digest_of(content)
        if row is not None and row.digest == digest and not row.problem and name not in twice:
            return None
        if name in twice:
            path = self.folder / f"{name}{SUFFIX}"
            return self._broken(name, digest, same_name(path, twice[name]))
        return self._declared(service, content, name)

    def _declared(self, service: Service, content: bytes, name: str) -> DeclaredSchedule:
        digest, now = digest_of(content), service.now()
        try:
            schedule = parsed(content, name, self.folder / f"{name}{SUFFIX}")
            self.check(schedule, service)
        except AgentqError as error:
            return self._broken(name, digest, error)
        since = now // 1000 * 1000
        next_at = next_after(schedule.timing, now, since)
        return DeclaredSchedule(name, schedule.timing.rule, since, next_at, digest)

    def _broken(self, name: str, digest: str, error: AgentqError) -> DeclaredSchedule:
        return DeclaredSchedule(name, digest=digest, problem=error.cause)

    def check(self, schedule: Schedule, service: Service) -> None:
        """Raise `Invalid` for what would keep it from firing, and is not in the file itself."""
        draft_of(schedule, service.now(), self._workflows)
        roles = self._roles(schedule.role) if schedule.role else None
        if roles is None or schedule.role in roles:
            return
        elsewhere = {each.name for each in service.roles(SYSTEM) if each.seen_at}
        if schedule.role not in elsewhere:
            near = get_close_matches(schedule.role, list(roles), 1)
            field = "role" if "role" in schedule.lines else "to"
            raise Invalid(
                f"{schedule.at_line(field)}: there is no role {schedule.role!r}.",
                f"Did you mean {near[0]}?" if near else f"There are: {some_of(roles)}.",
            )

    def _declare(
        self, service: Service, declared: Sequence[DeclaredSchedule], dropped: Sequence[str]
    ) -> int:
        changed = 0
        for start in range(0, len(declared), _BATCH):
            changed += service.declare_schedules(SYSTEM, declared[start : start + _BATCH])
        for start in range(0, len(dropped), _BATCH):
            changed += service.declare_schedules(SYSTEM, (), dropped[start : start + _BATCH])
        for each in declared:
            if each.problem:
                log.info("schedule %s does not run: %s", each.name, each.problem)
        return changed

    # ---- rows into tasks -----------------------------------------------------------------------

    def firing(self, service: Service, state: ScheduleState, now: int) -> PlannedFiring | None:
        try:
            content = content_of(self.folder, state.name)
        except NotFound:
            service.declare_schedules(SYSTEM, (), [state.name])
            return None
        schedule = parsed(content, state.name, self.folder / f"{state.name}{SUFFIX}")
        self.check(schedule, service)
        if schedule.timing.rule != state.rule:
            # Written since it was declared: what is due now is not what it asks for any more.
            service.declare_schedules(SYSTEM, [self._declared(service, content, state.name)])
            return None
        return plan_firing(schedule, state, now, self._workflows)
