"""Finds workflow files in their folder, and reads the inputs that a run is started with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentq.client.task_input.fields import check_text
from agentq.client.task_input.task_file import refuse_special
from agentq.core.errors import AgentqError, Invalid, NotFound
from agentq.workflows.model import Workflow, WorkflowInput
from agentq.workflows.parsing import WORKFLOW_BYTES_MAX, parse_workflow

SUFFIX = ".md"
#: A folder with more files than this is another folder.
FILES_MAX = 1_000
INPUT_CHARS_MAX = 64 * 1024

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """A file of the workflows folder; `error` says why it cannot be read."""

    name: str
    path: Path
    description: str = ""
    steps: int = 0
    error: str = ""


@lru_cache(maxsize=64)
def _parsed(content: bytes, name: str, path: Path) -> Workflow:
    """The workflow that a file's content is: the file is read anew each time, the same words are
    not taken apart again."""
    return parse_workflow(content, name, path)


def read_workflow(folder: Path, name: str) -> Workflow:
    """Read the workflow `name` from the file NAME.md in `folder`."""
    name = name.removesuffix(SUFFIX)
    _check_name(name)
    path = folder / f"{name}{SUFFIX}"
    try:
        _check_inside(folder, path)
        refuse_special(str(path))
        with path.open("rb") as file:
            content = file.read(WORKFLOW_BYTES_MAX + 1)
    except FileNotFoundError:
        raise _absent(folder, name) from None
    except OSError as error:
        raise Invalid(
            f"The workflow file {path} cannot be read: {error.strerror}.", "Check the file."
        ) from error
    return _parsed(content, name, path)


def list_workflows(folder: Path) -> list[WorkflowFile]:
    """Every workflow file of the folder, by name; what cannot be read is there with its error."""
    return [_listed(folder, name) for name in _names(folder)]


def _listed(folder: Path, name: str) -> WorkflowFile:
    path = folder / f"{name}{SUFFIX}"
    try:
        workflow = read_workflow(folder, name)
    except AgentqError as error:
        return WorkflowFile(name, path, error=error.cause)
    return WorkflowFile(name, path, workflow.description, len(workflow.steps))


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [each.name for each, _ in zip(entries, range(FILES_MAX), strict=False)]
    except OSError:
        return []
    files = (name for name in names if name.endswith(SUFFIX) and not name.startswith("."))
    return sorted(name.removesuffix(SUFFIX) for name in files)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Invalid(
            "The name of a workflow is 1 to 64 letters, digits, - and _, and starts with a letter"
            f" or digit; got {name[:80]!r}.",
            "Name one of `agentq workflows`, without its folder.",
        )


def _check_inside(folder: Path, path: Path) -> None:
    """Refuse a link that leads elsewhere: who may write a workflow need not read other files."""
    if not path.is_symlink():
        return  # its name has no folder in it
    try:
        inside = path.resolve(strict=True).is_relative_to(folder.resolve())
    except RuntimeError:  # links that lead to each other
        inside = False
    if not inside:
        raise Invalid(
            f"{path} is a link that leads out of the workflows folder.",
            "Put the file itself there.",
        )


def _absent(folder: Path, name: str) -> NotFound:
    there = _names(folder)
    near = get_close_matches(name, there, 1)
    if near:
        remedy = f"Did you mean {near[0]}?"
    else:
        remedy = f"There are: {', '.join(there)}." if there else f"None are there: {folder}."
    return NotFound(f"There is no workflow {name!r}.", remedy)


# ---- inputs --------------------------------------------------------------------------------------


def parse_inputs(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every input: what is given, else its default.

    A text that is given for an input whose default is a number, a switch or a list becomes one.
    """
    known = {each.name: each for each in workflow.inputs}
    unknown = [name for name in given if name not in known]
    missing = [each for each in workflow.inputs if each.required and each.name not in given]
    if unknown or missing:
        raise _other_inputs(workflow, unknown, missing)
    return {
        name: _value(each, given[name]) if name in given else each.default
        for name, each in known.items()
    }


def _other_inputs(
    workflow: Workflow, unknown: Iterable[str], missing: Iterable[WorkflowInput]
) -> Invalid:
    known = [each.name for each in workflow.inputs]
    said, remedies = list[str](), list[str]()
    for name in unknown:
        near = get_close_matches(name[:60], known, 1)
        said.append(f"it has no input {name[:60]!r}")
        if near:
            remedies.append(f"Did you mean {near[0]}?")
    wanted = [f"{each.name} ({each.description})" if each.description else each.name
              for each in missing]  # fmt: skip
    if wanted:
        said.append(f"it needs {', '.join(wanted)}")
        remedies.append("Give each with --input NAME=VALUE.")
    elif not remedies:
        remedies.append(f"It has: {', '.join(known)}." if known else "It has none.")
    return Invalid(
        f"The workflow {workflow.name} cannot be started like this: {', and '.join(said)}."
        " Nothing was started.",
        " ".join(remedies),
    )


def _value(wanted: WorkflowInput, given: Any) -> Any:
    if not isinstance(given, str):
        return given
    where = f"The input {wanted.name}"
    check_text(given, where)
    if len(given) > INPUT_CHARS_MAX:
        raise Invalid(
            f"{where} may have {INPUT_CHARS_MAX} characters. Nothing was started.",
            "Name a file instead.",
        )
    if wanted.default is None or isinstance(wanted.default, str):
        return given
    try:
        value = json.loads(given)
    except (ValueError, RecursionError):
        value = given
    kinds: tuple[type, ...] = (type(wanted.default),)
    if kinds == (float,):
        kinds = (int, float)
    if type(value) not in kinds:
        expected = {bool: "true or false", int: "a whole number", float: "a number",
                    list: 'a list like ["a", "b"]'}.get(kinds[-1], "a mapping as JSON")  # fmt: skip
        raise Invalid(
            f"{where} is {expected}, as its default {json.dumps(wanted.default)[:60]} is; got"
            f" {given[:60]!r}. Nothing was started.",
            "Give it so.",
        )
    return value
