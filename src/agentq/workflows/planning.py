"""What a run does next: a pure function of its workflow, as the file says it today, and its tasks.

A run is a task of its own. Its steps are its children, each submitted once what it comes after is
over. Nothing about a run is kept anywhere else: whoever looks at it works out from the workflow and
the tasks which steps are to be submitted, and whether it is over. So a fresh run, one that goes on
after a crash and one that is retried are the same thing. A run that is opened again does not count
what had failed by then: those steps get new tasks, made of today's file, and no other step does.

How a step stands:

- `waiting`: what it comes after is not over yet
- `open`: it was submitted, and one of its tasks is not over
- `complete`: all its tasks are
- `failed`: one of its tasks did not complete, or what it comes after did not (`on_failure: fail`)
- `skipped`: its `when` was false, or its `each` gave no items. Steps after it go on
- `cancelled`: what it comes after did not complete, and `on_failure` says `skip`

A run completes if no step has failed, but for those whose failure every step that comes next is
prepared for (`on_failure: run` or `skip`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentq.core.errors import Invalid
from agentq.core.limits import FAN_OUT_MAX
from agentq.core.states import State
from agentq.core.task import Task
from agentq.protocol.envelope import json_value
from agentq.protocol.templates import evaluate, render
from agentq.workflows.model import Workflow, WorkflowStep
from agentq.workflows.ordering import levels

WAITING, OPEN, COMPLETE = "waiting", "open", "complete"
FAILED, SKIPPED, CANCELLED = "failed", "skipped", "cancelled"
#: A step that is over; the others are still to come.
_OVER = frozenset({COMPLETE, FAILED, SKIPPED, CANCELLED})
#: What those that come after it take for success.
_FINE = frozenset({COMPLETE, SKIPPED})


@dataclass(frozen=True, slots=True)
class StepStanding:
    """How a step of a run stands, with its tasks; `why` says so in words where no task does."""

    step: WorkflowStep
    state: str
    tasks: tuple[Task, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done about a run now."""

    standings: tuple[StepStanding, ...]
    #: The steps to be submitted: the fields of their tasks, in the order of the file.
    submit: tuple[Mapping[str, Any], ...] = ()
    is_over: bool = False
    #: Why it has failed, if it has.
    failure: str = ""


@dataclass(slots=True)
class _Run:
    workflow: Workflow
    run: Task
    #: By step and place in its list (0: it has none), the newest task first.
    tasks: Mapping[str, Mapping[int, Sequence[Task]]]
    artifacts: Mapping[str, Sequence[str]]
    standings: dict[str, StepStanding] = field(default_factory=dict)


_TASK_ID = re.compile(r"(?P<step>[^.]+)(?:\.(?P<index>[0-9]+))?(?:\.retry-(?P<retry>[0-9]+))?\Z")


class StepTask(NamedTuple):
    """Which task of a run one is: of this step, for this item of its list, the so manieth try."""

    step: str
    place: int = 0
    retry: int = 1


def task_id_of(run_id: str, which: StepTask) -> str:
    """The id of a step's task."""
    index = f".{which.place}" if which.place else ""
    retry = f".retry-{which.retry}" if which.retry > 1 else ""
    return f"{run_id}.{which.step}{index}{retry}"


def step_of(run_id: str, task_id: str) -> StepTask | None:
    """Which task of a run this is; None if it is no step's."""
    if not task_id.startswith(f"{run_id}."):
        return None
    found = _TASK_ID.match(task_id[len(run_id) + 1 :])
    if found is None:
        return None
    return StepTask(found["step"], int(found["index"] or 0), int(found["retry"] or 1))


