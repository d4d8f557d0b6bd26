"""What usually comes next: one line for people after a command, given how its task stands now.

Commands know nothing of this: `options.command` calls it for all of them. Why a task does not run,
and what to do about it, is for the ledger to say (`explain`); here stands only what people do with
the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from agentq.cli import screen
from agentq.core.errors import AgentqError
from agentq.core.states import State

if TYPE_CHECKING:
    from agentq.cli.session import Session
    from agentq.core.task import Task

#: Command -> what comes next, whatever became of a task.
AFTER: Mapping[str, str] = {
    "roles check": "`agentq up` starts workers for these roles",
    "doctor": "`agentq status` shows what goes on here",
    "workers": "`agentq status` shows what goes on here",
    "up": 'in another terminal, `agentq submit "…"` gives the workers something to do',
    "worker": 'in another terminal, `agentq submit "…"` gives it something to do',
    "apply": "`git show` has the commit, `git push` publishes it",
}

_RESULT = "`agentq result {id}` prints what came of it"
_DIFF = "`agentq diff {id}` shows what it changed"
_APPLY = "`agentq apply {id}` takes the change into your branch"
_DECIDE = (
    "`agentq approve {id}` accepts it, `agentq reject {id} --changes --reason …` sends it back"
)
_FOLLOW = "`agentq logs -f {id}` follows its agent"
_WAIT = "`agentq wait {id}` waits until it is over"
_LOGS = "`agentq logs {id}` shows what its agent said"
_REOPEN = "`agentq requeue {id} --reason …` opens it again"
_RERUN = "`agentq rerun {id}` does the same once more, as a new task"

#: State -> command -> what comes next for its task; "" is any other command.
OF_TASK: Mapping[State, Mapping[str, str]] = {
    State.PENDING: {"": _WAIT},
    State.READY: {"": _WAIT},
    State.IN_PROGRESS: {"": _FOLLOW, "logs": _WAIT, "wait": _FOLLOW},
    State.COMPLETE: {"": _RESULT, "result": "`agentq artifacts ls {id}` lists its files"},
    State.FAILED: {"": _LOGS, "logs": _REOPEN, "status": _LOGS},
    State.EXPIRED: {"": _RERUN},
    State.CANCELLED: {"": _RERUN},
}
#: The same where the task worked in a git repository: its work is a change.
OF_CHANGE: Mapping[State, Mapping[str, str]] = {
    State.REVIEW: {"": f"{_DIFF}; {_DECIDE}", "diff": _DECIDE},
    State.COMPLETE: {"": f"{_DIFF}, {_APPLY}", "diff": _APPLY, "open": _APPLY},
}
#: Commands that are about tasks.
ABOUT_TASKS = frozenset(
    {
        "submit", "wait", "status", "explain", "approve", "reject", "answer", "cancel", "requeue",
        "rerun", "edit", "priority", "tell", "signal", "logs", "result", "diff", "open",
    }
)  # fmt: skip
#: States of which the ledger knows what is missing.
_EXPLAINED = (State.PENDING, State.READY, State.REVIEW, State.BLOCKED)


def show_next_step(session: Session, name: str, context: click.Context) -> None:
    """Print what usually follows this command, if a person is there to read it."""
    from agentq.settings.preferences import wants_quiet

    is_person = screen.is_terminal() and screen.is_terminal(err=True)
    if session.json or session.quiet or not is_person or wants_quiet() or session.attempt():
        return
    try:
        step = _next_step(session, name, context)
    except AgentqError:
        return  # the command itself has done its work: what it could add is not worth an error
    if step:
        screen.note(f"next: {screen.one_line(step)}")


def _next_step(session: Session, name: str, context: click.Context) -> str:
    if name in AFTER:
        return AFTER[name]
    task = _task_of(session, context) if name in ABOUT_TASKS else None
    if task is None:
        return ""
    if task.details.applied_commit:
        return f"`git show {task.details.applied_commit[:12]}` shows the commit that it became"
    step = _of(OF_CHANGE, task, name) if _works_in_git(session, task) else ""
    if not step and task.state in _EXPLAINED:
        step = _remedy(session, task)
    step = step or _of(OF_TASK, task, name)
    return step.replace("{id}", task.id)


def _of(table: Mapping[State, Mapping[str, str]], task: Task, name: str) -> str:
    by_command = table.get(task.state, {})
    return by_command.get(name) or by_command.get("", "")


def _task_of(session: Session, context: click.Context) -> Task | None:
    """The one task that the command was about; None if there were many, or none."""
    if session.tasks:
        return session.tasks[-1] if len({task.id for task in session.tasks}) == 1 else None
    given = context.params.get("ref") or context.params.get("refs")
    if isinstance(given, tuple):
        given = given[0] if len(given) == 1 else None
    return session.reader().task(given) if isinstance(given, str) else None


def _works_in_git(session: Session, task: Task) -> bool:
    from agentq.settings.roles import known_role

    role = known_role(session.settings(), task.to)
    return role is not None and role.workspace == "git"


def _remedy(session: Session, task: Task) -> str:
    """What the ledger says would help it on."""
    from agentq.settings.profiles import agent_of_role

    settings = session.settings()
    causes = session.reader().explain(task.id).causes
    if task.to not in settings.workers and agent_of_role(settings.agents_folder, task.to):
        # The ledger knows nothing of profiles; a worker for one of them alone is rarely meant.
        alone = f"`agentq worker {task.to}` starts one"
        causes = tuple(
            (cause, "`agentq up` starts all agents" if remedy == alone else remedy)
            for cause, remedy in causes
        )
    return next((f"{cause}: {remedy}" for cause, remedy in causes if "`agentq " in remedy), "")
