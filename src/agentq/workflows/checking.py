"""What is wrong with a workflow, all of it at once, each with its line and what to do about it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from agentq.core.errors import Invalid
from agentq.core.task import OnDependencyFailure, OnTimeout
from agentq.protocol.secret_detection import find_secret
from agentq.protocol.spec_validation import check_spec
from agentq.workflows.model import Workflow, WorkflowStep
from agentq.workflows.ordering import cycles, levels
from agentq.workflows.template_checking import TemplateProblem, template_problems

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class WorkflowProblem:
    """Something that keeps a run from starting (an error), or that is likely a slip (a warning)."""

    path: Path
    line: int
    severity: Severity
    #: What is wrong, without a full stop; what to do is `remedy`.
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.text}"


def check_workflow(workflow: Workflow, roles: Collection[str] | None) -> list[WorkflowProblem]:
    """Everything that is wrong with a workflow, by line; `roles` are those that there are."""
    check = _Check(workflow)
    found = [
        *check.doubles(),
        *check.unknown_steps(),
        *check.cycles(),
        *check.gates(),
        *(check.roles(roles) if roles is not None else ()),
        *check.specs(),
        *(check.problem(*each) for each in template_problems(workflow)),
    ]
    return sorted(found, key=lambda each: (each.line, each.severity, each.text))


#: What was found in the workflows that were looked at last, by their content and name.
_FOUND: dict[tuple[str, str], tuple[WorkflowProblem, ...]] = {}
_FOUND_MAX = 64


def checked_errors(workflow: Workflow) -> tuple[WorkflowProblem, ...]:
    """What keeps a workflow from running, whichever roles there are; the same words are checked
    once."""
    key = (workflow.digest, workflow.name)
    if key not in _FOUND:
        if len(_FOUND) >= _FOUND_MAX:
            _FOUND.clear()
        found = check_workflow(workflow, None)
        _FOUND[key] = tuple(each for each in found if each.severity == "error")
    return _FOUND[key]


class _Check:
    """The checks of one workflow; each yields its problems."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._steps = workflow.steps
        self._names = {step.id for step in workflow.steps}

    def problem(self, line: int, severity: Severity, text: str, remedy: str) -> WorkflowProblem:
        return WorkflowProblem(self._workflow.path, line, severity, text, remedy)

    def _error(self, step: WorkflowStep, field: str, text: str, remedy: str) -> WorkflowProblem:
        return self.problem(step.line_of(field), "error", f"step {step.id}: {text}", remedy)

    def _warning(self, step: WorkflowStep, field: str, text: str, remedy: str) -> WorkflowProblem:
        return self.problem(step.line_of(field), "warning", f"step {step.id}: {text}", remedy)

    # ---- the graph -----------------------------------------------------------------------------

    def doubles(self) -> Iterator[WorkflowProblem]:
        seen: dict[str, WorkflowStep] = {}
        for step in self._steps:
            # Templates cannot write a dash in a name: build_ui stands for build-ui there.
            first = seen.setdefault(step.id.replace("-", "_"), step)
            if first is not step:
                same = "called so" if first.id == step.id else f"called {first.id}, too alike"
                yield self._error(
                    step, "id", f"the step in line {first.line} is {same}", "Give it another id."
                )

    def unknown_steps(self) -> Iterator[WorkflowProblem]:
        for step in self._steps:
            for each in step.after:
                if each not in self._names:
                    field = "base" if each in step.base else "after"
                    yield self._error(
                        step, field, f"it comes after {each!r}, and there is no such step",
                        _near(each, self._names),
                    )  # fmt: skip
            if step.on_failure is not OnDependencyFailure.FAIL and not step.after:
                yield self._warning(
                    step, "on_failure", "on_failure is for a step that comes after others",
                    "Say what it comes after, or leave it out.",
                )  # fmt: skip

    def cycles(self) -> Iterator[WorkflowProblem]:
        found = cycles(self._steps)
        for cycle in found:
            step = self._workflow.step(cycle[0])
            assert step is not None
            way = " after ".join((*cycle, cycle[0]))
            text = "it waits for itself" if len(cycle) == 1 else f"steps wait for each other: {way}"
            yield self._error(step, "after", text, "Take one of them out of `after`.")
        placed = {step.id for level in levels(self._steps) for step in level}
        waiting = {name for cycle in found for name in cycle}
        for step in self._steps:
            if step.id not in placed and step.id not in waiting:
                yield self._error(
                    step, "after", "it never starts: it comes after steps that wait for each other",
                    "Mend those first.",
                )  # fmt: skip

    # ---- who does it, and who judges it --------------------------------------------------------

    def roles(self, roles: Collection[str]) -> Iterator[WorkflowProblem]:
        for step in self._steps:
            for field, role in (("role", step.role), ("reviewer", step.spec.gates.reviewer)):
                if role and role not in roles:
                    yield self._error(
                        step, field if (field,) in step.lines else "to",
                        f"there is no role {role!r}", _near(role, roles),
                    )  # fmt: skip

    def gates(self) -> Iterator[WorkflowProblem]:
        for step in self._steps:
            gates, spec = step.spec.gates, step.spec
            if gates.reviewer and gates.reviewer == step.role:
                yield self._error(
                    step, "reviewer", f"{step.role} cannot review its own work",
                    "Name another role as the reviewer.",
                )  # fmt: skip
            for field in ("min_score", "max_rounds"):
                if getattr(gates, field) and not gates.reviewer:
                    yield self._error(
                        step, field, f"{field} is for a reviewer, and there is none",
                        "Name one with `reviewer`.",
                    )  # fmt: skip
            if spec.irreversible and spec.max_attempts > 1 and "max_attempts" in step.task_fields:
                yield self._warning(
                    step, "retry", "what is irreversible is never tried again by itself",
                    "Leave `retry` out: a person decides.",
                )  # fmt: skip
            if "{{" in gates.verify and ("inputs" in gates.verify or "steps" in gates.verify):
                yield self._warning(
                    step, "verify", "verify is a command, run as it is written, and no template",
                    "Let the command read a file that the step writes.",
                )  # fmt: skip
            yield from self._approval(step)

    def _approval(self, step: WorkflowStep) -> Iterator[WorkflowProblem]:
        spec, policy = step.spec, step.spec.approval
        if policy.on_timeout is OnTimeout.APPROVE and spec.irreversible:
            yield self._error(
                step, "approval", "it is irreversible: that nobody answers never approves it",
                "Use on_timeout hold or reject.",
            )  # fmt: skip
        timeout = spec.approval_timeout_seconds
        if policy.on_timeout is not OnTimeout.HOLD and not timeout:
            yield self._error(
                step, "approval", "on_timeout says what follows a timeout, and there is none",
                "Say how long to wait: `timeout: 2d`.",
            )  # fmt: skip
        for each in policy.escalate:
            if timeout and each.after_seconds >= timeout:
                yield self._warning(
                    step, "approval", f"{each.to} is asked when the time is over already",
                    "Escalate before the timeout.",
                )  # fmt: skip

    # ---- what submitting would say -------------------------------------------------------------

    def specs(self) -> Iterator[WorkflowProblem]:
        """What no gate above has said: names, sizes, secrets."""
        told = {each.line for each in self.gates() if each.severity == "error"}
        for step in self._steps:
            rule = find_secret(step.instructions)
            if rule:
                yield self._error(
                    step, "instructions", f"it seems to hold a secret ({rule})",
                    "Take it out; hand it to the worker through its environment instead.",
                )  # fmt: skip
            try:
                check_spec(step.spec)
            except Invalid as error:
                if not told.intersection((step.line, *step.lines.values())):
                    cause = error.cause.replace(" Nothing was submitted.", "").rstrip(".")
                    yield self._error(step, "id", cause, error.remedy)


def _near(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(known)[:20])}."


#: What others call it; the service has a `Problem` of its own.
Problem = WorkflowProblem

__all__ = ["Problem", "TemplateProblem", "WorkflowProblem", "check_workflow"]