def plan(
    workflow: Workflow, run: Task, tasks: Sequence[Task],
    artifacts: Mapping[str, Sequence[str]] | None = None,
) -> Plan:  # fmt: skip
    """Work out what a run does next. `artifacts` are the names of its tasks' files, by task.

    Raises `Invalid`, naming file and line, for a template that cannot be filled in.
    """
    state = _Run(workflow, run, _by_step(run, tasks), artifacts or {})
    submit: list[Mapping[str, Any]] = []
    opened = sum(1 for task in tasks if not task.is_terminal)
    for step in (each for level in levels(workflow.steps) for each in level):
        standing, new = _look_at(state, step)
        if new and workflow.concurrency and opened + len(new) > workflow.concurrency and opened:
            standing, new = StepStanding(step, WAITING, why="as many steps as allowed are open"), []
        opened += len(new)
        submit += new
        state.standings[step.id] = standing
    standings = tuple(state.standings[step.id] for step in workflow.steps)
    is_over = not submit and all(each.state in _OVER for each in standings)
    return Plan(standings, tuple(submit), is_over, _failure(state) if is_over else "")


def _by_step(run: Task, tasks: Sequence[Task]) -> dict[str, dict[int, list[Task]]]:
    found: dict[str, dict[int, list[tuple[int, Task]]]] = {}
    for task in tasks:
        which = step_of(run.id, task.id)
        if which is not None:
            of_step = found.setdefault(which.step, {})
            of_step.setdefault(which.place, []).append((which.retry, task))
    return {
        step: {
            index: [task for _, task in sorted(tries, key=lambda each: -each[0])]
            for index, tries in sorted(places.items())
        }
        for step, places in found.items()
    }


def _look_at(state: _Run, step: WorkflowStep) -> tuple[StepStanding, list[Mapping[str, Any]]]:
    """How a step stands, and the tasks that it gets now."""
    places = state.tasks.get(step.id, {})
    tasks = tuple(tries[0] for tries in places.values())
    again = [index for index, tries in places.items() if _is_to_be_retried(state.run, tries[0])]
    if tasks and not again:
        return StepStanding(step, _state_of(tasks), tasks), []
    before = [state.standings[each] for each in step.after]
    if any(each.state not in _OVER for each in before):
        names = ", ".join(each.step.id for each in before if each.state not in _OVER)
        return StepStanding(step, WAITING, why=f"after {names}"), []
    bad = [each for each in before if each.state not in _FINE]
    if bad and step.on_failure != "run":
        why = f"{', '.join(f'{each.step.id} is {each.state}' for each in bad)}"
        return StepStanding(step, CANCELLED if step.on_failure == "skip" else FAILED, why=why), []
    values = _values(state, step)
    where = f"{state.workflow.path}, line {step.line}, step {step.id}"
    if step.when and not evaluate(step.when, values, f"{where}: when"):
        return StepStanding(step, SKIPPED, why=f"when: {step.when}"), []
    items = _items(step, values, where)
    if items == []:
        return StepStanding(step, SKIPPED, why="each gave no items"), []
    wanted = {0: values} if items is None else {
        index: {**values, "item": item, "index": index} for index, item in enumerate(items, 1)
    }  # fmt: skip
    new = [
        _fields(state, step, seen, where, StepTask(step.id, index, len(places.get(index, ())) + 1))
        for index, seen in wanted.items()
        if index not in places or index in again
    ]
    return StepStanding(step, OPEN, tasks), new


def _is_to_be_retried(run: Task, task: Task) -> bool:
    """Whether a step's task had failed when the run was opened again."""
    return (
        task.is_terminal
        and task.state is not State.COMPLETE
        and task.updated_at <= run.details.reopened_at
    )


def _state_of(tasks: Sequence[Task]) -> str:
    if any(not task.is_terminal for task in tasks):
        return OPEN
    return COMPLETE if all(task.state is State.COMPLETE for task in tasks) else FAILED


def _items(step: WorkflowStep, values: dict[str, Any], where: str) -> list[Any] | None:
    """What a step fans out over; None if it does not."""
    if not step.each:
        return None
    items = evaluate(step.each, values, f"{where}: each")
    if not isinstance(items, list):
        raise Invalid(
            f"{where}: each gives {type(items).__name__}, and a list was expected: {step.each!r}.",
            "Name a list in the inputs, or in the structured result of a step before.",
        )
    if len(items) > FAN_OUT_MAX:
        raise Invalid(
            f"{where}: each gives {len(items)} items, and at most {FAN_OUT_MAX} tasks are made of"
            " one list.",
            "Let each of fewer tasks do several of them.",
        )
    return items


