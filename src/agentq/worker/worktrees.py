"""Git worktrees: one tree and one branch per attempt, what was done there, and whether it may go.

The base is a commit, found once and written down: whatever moves afterwards, the patch is what the
attempt changed. Nothing here uses force; what git or a rule refuses stays, with the reason.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agentq.core.errors import AgentqError, Conflict, Invalid, Unavailable
from agentq.worker.changes import EvidenceFile, collect, hidden, hide_task_folder
from agentq.worker.commits import CommitRequest, Committed, commit
from agentq.worker.git import LONG_TIMEOUT_SECONDS, Git, GitLocation, filters_of

_BRANCHES_TRIED = 100
_NAMES_SHOWN = 3

#: Files that git keeps while it is in the middle of something.
_UNDER_WAY = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}

#: Settings that make `git push` run a program. In the repository itself an agent may have set them.
_RUNS_PROGRAMS = re.compile(
    r"core\.(sshcommand|gitproxy|askpass)|credential\..+|remote\..+\.(receivepack|uploadpack|vcs)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Worktree:
    """A tree with a branch of its own that starts at the commit `base`.

    `common` is the git folder of the repository, `git_dir` the part of it that is the tree's own.
    """

    tree: Path
    common: Path
    base: str
    push: str = ""
    push_sha256: str = ""
    branch: str = ""
    git_dir: Path = Path()
    #: The commit that was pushed.
    pushed: str = ""


class Worktrees:
    """Makes, reads and removes worktrees, with one way to call git."""

    def __init__(self, git: Git) -> None:
        self._git = git

    # -- making ------------------------------------------------------------------------------------

    def plan(self, tree: Path, repo: Path, base: str, push: str) -> Worktree:
        """Find the repository and fix the base commit, before anything is made."""
        place = GitLocation(repo)
        found = self._git.ask(place, "rev-parse", "--path-format=absolute", "--git-common-dir")
        if not found.ok or not found.text:
            raise Invalid(
                f"{repo} is not a git repository that can be used: {found.err}",
                "Name the folder of a repository in the role's settings.",
            )
        commit = ""
        if base and not base.startswith("-") and base.isprintable():
            commit = self._git.tip(place, base)
        if not commit:
            raise Invalid(
                f"{repo} has no commit {base[:200]!r} to start from.",
                "Name a branch, a tag or a commit that is there as the base.",
            )
        common = Path(found.text)
        address = self._push_address(_shared(common), push) if push else ""
        return Worktree(tree, common, commit, push, _sha256(address))

    def make(
        self, plan: Worktree, task_id: str, epoch: int, announce: Callable[[str], None]
    ) -> Worktree:
        """Add a worktree on a branch of its own; `announce` is called with its name before.

        Only adding is serialized; checking out, which takes long, is not.
        """
        shared = _shared(plan.common)
        with self._locked(plan.common):
            branch = self._free_branch(shared, task_id, epoch)
            announce(branch)
            words = ("worktree", "add", "--quiet", "--no-track", "--no-checkout", "-b", branch)
            added = self._git.ask(shared, *words, str(plan.tree), plan.base)
            if not added.ok:
                raise Conflict(
                    f"No worktree on the branch {branch} could be added: {added.err}",
                    "Rename the branch that is in the way, or mend what git says.",
                )
            made = replace(plan, branch=branch, git_dir=_pointed_to(plan.tree))
            self._silence_hooks(made)
        checkout = ("reset", "--quiet", "--hard", "--no-recurse-submodules", "HEAD")
        self._git.do(self._place(made), *checkout, timeout=LONG_TIMEOUT_SECONDS)
        return made

    def _free_branch(self, shared: GitLocation, task_id: str, epoch: int) -> str:
        """A branch that is not there: never one that some earlier task of this name left."""
        # No part of a branch's name may end like git's own lock files.
        task = f"{task_id}_" if task_id.endswith(".lock") else task_id
        for number in range(1, _BRANCHES_TRIED):
            branch = f"agentq/{task}/{epoch}" + (f"-{number}" if number > 1 else "")
            if not self._git.tip(shared, f"refs/heads/{branch}"):
                return branch
        raise Conflict(
            f"The branches agentq/{task}/{epoch} to …-{_BRANCHES_TRIED - 1} are all there already.",
            "Delete those that are not needed any more.",
        )

    def _silence_hooks(self, made: Worktree) -> None:
        """Turn hooks off for whoever uses git in the tree, as far as the repository allows.

        Settings of one worktree need an extension, for which a repository without a tree of its own
        (or with one elsewhere) would have to be rewritten: there only the agent's environment does.
        """
        shared, file = _shared(made.common), ("config", "--file", str(made.common / "config"))
        wanted = r"^(core\.bare|core\.worktree|extensions\.worktreeconfig)$"
        found = self._git.ask(shared, *file, "-z", "--get-regexp", wanted).names()
        settings = dict(each.partition("\n")[::2] for each in found)
        if settings.get("core.bare", "false") != "false" or "core.worktree" in settings:
            return
        is_known = settings.get("extensions.worktreeconfig") == "true"
        if is_known or self._git.ask(shared, *file, "extensions.worktreeConfig", "true").ok:
            own = str(made.git_dir / "config.worktree")
            self._git.ask(shared, "config", "--file", own, "core.hooksPath", "/dev/null")

    def hide_task_folder(self, made: Worktree) -> None:
        """Keep what the repository has under the name of the worker's folder out of all changes."""
        hide_task_folder(self._git, self._place(made))

    # -- committing, collecting and pushing --------------------------------------------------------

    def commit(self, made: Worktree, folder: Path, request: CommitRequest) -> Committed:
        """Commit what is not committed yet to the attempt's own branch; `folder` is for that."""
        place = self._place(made)
        if not self._why_not_clean(place):
            return Committed()
        if under_way := _under_way(made):
            return Committed(problem=f"{under_way} is under way in it")
        return commit(self._git, place, made.common, made.branch, folder, request)

    def collect(self, made: Worktree, folder: Path, patch_bytes: int) -> list[EvidenceFile]:
        """The patch from the base to the tree as it is, and the commits; `folder` is for them."""
        return collect(self._git, self._place(made), made.common, made.base, folder, patch_bytes)

    def push(self, made: Worktree) -> tuple[str, str]:
        """Push what HEAD has as the attempt's branch: the commit that is there now, or why not."""
        place = self._place(made)
        try:
            head = self._git.tip(place, "HEAD")
            if not head or self._is_ancestor(place, head, made.base):
                return "", ""
            if _sha256(self._push_address(place, made.push)) != made.push_sha256:
                return "", f"Not pushed: the address of {made.push} changed during the attempt."
            words = ("config", "-z", "--list", "--show-scope", "--name-only")
            listed = iter(self._git.do(place, *words).names())
            for scope, name in zip(listed, listed, strict=False):
                if scope in ("local", "worktree") and _RUNS_PROGRAMS.fullmatch(name):
                    return "", (
                        f"Not pushed: {name[:100]} is set in the repository, where an agent may"
                        " write; set it in your own git settings (git config --global) instead."
                    )
            self._git.do(
                place, "push", "--quiet", "--no-verify", "--no-signed", made.push,
                f"{head}:refs/heads/{made.branch}", timeout=LONG_TIMEOUT_SECONDS,
            )  # fmt: skip
        except AgentqError as error:
            return "", f"Not pushed: {error.cause}"
        return head, ""

    def _push_address(self, place: GitLocation, push: str) -> str:
        known = self._git.ask(place, "remote", "get-url", "--push", "--", push)
        if known.ok:
            return known.text
        if push.startswith("-") or not push.isprintable() or not re.search("[:/]", push):
            raise Invalid(
                f"{place.folder} has no remote {push[:200]!r} to push to.",
                "Name a remote that `git remote` lists, or an address.",
            )
        return push

    # -- whether it may go -------------------------------------------------------------------------

    def why_not(self, made: Worktree) -> str:
        """Why the tree must stay; "" if git has everything in it elsewhere too."""
        is_there = made.tree.exists()
        if not made.git_dir.is_dir():
            unknown = "git does not know this worktree any more, so nobody can say what is in it"
            return unknown if is_there else ""
        if (made.git_dir / "locked").exists():
            return "the worktree is locked" + _lock_reason(made)
        if not is_there:
            return self._why_not_commits(_shared(made.git_dir), made)
        if under_way := _under_way(made):
            return f"{under_way} is under way in it"
        if (made.git_dir / "modules").exists():
            return "it has submodules that were fetched, and git does not remove such a worktree"
        if _pointed_to(made.tree) != made.git_dir:
            return "its .git file was changed, so git would look elsewhere"
        place = self._place(made)
        return self._why_not_clean(place) or self._why_not_commits(place, made)

    def _why_not_clean(self, place: GitLocation) -> str:
        status = self._git.ask(
            place, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all",
            "--ignore-submodules=none",
        )  # fmt: skip
        if not status.ok and not status.is_cut:
            return f"git cannot say whether it is clean: {status.err}"
        changed = [name[3:] for name in status.names()]
        for names in hidden(self._git, place).values():
            changed += map(os.fsdecode, names)
        if changed or status.is_cut:
            return f"it has changes that are not committed: {_some(changed)}"
        return ""

    def _why_not_commits(self, place: GitLocation, made: Worktree) -> str:
        head = self._git.tip(place, "HEAD")
        on = self._git.ask(place, "symbolic-ref", "-q", "HEAD").text
        if not head:
            return f"its HEAD ({on.removeprefix('refs/heads/')}) has no commit yet"
        if not on and not self._is_elsewhere(place, head, made):
            return f"a detached HEAD has commits that no branch and no remote has ({head[:12]})"
        for tip in {head, self._git.tip(place, f"refs/heads/{made.branch}") or head}:
            # Without its tree nothing goes but the record: the branch stays where it is.
            if place.is_tree and not self._is_elsewhere(place, tip, made):
                return f"{made.branch} has commits that no other branch and no remote has"
        return ""

    def _is_elsewhere(self, place: GitLocation, tip: str, made: Worktree) -> bool:
        if tip == made.pushed or self._is_ancestor(place, tip, made.base):
            return True
        words = ("for-each-ref", "--count=2", "--format=%(refname)", f"--contains={tip}")
        found = self._git.do(place, *words, "refs/heads", "refs/remotes", "refs/tags").text
        return any(ref != f"refs/heads/{made.branch}" for ref in found.splitlines())

    def remove(self, made: Worktree) -> str:
        """Remove tree and branch, checked once more with nobody else removing. Why not, or ""."""
        shared, ref = _shared(made.common), f"refs/heads/{made.branch}"
        with self._locked(made.common):
            reason = self.why_not(made)
            if reason:
                return reason
            removal = ("worktree", "remove", str(made.tree))
            gone = self._git.ask(shared, *removal, timeout=LONG_TIMEOUT_SECONDS)
            if not gone.ok and (made.git_dir.is_dir() or made.tree.exists()):
                return f"git does not remove it: {gone.err}"
            tip = self._git.tip(shared, ref)
            if tip and self._is_elsewhere(shared, tip, made):
                in_use = self._git.ask(shared, "for-each-ref", "--format=%(worktreepath)", ref)
                if not in_use.text:
                    # Only if it is still where it was when we looked; if not, it stays.
                    self._git.ask(shared, "update-ref", "-d", ref, tip)
        return ""

    # -- asking ------------------------------------------------------------------------------------

    def _place(self, made: Worktree) -> GitLocation:
        place = GitLocation(made.tree, made.git_dir)
        return replace(place, filters=filters_of(self._git, place))

    def _is_ancestor(self, place: GitLocation, commit: str, of: str) -> bool:
        return self._git.ask(place, "merge-base", "--is-ancestor", commit, of).ok

    @contextmanager
    def _locked(self, common: Path) -> Iterator[None]:
        """One at a time in this repository, among all workers of this machine."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            file = os.open(common / "agentq.lock", flags, 0o600)
        except OSError as error:
            raise Unavailable(
                f"{common} cannot be written to ({error.strerror}), so no worktree can be added.",
                "Let the worker's user write to the repository, or name one it may write to.",
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)


def _shared(git_dir: Path) -> GitLocation:
    return GitLocation(git_dir, git_dir, is_tree=False)


def _pointed_to(tree: Path) -> Path:
    """The git folder that a worktree's `.git` file names."""
    try:
        file = os.open(tree / ".git", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as stream:
            return Path(os.fsdecode(stream.read(8192).strip().removeprefix(b"gitdir: ")))
    except OSError:
        return Path()


def _under_way(made: Worktree) -> str:
    """What git is in the middle of in this tree; "" if nothing."""
    return next((words for name, words in _UNDER_WAY.items() if (made.git_dir / name).exists()), "")


def _lock_reason(made: Worktree) -> str:
    try:
        with (made.git_dir / "locked").open("rb") as file:
            reason = " ".join(file.read(200).decode("utf-8", "replace").split())
    except OSError:
        return ""
    return f" ({reason})" if reason else ""


def _sha256(address: str) -> str:
    # Addresses may hold a password; all that is written down is whether one has changed.
    return hashlib.sha256(address.encode("utf-8", "replace")).hexdigest() if address else ""


def _some(names: list[str]) -> str:
    shown = ", ".join(name[:80] for name in names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown or "too many to list"
