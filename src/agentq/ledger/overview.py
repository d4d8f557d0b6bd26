"""An installation on one screen, by reads that are bounded however many tasks there are.

What is counted is counted to a limit, by indexes of what is not over, of dead letters and of what
needs an approval; what is listed is the beginning of such an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from agentq.contracts.limit_rows import CircuitRow, RoleRow
from agentq.contracts.overview_values import (
    COUNTED_TO,
    DecisionKind,
    OpenDecision,
    Overview,
    RoleOverview,
    RunningTask,
    WorkerInfo,
)
from agentq.contracts.service_values import Circuit
from agentq.contracts.store import (
    BLOCKED,
    FAILED,
    IN_PROGRESS,
    LIVE,
    PENDING,
    REVIEW,
    Reader,
    TaskRow,
)
from agentq.contracts.system_rows import LastSystemEvent
from agentq.contracts.task_filter import Filter, Order
from agentq.core.schedule import awaits_approval
from agentq.core.task import NO_USAGE, Task, Usage
from agentq.ledger.buckets import empty_in_words
from agentq.ledger.circuits import held_back, in_words, needs_person, role_circuit
from agentq.ledger.codec import limits_of
from agentq.ledger.costs import spent_by_role_today
from agentq.ledger.presence import is_worker, workers_in

#: How many tasks that run, and how many that wait for a person in one way, an overview lists at
#: most: to read a task costs more than to count a hundred.
RUNNING_MAX, DECISIONS_MAX = 50, 10
#: How many tasks that run are looked at to say who works here.
HELD_MAX = 1000
#: Pending tasks that are looked at for a missing approval, in pages of so many.
_PENDING_MAX, _PENDING_PAGE = 200, 20
#: A title on one line.
_TITLE_CHARS_MAX = 120

Counts = dict[tuple[str, int], int]
AsTask = Callable[[TaskRow], Task]


def overview(reader: Reader, as_task: AsTask) -> Overview:
    """The installation as it stands at this moment."""
    now, roles = reader.now(), reader.roles()
    counts = {(row.role, row.state): row.tasks for row in reader.counts(at_most=COUNTED_TO)}
    running = _running(reader, as_task, roles, counts, RUNNING_MAX)
    leases = reader.leader_leases()
    workers = workers_in(leases, running, now)
    circuits, today = reader.circuits(), spent_by_role_today(reader, now)
    decisions, more = _decisions(reader, as_task, roles, counts)
    seal = next(iter(reader.records(LastSystemEvent("seal"))), None)
    return Overview(
        now,
        tuple(
            _role(row, counts, workers, circuits, today.get(row.name, NO_USAGE), now)
            for row in roles
        ),
        tuple(task for each in workers for task in each.running),
        sum(count for (_, state), count in counts.items() if state == IN_PROGRESS),
        tuple(decisions),
        more,
        open_circuits(circuits, roles, now),
        {
            row.name: row.holder
            for row in leases
            if row.holder and row.expires_at > now and not is_worker(row)
        },
        proved_position=seal.position if seal else 0,
        proved_at=seal.at if seal else 0,
        seal=seal.digest if seal else "",
    )


def all_workers(reader: Reader, as_task: AsTask) -> list[WorkerInfo]:
    """Everybody who claims tasks here or holds some."""
    roles = reader.roles()
    counts = {(row.role, row.state): row.tasks for row in reader.counts(at_most=COUNTED_TO)}
    running = _running(reader, as_task, roles, counts, HELD_MAX)
    return workers_in(reader.leader_leases(), running, reader.now())


def open_circuits(
    rows: list[CircuitRow], roles: Iterable[RoleRow], now: int
) -> tuple[Circuit, ...]:
    """The circuits that hold claims back: of providers by name, then of roles."""
    found = [
        Circuit(*row[:6], bool(row.probing)) for row in rows if held_back(rows, row.provider, now)
    ]
    for row in roles:
        circuit = role_circuit(row)
        if circuit is not None:
            opened = (circuit.reason, circuit.opened_at, circuit.opened_by)
            found.append(Circuit("", 0, *opened, role=row.name))
    return tuple(found)


def _role(
    row: RoleRow,
    counts: Counts,
    workers: list[WorkerInfo],
    circuits: list[CircuitRow],
    today: Usage,
    now: int,
) -> RoleOverview:
    there = [each for each in workers if each.role == row.name and not each.is_gone]
    listening = [each for each in there if each.reports and not each.is_ending]
    pending, ready, running, review, blocked = (counts.get((row.name, state), 0) for state in LIVE)
    return RoleOverview(
        row.name, limits_of(row), pending, ready, running, review, blocked, today, row.provider,
        row.seen_at, len(listening), sum(each.slots for each in listening),
        _held_back(row, counts, circuits, today, now),
    )  # fmt: skip


def _held_back(
    row: RoleRow, counts: Counts, circuits: list[CircuitRow], today: Usage, now: int
) -> str:
    """Why nothing of a role is given out now, whoever asks."""
    if row.circuit:
        return needs_person(row)
    circuit = held_back(circuits, row.provider, now) if row.provider else None
    if circuit is not None:
        return in_words(circuit)
    limits = limits_of(row)
    running = counts.get((row.name, IN_PROGRESS), 0)
    room, why = limits.room(running, counts.get((row.name, REVIEW), 0))
    if not room:
        return why
    return limits.used_up(today) or empty_in_words(row, now)


def _running(
    reader: Reader, as_task: AsTask, roles: list[RoleRow], counts: Counts, limit: int
) -> list[RunningTask]:
    rows = rows_of_state(reader, roles, counts, IN_PROGRESS, limit)
    return [_running_task(as_task(row)) for row in rows]


def rows_of_state(
    reader: Reader, roles: list[RoleRow], counts: Counts, state: int, limit: int
) -> Iterator[TaskRow]:
    """Tasks in a state that is not over, by role; at most so many."""
    for role in roles:
        if counts.get((role.name, state)) and limit > 0:
            wanted = Filter((state,), role.id, order=Order.URGENT, limit=limit)
            found = reader.list_tasks(wanted)
            limit -= len(found)
            yield from found


def _running_task(task: Task) -> RunningTask:
    details = task.details
    return RunningTask(
        task.id, task.to, title_of(task), task.epoch, task.holder, task.updated_at, task.wake_at,
        details.progress_percent, details.progress_note, details.spent,
    )  # fmt: skip


def title_of(task: Task) -> str:
    """What a task is about, on one line."""
    text = task.spec.title or task.spec.instructions.strip().split("\n", 1)[0]
    return text if len(text) <= _TITLE_CHARS_MAX else f"{text[: _TITLE_CHARS_MAX - 1]}…"


# -- what waits for people -------------------------------------------------------------------------


def _decisions(
    reader: Reader, as_task: AsTask, roles: list[RoleRow], counts: Counts
) -> tuple[list[OpenDecision], dict[str, int]]:
    """The first that wait for a person in each way, and how many there are."""
    pending, given = _awaiting_approval(reader, as_task)
    listed = {
        DecisionKind.APPROVAL: pending,
        DecisionKind.REVIEW: _tasks_of(reader, as_task, roles, counts, REVIEW),
        DecisionKind.QUESTION: _tasks_of(reader, as_task, roles, counts, BLOCKED),
        DecisionKind.DEAD_LETTER: [
            as_task(row) for row in reader.list_tasks(Filter(order=Order.DEAD, limit=DECISIONS_MAX))
        ],
    }
    numbers = {
        str(DecisionKind.APPROVAL): max(counts.get(("", PENDING), 0) - given, 0),
        str(DecisionKind.REVIEW): sum(n for (_, s), n in counts.items() if s == REVIEW),
        str(DecisionKind.QUESTION): sum(n for (_, s), n in counts.items() if s == BLOCKED),
        str(DecisionKind.DEAD_LETTER): counts.get(("", FAILED), 0),
    }
    found = [
        _decision(kind, task) for kind, tasks in listed.items() for task in tasks[:DECISIONS_MAX]
    ]
    return found, {kind: min(count, COUNTED_TO) for kind, count in numbers.items()}


def _tasks_of(
    reader: Reader, as_task: AsTask, roles: list[RoleRow], counts: Counts, state: int
) -> list[Task]:
    return [as_task(row) for row in rows_of_state(reader, roles, counts, state, DECISIONS_MAX)]


def _awaiting_approval(reader: Reader, as_task: AsTask) -> tuple[list[Task], int]:
    """Pending tasks whose approval is missing, the oldest first; and of how many that were looked
    at it is given."""
    found: list[Task] = []
    looked, last = 0, 0
    while len(found) < DECISIONS_MAX and looked < _PENDING_MAX:
        rows = reader.list_tasks(Filter(order=Order.APPROVAL, key=last, limit=_PENDING_PAGE))
        tasks = [as_task(row) for row in rows]
        found += [task for task in tasks if awaits_approval(task.spec, task.details)]
        looked += len(rows)
        if len(rows) < _PENDING_PAGE:
            break
        last = rows[-1].hot.key
    return found, looked - len(found)


def _decision(kind: DecisionKind, task: Task) -> OpenDecision:
    reason, command = _WORDS[kind](task)
    return OpenDecision(kind, task.id, task.to, title_of(task), task.updated_at, reason, command)


def _approval(task: Task) -> tuple[str, str]:
    kind = "irreversible: " if task.spec.irreversible else ""
    return f"{kind}it starts once it is approved", f"agentq approve {task.id}"


def _review(task: Task) -> tuple[str, str]:
    return task.summary or "it is reported complete", f"agentq approve {task.id}"


def _question(task: Task) -> tuple[str, str]:
    if task.details.reason_kind == "budget":
        return task.reason, f"agentq answer {task.id} --extra-usd N"
    return task.reason or "it asked for help", f"agentq answer {task.id} TEXT"


def _dead_letter(task: Task) -> tuple[str, str]:
    return task.reason or f"it ended {task.state}", f"agentq requeue {task.id}"


_WORDS: dict[DecisionKind, Callable[[Task], tuple[str, str]]] = {
    DecisionKind.APPROVAL: _approval,
    DecisionKind.REVIEW: _review,
    DecisionKind.QUESTION: _question,
    DecisionKind.DEAD_LETTER: _dead_letter,
}
