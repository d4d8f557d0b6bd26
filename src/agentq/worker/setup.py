"""Makes a fresh workspace ready before the agent starts: files copied or linked in, then `setup`.

What goes wrong here is neither the task's fault nor its agent's: the attempt is given back, and
tried again after a while.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.agent import AttemptOutcome, AttemptResult, Job, Launch
from agentq.core.reserved_names import WORKER_FOLDER
from agentq.repository.git import Git, GitLocation, GitOutput
from agentq.worker.environment import secrets_in
from agentq.worker.permissions import unconfined
from agentq.worker.redaction import redacted_text
from agentq.worker.setup_cache import SetupCache, lock_digest
from agentq.worker.stream import Clocks
from agentq.worker.verification import CommandOutput

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt

#: What it printed, among the evidence of the attempt.
SETUP_LOG = f"{WORKER_FOLDER}setup.log"
#: Below the folder of all workspaces.
CACHE_FOLDER = ".setup-cache"
#: A task whose workspace could not be made ready is tried again after this.
RETRY_SECONDS = 60
#: Failures of the surroundings consume no task.
_FAILED = AttemptOutcome.INTERRUPTED
_FILE_BYTES_MAX = 64 * 1024


def set_up(attempt: Attempt, job: Job) -> AttemptResult | None:
    """Make the workspace ready; how the attempt ends if that did not work, else None."""
    role = attempt.shared.settings
    if not (role.setup or role.copy or role.link):
        return None
    attempt.at("set up", role.setup)
    problem = _bring_files(attempt, job.workspace)
    if problem:
        return _failed(problem)
    return _run(attempt, job) if role.setup else None


def _failed(reason: str) -> AttemptResult:
    resets_at = time.time_ns() // 1_000_000 + RETRY_SECONDS * 1000
    words = f"the workspace could not be made ready: {reason}"
    return AttemptResult(_FAILED, words, resets_at=resets_at)


# -- files -----------------------------------------------------------------------------------------


def _bring_files(attempt: Attempt, workspace: Path) -> str:
    """Copy and link the files that the role names; why that did not work, or ""."""
    role = attempt.shared.settings
    for name in (*role.copy, *role.link):
        source, target = Path(role.files_from) / name, workspace / name
        if not source.exists():
            return f"{source} is not there, and the role's settings say to bring it in"
        if not _is_inside(workspace, name):
            return f"{name} would be written outside of the workspace, through a link"
        if _is_tracked(attempt, name):
            return f"{name} is in the repository, and would be changed by bringing in another"
        try:
            _remember_secrets(attempt, source)
            _bring_in(source, target, link=name in role.link)
            if not _is_ignored(attempt, name):
                _take_out(target)
                return (
                    f"git does not ignore {name}, so that it would be in the patch and on the"
                    " branch; add it to .gitignore"
                )
        except (OSError, shutil.Error) as error:
            return f"{name} could not be brought in: {error}"
    return ""


def _is_inside(workspace: Path, name: str) -> bool:
    """Whether this path leads through no link that the repository, or an agent, has put there."""
    parent = os.path.realpath((workspace / name).parent)
    return Path(parent) == Path(os.path.realpath(workspace)) / Path(name).parent


def _bring_in(source: Path, target: Path, *, link: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink() or target.is_file():
        target.unlink()  # of an earlier attempt; what a link leads to is not ours to write
    if target.is_dir():
        return
    if link:
        target.symlink_to(source)
    elif source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _take_out(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)


def _is_tracked(attempt: Attempt, name: str) -> bool:
    asked = _ask_git(attempt, "ls-files", "-z", "--", name)
    return asked is not None and bool(asked.out)


def _is_ignored(attempt: Attempt, name: str) -> bool:
    """Whether git leaves a file alone. What it does not, it takes for the agent's work: it would
    stand in the patch, on the branch and at the remote."""
    words = ("status", "--porcelain", "-z", "--ignored", "--untracked-files=all", "--", name)
    asked = _ask_git(attempt, *words)
    if asked is None:
        return True  # a plain folder, of which only what is handed in is kept
    return asked.ok and bool(asked.out) and all(each[:3] == "!! " for each in asked.names())


def _ask_git(attempt: Attempt, *words: str) -> GitOutput | None:
    """What git says of the worktree; None where there is none."""
    workspace = attempt.workspace
    if workspace.record.kind != "git":
        return None
    place = GitLocation(workspace.path, Path(workspace.record.git_dir))
    return Git(attempt.shared.environment).ask(place, *words)


def _remember_secrets(attempt: Attempt, source: Path) -> None:
    """What a file like `.env` holds is hidden in all that is kept of the attempt."""
    if not source.is_file() or source.stat().st_size > _FILE_BYTES_MAX:
        return
    lines = source.read_text("utf-8", errors="replace").splitlines()
    pairs = (line.removeprefix("export ").partition("=") for line in lines if "=" in line)
    named = {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}
    attempt.extra_secrets = (*attempt.extra_secrets, *secrets_in(named))


# -- the command -----------------------------------------------------------------------------------


def _run(attempt: Attempt, job: Job) -> AttemptResult | None:
    role = attempt.shared.settings
    cache = SetupCache(attempt.shared.workspaces.root / CACHE_FOLDER)
    digest = lock_digest(job.workspace, role.setup, role.setup_locks, role.setup_cache)
    folders, check = role.setup_cache, attempt.check_stopping
    if digest and folders and cache.restore(digest, job.workspace, folders, check):
        attempt.begin("set up", f"as before: the lock files are the same ({digest[:12]})")
        return None
    may_fill = bool(digest and folders) and _is_untouched(attempt)
    child = attempt.start(Launch(("/bin/sh", "-c", role.setup)), unconfined(job))
    output = CommandOutput()
    ran = attempt.watch(child, output, Clocks(role.setup_timeout, 0, role.grace), SETUP_LOG)
    attempt.evidence.store()  # the agent's own output goes on where this ended
    if ran.exit.clean and ran.stopped is None:
        if may_fill:
            cache.fill(digest, job.workspace, folders, check)
        return None
    if ran.stopped is not None and ran.stopped.outcome is not AttemptOutcome.TIMEOUT:
        return AttemptResult(ran.stopped.outcome, ran.stopped.reason)
    why = f"`{role.setup}` ended with {ran.exit}" + (" at its time limit" if ran.stopped else "")
    shown = redacted_text(output.verdict(ran.exit).summary, attempt.secrets)
    return _failed(f"{why}; the end of its output:\n{shown}")


def _is_untouched(attempt: Attempt) -> bool:
    """Whether the workspace is exactly what the repository holds, and no agent has worked there."""
    status = _ask_git(attempt, "status", "--porcelain", "-z", "--no-renames")
    head = _ask_git(attempt, "rev-parse", "HEAD")
    if status is None or head is None:
        return False
    return status.ok and not status.out and head.text == attempt.workspace.record.base
