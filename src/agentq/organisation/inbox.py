"""What is in somebody's inbox: tasks, approvals, questions, mentions and failures.

All of it is asked for, nothing is kept: who answers for whom is read from the profiles each time,
and a question that nobody answers climbs the chain of command by its age alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from agentq.contracts.service_values import Wanted
from agentq.core.states import DEAD_LETTERS, State
from agentq.settings.profiles import chain_of_command

if TYPE_CHECKING:
    from agentq.contracts.service import Queries
    from agentq.core.access import Principal
    from agentq.core.task import Task
    from agentq.settings.profiles import Profile

#: After so long a question is one for the next above as well.
CLIMB_MS = 4 * 3600 * 1000
#: So long a failure is news.
FAILURES_MS = 7 * 24 * 3600 * 1000
#: How many tasks of each kind are looked at.
_LOOKED_AT_MAX = 500


class InboxKind(StrEnum):
    """Why something is in an inbox, the most urgent first."""

    APPROVAL = "approval"
    BLOCKED = "blocked"
    MENTION = "mention"
    FAILED = "failed"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class InboxItem:
    """Something that waits for somebody. `since` is when it came to them, in milliseconds."""

    kind: InboxKind
    task_id: str
    title: str
    role: str
    state: State
    since: int
    by: str = ""
    text: str = ""


class Responsibility:
    """Who answers for the tasks of which roles, as the profiles have it now."""

    def __init__(self, name: str, known: Mapping[str, Profile]) -> None:
        self.name = name
        self.is_agent = name in known
        self.own_roles = known[name].roles if name in known else (name,)
        self._levels: dict[str, int] = {}
        self._direct: set[str] = set()
        self._of_agents: set[str] = set()
        for profile in known.values():
            # A person stands at the end of every chain.
            chain = [*chain_of_command(known, profile.name), ""]
            self._of_agents.update(profile.roles)
            wanted = name if self.is_agent else ""
            if wanted in chain:
                self._levels |= dict.fromkeys(profile.roles, chain.index(wanted))
            if chain[0] == wanted:
                self._direct.update(profile.roles)

    def level(self, role: str) -> int | None:
        """How many others are asked before this one about tasks of a role; None if they never are.
        Roles that no agent has are people's."""
        if role not in self._of_agents:
            return None if self.is_agent else 0
        return self._levels.get(role)

    def manages(self, role: str) -> bool:
        """Whether those who do the tasks of this role report to this one."""
        return role in self._direct


def inbox_of(
    queries: Queries, who: Principal, name: str, known: Mapping[str, Profile], now: int
) -> list[InboxItem]:
    """Everything that waits for somebody, the most urgent kind first, in each the oldest first."""
    duty = Responsibility(name, known)
    found = [
        *_approvals(queries, who, duty),
        *_questions(queries, who, duty, now),
        *_mentions(queries, who, duty),
        *_failures(queries, who, duty, now),
        *_own_tasks(queries, who, duty),
    ]
    order = list(InboxKind)
    found.sort(key=lambda each: (order.index(each.kind), each.since, each.task_id))
    return found


def _approvals(queries: Queries, who: Principal, duty: Responsibility) -> Iterator[InboxItem]:
    wanted = duty.name if duty.is_agent else ""
    for each in queries.approvals(who, "", wanted, _LOOKED_AT_MAX).decisions:
        if each.asked_of in ("", duty.name):
            yield InboxItem(
                InboxKind.APPROVAL, each.task_id, each.title, each.role, each.state, each.since,
                each.sender, each.summary or each.waits_for,
            )  # fmt: skip


def _questions(
    queries: Queries, who: Principal, duty: Responsibility, now: int
) -> Iterator[InboxItem]:
    """Blocked tasks that this one is asked about by now: their own, and those below them."""
    for task in _listed(queries, who, Wanted((State.BLOCKED,), limit=_LOOKED_AT_MAX)):
        if task.details.reason_kind == "approval_timeout":
            continue  # an approval, and listed as one
        level = 0 if task.spec.sender == duty.name else duty.level(task.to)
        if level is None:
            continue
        asked_at = _blocked_at(queries, who, task) + level * CLIMB_MS
        if asked_at <= now:
            yield _item(InboxKind.BLOCKED, task, asked_at, task.to, task.details.reason)


def _blocked_at(queries: Queries, who: Principal, task: Task) -> int:
    events = [each.event for each in queries.history(who, task.id)]
    return next((each.at for each in reversed(events) if each.kind == "blocked"), task.updated_at)


def _mentions(queries: Queries, who: Principal, duty: Responsibility) -> Iterator[InboxItem]:
    wanted = Wanted(mentioning=duty.name, limit=_LOOKED_AT_MAX)
    for task in _listed(queries, who, wanted):
        for each in task.details.mentions:
            if each.name == duty.name.lower():
                yield _item(InboxKind.MENTION, task, each.at, each.by, each.text)


def _failures(
    queries: Queries, who: Principal, duty: Responsibility, now: int
) -> Iterator[InboxItem]:
    """Dead letters of a week: what this one has asked for, and what those below them did."""
    wanted = Wanted(tuple(sorted(DEAD_LETTERS)), limit=_LOOKED_AT_MAX)
    for task in _listed(queries, who, wanted):
        mine = task.spec.sender == duty.name or duty.manages(task.to)
        if mine and task.updated_at > now - FAILURES_MS:
            yield _item(InboxKind.FAILED, task, task.updated_at, task.to, task.details.reason)


def _own_tasks(queries: Queries, who: Principal, duty: Responsibility) -> Iterator[InboxItem]:
    for role in duty.own_roles:
        wanted = Wanted((State.READY, State.IN_PROGRESS), role=role, limit=_LOOKED_AT_MAX)
        for task in _listed(queries, who, wanted):
            yield _item(InboxKind.TASK, task, task.submitted_at, task.spec.sender)


def _listed(queries: Queries, who: Principal, wanted: Wanted) -> tuple[Task, ...]:
    return queries.list_tasks(who, wanted).tasks


def _item(kind: InboxKind, task: Task, since: int, by: str, text: str = "") -> InboxItem:
    title = task.spec.title or task.spec.instructions.strip().partition("\n")[0]
    return InboxItem(kind, task.id, title, task.to, task.state, since, by, text)
