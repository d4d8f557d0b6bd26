"""Reads the text of a workflow file: what has the wrong shape is refused, with its line.

What is well-formed and still makes no sense, such as steps that wait for each other, is for
`agentq.workflows.checking` to say, all of it at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from agentq.client.task_input.fields import check_fields
from agentq.client.task_input.named_files import shown, text_of_file
from agentq.client.task_input.specs import draft
from agentq.core.errors import Invalid
from agentq.core.task import NO_USAGE, OnDependencyFailure, Spec, Usage
from agentq.protocol.front_matter import (
    FieldPath,
    LocatedFields,
    locate_fields,
    split_front_matter,
)
from agentq.workflows.model import Workflow, WorkflowInput, WorkflowStep

#: What such a file is called in errors.
KIND = "workflow"
WORKFLOW_BYTES_MAX = 256 * 1024
STEPS_MAX = 500
INPUTS_MAX = 100

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,49}")
_INPUT = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,49}")
_FIELDS = ("description", "inputs", "steps", "budget", "concurrency", "labels")
_INPUT_FIELDS = ("description", "default", "required")
#: Fields of a step that a task file has too, read as they are there.
_SAME_AS_TASKS = (
    "title", "instructions", "verify", "reviewer", "min_score", "max_rounds", "review", "approval",
    "irreversible", "timeout", "ttl", "delay", "priority", "after", "base", "resources", "expect",
    "budget", "wait_for", "labels", "inputs",
)  # fmt: skip
_STEP_FIELDS = ("id", "role", "to", "on_failure", "when", "each", "retry", *_SAME_AS_TASKS)
#: Fields that a step has for itself; all others go to its task as they are.
_KEPT = frozenset(("title", "instructions", "after", "base", "labels", "inputs"))
_EXAMPLE = (
    "For example:\n---\nsteps:\n  - id: build\n    role: implementation-worker\n    title: …\n---"
)


def parse_workflow(content: bytes, name: str, path: Path) -> Workflow:
    """Read a workflow from the bytes of its file; `Invalid` says what is wrong, and where."""
    text = text_of_file(content, str(path), WORKFLOW_BYTES_MAX, KIND)
    parts = split_front_matter(text, str(path), WORKFLOW_BYTES_MAX)
    if parts is None:
        raise Invalid(f"{path}, line 1: a workflow starts with `---` and its steps.", _EXAMPLE)
    front_matter, body = parts
    reader = _WorkflowReader(str(path), locate_fields(front_matter, str(path), first_line=2))
    top, description, inputs = reader.top_fields(), reader.description(), reader.inputs()
    return Workflow(
        name,
        path,
        reader.steps(),
        inputs,
        description,
        body,
        text[: len(text) - len(body)].count("\n") + 1,
        _usage(top.get("budget")),
        top.get("concurrency", 0),
        top.get("labels", {}),
        text,
        hashlib.sha256(content).hexdigest(),
    )


def _usage(budget: Mapping[str, Any] | None) -> Usage:
    return Usage(**budget) if budget else NO_USAGE


class _WorkflowReader:
    """Reads the fields of one file; every refusal names the line."""

    def __init__(self, source: str, located: LocatedFields) -> None:
        self._source = source
        self._fields = located.fields
        self._lines = located.lines
        self._step_lines = _by_step(located.lines)
        self._step_text_lines = _by_step(located.text_lines)

    def top_fields(self) -> dict[str, Any]:
        """What the file says of the workflow as a whole."""
        self._check_known(self._fields, (), _FIELDS, "field")
        given: dict[str, Any] = {
            name: _as_budget(self._fields[name]) if name == "budget" else self._fields[name]
            for name in ("budget", "labels")
            if name in self._fields
        }
        read = self._checked(given, ())
        concurrency = self._fields.get("concurrency")
        if concurrency is not None:
            read["concurrency"] = self._whole(concurrency, ("concurrency",))
        return read

    def description(self) -> str:
        return self._text(self._fields.get("description"), ("description",))

    # ---- inputs --------------------------------------------------------------------------------

    def inputs(self) -> tuple[WorkflowInput, ...]:
        given = self._fields.get("inputs")
        if given is None:
            return ()
        named: list[tuple[object, object, str | int]]
        if isinstance(given, list):
            named = [(each, None, place) for place, each in enumerate(given)]
        elif isinstance(given, Mapping):
            named = [(name, about, name) for name, about in given.items()]
        else:
            raise self._wrong(("inputs",), "inputs are names", "Write `inputs: [env, branch]`.")
        if len(named) > INPUTS_MAX:
            raise self._wrong(("inputs",), f"there are more than {INPUTS_MAX} inputs", "Use fewer.")
        read = [self._input(name, about, ("inputs", key)) for name, about, key in named]
        twice = _first_double(each.name for each in read)
        if twice:
            raise self._wrong(("inputs",), f"the input {twice!r} is given twice", "Leave one out.")
        return tuple(read)

    def _input(self, name: object, about: object, path: FieldPath) -> WorkflowInput:
        if not isinstance(name, str) or not _INPUT.fullmatch(name):
            raise self._wrong(
                path,
                f"an input is named by letters, digits, _ and -, got {shown(name)}",
                "Name it like: target-branch.",
            )
        about = {} if about is None else about
        if not isinstance(about, Mapping):
            raise self._wrong(
                path,
                f"the input {name} says {shown(about)}",
                "Write {default: …} or {description: …}.",
            )
        self._check_known(about, path, _INPUT_FIELDS, f"field of the input {name},")
        required = about.get("required")
        if required is not None and not isinstance(required, bool):
            raise self._wrong(
                (*path, "required"), "required is true or false", "Write one of them."
            )
        if required and about.get("default") is not None:
            raise self._wrong(
                path, f"the input {name} is required and has a default", "Leave one of them out."
            )
        return WorkflowInput(
            name,
            self._line(path),
            self._text(about.get("description"), (*path, "description")),
            about.get("default"),
            "default" not in about if required is None else required,
        )

    # ---- steps ---------------------------------------------------------------------------------

    def steps(self) -> tuple[WorkflowStep, ...]:
        given = self._fields.get("steps")
        if not isinstance(given, list) or not given:
            raise self._wrong(("steps",), "a workflow has a list of steps", _EXAMPLE)
        if len(given) > STEPS_MAX:
            raise self._wrong(
                ("steps",),
                f"a workflow has at most {STEPS_MAX} steps, this one has {len(given)}",
                "Make one step of many with `each`.",
            )
        return tuple(self._step(each, ("steps", place)) for place, each in enumerate(given))

    def _step(self, fields: object, path: FieldPath) -> WorkflowStep:
        if not isinstance(fields, Mapping):
            raise self._wrong(path, f"a step has fields, got {shown(fields)}", _EXAMPLE)
        step_id = fields.get("id")
        if isinstance(step_id, int) and not isinstance(step_id, bool):
            step_id = str(step_id)
        if not isinstance(step_id, str) or not _ID.fullmatch(step_id):
            raise self._wrong(
                (*path, "id") if "id" in fields else path,
                "a step has an id of at most 50 small letters, digits, - and _;"
                f" got {shown(step_id)}",
                "Name it like: `id: build-ui`.",
            )
        self._check_known(fields, path, _STEP_FIELDS, f"field of step {step_id},")
        role = self._role(fields, path, step_id)
        task = self._task_fields(fields, path, step_id)
        kept = {name: task.pop(name) for name in _KEPT if name in task}
        base = tuple(kept.get("base", ()))
        place = int(path[-1])
        return WorkflowStep(
            step_id,
            self._line(path),
            role,
            task,
            self._spec(task, role, step_id, path),
            kept.get("title", ""),
            kept.get("instructions", ""),
            tuple(dict.fromkeys((*kept.get("after", ()), *base))),
            self._on_failure(fields, path),
            self._expression(fields, path, "when"),
            self._expression(fields, path, "each"),
            base,
            kept.get("inputs", {}),
            kept.get("labels", {}),
            self._step_lines[place],
            self._step_text_lines.get(place, {}),
        )

    def _role(self, fields: Mapping[str, Any], path: FieldPath, step: str) -> str:
        given = {name: fields[name] for name in ("role", "to") if fields.get(name) is not None}
        if len(given) > 1:
            raise self._wrong(path, f"role and to of step {step} say the same", "Leave one out.")
        role = "".join(self._text(value, (*path, name)) for name, value in given.items())
        if not role:
            raise self._wrong(path, f"step {step} has no role", "Say who does it: `role: …`.")
        return role

    def _task_fields(self, fields: Mapping[str, Any], path: FieldPath, step: str) -> dict[str, Any]:
        """What the step says of its task, each of its proper type."""
        given = {name: fields[name] for name in _SAME_AS_TASKS if name in fields}
        if "budget" in given:
            given["budget"] = _as_budget(given["budget"])
        task = self._checked(given, path)
        if "instructions" not in task and "title" not in task:
            raise self._wrong(path, f"step {step} does not say what is to be done",
                              "Write its `instructions`.")  # fmt: skip
        if isinstance(task.get("approval"), Mapping):
            task["requires_approval"] = True
        if fields.get("retry") is not None:
            task["max_attempts"] = self._whole(fields["retry"], (*path, "retry"))
        return task

    def _spec(self, task: Mapping[str, Any], role: str, step: str, path: FieldPath) -> Spec:
        try:
            return draft({"id": step, "to": role, "title": step, **task}).spec
        except Invalid as error:
            cause = error.cause.removesuffix(" Nothing was submitted.").removesuffix(".")
            raise self._wrong(path, f"step {step}: {cause}", error.remedy) from error

    def _on_failure(self, fields: Mapping[str, Any], path: FieldPath) -> OnDependencyFailure:
        given = fields.get("on_failure")
        words = [str(each) for each in OnDependencyFailure]
        if given is None:
            return OnDependencyFailure.FAIL
        if given not in words:
            raise self._wrong(
                (*path, "on_failure"),
                f"on_failure is one of {', '.join(words)}; got {shown(given)}",
                "It says what becomes of this step if one that it comes after did not complete.",
            )
        return OnDependencyFailure(given)

    def _expression(self, fields: Mapping[str, Any], path: FieldPath, name: str) -> str:
        given = fields.get(name)
        if given is None:
            return ""
        if isinstance(given, bool) and name == "when":
            return str(given).lower()
        if name == "each" and isinstance(given, list):
            if all(isinstance(each, str | int | float) for each in given):
                return json.dumps(given, ensure_ascii=False)
        elif isinstance(given, str) and given.strip():
            return given.strip()
        expected = (
            "an expression" if name == "when" else "an expression that gives a list, or a list"
        )
        raise self._wrong(
            (*path, name), f"{name} is {expected}, got {shown(given)}",
            "Write it like: steps.plan.result.files" if name == "each" else
            "Write it like: inputs.env == 'prod'",
        )  # fmt: skip

    # ---- all of them ---------------------------------------------------------------------------

    def _checked(self, fields: Mapping[str, Any], path: FieldPath) -> dict[str, Any]:
        """Fields that task files have too, each of its proper type."""
        lines = {name: self._line((*path, name)) for name in fields}
        return dict(check_fields(fields, self._source, lines))

    def _text(self, value: object, path: FieldPath) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(
                path, f"{path[-1]} is a text, got {shown(value)}", "Put it in quotes."
            )
        return value.strip()

    def _whole(self, value: object, path: FieldPath) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
            raise self._wrong(
                path,
                f"{path[-1]} is a whole number from 1 to 1000, got {shown(value)}",
                "Mend it.",
            )
        return value

    def _check_known(
        self, fields: Mapping[str, Any], path: FieldPath, known: Collection[str], what: str
    ) -> None:
        for name in fields:
            if name not in known:
                near = get_close_matches(str(name)[:60].lower().replace("-", "_"), known, 1)
                raise self._wrong(
                    (*path, name),
                    f"there is no {what} {shown(name)}",
                    f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}.",
                )

    def _line(self, path: FieldPath) -> int:
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return 1

    def _wrong(self, path: FieldPath, problem: str, remedy: str) -> Invalid:
        return Invalid(f"{self._source}, line {self._line(path)}: {problem}.", remedy)


def _by_step(lines: Mapping[FieldPath, int]) -> dict[int, dict[FieldPath, int]]:
    """The lines of what is below each step, by the way from there."""
    found: dict[int, dict[FieldPath, int]] = {}
    for path, line in lines.items():
        if len(path) > 1 and path[0] == "steps" and isinstance(path[1], int):
            found.setdefault(path[1], {})[path[2:]] = line
    return found


def _as_budget(value: object) -> object:
    """A number is dollars."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"usd": value} if number else value


def _first_double(names: Any) -> str:
    seen = set[str]()
    for name in names:
        if name in seen:
            return str(name)
        seen.add(name)
    return ""
