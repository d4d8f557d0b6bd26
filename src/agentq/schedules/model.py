"""What a schedule file says, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentq.contracts.schedule_values import Overlap
from agentq.protocol.occurrences import CatchUp, Timing


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule file: when it occurs, and the task or the run of a workflow that it asks for.

    `title`, `instructions`, `labels` and `inputs` are templates; `fields` are the others of its
    task, by the names that task files have for them.
    """

    name: str
    path: Path
    timing: Timing
    role: str = ""
    workflow: str = ""
    catch_up: CatchUp = CatchUp.ONE
    overlap: Overlap = Overlap.SKIP
    description: str = ""
    title: str = ""
    instructions: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    #: Where its fields stand in the file.
    lines: Mapping[str, int] = field(default_factory=dict)
    #: Of the file's bytes.
    digest: str = ""

    def at_line(self, name: str) -> str:
        """The file and the line of a field, as messages name them."""
        return f"{self.path}, line {self.lines.get(name, 1)}"
