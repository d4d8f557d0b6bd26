"""The prompt of an agent: the task, notes of earlier attempts, how to hand in its work."""

from __future__ import annotations

from agentq.core.reserved_names import TASK_FOLDER
from agentq.core.task import Note, Task
from agentq.worker.task_folder import ARTIFACTS, LAUNCHER, RESULT

_KINDS = {
    "failure": "An earlier attempt failed",
    "crash": "An earlier attempt vanished",
    "answer": "Your question was answered",
    "feedback": "A reviewer asked for changes",
    "edit": "The task was edited since then",
    "denied": "An earlier attempt was not allowed something, and neither are you",
}
NOTES_BYTES_MAX = 32 * 1024
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
) -> str:
    """The whole text. The newest notes come last and are kept if there are too many.

    `inputs` says what the tasks before left, `workspace` what of earlier attempts' work is there,
    and `commits` that the worker commits what is left.
    """
    parts = [context.strip() or task.spec.instructions]
    instructions = task.spec.instructions.strip()
    if instructions and instructions not in parts[0]:
        parts.insert(0, instructions)
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
    wanted = task.spec.expected_output.artifacts
    if wanted:
        lines.append(
            f"Expected as evidence, each as a non-empty file of that name: {', '.join(wanted)}."
        )
    return "\n".join(lines)
