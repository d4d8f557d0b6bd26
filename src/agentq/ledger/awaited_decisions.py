"""What waits for an approval or a verdict of people, by reads that are bounded.

Approvals are found by their index, reports and what was held by their state. Of each so many are
looked at, the oldest first; which of them come first is decided among those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentq.contracts.overview_values import (
    COUNTED_TO,
    AwaitedDecision,
    AwaitedDecisions,
    DecisionKind,
)
from agentq.contracts.store import (
    BLOCKED,
    REVIEW,
    Reader,
    TaskRow,
)
from agentq.contracts.task_filter import Filter, Order
from agentq.core.digests import spec_digest
from agentq.core.errors import Invalid
from agentq.core.policy_steps import is_asked, upcoming_steps
from agentq.core.schedule import waiting_for
from agentq.core.states import State
from agentq.core.task import NO_POLICY, Task
from agentq.ledger.overview import AsTask, rows_of_state, title_of

#: How many tasks of a kind are looked at, in pages of so many; and how many an answer may have.
LOOKED_MAX, _PAGE = 1000, 200
LISTED_MAX = 1000
#: The events since which a report, or what was held, waits for a person.
_ASKED_BY = frozenset({"Report", "Verdict", "ReviewFailed"})

Found = tuple[int, Task]


def awaited_decisions(
    reader: Reader,
    as_task: AsTask,
    role: str = "",
    asked_of: str = "",
    limit: int = 50,
    *,
    with_reviewers: bool = False,
) -> AwaitedDecisions:
    """What people are asked to decide now: of a role, or what somebody is asked by a policy. What
    a reviewer's task is still about to judge is left out, unless it is wanted."""
    if not 1 <= limit <= LISTED_MAX:
        raise Invalid(f"1 to {LISTED_MAX} decisions are listed, got {limit}.")

    def is_wanted(task: Task) -> bool:
        if role not in ("", task.to) or asked_of not in ("", task.details.asked_of):
            return False
        return is_asked(task) and (with_reviewers or not task.details.review_task)

    looked = [0, 0, 0]
    ways = (_needing_approval(reader), *_by_state(reader, role))
    found = [
        (row.hot.key, task)
        for number, rows in enumerate(ways)
        for row in _counted(rows, looked, number)
        if is_wanted(task := as_task(row))
    ]
    found.sort(key=lambda each: _urgency(each[1], _since(each[1])))
    listed = [_decision(reader, key, task) for key, task in found[:limit]]
    listed.sort(key=lambda each: (not each.irreversible, each.since, each.task_id))
    more = len(found) > limit or any(count >= LOOKED_MAX for count in looked)
    return AwaitedDecisions(reader.now(), tuple(listed), more)


def _counted(rows: Iterator[TaskRow], looked: list[int], number: int) -> Iterator[TaskRow]:
    for row in rows:
        looked[number] += 1
        yield row


def _needing_approval(reader: Reader) -> Iterator[TaskRow]:
    """Pending tasks that need an approval, given or not, the oldest first."""
    last = 0
    for _ in range(LOOKED_MAX // _PAGE):
        rows = reader.list_tasks(Filter(order=Order.APPROVAL, key=last, limit=_PAGE))
        yield from rows
        if len(rows) < _PAGE:
            return
        last = rows[-1].hot.key


def _by_state(reader: Reader, role: str) -> tuple[Iterator[TaskRow], Iterator[TaskRow]]:
    """Reports in review, and what is blocked: an approval that nobody gave in time is held so."""
    roles = [each for each in reader.roles() if role in ("", each.name)]
    counts = {(row.role, row.state): row.tasks for row in reader.counts(at_most=COUNTED_TO)}
    return (
        rows_of_state(reader, roles, counts, REVIEW, LOOKED_MAX),
        rows_of_state(reader, roles, counts, BLOCKED, LOOKED_MAX),
    )


def _urgency(task: Task, since: int) -> tuple[bool, int, str]:
    return not task.spec.irreversible, since, task.id


def _since(task: Task) -> int:
    """Since when the decision is waited for, as far as the task itself tells."""
    if task.state is State.REVIEW and task.spec.approval == NO_POLICY:
        return task.updated_at
    return task.details.asked_at or task.updated_at


def _decision(reader: Reader, key: int, task: Task) -> AwaitedDecision:
    details = task.details
    since = _since(task)
    if since == task.updated_at:  # a reminder or a comment may have come in between
        since = _asked_since(reader, key, since)
    return AwaitedDecision(
        DecisionKind.REVIEW if task.state is State.REVIEW else DecisionKind.APPROVAL,
        task.id, task.to, title_of(task), task.spec.sender, task.state, _WORDS[task.state](task),
        since, task.spec.irreversible, spec_digest(task.spec), task.version, task.epoch,
        task.summary, details.asked_of,
        min(details.escalations, len(task.spec.approval.escalate)),
        len(task.spec.approval.escalate), upcoming_steps(task), details.spent,
        details.review_task, details.score,
    )  # fmt: skip


def _asked_since(reader: Reader, key: int, fallback: int) -> int:
    """The moment since which people are asked, from the log."""
    events = [row.event for row in reader.history(key)]
    moments = [
        each.at for each in events if each.trigger in _ASKED_BY or each.kind == "blocked"
    ]  # fmt: skip
    return moments[-1] if moments else fallback


# -- in words --------------------------------------------------------------------------------------


def _start(task: Task) -> str:
    others = [each for each in waiting_for(task) if each != "approval"]
    return "an approval" + (f"; also {', '.join(others)}" if others else "")


def _held(task: Task) -> str:
    return f"an approval: {task.reason}"


def _verdict(task: Task) -> str:
    details = task.details
    if details.review_task:
        return f"its review {details.review_task}"
    if details.reason:
        return f"a verdict: {details.reason}"
    if details.accepted_epoch:
        score = f" with {details.score} of 100" if details.score >= 0 else ""
        return f"a verdict: a reviewer has accepted it{score}"
    return "a verdict"


_WORDS: dict[State, Callable[[Task], str]] = {
    State.PENDING: _start,
    State.BLOCKED: _held,
    State.REVIEW: _verdict,
}
