"""Publishes results again that are missing or altered, from the evidence they are copies of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from agentq.contracts.artifacts import ArtifactStore
from agentq.contracts.proof_values import Repair
from agentq.contracts.service_values import Problem
from agentq.contracts.store import Changes, Reader, Store, Tx
from agentq.core.states import State
from agentq.core.task import Reported
from agentq.ledger.circuits import dated
from agentq.ledger.implied_task import Trust, trust_in, whole_log
from agentq.ledger.repairing import Noted, repair_note
from agentq.ledger.replay import evidence_of
from agentq.ledger.system_log import system_rows


def repair_results(
    store: Store,
    artifacts: ArtifactStore,
    problems: Sequence[Problem],
    noted: Noted,
    *,
    dry_run: bool,
) -> list[Repair]:
    """Of the problems that are about results those are repaired whose evidence is whole."""
    wrong = {each.task_id: each for each in problems if each.where == f"results/{each.task_id}.md"}
    if not wrong:
        return []
    trust = store.read(trust_in)
    reported = {name: store.read(partial(_published, name=name, trust=trust)) for name in wrong}
    done = [
        _repair(store, artifacts, wrong[name], *found, noted, dry_run=dry_run)
        for name, found in sorted(reported.items())
        if found is not None
    ]
    return [each for each in done if each is not None]


def _repair(
    store: Store,
    artifacts: ArtifactStore,
    problem: Problem,
    report: Reported,
    size: int,
    noted: Noted,
    *,
    dry_run: bool,
) -> Repair | None:
    name, where = problem.task_id, problem.where
    epoch, file, sha256 = report.epoch, report.result, report.result_sha256
    if artifacts.check(name, epoch, file, sha256, size) is not None:
        return None
    repair, note = repair_note(name, [where], {where: problem.what}, {where: sha256})

    def change(tx: Tx) -> None:
        audit = dated(noted(name, where), tx)
        tx.save(Changes(system=system_rows(tx, [note]), audit=audit))

    if not dry_run:
        artifacts.publish_result(name, epoch, file, sha256, again=True)
        store.write(change)
    return repair


def _published(reader: Reader, name: str, trust: Trust) -> tuple[Reported, int] | None:
    """What a task has reported that is published, by its log, and the size of the result."""
    key = reader.keys([name]).get(name)
    log = None if key is None else whole_log(reader, key, trust)
    report = None if log is None else log.task.details.report
    if log is None or report is None or log.task.state is not State.COMPLETE:
        return None
    sizes = {row[:2]: row[2] for row in evidence_of(log.events)}
    size = sizes.get((report.epoch, report.result))
    return None if size is None else (report, size)
