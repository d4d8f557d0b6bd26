"""What a completed task names as next, made of its templates.

Title, instructions, labels and inputs may be templates (see `protocol.templates`) of what the task
before left: `result` (its structured result), `summary`, `artifacts` (their names), `inputs` and
`task`. With `each` there is one task for every item of a list, with `item` and `index` as well;
others that come after it then come after all of them. What cannot be made is born as a dead letter
that says why: it must not keep the task before from completing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from agentq.core.errors import AgentqError, Invalid
from agentq.core.limits import FAN_OUT_MAX, INSTRUCTIONS_BYTES_MAX, SUMMARY_CHARS_MAX, shorten
from agentq.core.task import Spec, Task
from agentq.core.values import replace
from agentq.protocol.envelope import json_value
from agentq.protocol.spec_validation import check_spec
from agentq.protocol.templates import evaluate, is_template, render


class NextTask(NamedTuple):
    """A task to be, and why it cannot be; "" if it can."""

    spec: Spec
    refused: str = ""


def next_tasks(parent: Task, artifacts: Sequence[str]) -> list[NextTask]:
    """Make what comes next of a completed task, in the order in which it names it."""
    values = values_of(parent, artifacts)
    made: list[NextTask] = []
    fanned: dict[str, tuple[str, ...]] = {}
    for template in parent.spec.next:
        try:
            specs = _made(template, values)
        except AgentqError as error:
            made.append(NextTask(_bare(template), refusal_of(error)))
            continue
        if template.each:
            fanned[template.id] = tuple(spec.id for spec in specs)
        made += [NextTask(spec) for spec in specs]
    return [_fanned_in(each, fanned) for each in made]


def values_of(task: Task, artifacts: Sequence[str]) -> dict[str, Any]:
    """What templates may say of a completed task."""
    report = task.details.report
    return {
        "result": json_value(report.data) if report and report.data else None,
        "summary": task.summary,
        "artifacts": list(artifacts),
        "inputs": dict(task.spec.inputs),
        "task": {"id": task.id, "title": task.spec.title, "to": task.to, "epoch": task.epoch},
    }


def _made(template: Spec, values: dict[str, Any]) -> list[Spec]:
    if not template.each:
        return [filled_in(template, values)]
    items = evaluate(template.each, values, f"each of {template.id}")
    if not isinstance(items, list):
        raise Invalid(
            f"each of {template.id} gives {type(items).__name__}, and a list was expected:"
            f" {template.each!r}.",
            "Name a list in the structured result of the task before.",
        )
    if len(items) > FAN_OUT_MAX:
        raise Invalid(
            f"each of {template.id} gives {len(items)} items, and at most {FAN_OUT_MAX} tasks are"
            " made of one list.",
            "Let each of fewer tasks do several of them.",
        )
    return [
        filled_in(
            replace(_numbered(template, index), each=""), {**values, "item": item, "index": index}
        )
        for index, item in enumerate(items, 1)
    ]


def _numbered(template: Spec, index: int) -> Spec:
    """One of many alike: it has names of its own, and so has what comes next of it."""
    below = {child.id for child in template.next}

    def name(each: str) -> str:
        return f"{each}-{index}" if each in below else each

    following = tuple(
        replace(
            _numbered(child, index),
            after=tuple(map(name, child.after)),
            base=tuple(map(name, child.base)),
        )
        for child in template.next
    )
    return replace(template, id=f"{template.id}-{index}", idempotency_key="", next=following)


def filled_in(template: Spec, values: dict[str, Any]) -> Spec:
    """The spec with its templates filled in. What it names as next is left for later."""
    name = template.id
    made = replace(
        template,
        title=_line(_text(template.title, values, f"title of {name}")),
        instructions=_text(template.instructions, values, f"instructions of {name}"),
        labels={
            key: _line(_text(value, values, f"label {key} of {name}"))
            for key, value in template.labels.items()
        },
        inputs=_filled(template.inputs, values, f"inputs of {name}"),
    )
    if len(made.instructions.encode()) > INSTRUCTIONS_BYTES_MAX:
        raise Invalid(
            f"The instructions of {name} come to more than {INSTRUCTIONS_BYTES_MAX} bytes.",
            "Let the task read the long text from its inputs instead.",
        )
    check_spec(made)
    return made


def _text(text: str, values: dict[str, Any], where: str) -> str:
    return render(text, values, where) if is_template(text) else text


def _line(text: str) -> str:
    return " ".join(text.split())


def _filled(value: Any, values: dict[str, Any], where: str) -> Any:
    """Plain data with its texts filled in. A text that is one expression gives its value."""
    if isinstance(value, str):
        return _value(value, values, where)
    if isinstance(value, dict):
        return {key: _filled(inner, values, where) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(inner, values, where) for inner in value]
    return value


def _value(text: str, values: dict[str, Any], where: str) -> Any:
    bare = text.strip()
    inner = bare[2:-2]
    if bare.startswith("{{") and bare.endswith("}}") and "{{" not in inner and "{%" not in inner:
        return evaluate(inner.strip(), values, where)
    return _text(text, values, where)


def _fanned_in(made: NextTask, fanned: dict[str, tuple[str, ...]]) -> NextTask:
    """The same, after all that lists were made of; refused if that is too much for one task."""
    spec = _after_all(made.spec, fanned)
    if spec is made.spec:
        return made
    try:
        check_spec(spec)
    except AgentqError as error:
        return NextTask(_bare(made.spec), refusal_of(error))
    return made._replace(spec=spec)


def _after_all(spec: Spec, fanned: dict[str, tuple[str, ...]]) -> Spec:
    """The same, after every task that a list was made of, where it named the list's own."""
    if not any(each in fanned for each in (*spec.after, *spec.base)):
        return spec
    after = tuple(name for each in spec.after for name in fanned.get(each, (each,)))
    base = tuple(name for each in spec.base for name in fanned.get(each, (each,)))
    return replace(spec, after=after, base=base)


def _bare(template: Spec) -> Spec:
    """A dead letter shows what was asked for, and waits for nothing."""
    return replace(template, after=(), base=(), next=())


def refusal_of(error: AgentqError) -> str:
    """Why a next task was not made, in one text."""
    return shorten(f"it could not be made of its template: {error.cause}", SUMMARY_CHARS_MAX)
