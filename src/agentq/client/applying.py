"""`apply`: what a task changed, brought into the user's branch.

The repository at hand does the work (`agentq.repository`); here is what the ledger has to say about
it: which attempt counts, whether the task is complete, what the commit says, and that it was
applied.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agentq.client.task_changes import TaskChange, change_of
from agentq.core.access import Action
from agentq.core.errors import AgentqError, Invalid, Refused, Unavailable
from agentq.core.states import State
from agentq.protocol.secret_detection import find_secret, redact
from agentq.repository.applying import Applying, ApplyRequest, Halted, Landed
from agentq.repository.checks import BranchCheck
from agentq.repository.fetching import bring
from agentq.repository.picking import MODES
from agentq.repository.remotes import PUSH_FAILED
from agentq.settings import environment

if TYPE_CHECKING:
    from agentq.client.writer import QueueWriter
    from agentq.core.task import Task
    from agentq.repository.checkout import CheckoutSearch

#: Below the folder of all workspaces.
SCRATCH_FOLDER = ".apply"
_SUBJECT_CHARS_MAX = 72
_SUMMARY_CHARS_MAX = 600


class AppliedTask(msgspec.Struct, frozen=True):
    """What became of applying one task. `commit` is "" if there was nothing to apply."""

    task_id: str
    epoch: int
    commit: str
    branch: str
    #: Whether it had been applied before, and nothing was done.
    is_repeated: bool = False
    #: Whether the role's check ran again and passed.
    is_checked: bool = False
    #: Whether the ledger knows of it.
    is_marked: bool = False
    #: What is worth knowing about it, a sentence each.
    notes: tuple[str, ...] = ()


class ApplyOptions(msgspec.Struct, frozen=True):
    """How tasks are applied. Without a message, the task's title is the subject."""

    how: str = "squash"
    message: str = ""
    force: bool = False
    verify: bool = True
    #: Is given the message, and returns the one that counts.
    edit: Callable[[str], str] | None = None


def check_how(how: str) -> str:
    if how not in MODES:
        raise Invalid(f"A change is applied by {', '.join(MODES)}; got {how!r}.")
    return how


# -- apply -----------------------------------------------------------------------------------------


