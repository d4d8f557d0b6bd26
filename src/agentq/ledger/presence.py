"""Who works here: each process that claims for a role has a lease on its own name, and renews it.

It is kept beside the leases of the loops. Nothing depends on it but what people are shown: what a
worker may claim, and what it holds, is decided by the leases of tasks alone. So a report is written
without waiting for the disk, and one that is lost is followed by the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from agentq.contracts.overview_values import (
    BusySlot,
    FurtherRole,
    RunningTask,
    WorkerInfo,
    WorkerReport,
)
from agentq.contracts.store import Changes, Expired, LeaseRow, Store, Tx
from agentq.core import triggers as t
from agentq.core.errors import Invalid
from agentq.core.limits import PROGRESS_CHARS_MAX, SUMMARY_CHARS_MAX, shorten
from agentq.core.trigger_validation import check_trigger
from agentq.core.values import replace
from agentq.ledger.codec import decoder, encode
from agentq.protocol.spec_validation import check_role

#: How a worker's lease is called: this, its role, and its own name.
PREFIX = "worker:"
#: How long a worker counts as there after a report, at most.
LEASE_MS_MAX = 3600_000
#: How long one that is gone is still listed.
GONE_MS = 600_000
#: Attempts that a report may name, further roles, and characters of each of its shorter words.
BUSY_MAX, ALSO_MAX, _WORD_CHARS_MAX = 100, 10_000, 200


class _StoredReport(msgspec.Struct, frozen=True):
    """A report as its row keeps it, and when it came."""

    since: int
    seen_at: int
    report: WorkerReport


def report_worker(store: Store, holder: str, report: WorkerReport, lease_ms: int) -> None:
    """Take a report: the worker counts as there for so long. With a lease of 0 it has ended."""
    for role in (report.role, *(each.role for each in report.also[:ALSO_MAX])):
        check_role(role)
    check_trigger(t.ClaimTask(holder, 60_000))
    if type(lease_ms) is not int or not 0 <= lease_ms <= LEASE_MS_MAX:
        raise Invalid(
            f"A worker counts as there for an hour at most, got {lease_ms!r} ms.",
            "Report again before that is over; 0 says that it has ended.",
        )
    said, name = _bounded(report), f"{PREFIX}{report.role}:{holder}"

    def change(tx: Tx) -> None:
        row, now = tx.leader_leases([name])[0], tx.now()
        is_new = not row.body or row.expires_at + GONE_MS < now
        since = now if is_new else decoder(_StoredReport).decode(row.body).since
        body = encode(_StoredReport(since, now, said)).decode()
        expires_at = now + lease_ms if lease_ms else 0
        if is_new:
            # Whoever comes forgets those that are gone; its own row may be among them.
            tx.delete((), Expired(workers_before=now - GONE_MS))
            tx.leader_leases([name])
        tx.save(Changes(leases=(LeaseRow(name, holder, row.term + is_new, expires_at, body),)))

    store.write(change, durable=False)


def _bounded(report: WorkerReport) -> WorkerReport:
    """The report with no word longer than it is shown."""
    busy = tuple(
        BusySlot(
            shorten(each.task_id, _WORD_CHARS_MAX),
            each.epoch,
            shorten(each.step, _WORD_CHARS_MAX),
            shorten(each.words, PROGRESS_CHARS_MAX),
            each.seconds,
        )
        for each in report.busy[:BUSY_MAX]
    )
    return replace(
        report,
        machine=shorten(report.machine, _WORD_CHARS_MAX),
        version=shorten(report.version, _WORD_CHARS_MAX),
        agent=shorten(report.agent, _WORD_CHARS_MAX),
        problem=shorten(report.problem, SUMMARY_CHARS_MAX),
        busy=busy,
        also=tuple(
            FurtherRole(
                each.role,
                shorten(each.agent, _WORD_CHARS_MAX),
                each.slots,
                shorten(each.problem, SUMMARY_CHARS_MAX),
            )
            for each in report.also[:ALSO_MAX]
        ),
    )


def is_worker(row: LeaseRow) -> bool:
    return row.name.startswith(PREFIX)


def workers_in(
    rows: Iterable[LeaseRow], running: Sequence[RunningTask], now: int
) -> list[WorkerInfo]:
    """Everybody who works here by these leases and tasks: by role and name, those that report no
    more after those that do, and those that never did last."""
    found: list[WorkerInfo] = []
    held: dict[tuple[str, str], list[RunningTask]] = {}
    for task in running:
        held.setdefault((task.role, task.holder), []).append(task)
    for row in rows:
        if not is_worker(row) or not row.body or row.expires_at + GONE_MS < now:
            continue
        kept = decoder(_StoredReport).decode(row.body)
        said = kept.report
        spoken = {(each.task_id, each.epoch): each for each in said.busy}
        own = FurtherRole(said.role, said.agent, said.slots, said.problem)
        for each in (own, *said.also):
            tasks = [
                _with_words(task, spoken.get((task.task_id, task.epoch)), kept.seen_at)
                for task in held.pop((each.role, row.holder), ())
            ]
            found.append(
                WorkerInfo(
                    row.holder, each.role, True, row.expires_at <= now, kept.since, kept.seen_at,
                    said.machine, said.pid, said.version, each.agent, each.slots, each.problem,
                    said.is_ending, tuple(tasks),
                )
            )  # fmt: skip
    found += [
        WorkerInfo(holder, role, reports=False, running=tuple(tasks))
        for (role, holder), tasks in held.items()
    ]
    return sorted(found, key=lambda each: (not each.reports, each.is_gone, each.role, each.holder))


def not_claimed(rows: Iterable[LeaseRow], role: str, now: int) -> str:
    """Why those that work for a role claim nothing at the moment; "" if one does, or none is."""
    problems = [
        each.problem for each in workers_in(rows, (), now) if each.role == role and not each.is_gone
    ]
    return problems[0] if problems and all(problems) else ""


def _with_words(task: RunningTask, said: BusySlot | None, seen_at: int) -> RunningTask:
    if said is None:
        return task
    started = max(seen_at - round(said.seconds * 1000), 1)
    return replace(task, started_at=started, step=said.step, words=said.words)
