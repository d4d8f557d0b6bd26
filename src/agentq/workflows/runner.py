"""Advances runs: claims those that have something to do, submits their next steps, and lets go.

Each time it reads the workflow's file anew. Nothing waits here: a run that has open steps yields,
and is ready again, as a row, when one of them is over. Whoever is killed in the middle has lost
nothing but time: the next one finds what was submitted, and goes on from there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.client.task_input.specs import draft
from agentq.contracts.service_values import NextAttempt
from agentq.core.access import SYSTEM, Principal
from agentq.core.errors import AgentqError, Conflict, Invalid, NotFound, Refused, Stale
from agentq.core.limits import DATA_CHARS_MAX
from agentq.core.task import RUN_ROLE
from agentq.core.triggers import FailureKind
from agentq.workflows.checking import checked_errors
from agentq.workflows.planning import Plan, plan, result_of
from agentq.workflows.reading import read_workflow

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.core.task import Task
    from agentq.workflows.model import Workflow

log = logging.getLogger("agentq.daemon.runs")

RUN_TYPE = "run"
#: Long enough to read a file and submit its steps; short, for whoever takes over from the dead.
LEASE_MS = 20_000
#: How many are claimed in one transaction.
RUNS_AT_ONCE = 20
_AT_ANY_TIME = 1 << 62
#: What is wrong with a workflow, and nothing that would pass by itself.
_FAULTS = (Invalid, NotFound, Conflict, Refused)


def advance_runs(service: Service, folder: Path, holder: str, *, claim_first: bool = False) -> int:
    """Advance every run that has something to do; how many there were.

    Those that go on do so in one transaction each, which claims the run, submits its steps and
    leaves; the others are claimed before anything is done. With `claim_first` all are: then a run
    that kills whoever looks at it is known to have done so.
    """
    advanced = 0
    if not claim_first:
        ready = service.most_urgent_ready(SYSTEM, RUN_ROLE, RUNS_AT_ONCE, _AT_ANY_TIME)
        advanced = sum(_go_on(service, folder, run, holder) for run in ready)
        if ready and advanced == len(ready):
            return advanced
    runs = service.claim(SYSTEM, RUN_ROLE, RUNS_AT_ONCE, holder, LEASE_MS)
    for run in runs:
        try:
            advance(service, folder, run)
        except Stale:
            log.info("run %s: another process has it now", run.id)
    return advanced + len(runs)


def _go_on(service: Service, folder: Path, run: Task, holder: str) -> bool:
    """Take one step with a run that is ready, as nobody's, in one transaction: False if that is
    not all it takes, or was refused. Whoever claims it then finds the same reasons."""
    try:
        found = planned(service, folder, run)
        if found.failure or found.is_over:
            return False
        begin = NextAttempt(run.id, run.epoch + 1, RUN_ROLE, holder, run.version)
        _submit(service, run, found, SYSTEM, begin)
    except (*_FAULTS, Stale):
        return False
    return True


def advance(service: Service, folder: Path, run: Task, who: Principal = SYSTEM) -> None:
    """Take one step with a run that is held: submit what can start, then yield or end it."""
    try:
        found = planned(service, folder, run, who)
        if not (found.failure or found.is_over):
            _submit(service, run, found, who)
    except Stale:
        raise
    except _FAULTS as error:
        # A person mends the file and answers; the steps that are under way go on.
        log.warning("run %s: blocked: %s", run.id, error.cause)
        service.block(who, run.id, run.epoch, _question(error))
        return
    if found.failure:
        log.info("run %s: failed: %s", run.id, found.failure)
        service.fail(who, run.id, run.epoch, found.failure, FailureKind.REFUSED)
    elif found.is_over:
        log.info("run %s: complete", run.id)
        service.complete(who, run.id, run.epoch, _summary(found), data=_results(found))


def planned(service: Service, folder: Path, run: Task, who: Principal = SYSTEM) -> Plan:
    """Work out what a run does next, from its workflow's file as it is now."""
    workflow = sound_workflow(folder, run.spec.workflow)
    tasks = steps_of(service, run, who)
    artifacts: dict[str, list[str]] = {}
    if "artifacts" in workflow.source:
        for task in tasks:
            artifacts[task.id] = sorted({each.name for each in service.artifacts(who, task.id)})
    return plan(workflow, run, tasks, artifacts)


def sound_workflow(folder: Path, name: str) -> Workflow:
    """Read a workflow that can be run; `Invalid`, with file and line, for one that cannot."""
    workflow = read_workflow(folder, name)
    errors = checked_errors(workflow)
    if errors:
        more = f" {len(errors) - 1} more: `agentq workflows check {name}`." if errors[1:] else ""
        raise Invalid(f"{errors[0]}.{more}", errors[0].remedy)
    return workflow


def steps_of(service: Service, run: Task, who: Principal = SYSTEM) -> list[Task]:
    """The tasks of a run's steps, as they stand now."""
    ids = [*run.details.children, *(child for child, _ in run.details.ended_children)]
    return list(service.tasks_by_id(who, ids).values()) if ids else []


def _submit(
    service: Service, run: Task, found: Plan, who: Principal, begin: NextAttempt | None = None
) -> None:
    """Submit what can start and leave, until one of the steps is over."""
    drafts = [draft({**fields, "from": RUN_ROLE}) for fields in found.submit]
    contexts = {name: text for each in drafts for name, text in each.contexts.items()}
    specs = [each.spec for each in drafts]
    under = None if begin else (run.id, run.epoch)
    service.submit(who, specs, contexts, under=under, leave="any", begin=begin)
    if specs:
        log.info("run %s: submitted %s", run.id, ", ".join(_names(specs)))


def _names(specs: Sequence[object]) -> list[str]:
    shown = [getattr(spec, "id", "") for spec in specs[:5]]
    return [*shown, f"{len(specs) - 5} more"] if len(specs) > 5 else shown


def _question(error: AgentqError) -> str:
    return f"{error.cause} {error.remedy} Mend the file, then answer: the run goes on.".strip()


def _results(found: Plan) -> str:
    """The structured results of the steps, by step; "" if together they are too long to keep."""
    results = {
        each.step.id: result_of(each.tasks[0]) if not each.step.each else
        [result_of(task) for task in each.tasks]
        for each in found.standings
        if each.tasks
    }  # fmt: skip
    text = json.dumps({"steps": {name: value for name, value in results.items() if value}})
    return text if len(text) <= DATA_CHARS_MAX else ""


def _summary(found: Plan) -> str:
    counts: dict[str, int] = {}
    for each in found.standings:
        counts[each.state] = counts.get(each.state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in counts.items())
