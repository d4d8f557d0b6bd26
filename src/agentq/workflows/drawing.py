"""Draws a workflow as text: its steps level by level, who does them, and what each has to pass.

Steps of one level can run at the same time; `×` marks those that are done once for each item of a
list. With the inputs of a run, what depends on nothing else is filled in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentq.core.durations import format_duration
from agentq.core.errors import Invalid
from agentq.core.task import OnDependencyFailure
from agentq.protocol.template_uses import template_uses
from agentq.protocol.templates import evaluate, render
from agentq.workflows.model import Workflow, WorkflowInput, WorkflowStep
from agentq.workflows.ordering import levels

_TEXT_CHARS = 72
_ID_CHARS_MAX = 30


def draw(workflow: Workflow, inputs: Mapping[str, Any] | None = None) -> str:
    """The whole workflow, for a terminal."""
    drawing = _Drawing(workflow, inputs)
    return "\n".join(line.rstrip() for line in drawing.lines())


class _Drawing:
    def __init__(self, workflow: Workflow, inputs: Mapping[str, Any] | None) -> None:
        self._workflow = workflow
        self._inputs = inputs
        self._levels = levels(workflow.steps)
        placed = {id(step) for level in self._levels for step in level}
        stuck = [step for step in workflow.steps if id(step) not in placed]
        if stuck:
            self._levels.append(stuck)
        self._has_stuck = bool(stuck)
        self._widths = (
            min(max(len(step.id) for step in workflow.steps) + 4, _ID_CHARS_MAX),
            min(max(len(step.role) for step in workflow.steps), _ID_CHARS_MAX),
        )

    def lines(self) -> Iterator[str]:
        description = one_line(self._workflow.description)
        yield self._workflow.name + (f": {description}" if description else "")
        for each in self._workflow.inputs:
            yield f"    {self._input(each)}"
        yield ""
        for number, level in enumerate(self._levels, 1):
            is_last = number == len(self._levels)
            stuck = is_last and self._has_stuck
            for place, step in enumerate(level):
                shown = ("?" if stuck else str(number)) if not place else ""
                yield from self._step(step, shown, "      " if is_last else "    │ ")
            if not is_last:
                yield "    │"
        totals = list(self._totals())
        if totals:
            yield ""
            yield "; ".join(totals)

    def _input(self, wanted: WorkflowInput) -> str:
        about = f"  ({one_line(wanted.description)})" if wanted.description else ""
        if self._inputs is not None and wanted.name in self._inputs:
            return f"{wanted.name} = {one_line(str(self._inputs[wanted.name]))}{about}"
        if wanted.required:
            return f"{wanted.name}, to be given{about}"
        default = "" if wanted.default is None else f" = {one_line(str(wanted.default))}"
        return f"{wanted.name}{default}, unless given{about}"

    def _totals(self) -> Iterator[str]:
        if self._workflow.concurrency:
            yield f"at most {self._workflow.concurrency} tasks open at once"
        if self._workflow.budget.usd:
            yield f"at most ${self._workflow.budget.usd:g} for all of it"

    # ---- one step ------------------------------------------------------------------------------

    def _step(self, step: WorkflowStep, number: str, margin: str) -> Iterator[str]:
        when = self._known(step.when)
        items = self._known(step.each)
        count = str(len(items)) if isinstance(items, list) else ""
        is_skipped = bool(step.when and when is not None and not when) or items == []
        name = step.id + (f" ×{count}" if step.each else "")
        wide, role = self._widths
        title = one_line(self._filled(step.title))
        mark = "○" if is_skipped else "●"
        yield f"{number:>3} {mark} {name:<{wide}}  {one_line(step.role):<{role}}  {title}"
        if is_skipped:
            yield f"{margin}  does not run with these inputs"
        for words in _conditions(step), _gates(step):
            if words:
                yield f"{margin}  {'; '.join(words)}"

    def _known(self, expression: str) -> Any:
        """What an expression gives that depends on the inputs alone; None if it does not."""
        if not expression or self._inputs is None:
            return None
        try:
            if template_uses(expression, expression=True).names <= {"inputs"}:
                return evaluate(expression, {"inputs": dict(self._inputs)})
        except Invalid:  # the check of the workflow says so, with its line
            return None
        return None

    def _filled(self, text: str) -> str:
        if self._inputs is None:
            return text
        try:
            return render(text, {"inputs": dict(self._inputs)})
        except Invalid:  # it needs what is not known yet
            return text


def _conditions(step: WorkflowStep) -> list[str]:
    """When it runs, in words."""
    words = []
    if step.after:
        how = {
            OnDependencyFailure.SKIP: ", skipped if one of them fails",
            OnDependencyFailure.RUN: ", whatever becomes of them",
        }.get(step.on_failure, "")
        words.append(f"after {', '.join(step.after)}{how}")
    if step.each:
        words.append(f"for each of {one_line(step.each)}")
    if step.when:
        words.append(f"when {one_line(step.when)}")
    if step.spec.wait_for:
        words.append(f"waits for the signal {', '.join(map(one_line, step.spec.wait_for))}")
    return words


def _gates(step: WorkflowStep) -> list[str]:
    """What it has to pass, in the order in which it does."""
    spec, gates = step.spec, step.spec.gates
    words = []
    if spec.needs_approval:
        words.append("irreversible: starts once approved" if spec.irreversible else "approval")
        if spec.approval_timeout_seconds:
            waited = format_duration(spec.approval_timeout_seconds)
            words[-1] += f" ({spec.approval.on_timeout} after {waited})"
    if spec.expected_output.artifacts:
        words.append(f"expects {', '.join(map(one_line, spec.expected_output.artifacts))}")
    if gates.verify:
        words.append(f"verify `{one_line(gates.verify)}`")
    if gates.reviewer:
        score = f", score at least {gates.min_score}" if gates.min_score else ""
        words.append(f"reviewed by {one_line(gates.reviewer)}{score}")
    if spec.review or gates.person:
        words.append("accepted by a person")
    return words


def one_line(text: str, chars: int = _TEXT_CHARS) -> str:
    """The text as one short line without anything that a terminal would obey."""
    plain = "".join(each if each.isprintable() else " " for each in text[: 4 * chars])
    line = " ".join(plain.split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"
