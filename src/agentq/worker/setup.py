"""Makes a workspace ready before the agent starts: files copied or linked in, then `setup`.

What goes wrong here in a fresh tree is neither the task's fault nor its agent's: the role cannot
work, and says so until its set-up passes in a fresh tree. In a tree that earlier attempts have
worked in, it may be their doing: then it is tried in a fresh one. Where it passes there, nobody but
the agent can mend it, so it starts without, and its prompt says first what failed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.agent import AttemptOutcome, AttemptResult, Job, Launch
from agentq.core.reserved_names import WORKER_FOLDER
from agentq.core.values import replace
from agentq.repository.git import Git, GitLocation
from agentq.worker.permissions import unconfined
from agentq.worker.redaction import redacted_text
from agentq.worker.setup_cache import SetupCache, lock_digest
from agentq.worker.setup_files import Tree, bring_files
from agentq.worker.setup_trial import described_failure
from agentq.worker.stream import Clocks
from agentq.worker.task_folder import TaskFolder
from agentq.worker.verification import CommandOutput

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt

#: What it printed, among the evidence of the attempt.
SETUP_LOG = f"{WORKER_FOLDER}setup.log"
#: Below the folder of all workspaces.
CACHE_FOLDER = ".setup-cache"
#: Where nobody checks roles, a task whose workspace could not be made ready waits for so long.
RETRY_SECONDS = 60


def set_up(attempt: Attempt, job: Job) -> tuple[Job, AttemptResult | None]:
    """Make the workspace ready; the job as it goes on, and how the attempt ends if it cannot."""
    role = attempt.shared.settings
    if not (role.setup or role.copy or role.link):
        return job, None
    attempt.at("set up", role.setup)

    def remember(secrets: tuple[str, ...]) -> None:
        attempt.extra_secrets = (*attempt.extra_secrets, *secrets)

    stopped, problem = None, bring_files(role, _tree_of(attempt), remember)
    if not problem and role.setup:
        stopped, problem = _run(attempt, job)
    return _judged(attempt, job, problem) if problem else (job, stopped)


def _judged(attempt: Attempt, job: Job, problem: str) -> tuple[Job, AttemptResult | None]:
    """What a set-up that failed comes to: the role cannot work, or the agent is told."""
    words = f"the workspace could not be made ready: {problem}"
    readiness = attempt.shared.readiness
    if readiness is None:
        resets_at = time.time_ns() // 1_000_000 + RETRY_SECONDS * 1000
        return job, AttemptResult(AttemptOutcome.INTERRUPTED, words, resets_at=resets_at)
    is_fresh = not attempt.workspace.record.holds
    if not is_fresh:
        attempt.begin("set up", "it failed where earlier attempts have worked: in a fresh tree?")
    if readiness.judge_setup(words, attempt.run_stream, is_fresh=is_fresh):
        return job, AttemptResult(AttemptOutcome.SURROUNDINGS, readiness.problem)
    attempt.begin("set up", "it passes in a fresh tree: the agent starts without, and is told")
    told = replace(job, prompt=f"{_TOLD}\n\n{problem}\n\n{job.prompt}")
    TaskFolder(job.workspace).write_task(told.prompt)
    return told, None


_TOLD = (
    "Before you began, this workspace could not be set up, though a fresh one can be: what earlier"
    " attempts left here keeps it from that. Mend it as part of your work. What failed:"
)


def _tree_of(attempt: Attempt) -> Tree:
    workspace, git = attempt.workspace, Git(attempt.shared.environment)
    if workspace.record.kind != "git":
        return Tree(workspace.path, git)
    return Tree(workspace.path, git, GitLocation(workspace.path, Path(workspace.record.git_dir)))


# -- the command -----------------------------------------------------------------------------------


def _run(attempt: Attempt, job: Job) -> tuple[AttemptResult | None, str]:
    """Run the command; how the attempt ends if it was stopped meanwhile, and what went wrong."""
    role = attempt.shared.settings
    cache = SetupCache(attempt.shared.workspaces.root / CACHE_FOLDER)
    digest = lock_digest(job.workspace, role.setup, role.setup_locks, role.setup_cache)
    folders, check = role.setup_cache, attempt.check_stopping
    if digest and folders and cache.restore(digest, job.workspace, folders, check):
        attempt.begin("set up", f"as before: the lock files are the same ({digest[:12]})")
        return None, ""
    may_fill = bool(digest and folders) and _is_untouched(attempt)
    child = attempt.start(Launch(("/bin/sh", "-c", role.setup)), unconfined(job))
    output = CommandOutput()
    ran = attempt.watch(child, output, Clocks(role.setup_timeout, 0, role.grace), SETUP_LOG)
    attempt.evidence.store()  # the agent's own output goes on where this ended
    if ran.exit.clean and ran.stopped is None:
        if may_fill:
            cache.fill(digest, job.workspace, folders, check)
        return None, ""
    if ran.stopped is not None and ran.stopped.outcome is not AttemptOutcome.TIMEOUT:
        return AttemptResult(ran.stopped.outcome, ran.stopped.reason), ""
    return None, redacted_text(described_failure(role.setup, ran, output), attempt.secrets)


def _is_untouched(attempt: Attempt) -> bool:
    """Whether the workspace is exactly what the repository holds, and no agent has worked there."""
    tree = _tree_of(attempt)
    status = tree.ask("status", "--porcelain", "-z", "--no-renames")
    head = tree.ask("rev-parse", "HEAD")
    if status is None or head is None:
        return False
    return status.ok and not status.out and head.text == attempt.workspace.record.base
