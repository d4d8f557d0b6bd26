"""What a workflow file says, as values: its inputs, its steps, and the lines they stand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentq.core.task import NO_USAGE, OnDependencyFailure, Spec, Usage
from agentq.protocol.front_matter import FieldPath


@dataclass(frozen=True, slots=True)
class WorkflowInput:
    """A value that a run is started with. What is neither given nor required is its default."""

    name: str
    line: int
    description: str = ""
    default: Any = None
    required: bool = True


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """A step of a workflow: a task to be, or with `each` one for every item of a list.

    `title`, `instructions`, `labels` and `inputs` are templates, `when` and `each` expressions; ""
    where the file says nothing. `after` includes what it starts from (`base`).
    """

    id: str
    line: int
    role: str
    #: What the file says of the task as it is, by the names that task files have for it.
    task_fields: Mapping[str, Any]
    #: The same as a spec: its gates, limits and times. Templates are not filled in.
    spec: Spec
    title: str = ""
    instructions: str = ""
    after: tuple[str, ...] = ()
    on_failure: OnDependencyFailure = OnDependencyFailure.FAIL
    when: str = ""
    each: str = ""
    base: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Where its fields stand, and where the texts in them start, by the way to each.
    lines: Mapping[FieldPath, int] = field(default_factory=dict)
    text_lines: Mapping[FieldPath, int] = field(default_factory=dict)

    @property
    def is_fanned_out(self) -> bool:
        return bool(self.each)

    def line_of(self, *path: str | int) -> int:
        """The line of a field, or of what it is part of."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return self.line

    def text_line(self, *path: str | int) -> int:
        """The line on which the text of a field starts."""
        return self.text_lines.get(path) or self.line_of(*path)


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow file, read but not checked: see `agentq.workflows.checking`."""

    name: str
    path: Path
    steps: tuple[WorkflowStep, ...]
    inputs: tuple[WorkflowInput, ...] = ()
    description: str = ""
    #: The Markdown below the front matter, which every step gets; a template of `inputs` and `run`.
    body: str = ""
    body_line: int = 1
    #: What all steps of a run may spend together, and how many may be open at once (0: any).
    budget: Usage = NO_USAGE
    concurrency: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    #: The whole text of the file, and the SHA-256 of its bytes.
    source: str = ""
    digest: str = ""

    def step(self, step_id: str) -> WorkflowStep | None:
        return next((step for step in self.steps if step.id == step_id), None)
