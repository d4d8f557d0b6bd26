"""What is wrong with the templates and expressions of a workflow, by the line in its file.

A template sees `inputs`, `run` (`id` and `workflow`) and, of the steps that it comes after,
`steps.<id>`; where the step fans out, also `item` and `index` (from 1). `when` and `each` are
decided before that, once for the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

from agentq.core.limits import FAN_OUT_MAX
from agentq.protocol.template_filters import METHODS
from agentq.protocol.template_uses import PathUsed, TemplateUses, template_uses
from agentq.protocol.templates import BadTemplate, evaluate, is_template
from agentq.workflows.model import Workflow, WorkflowStep
from agentq.workflows.ordering import all_before

#: What a template may ask of a step, in the order in which people are told.
OF_STEPS = (
    "result", "results", "summary", "summaries", "artifacts", "state", "score", "tasks",
)  # fmt: skip
OF_RUNS = ("id", "workflow")
_ALWAYS = ("inputs", "run", "steps")
_OF_ITEMS = ("item", "index")


class TemplateProblem(NamedTuple):
    """Something wrong in a template."""

    line: int
    severity: Literal["error", "warning"]
    text: str
    remedy: str


class _Written(NamedTuple):
    """A template or an expression in the file, and what it may see."""

    step: WorkflowStep | None
    field: str
    text: str
    line: int
    names: tuple[str, ...]
    expression: bool = False

    @property
    def what(self) -> str:
        return f"step {self.step.id}: {self.field}" if self.step else "the text below the steps"


def template_problems(workflow: Workflow) -> Iterator[TemplateProblem]:
    """Everything that is wrong with the templates of a workflow."""
    check = _TemplateCheck(workflow)
    for written in _every(workflow):
        yield from check.problems(written)
    yield from check.unused_inputs()


def _every(workflow: Workflow) -> Iterator[_Written]:
    """All templates and expressions of a file."""
    yield _Written(None, "", workflow.body, workflow.body_line, ("inputs", "run"))
    for step in workflow.steps:
        for field, expression in (("when", step.when), ("each", step.each)):
            if expression:
                yield _Written(step, field, expression, step.text_line(field), _ALWAYS, True)
        names = (*_ALWAYS, *_OF_ITEMS) if step.is_fanned_out else _ALWAYS
        texts = {"title": step.title, "instructions": step.instructions}
        for field, text in texts.items():
            yield _Written(step, field, text, step.text_line(field), names)
        for path, text in _texts({"inputs": step.inputs, "labels": step.labels}):
            field = ".".join(map(str, path))
            yield _Written(step, field, text, step.text_line(*path), names)


def _texts(
    value: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every text within plain data, with the way to it."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, (*path, key))
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _texts(inner, (*path, place))


class _TemplateCheck:
    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._inputs = {_spelled(each.name): each.name for each in workflow.inputs}
        self._steps = {_spelled(step.id): step for step in workflow.steps}
        self._before = all_before(workflow.steps)
        self._used = set[str]()

    def problems(self, written: _Written) -> Iterator[TemplateProblem]:
        if written.expression and is_template(written.text):
            yield self._error(written, 1, "it is an expression", "Write it without {{ }}.")
            return
        try:
            uses = template_uses(written.text, expression=written.expression)
        except BadTemplate as error:
            yield self._error(written, error.line, error.problem, error.remedy)
            # What it would have used is not known: say nothing about inputs.
            self._used.update(self._inputs.values())
            return
        yield from self._names(written, uses)
        for use in uses.paths.get("inputs", ()):
            yield from self._input(written, use)
        for use in uses.paths.get("steps", ()):
            yield from self._step(written, use)
        for use in uses.paths.get("run", ()):
            if use.path and use.path[0] not in OF_RUNS:
                yield self._error(
                    written, use.line, f"run has no {use.path[0]!r}", "It has id and workflow."
                )
        if written.expression and not uses.names:
            yield from self._constant(written)

    def unused_inputs(self) -> Iterator[TemplateProblem]:
        for each in self._workflow.inputs:
            if each.name not in self._used:
                yield TemplateProblem(
                    each.line, "warning", f"no template uses the input {each.name}",
                    f"Use it as {{{{ inputs.{_spelled(each.name)} }}}}, or leave it out.",
                )  # fmt: skip

    # ---- what it uses --------------------------------------------------------------------------

    def _names(self, written: _Written, uses: TemplateUses) -> Iterator[TemplateProblem]:
        for name in sorted(uses.names.difference(written.names)):
            line = min(use.line for use in uses.paths[name])
            if name in _OF_ITEMS and written.field == "when" and written.step and written.step.each:
                remedy = "`when` is decided once, before the list is made: choose items in `each`."
            elif name in _OF_ITEMS and written.step:
                remedy = "A step has items if it says over which list it fans out: `each`."
            elif _spelled(name) in self._inputs:
                remedy = f"Write inputs.{name}."
            else:
                near = get_close_matches(name, written.names, 1)
                there = f"There are: {', '.join(written.names)}."
                remedy = f"Did you mean {near[0]}?" if near else there
            yield self._error(written, line, f"there is no {name!r} here", remedy)

    def _input(self, written: _Written, use: PathUsed) -> Iterator[TemplateProblem]:
        name = _spelled(use.path[0]) if use.path else ""
        if name in self._inputs:
            self._used.add(self._inputs[name])
        elif not name or name in METHODS:
            self._used.update(self._inputs.values())
        else:
            near = get_close_matches(name, self._inputs, 1)
            remedy = (
                f"Did you mean {near[0]}?" if near else f"Declare it: `inputs: [{use.path[0]}]`."
            )
            yield self._error(
                written, use.line, f"the workflow has no input {use.path[0]!r}", remedy
            )

    def _step(self, written: _Written, use: PathUsed) -> Iterator[TemplateProblem]:
        if not use.path or use.path[0] in METHODS or written.step is None:
            return
        used = self._steps.get(_spelled(use.path[0]))
        if used is None:
            yield self._error(
                written, use.line, f"there is no step {use.path[0]!r}", self._meant(use.path[0])
            )
            return
        before = self._before.get(written.step.id)
        if before is not None and used.id not in before:
            itself = used.id == written.step.id
            yield self._error(
                written,
                use.line,
                "it uses its own result" if itself else
                f"it uses step {used.id}, and does not come after it",
                "Name a step before it." if itself else f"Add {used.id} to `after`.",
            )  # fmt: skip
        elif len(use.path) > 1:
            yield from self._part_of_step(written, use, used)

    def _part_of_step(
        self, written: _Written, use: PathUsed, used: WorkflowStep
    ) -> Iterator[TemplateProblem]:
        part = use.path[1]
        if part not in OF_STEPS and part not in METHODS:
            near = get_close_matches(part, OF_STEPS, 1)
            remedy = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(OF_STEPS)}."
            yield self._error(written, use.line, f"a step has no {part!r}", remedy)
        elif used.is_fanned_out and part in ("result", "summary", "score"):
            many = "summaries" if part == "summary" else "results"
            yield TemplateProblem(
                written.line + use.line - 1, "warning",
                f"{written.what}: {used.id} is done once for each item, and {part} is that of the"
                " first", f"Use steps.{_spelled(used.id)}.{many}, a list.",
            )  # fmt: skip

    def _meant(self, name: str) -> str:
        """What somebody meant who wrote steps.build-ui, which takes ui away from steps.build."""
        longer = [step.id for step in self._steps.values() if step.id.startswith(f"{name}-")]
        if longer:
            return f"If you mean {longer[0]}, write steps.{_spelled(longer[0])}: a - takes away."
        near = get_close_matches(name, [step.id for step in self._steps.values()], 1)
        return f"Did you mean {near[0]}?" if near else "Name a step that it comes after."

    # ---- what needs no values ------------------------------------------------------------------

    def _constant(self, written: _Written) -> Iterator[TemplateProblem]:
        try:
            value = evaluate(written.text, {})
        except BadTemplate as error:
            yield self._error(written, error.line, error.problem, error.remedy)
            return
        if written.field == "when":
            if not value:
                yield self._warning(
                    written, "it never runs: this is never true", "Mend or remove it."
                )
        elif not isinstance(value, list):
            yield self._error(written, 1, "it gives no list", "Write it like: ['a', 'b'].")
        elif len(value) > FAN_OUT_MAX:
            yield self._error(
                written,
                1,
                f"it gives {len(value)} items, and one list makes at most {FAN_OUT_MAX} tasks",
                "Let each of fewer tasks do several of them.",
            )
        elif not value:
            yield self._warning(written, "it never runs: the list is empty", "Mend or remove it.")

    def _error(self, written: _Written, line: int, problem: str, remedy: str) -> TemplateProblem:
        where = written.line + line - 1
        return TemplateProblem(where, "error", f"{written.what}: {problem}", remedy)

    def _warning(self, written: _Written, problem: str, remedy: str) -> TemplateProblem:
        return TemplateProblem(written.line, "warning", f"{written.what}: {problem}", remedy)


def _spelled(name: str) -> str:
    """A name as templates write it: build_ui for build-ui."""
    return name.replace("-", "_")