class TaskApplier:
    """Applies tasks to the checkout that a folder is in, on behalf of `by`.

    Whoever has begun to look for that checkout before passes the `search`. `meanwhile` is called
    while git looks at it, for what is needed after a task was applied.
    """

    def __init__(
        self, queue: QueueWriter, folder: Path, by: str,
        progress: Callable[[str], None] = lambda _: None, search: CheckoutSearch | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self._queue = queue
        self._by = by or queue.who.name
        self._meanwhile = meanwhile
        self._applying = Applying(folder, environment(), progress, search, self._get_ready)
        self._recover()

    def _get_ready(self) -> None:
        """Import what tells the ledger: git is at work, and would be waited for."""
        _ = self._queue.service
        self._meanwhile()

    def apply(self, ref: str, options: ApplyOptions) -> AppliedTask:
        """Apply one task; does nothing, and says so, if it was applied before."""
        self._queue.check_may(Action.APPLY, ref)
        change = change_of(self._queue, ref)
        task = change.task
        details = task.details
        if details.applied_at and not options.force:
            return AppliedTask(
                task.id, change.snapshot.epoch, details.applied_commit, details.applied_branch,
                is_repeated=True, is_marked=True,
            )  # fmt: skip
        notes = list(_unverified(change, force=options.force))
        common = self._applying.checkout.common
        work = bring(self._applying.git, common, task.id, change.snapshot, change.sources)
        message = options.message or message_for(task)
        if options.edit is not None:
            message = options.edit(message)
        scratch = Path(self._queue.installation.settings.workspaces_root) / SCRATCH_FOLDER / task.id
        request = ApplyRequest(
            check_how(options.how), with_trailer(message, task.id), scratch,
            _check(change, verify=options.verify),
        )  # fmt: skip
        landed = self._applying.apply(work, request)
        notes += self._notes(change, landed, verify=options.verify)
        return self._settled(landed, notes, is_complete=task.state is State.COMPLETE)

    def continue_(self, *, verify: bool = True) -> AppliedTask:
        """Go on with the `apply` that has stopped in this checkout."""
        self._queue.check_may(Action.APPLY)
        landed = self._applying.continue_(is_checked=verify)
        task = self._queue.task(landed.task_id)
        return self._settled(landed, [], is_complete=task.state is State.COMPLETE)

    def abort(self) -> str:
        """Give the `apply` that has stopped up; the id of its task."""
        return self._applying.abort().task_id

    def halted(self) -> Halted | None:
        """The `apply` that has stopped in this checkout, and waits for a person."""
        return self._applying.halted()

    def _recover(self) -> None:
        """Bring to its end what was killed, and tell the ledger."""
        journal = self._applying.recovered()
        if journal is None:
            return
        task = self._queue.task(journal.task_id)
        landed = Landed(journal.task_id, journal.epoch, journal.new, journal.branch, journal.old)
        self._settled(landed, [], is_complete=task.state is State.COMPLETE)

    def _settled(self, landed: Landed, notes: list[str], *, is_complete: bool) -> AppliedTask:
        """Tell the ledger, and only then forget what a repetition would need to know."""
        if landed.commit and is_complete:
            try:
                self._queue.mark_applied(landed.task_id, self._by, landed.commit, landed.branch)
            except AgentqError as error:
                raise Unavailable(
                    f"{landed.task_id} is in your branch as {landed.commit[:12]}, but the ledger"
                    f" could not be told: {error.cause}",
                    "Repeat `agentq apply` when that is mended: it only tells the ledger then.",
                    code="not_marked",
                ) from error
        self._applying.settle()
        return AppliedTask(
            landed.task_id, landed.epoch, landed.commit, landed.branch,
            is_checked=landed.is_checked, is_marked=bool(landed.commit) and is_complete,
            notes=tuple(notes),
        )  # fmt: skip

    def _notes(self, change: TaskChange, landed: Landed, *, verify: bool) -> list[str]:
        notes = []
        left = change.snapshot.left_out
        if left:
            notes.append(f"What the attempt left is without {', '.join(left[:3])}.")
        has_moved = bool(landed.commit) and landed.old != change.snapshot.base
        if has_moved and not landed.is_checked:
            if change.role is None:
                why = f"the settings here do not know the role {change.task.to}"
            else:
                why = "--no-verify" if change.role.verify and not verify else "the role has none"
            notes.append(f"Your branch has moved since, and no check ran again ({why}).")
        return notes


def _check(change: TaskChange, *, verify: bool) -> BranchCheck | None:
    role = change.role
    if role is None or not role.verify or not verify:
        return None
    return BranchCheck(
        role.verify, role.verify_timeout, role.setup, role.setup_timeout, role.environment
    )


def _unverified(change: TaskChange, *, force: bool) -> list[str]:
    """What nobody has verified, if it is applied all the same; `Refused` if it is not to be."""
    if change.is_accepted:
        return []
    task, epoch = change.task, change.snapshot.epoch
    if task.state is State.COMPLETE:
        words = f"{task.id} is complete, but not by attempt {epoch}, whose work this is"
    else:
        words = f"{task.id} is {task.state}: nobody has accepted what attempt {epoch} left"
    if force:
        return [f"Not verified: {words}."]
    raise Refused(
        f"{words}. Nothing was changed.",
        f"`agentq explain {task.id}` says what is missing. --force applies it as it is.",
        code="not_complete",
    )


def applied_words(applied: AppliedTask) -> str:
    """What became of it, in a sentence without its end."""
    where = applied.branch or "HEAD"
    if applied.is_repeated:
        return f"was applied before, as {applied.commit[:12]} on {where}; nothing was done"
    if not applied.commit:
        return "changed nothing, so there is nothing to apply"
    checked = ", checked again" if applied.is_checked else ""
    marked = "" if applied.is_marked else "; not marked as applied, for it is not complete"
    return f"applied to {where} as {applied.commit[:12]}{checked}{marked}"


# -- what the commit says --------------------------------------------------------------------------


def message_for(task: Task) -> str:
    """The message of the commit: title, summary if it is short. Never what the agent was told."""
    subject = " ".join(redact(task.spec.title).split()) or f"Apply the work of {task.id}"
    if len(subject) > _SUBJECT_CHARS_MAX:
        subject = f"{subject[: _SUBJECT_CHARS_MAX - 1]}…"
    summary = task.summary.partition(PUSH_FAILED)[0].strip()
    told = task.spec.instructions.strip()
    is_fit = (
        len(summary) <= _SUMMARY_CHARS_MAX
        and find_secret(summary) is None
        and summary.replace("\n", "").isprintable()
        and not (told and told[:80] in summary)
    )
    return f"{subject}\n\n{summary}\n" if summary and is_fit else f"{subject}\n"


def with_trailer(message: str, task_id: str) -> str:
    """The message with the line that names the task, once."""
    text, line = message.strip(), f"Task: {task_id}"
    if not text:
        raise Invalid("A commit needs a message, got none. Nothing was changed.", "Write one.")
    return f"{text}\n" if line in text.splitlines() else f"{text}\n\n{line}\n"