def _failure(state: _Run) -> str:
    """Which steps have made the run fail, in words; "" if none has."""
    unhandled = []
    for standing in state.standings.values():
        if standing.state != FAILED or not standing.tasks:
            continue
        after = [step for step in state.workflow.steps if standing.step.id in step.after]
        if not after or any(step.on_failure == "fail" for step in after):
            unhandled.append(standing)
    return "; ".join(_in_words(each) for each in unhandled)


def _in_words(standing: StepStanding) -> str:
    task = next(task for task in standing.tasks if task.state is not State.COMPLETE)
    reason = f": {task.reason}" if task.reason else ""
    return f"step {standing.step.id} is {task.state} ({task.id}){reason}"


# -- what templates see, and what a step's task says -----------------------------------------------


def _values(state: _Run, step: WorkflowStep) -> dict[str, Any]:
    """What the templates of a step see: the run's inputs, and every step before it."""
    seen: dict[str, Any] = {}
    names, todo = set[str](), list(step.after)
    while todo:
        name = todo.pop()
        if name not in names:
            names.add(name)
            todo += state.standings[name].step.after
    for name in names:
        seen[name] = _seen(state, state.standings[name])
    return {
        "inputs": dict(state.run.spec.inputs),
        "steps": seen,
        "run": {"id": state.run.id, "workflow": state.workflow.name},
    }


def _seen(state: _Run, standing: StepStanding) -> dict[str, Any]:
    """What others may say of a step that is over."""
    results = [result_of(task) for task in standing.tasks]
    first = standing.tasks[0] if standing.tasks else None
    return {
        "state": standing.state,
        "result": results[0] if results else None,
        "results": results,
        "summary": first.summary if first else "",
        "summaries": [task.summary for task in standing.tasks],
        "score": first.details.score if first and first.details.score >= 0 else None,
        "artifacts": [name for task in standing.tasks for name in state.artifacts.get(task.id, ())],
        "tasks": [task.id for task in standing.tasks],
    }


def result_of(task: Task) -> Any:
    """The structured result of a task; None if it has none."""
    report = task.details.report
    return json_value(report.data) if report and report.data else None


def _fields(
    state: _Run, step: WorkflowStep, values: dict[str, Any], where: str, which: StepTask
) -> Mapping[str, Any]:
    """The task of a step, as the fields of a task file."""
    run, workflow = state.run, state.workflow

    def text(template: str, what: str) -> str:
        return render(template, values, f"{where}: {what}")

    instructions = text(step.instructions, "instructions").strip()
    body = render(workflow.body, values, f"{workflow.path}: body").strip()
    before = [task for name in step.after for task in state.standings[name].tasks]
    from_steps = [task for name in step.base for task in state.standings[name].tasks]
    given = {
        **step.task_fields,
        "id": task_id_of(run.id, which),
        "to": step.role,
        "title": " ".join(text(step.title or step.id, "title").split()),
        "instructions": instructions or None,
        "context": f"{instructions}\n\n{body}".strip() if body else None,
        "after": [task.id for task in before],
        # All of them are over: whether it runs was decided above.
        "on_dependency_failure": "run",
        "base": [task.id for task in from_steps if task.state is State.COMPLETE] or None,
        "inputs": _filled({**step.inputs}, values, where),
        "labels": {
            **workflow.labels,
            **{key: text(value, f"label {key}") for key, value in step.labels.items()},
            "run": run.id,
            "step": step.id,
        },
        "priority": step.task_fields.get("priority") or str(run.spec.priority),
    }
    return {name: value for name, value in given.items() if value is not None}


def _filled(value: Any, values: dict[str, Any], where: str) -> Any:
    """Plain data with its texts filled in."""
    if isinstance(value, str):
        return render(value, values, f"{where}: inputs")
    if isinstance(value, Mapping):
        return {key: _filled(inner, values, where) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(inner, values, where) for inner in value]
    return value
