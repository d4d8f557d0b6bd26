"""What a schedule that is due asks for: its occurrences, each with the task or run it stands for.

An occurrence's task has an id that follows from the schedule's name and the moment, so whoever
works it out gets the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from agentq.client.task_input.specs import Draft, draft
from agentq.contracts.schedule_values import (
    ScheduledOccurrence,
    ScheduleFiring,
    ScheduleState,
)
from agentq.core.errors import AgentqError, Invalid
from agentq.core.task import NO_USAGE, RUN_ROLE
from agentq.protocol.occurrences import due, iso
from agentq.protocol.templates import render
from agentq.schedules.model import Schedule
from agentq.workflows.reading import parse_inputs
from agentq.workflows.runner import RUN_TYPE, sound_workflow

#: In whose name the tasks of schedules are submitted, and the label by which they are found.
SENDER = "scheduler"
LABEL = "schedule"


class PlannedFiring(NamedTuple):
    """What is to be fired, and the long texts that its tasks bring, by task id."""

    firing: ScheduleFiring
    contexts: Mapping[str, bytes]


def plan_firing(
    schedule: Schedule, state: ScheduleState, now: int, workflows: Path
) -> PlannedFiring:
    """Work out what becomes of a schedule that is due, from its file as it is now."""
    moments: tuple[int, ...]
    if state.is_asked_for:
        moments, missed, next_at = (state.asked_at,), 0, state.next_at
    else:
        found = due(schedule.timing, state.next_at, now, state.since_at, schedule.catch_up)
        moments, missed, next_at = found.occurrences, found.missed, found.next_at
    asked = state.is_asked_for
    drafts = [(at, draft_of(schedule, at, workflows, asked=asked)) for at in moments]
    occurrences = tuple(ScheduledOccurrence(at, (each.spec,)) for at, each in drafts)
    contexts = {name: text for _, each in drafts for name, text in each.contexts.items()}
    firing = ScheduleFiring(
        state.name, state.wake_at, occurrences, next_at, missed, schedule.overlap, asked
    )
    return PlannedFiring(firing, contexts)


def draft_of(schedule: Schedule, at: int, workflows: Path, *, asked: bool = False) -> Draft:
    """The task, or the run, of one occurrence; `Invalid`, with file and line, if it cannot be."""
    moment = iso(at, schedule.timing.zone)
    values = {"occurrence": moment, "schedule": schedule.name}
    given = {
        **schedule.fields,
        "title": _line(schedule, "title", schedule.title or schedule.name, values),
        "labels": {
            **{
                key: _line(schedule, "labels", text, values)
                for key, text in schedule.labels.items()
            },
            LABEL: schedule.name,
        },
        "from": SENDER,
        "idempotency_key": f"schedule:{schedule.name}:{moment}{':asked' if asked else ''}",
    }
    stem = f"{schedule.name}-{_stamp(at)}{'-asked' if asked else ''}"
    if schedule.workflow:
        return draft({**given, **_run_fields(schedule, workflows, values), "id": f"run-{stem}"})
    instructions = _text(schedule, "instructions", schedule.instructions, values)
    inputs = _filled(schedule, schedule.inputs, values)
    given |= {"id": f"task-{stem}", "to": schedule.role, "instructions": instructions or None}
    return draft({**given, **({"inputs": inputs} if inputs else {})})


def _run_fields(schedule: Schedule, workflows: Path, values: dict[str, str]) -> dict[str, Any]:
    name = schedule.workflow
    try:
        workflow = sound_workflow(workflows, name)
    except AgentqError as error:
        cause = error.cause.rstrip(".")
        raise Invalid(f"{schedule.at_line('workflow')}: {cause}.", error.remedy) from error
    try:
        inputs = parse_inputs(workflow, _filled(schedule, schedule.inputs, values))
    except AgentqError as error:
        cause = error.cause.removesuffix(" Nothing was started.")
        where = schedule.at_line("inputs" if "inputs" in schedule.lines else "workflow")
        raise Invalid(f"{where}: {cause}", "Give them under `inputs`.") from error
    budget = schedule.fields.get("budget") or (
        None if workflow.budget == NO_USAGE else workflow.budget
    )
    labels = {LABEL: schedule.name, **schedule.labels, "workflow": name}
    return {
        "to": RUN_ROLE, "type": RUN_TYPE, "workflow": name, "inputs": inputs,
        "instructions": f"Run the workflow {name}.", "budget": None, "tree_budget": budget,
        "labels": {key: _line(schedule, "labels", text, values) for key, text in labels.items()},
    }  # fmt: skip


def _stamp(at: int) -> str:
    moment = datetime.fromtimestamp(at // 1000, UTC)
    return moment.strftime("%Y%m%dT%H%M%S") + (f"{at % 1000:03d}" if at % 1000 else "")


def _text(schedule: Schedule, name: str, text: str, values: dict[str, str]) -> str:
    return render(text, values, f"{schedule.at_line(name)}: {name}").strip()


def _line(schedule: Schedule, name: str, text: str, values: dict[str, str]) -> str:
    return " ".join(_text(schedule, name, text, values).split())


def _filled(schedule: Schedule, value: Any, values: dict[str, str]) -> Any:
    """Plain data with its texts filled in."""
    if isinstance(value, str):
        return _text(schedule, "inputs", value, values)
    if isinstance(value, Mapping):
        return {key: _filled(schedule, inner, values) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(schedule, inner, values) for inner in value]
    return value
