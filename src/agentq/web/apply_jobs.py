"""`agentq apply` for whoever decides on a page: in the checkout of the role, beside the server.

A check may take an hour, so each runs in a thread of its own, and pages hear how it stands by the
stream that they follow anyway. What it may do, what it leaves alone and what it refuses is decided
where the command has it from (`agentq.client.applying`); it is done in the name of the person.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agentq.client.applying import ApplyOptions, TaskApplier, applied_words, check_how
from agentq.client.task_changes import TaskChange, change_of
from agentq.client.writer import QueueWriter
from agentq.core.access import Action, Principal, PrincipalKind
from agentq.core.errors import AgentqError, Invalid, Refused
from agentq.core.values import replace
from agentq.repository.applying import Applying
from agentq.repository.checkout import Checkout, find_checkout
from agentq.repository.git import Git
from agentq.settings import environment

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.client.reader import QueueReader
    from agentq.contracts.service import Service

log = logging.getLogger("agentq.server")

#: Removes what an applied task has left on this machine; why some of it stays.
CleanUp = Callable[["QueueReader", str], list[str]]
#: What pages are told of: those that run, and the newest that have ended.
_KEPT_MAX = 30
_GO_ON, _GIVE_UP = "continue", "abort"


class ApplyJob(msgspec.Struct, frozen=True):
    """One `apply` that a person has asked for, as pages are told of it."""

    task_id: str
    by: str
    how: str
    #: Grows with everything that is said of any of them.
    number: int
    #: `running`, `done` or `refused`.
    state: str = "running"
    words: str = ""
    remedy: str = ""
    code: str = ""


class ApplyJobs:
    """At most one at a time in each repository. Its calls may block; any thread may make them."""

    def __init__(self, client: Client, clean_up: CleanUp) -> None:
        self._client = client
        self._clean_up = clean_up
        self._guard = threading.Lock()
        self._jobs: dict[str, ApplyJob] = {}
        #: Who works in which repository, by its git folder.
        self._busy: dict[Path, ApplyJob] = {}
        self._number = 0
        self._tell: Callable[[list[ApplyJob]], None] = lambda _: None

    def listen(self, tell: Callable[[list[ApplyJob]], None]) -> None:
        """Call this, from any thread, with all that pages are told of whenever that has changed."""
        self._tell = tell

    # -- what is asked -----------------------------------------------------------------------------

    def standing(self, service: Service, who: Principal, query: Mapping[str, str]) -> Any:
        """Where the change of a task would go, or why it cannot be applied from here; what has
        stopped there, and what was last asked for."""
        service.last_position(who)  # refused to attempts: folders of this machine are not for them
        task = service.task(who, query.get("task", ""))
        found: dict[str, Any] = {"job": self._jobs.get(task.id)}
        try:
            checkout = _checkout_of(change_of(self._client, task.id))
        except AgentqError as error:
            return {**found, "problem": error.cause, "remedy": error.remedy, "code": error.code}
        found |= {"folder": str(checkout.tree), "branch": checkout.branch}
        halted = Applying(checkout.tree, environment()).halted()
        if halted is not None:
            found["stopped"] = {
                "task_id": halted.task_id, "why": halted.why, "folder": halted.scratch
            }  # fmt: skip
        return found

    def start(
        self, service: Service, who: Principal, ref: str, how: str, *, in_session: bool
    ) -> ApplyJob:
        """Begin; the job, of which pages will hear. `how` is as the command has it: squash, merge,
        cherry-pick, or continue and abort for what has stopped."""
        queue = QueueWriter(self._client.installation, who)
        try:
            _check_person(who, ref, in_session=in_session)
            queue.check_may(Action.APPLY, ref)
        except Refused as error:
            service.note_refusal(who, error, Action.APPLY, ref)
            raise
        if how not in (_GO_ON, _GIVE_UP):
            check_how(how)
        change = change_of(queue, ref)
        checkout = _checkout_of(change)
        job = self._begin(checkout.common, change.task.id, who.name, how)
        thread = threading.Thread(
            target=self._run, args=(job, queue, checkout), name="agentq-apply", daemon=True
        )
        thread.start()
        return job

    # -- one of them -------------------------------------------------------------------------------

    def _begin(self, common: Path, task_id: str, by: str, how: str) -> ApplyJob:
        with self._guard:
            other = self._busy.get(common)
            if other is not None:
                raise Refused(
                    f"{other.by} is applying {other.task_id} in this repository. Nothing was"
                    " changed.",
                    "Wait for it to end, then try again.",
                    code="apply_under_way",
                )
            job = self._busy[common] = ApplyJob(task_id, by, how, 0, words="looking at the branch")
        return self._say(job)

    def _say(self, job: ApplyJob) -> ApplyJob:
        with self._guard:
            self._number += 1
            self._jobs.pop(job.task_id, None)
            self._jobs[job.task_id] = job = replace(job, number=self._number)
            for task_id in list(self._jobs)[:-_KEPT_MAX]:
                if self._jobs[task_id].state != "running":
                    del self._jobs[task_id]
            told = list(self._jobs.values())
        self._tell(told)
        return job

    def _run(self, job: ApplyJob, queue: QueueWriter, checkout: Checkout) -> None:
        try:
            ended = self._outcome(job, queue, checkout.tree)
        except AgentqError as error:
            ended = replace(
                job, state="refused", words=error.cause, remedy=error.remedy, code=error.code
            )
        except Exception:
            log.exception("applying %s failed in a way that nobody thought of", job.task_id)
            ended = replace(
                job, state="refused", words="The server failed.", remedy="Its log says why."
            )
        with self._guard:
            del self._busy[checkout.common]
        log.info("apply of %s by %s: %s", job.task_id, job.by, ended.words)
        self._say(ended)

    def _outcome(self, job: ApplyJob, queue: QueueWriter, folder: Path) -> ApplyJob:
        def progress(words: str) -> None:
            self._say(replace(job, words=words))

        applier = TaskApplier(queue, folder, job.by, progress)
        if job.how in (_GO_ON, _GIVE_UP):
            _check_stopped(applier, job.task_id)
        if job.how == _GIVE_UP:
            applier.abort()
            return replace(job, state="done", words=f"{job.task_id}: given up; the branch and its"
                           " files are as they were")  # fmt: skip
        if job.how == _GO_ON:
            applied = applier.continue_()
        else:
            applied = applier.apply(job.task_id, ApplyOptions(job.how))
        notes = list(applied.notes)
        if applied.is_marked and not applied.is_repeated:
            notes += self._clean_up(queue, applied.task_id)
        words = f"{applied.task_id}: {applied_words(applied)}"
        return replace(job, state="done", words=words, remedy=" ".join(notes))


def _check_person(who: Principal, ref: str, *, in_session: bool) -> None:
    if who.kind is not PrincipalKind.PERSON or not in_session:
        raise Refused(
            f"{str(who.kind).capitalize()} {who.name} may not apply {ref} here: only a person may,"
            " in the session of a browser. Nothing was changed.",
            f"Programs run `agentq apply {ref}` in a checkout of the repository.",
            code="not_permitted",
        )


def _check_stopped(applier: TaskApplier, task_id: str) -> None:
    halted = applier.halted()
    if halted is None or halted.task_id != task_id:
        other = f"; {halted.task_id} has" if halted is not None else ""
        raise Refused(
            f"Applying {task_id} has not stopped in this checkout{other}. Nothing was changed.",
            "Look again: somebody may have gone on with it, or given it up.",
            code="not_halted",
        )


def _checkout_of(change: TaskChange) -> Checkout:
    """The checkout of the repository that the task's role works for; `Refused` if none is here."""
    task, role = change.task, change.role
    if role is None or not role.repo:
        why = f"The settings of this server name no repository for the role {task.to}."
    elif not Path(role.repo).is_dir():
        why = f"The repository of {task.to}, {role.repo}, is not on the server's machine."
    else:
        try:
            return find_checkout(Git(environment()), Path(role.repo), environment())
        except Invalid:
            why = f"Nothing is checked out in {role.repo}, the repository of {task.to}."
    raise Refused(
        f"{why} Nothing was changed.",
        f"Run `agentq apply {task.id}` in a checkout of it.",
        code="no_checkout",
    )
