"""The prompt of an agent: the task, notes of earlier attempts, how to hand in its work."""

from __future__ import annotations

import json
import re

from agentq.core.limits import shorten
from agentq.core.reserved_names import TASK_FOLDER
from agentq.core.reviews import REVIEW_EXAMPLE
from agentq.core.task import Note, Spec, Task
from agentq.worker.task_folder import ARTIFACTS, DATA, LAUNCHER, RESULT

#: The input of a task that says what its structured result looks like.
RESULT_SCHEMA = "result_schema"

_KINDS = {
    "failure": "An earlier attempt failed",
    "crash": "An earlier attempt vanished",
    "answer": "Your question was answered",
    "feedback": "A reviewer asked for changes",
    "review": "A reviewer judged an earlier attempt",
    "yield": "An earlier attempt left until its children were over, and noted",
    "signal": "A signal came",
    "edit": "The task was edited since then",
    "denied": "An earlier attempt was not allowed something, and neither are you",
}
NOTES_BYTES_MAX = 32 * 1024
#: The structured result, in an expression and in a template.
_RESULT_WORD = re.compile(r"\bresult\b")
_RESULT_TEMPLATE = re.compile(r"\{[{%][^}]*\bresult\b")
# Paths are literal and relative: tools check a command before it runs, and cannot check variables.
_HOW = (
    f"Write the result, in Markdown, to the file `{TASK_FOLDER}/{RESULT}` in your workspace, and"
    f" any other evidence into the folder `{TASK_FOLDER}/{ARTIFACTS}/`. If you may not write files,"
    " your last answer is the result."
)
_COMMITS = "You need not commit: what you leave in the tree is committed for you when you are done."
_SAY = (
    f"While you work, `{TASK_FOLDER}/{LAUNCHER} progress 40 reading` says how far you are, and"
    f" `{TASK_FOLDER}/{LAUNCHER} block --reason …` asks a person and ends the attempt."
)


def prompt_for(
    task: Task,
    context: str,
    notes: tuple[Note, ...],
    *,
    inputs: str = "",
    workspace: str = "",
    commits: bool = False,
    profile: str = "",
) -> str:
    """The whole text. The newest notes come last and are kept if there are too many.

    `profile` is what the agent is told before each task, `inputs` says what the tasks before left,
    `workspace` what of earlier attempts' work is there, and `commits` that the worker commits what
    is left.
    """
    parts = [context.strip() or task.spec.instructions]
    instructions = task.spec.instructions.strip()
    if instructions and instructions not in parts[0]:
        parts.insert(0, instructions)
    if profile:
        parts = [profile, "## Your task", *parts]
    if inputs:
        parts.append(inputs)
    if notes:
        parts.append(_earlier(notes))
    if task.details.messages:
        said = [f"- {each.by}: {_indented(each.text)}" for each in task.details.messages]
        parts.append("## What people said since\n\n" + "\n".join(said))
    if workspace:
        parts.append(f"## Your workspace\n\n{workspace}")
    parts.append(_hand_in(task, commits))
    return "\n\n".join(parts) + "\n"


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n  ")


def _earlier(notes: tuple[Note, ...]) -> str:
    lines: list[str] = []
    bytes_left = NOTES_BYTES_MAX
    for note in reversed(notes):
        text = f"- {_KINDS.get(note.kind, note.kind)} ({note.by}): {note.text}"
        bytes_left -= len(text.encode("utf-8", "replace"))
        if bytes_left < 0:
            break
        lines.append(text)
    return "## What came before\n\n" + "\n".join(reversed(lines))


def _hand_in(task: Task, commits: bool) -> str:
    lines = [
        "## Handing in",
        "",
        f"This is task {task.id}, attempt {task.epoch}. " + _HOW,
        _SAY,
    ]
    if commits:
        lines.append(_COMMITS)
    data = _data_wanted(task)
    if data:
        lines.append(data)
    wanted = task.spec.expected_output.artifacts
    if wanted:
        lines.append(
            f"Expected as evidence, each as a non-empty file of that name: {', '.join(wanted)}."
        )
    return "\n".join(lines)


def _data_wanted(task: Task) -> str:
    """What is said where the task wants a structured result; "" where it does not."""
    spec = task.spec
    where = (
        f"Write the structured result, as JSON, to the file `{TASK_FOLDER}/{DATA}`, or hand it in"
        f" with `{TASK_FOLDER}/{LAUNCHER} complete --data …`."
    )
    if spec.reviews:
        return f"{where} It is your verdict, for example: `{REVIEW_EXAMPLE}`"
    schema = spec.inputs.get(RESULT_SCHEMA)
    if schema:
        return f"{where} It follows this JSON Schema: `{json.dumps(schema, ensure_ascii=False)}`"
    if any(_uses_data(each) for each in spec.next):
        named = [_shortened(each) for each in spec.next if _uses_data(each)]
        return f"{where} What comes next is made of it: {'; '.join(named)}."
    return ""


def _uses_data(following: Spec) -> bool:
    """Whether a next task is made of the structured result."""
    texts = (following.title, following.instructions, *following.labels.values())
    plain = json.dumps(dict(following.inputs), ensure_ascii=False)
    return bool(
        _RESULT_WORD.search(following.each)
        or any(_RESULT_TEMPLATE.search(text) for text in (*texts, plain))
    )


def _shortened(following: Spec) -> str:
    each = f" for each of `{following.each}`" if following.each else ""
    text = shorten(" ".join((following.title or following.instructions).split()), 300)
    return f"{following.to}{each}, `{text}`"
