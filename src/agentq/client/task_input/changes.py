"""Reads what an edit or a rerun says in place of what a task said: text, title, priority, role."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentq.client.task_input.specs import draft
from agentq.core.errors import Invalid
from agentq.core.task import Priority

#: Stands where a field is not given: a draft must have a role and something to do.
_UNCHANGED = "unchanged"
_NAMES = ("to", "title", "priority", "instructions")


class ChangedFields(NamedTuple):
    """What is to be said instead, as the service takes it. Empty fields stay as they are."""

    to: str = ""
    title: str = ""
    priority: Priority | None = None
    instructions: str = ""
    context: bytes = b""


def changes_of(fields: Mapping[str, Any]) -> ChangedFields:
    """Read fields by name, a task file (`file`) among them; long text becomes the context.

    Unknown names, blank texts and fields of a file that no edit changes are `Invalid`.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    named = set(given) - {"file"}
    if "file" in given:
        named |= _fields_of_file(given["file"])
    if not {"file", "instructions", "title"} & set(given):
        given["title"] = _UNCHANGED
    drafted = draft(given, role=lambda: _UNCHANGED)
    spec = drafted.spec
    context = drafted.contexts.get(spec.id, b"")
    says = bool(context) or "instructions" in named
    return ChangedFields(
        spec.to if "to" in named else "",
        spec.title if "title" in named else "",
        spec.priority if "priority" in named else None,
        spec.instructions if says else "",
        context,
    )


def _fields_of_file(file: Any) -> set[str]:
    from agentq.client.task_input.task_file import read_task_file

    named = set(read_task_file(Path(file)).fields)
    others = sorted(named - {*_NAMES, "id"})
    if others:
        raise Invalid(
            f"{file} says {', '.join(others)}, and what a task is told anew is its text, title,"
            " priority and role. Nothing was changed.",
            "Take that out of the file.",
        )
    return named - {"id"}
