"""What a task starts from besides the base of its role: the work of the tasks that it names.

`base` in a task names them. Without it, whoever may only read (`permissions = "read"`) and comes
after one task that changed something gets that task's work to look at, and a review the work that
it judges.

The ledger says which commit it is, by the record that a worker stored among the evidence of the
accepted attempt, or this machine's record of the workspace, if that was here. The commit itself
comes from this repository, from the role's remote, or from an artifact. Where it cannot be had, the
attempt does not begin: it never starts from anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.permissions import Permissions
from agentq.core.errors import AgentqError, Invalid, NotFound, Unavailable
from agentq.core.states import TERMINAL, State
from agentq.core.task import Task
from agentq.core.values import replace
from agentq.repository.work_starts import CONFLICTS_NAMED_MAX, BaseTask, WorkStart
from agentq.settings.roles import permissions_of
from agentq.worker.earlier_work import EarlierWork, LeftWork, earlier_work, left_by
from agentq.worker.inputs import reviewed_epoch
from agentq.worker.merges import Merged, Side, merge
from agentq.worker.workspace_records import attempt_name
from agentq.worker.worktrees import shared_place

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.settings.roles import RoleSettings
    from agentq.worker.workspaces import Workspaces

#: How far back it is looked for the work that tasks without changes of their own started from.
_HOPS_MAX = 100


@dataclass(frozen=True, slots=True)
class BaseWork:
    """A task to start from, how it ended, and what it left."""

    task_id: str
    state: State
    #: The attempt of the task itself.
    epoch: int
    #: What has the commit: of a task that changed nothing, what that one had started from.
    left: LeftWork
    #: Whether the task itself does not name it: then it can do without.
    is_implied: bool = False

    @property
    def is_local(self) -> bool:
        """Whether it must not leave this machine, by the word of the worker that kept it here."""
        snapshot = self.left.snapshot
        is_kept_here = bool(snapshot.ref) and not (snapshot.is_pushed or snapshot.artifact)
        return is_kept_here or (snapshot.start is not None and snapshot.start.is_local)


def known_work(
    queue: Client, task: Task, role: RoleSettings, workspaces: Workspaces
) -> EarlierWork:
    """What earlier attempts at a task left, and what it starts from if they left nothing."""
    if task.spec.base and role.workspace != "git":
        raise Invalid(
            f"{task.id} starts from the work of {', '.join(task.spec.base)}, and the role {task.to}"
            " has no git workspace.",
            'Send it to a role with workspace = "git", or leave base out: what came before it is'
            " among its inputs.",
        )
    sources = _Sources(queue, workspaces)
    return replace(earlier_work(queue, task), bases=partial(_bases, sources, task, role))


@dataclass(frozen=True, slots=True)
class _Sources:
    """Where it is written down what tasks left: in the ledger, and for the workspaces here."""

    queue: Client
    workspaces: Workspaces

    def left_by(self, task: Task, epoch: int = 0) -> LeftWork | None:
        """What this attempt left; else what was accepted of a task, or of one that did not complete
        the newest there is."""
        if epoch:
            left = next(iter(left_by(self.queue, task.id, [epoch])), None)
            return left or self._left_here(task, epoch)
        if task.state is not State.COMPLETE:
            return next(iter(left_by(self.queue, task.id)), None)
        report = task.details.report
        if report is None:
            return None
        left = next(iter(left_by(self.queue, task.id, [report.epoch])), None)
        return left or self._left_here(task, report.epoch)

    def _left_here(self, task: Task, epoch: int) -> LeftWork | None:
        """What the attempt left on this machine, of an agent that has reported by itself: after its
        report the ledger takes nothing more."""
        for name in (task.id, attempt_name(task.id, epoch)):
            record = self.workspaces.records.read(name)
            snapshot = record.snapshot if record is not None else None
            if (
                snapshot is not None
                and (snapshot.epoch, snapshot.submitted_at) == (epoch, task.submitted_at)
            ):  # fmt: skip
                return LeftWork(snapshot)
        return None


def _bases(sources: _Sources, task: Task, role: RoleSettings) -> Sequence[BaseWork]:
    """The tasks to start from, in order."""
    queue = sources.queue
    if task.spec.reviews:
        return _reviewed(sources, task)
    reads = permissions_of(role, task.to, task.spec.type) is Permissions.READ
    names = task.spec.base or (_read_by(task) if reads else ())
    known = queue.service.tasks_by_id(queue.who, names) if names else {}
    if task.spec.base:
        return [_base(sources, name, known.get(name)) for name in names]
    found = [_left_of(sources, each) for each in known.values() if each.state is State.COMPLETE]
    changed = [each for each in found if each is not None and each.left.snapshot.ref]
    return [replace(changed[0], is_implied=True)] if len(changed) == 1 else ()


def _reviewed(sources: _Sources, task: Task) -> Sequence[BaseWork]:
    """The work that a review judges, as the attempt left it that has reported."""
    name, epoch = task.spec.reviews, reviewed_epoch(task)
    known = sources.queue.service.tasks_by_id(sources.queue.who, [name])
    found = _left_of(sources, known[name], epoch) if name in known else None
    if found is None or not found.left.snapshot.ref:
        return ()
    return [replace(found, is_implied=True)]


def _read_by(task: Task) -> tuple[str, ...]:
    spec = task.spec
    return tuple(dict.fromkeys((*spec.after, *([spec.parent] if spec.parent else ()))))


def _base(sources: _Sources, task_id: str, task: Task | None) -> BaseWork:
    if task is None:
        raise Invalid(
            f"The ledger does not know {task_id} any more, from whose work this task starts.",
            "Submit a task that starts from something else.",
        )
    if task.state not in TERMINAL:
        raise Unavailable(
            f"{task_id}, from whose work this task starts, is {task.state} again.",
            "It goes on once that is over.",
        )
    found = _left_of(sources, task)
    if found is None:
        how = "" if task.state is State.COMPLETE else f" It ended {task.state}."
        raise Invalid(
            f"{task_id} left no work in git to start from: there is no record of a snapshot among"
            f" its evidence, nor on this machine.{how}",
            "Name a task that has worked in a git workspace as base, or leave base out.",
        )
    return found


def _left_of(sources: _Sources, task: Task, epoch: int = 0) -> BaseWork | None:
    """What a task, or this attempt at it, left in git; of one that changed nothing, what has the
    commit it started from."""
    first = last = sources.left_by(task, epoch)
    if first is None or last is None or first.snapshot.kind != "git":
        return None
    for _ in range(_HOPS_MAX):
        start = last.snapshot.start
        if last.snapshot.ref or start is None or not start.tasks:
            break
        try:
            beneath = left_by(sources.queue, start.tasks[0].task_id, [start.tasks[0].epoch])
        except NotFound:  # the ledger does not know it any more: it is here, or it is gone
            break
        if not beneath:
            break
        last = beneath[0]
    if last.snapshot.commit != first.snapshot.commit:
        last = first
    return BaseWork(task.id, task.state, first.snapshot.epoch, last)


# -- in the repository -----------------------------------------------------------------------------


@contextmanager
def begun(
    workspaces: Workspaces,
    name: str,
    common: Path,
    bases: Sequence[BaseWork],
    why_not_had: Callable[[LeftWork], str],
) -> Iterator[WorkStart | None]:
    """Bring the work of these tasks into the repository, merged if they are several.

    `why_not_had` fetches one, and says why it is not here. What was fetched is kept by its ref for
    as long as this lasts; afterwards by whoever has begun there.
    """
    if not bases:
        yield None
        return
    git, shared = workspaces.worktrees.git, shared_place(common)
    fetched = [
        (snapshot.ref, snapshot.commit)
        for snapshot in (each.left.snapshot for each in bases)
        if snapshot.ref and not git.tip(shared, snapshot.ref)
    ]
    try:
        yield _brought(workspaces, name, common, bases, why_not_had)
    finally:
        for ref, commit in fetched:
            git.ask(shared, "update-ref", "--no-deref", "-d", ref, commit)


def _brought(
    workspaces: Workspaces,
    name: str,
    common: Path,
    bases: Sequence[BaseWork],
    why_not_had: Callable[[LeftWork], str],
) -> WorkStart:
    git, shared = workspaces.worktrees.git, shared_place(common)
    for each in bases:
        problem = why_not_had(each.left)
        if not problem:
            continue
        has_origins = all(git.tip(shared, origin) for origin in each.left.snapshot.origins)
        error = _not_had(each, problem, common, has_origins=has_origins)
        if not each.is_implied:
            raise error
        return WorkStart("", missing=error.cause)
    sides = [Side(each.task_id, each.left.snapshot.commit) for each in bases]
    merged = Merged(sides[0].commit)
    if len(sides) > 1:
        with workspaces.aside(name) as folder:
            merged = merge(git, common, folder, sides)
    named = merged.conflicts[:CONFLICTS_NAMED_MAX]
    return WorkStart(
        merged.commit,
        tuple(
            BaseTask(each.task_id, each.epoch, each.left.snapshot.commit, str(each.state))
            for each in bases
        ),
        tuple(dict.fromkeys(one for each in bases for one in each.left.snapshot.origins)),
        named,
        len(merged.conflicts) - len(named),
        any(each.is_local for each in bases),
    )


def _not_had(base: BaseWork, problem: str, common: Path, *, has_origins: bool) -> AgentqError:
    what = f"The work of {base.task_id} (attempt {base.epoch}), from which this task starts,"
    if not has_origins:
        origin = base.left.snapshot.origins[0][:12]
        return Invalid(
            f"{what} is built on commit {origin}, which {common} does not have: it is of another"
            " repository, or of a newer state of this one.",
            "Fetch that commit into the repository of the role, or name another base.",
        )
    return Unavailable(
        f"{what} cannot be had here: {problem.rstrip('.')}.",
        "Let the roles of both tasks name the same remote (`push`), or run them on one machine;"
        " `agentq workspaces` shows what is kept, and until when.",
    )
