"""Where the work of a task began, if not at the base of its role: at what other tasks had left."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentq.core.counting import counted

#: How many conflicts are named; the tree shows the rest.
CONFLICTS_NAMED_MAX = 100


class BaseTask(msgspec.Struct, frozen=True):
    """A task whose work was started from: the attempt that left it, and the commit."""

    task_id: str
    epoch: int
    commit: str
    #: How the task had ended.
    state: str = "complete"


class WorkStart(msgspec.Struct, frozen=True):
    """The commit at which a task began, and what is in it."""

    commit: str
    tasks: tuple[BaseTask, ...] = ()
    #: Commits of the repository's own history that all of this is built on: whoever has these can
    #: be given the rest.
    origins: tuple[str, ...] = ()
    #: A line for each path that could not be merged, and how many more there are.
    conflicts: tuple[str, ...] = ()
    conflicts_more: int = 0
    #: Whether some of it must not leave this machine: it holds a secret, or could not be stored.
    is_local: bool = False
    #: Why it could not be had, of work that the task can do without: then it began elsewhere.
    missing: str = ""

    @property
    def is_merged(self) -> bool:
        """Whether the commit was made for this task, and nobody else has it."""
        return bool(self.tasks) and all(each.commit != self.commit for each in self.tasks)


def in_short(start: WorkStart | None) -> str:
    """The same in a few words, for who watches the worker."""
    if start is None or not start.tasks:
        return ""
    count = len(start.conflicts) + start.conflicts_more
    conflicts = f", with {counted(count, 'conflict')}" if count else ""
    return f"from the work of {_listed([each.task_id for each in start.tasks])}{conflicts}"


def started(start: WorkStart | None) -> str:
    """What the prompt says about where the task began; "" if at the base of its role."""
    if start is None:
        return ""
    if start.missing:
        return f"This workspace is at the base of its role. {start.missing}"
    names = [f"{each.task_id} (attempt {each.epoch})" for each in start.tasks]
    words = f"The task began at commit {start.commit[:12]}: the work of {_listed(names)}"
    words += ", merged in this order." if len(names) > 1 else "."
    for each in start.tasks:
        if each.state != "complete":
            words += f" {each.task_id} ended {each.state}: nobody has accepted its work."
    if start.conflicts:
        lines = [f"- {line}" for line in start.conflicts]
        if start.conflicts_more:
            lines.append(f"- and {start.conflicts_more} more")
        words += (
            " They could not be merged without conflicts, which are part of that commit as they"
            " are. Solve what is left of them first:\n\n" + "\n".join(lines)
        )
    return words


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
