"""Git worktrees: one tree per task, one branch per attempt, what was done, and whether it may go.

The base is a commit, found once and written down: whatever moves afterwards, the patch is what the
task's attempts changed. A tree goes only when a snapshot has everything in it
(`agentq.worker.snapshots`); what git or a rule refuses stays, with the reason.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from agentq.core.errors import AgentqError, Conflict, Invalid, Unavailable
from agentq.core.values import replace
from agentq.repository.checkout import UNDER_WAY
from agentq.repository.git import (
    LONG_TIMEOUT_SECONDS,
    MAY_FETCH,
    Git,
    GitLocation,
    filters_of,
    memory_file,
)
from agentq.repository.remotes import address_sha256, push_address, push_to, running_programs
from agentq.worker.folder_removal import remove_tree

# As in `agentq.worker.workspaces`.
if TYPE_CHECKING:
    from agentq.worker.changes import EvidenceFile
    from agentq.worker.commits import CommitRequest, Committed

_BRANCHES_TRIED = 100


class Worktree(msgspec.Struct, frozen=True):
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
    #: The file of the workspace's lock; see `GitLocation`.
    lock: int = -1


class FoundRef(NamedTuple):
    """What a ref stands for, and the tree that it is checked out in; "" if in none."""

    commit: str
    worktree: str


class Worktrees:
    """Makes, reads and removes worktrees, with one way to call git."""

    def __init__(self, git: Git) -> None:
        self.git = git

    # -- making ------------------------------------------------------------------------------------

    def plan(self, tree: Path, repo: Path, base: str, push: str) -> Worktree:
        """Find the repository and fix the base commit, before anything is made."""
        place = GitLocation(repo)
        found = self.git.ask(place, "rev-parse", "--path-format=absolute", "--git-common-dir")
        if not found.ok or not found.text:
            raise Invalid(
                f"{repo} is not a git repository that can be used: {found.err}",
                "Name the folder of a repository in the role's settings.",
            )
        commit = ""
        if base and not base.startswith("-") and base.isprintable():
            commit = self.git.tip(place, base)
        if not commit:
            raise Invalid(
                f"{repo} has no commit {base[:200]!r} to start from.",
                "Name a branch, a tag or a commit that is there as the base.",
            )
        common = Path(found.text)
        address = push_address(self.git, shared_place(common), push) if push else ""
        return Worktree(tree, common, commit, push, address_sha256(address))

    def make(
        self,
        plan: Worktree,
        task_id: str,
        epoch: int,
        announce: Callable[[str], None],
        start: str = "",
    ) -> Worktree:
        """Add a worktree on a branch of its own, at the base or at the commit `start`; `announce`
        is called with the branch's name before.

        Only adding is serialized; checking out, which takes long, is not.
        """
        shared = replace(shared_place(plan.common), lock=plan.lock)
        with self._locked(plan.common):
            branch = self._free_branch(shared, task_id, epoch)
            announce(branch)
            words = ("worktree", "add", "--quiet", "--no-track", "--no-checkout", "-b", branch)
            added = self.git.ask(shared, *words, str(plan.tree), start or plan.base)
            if not added.ok:
                raise Conflict(
                    f"No worktree on the branch {branch} could be added: {added.err}",
                    "Rename the branch that is in the way, or mend what git says.",
                )
            made = replace(plan, branch=branch, git_dir=_pointed_to(plan.tree))
            self._silence_hooks(made)
        checkout = ("reset", "--quiet", "--hard", "--no-recurse-submodules", "HEAD")
        place = self._place(made)
        if not running_programs(self.git, place):
            place = replace(place, extra=MAY_FETCH)  # a partial clone fetches what it checks out
        self.git.do(place, *checkout, timeout=LONG_TIMEOUT_SECONDS)
        return made

    def _free_branch(self, shared: GitLocation, task_id: str, epoch: int) -> str:
        """A branch that is not there: never one that some earlier task of this name left.

        `agentq/<task>/<epoch>` would be a name for the snapshot: git looks there first.
        """
        for number in range(1, _BRANCHES_TRIED):
            branch = f"agentq/{task_id}-{epoch}" + (f"-{number}" if number > 1 else "")
            if not self.git.tip(shared, f"refs/heads/{branch}"):
                return branch
        raise Conflict(
            f"The branches agentq/{task_id}-{epoch} to …-{_BRANCHES_TRIED - 1} are all there.",
            "Delete those that are not needed any more.",
        )

    def _silence_hooks(self, made: Worktree) -> None:
        """Turn hooks off for whoever uses git in the tree, as far as the repository allows.

        Settings of one worktree need an extension, for which a repository without a tree of its own
        (or with one elsewhere) would have to be rewritten: there only the agent's environment does.
        """
        shared, file = shared_place(made.common), ("config", "--file", str(made.common / "config"))
        wanted = r"^(core\.bare|core\.worktree|extensions\.worktreeconfig)$"
        found = self.git.ask(shared, *file, "-z", "--get-regexp", wanted).names()
        settings = dict(each.partition("\n")[::2] for each in found)
        if settings.get("core.bare", "false") != "false" or "core.worktree" in settings:
            return
        is_known = settings.get("extensions.worktreeconfig") == "true"
        if is_known or self.git.ask(shared, *file, "extensions.worktreeConfig", "true").ok:
            own = str(made.git_dir / "config.worktree")
            self.git.ask(shared, "config", "--file", own, "core.hooksPath", "/dev/null")

    # -- going on in a tree that is there ----------------------------------------------------------

    def is_intact(self, made: Worktree) -> bool:
        """Whether the tree is the one that was made, and git can work there."""
        if made.tree.is_symlink() or _pointed_to(made.tree) != made.git_dir:
            return False
        place = self._place(made)
        if not self.git.tip(place, "HEAD"):
            return False
        # Left by a git that was killed: nobody else is there, we have the workspace's lock.
        for name in ("index.lock", "HEAD.lock"):
            (made.git_dir / name).unlink(missing_ok=True)
        return self.git.ask(place, "ls-files", "--", ".git").ok  # its index can be read

    def renew(
        self, made: Worktree, task_id: str, epoch: int, announce: Callable[[str], None]
    ) -> Worktree:
        """Give the tree a branch of its own for the next attempt, where the last one ended.

        What was pushed under the old name stays as it was pushed, also if history is rewritten.
        """
        place, shared = self._place(made), shared_place(made.common)
        old = f"refs/heads/{made.branch}"
        with self._locked(made.common):
            branch = self._free_branch(shared, task_id, epoch)
            announce(branch)
            head = self.git.tip(place, "HEAD")
            on = self.git.ask(place, "symbolic-ref", "-q", "HEAD").text
            if on == old:
                self.git.do(shared, "update-ref", f"refs/heads/{branch}", head)
                self.git.do(place, "symbolic-ref", "HEAD", f"refs/heads/{branch}")
            tip = self.git.tip(shared, old)
            if tip and self._is_ancestor(shared, tip, head):
                self.git.ask(shared, "update-ref", "-d", old, tip)
        return replace(made, branch=branch)

    def hide_task_folder(self, made: Worktree) -> None:
        """Keep what the repository has under the name of the worker's folder out of all changes."""
        from agentq.worker.changes import hide_task_folder

        hide_task_folder(self.git, self._place(made))

    # -- committing, collecting and pushing --------------------------------------------------------

    def commit(self, made: Worktree, folder: Path, request: CommitRequest) -> Committed:
        """Commit what is not committed yet to the attempt's own branch; `folder` is for that."""
        from agentq.worker.commits import Committed, commit

        place = self._place(made)
        if self._is_clean(place):
            return Committed()
        if under_way := _under_way(made):
            return Committed(problem=f"{under_way} is under way in it")
        return commit(self.git, place, made.common, made.branch, folder, request)

    def _is_clean(self, place: GitLocation) -> bool:
        from agentq.worker.changes import hidden

        status = self.git.ask(
            place, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all",
            "--ignore-submodules=none",
        )  # fmt: skip
        return status.ok and not status.names() and not hidden(self.git, place)

    def collect(self, made: Worktree, folder: Path, patch_bytes: int) -> list[EvidenceFile]:
        """The patch from the base to the tree as it is, and the commits; `folder` is for them."""
        from agentq.worker.changes import collect

        return collect(self.git, self._place(made), made.common, made.base, folder, patch_bytes)

    def push(self, made: Worktree) -> tuple[str, str]:
        """Push what HEAD has as the attempt's branch: the commit that is there now, or why not."""
        # Not with the lock: a connection that ssh keeps for later would hold it.
        place = self._place(replace(made, lock=-1))
        try:
            head = self.git.tip(place, "HEAD")
            if not head or self._is_ancestor(place, head, made.base):
                return "", ""
        except AgentqError as error:
            return "", f"Not pushed: {error.cause}"
        refspec = f"{head}:refs/heads/{made.branch}"
        problem = push_to(self.git, place, made.push, made.push_sha256, refspec)
        return ("", problem) if problem else (head, "")

    # -- whether it may go -------------------------------------------------------------------------

    def why_not(self, made: Worktree) -> str:
        """Why the tree must stay, though its work is in a snapshot; "" if nothing speaks for it."""
        is_there = made.tree.exists()
        if not made.git_dir.is_dir():
            unknown = "git does not know this worktree any more, so nobody can say what is in it"
            return unknown if is_there else ""
        if (made.git_dir / "locked").exists():
            return "the worktree is locked" + _lock_reason(made)
        if not is_there:
            return ""
        if under_way := _under_way(made):
            return f"{under_way} is under way in it"
        if (made.git_dir / "modules").exists():
            return "it has submodules that were fetched, whose work no snapshot has"
        return ""

    def is_elsewhere(self, made: Worktree, commit: str) -> bool:
        """Whether a branch that is not the attempt's own, a tag or a remote has this commit."""
        return self._is_elsewhere(shared_place(made.common), commit, made)

    def _is_elsewhere(self, place: GitLocation, tip: str, made: Worktree) -> bool:
        if tip == made.pushed or self._is_ancestor(place, tip, made.base):
            return True
        words = ("for-each-ref", "--count=2", "--format=%(refname)", f"--contains={tip}")
        found = self.git.do(place, *words, "refs/heads", "refs/remotes", "refs/tags").text
        return any(ref != f"refs/heads/{made.branch}" for ref in found.splitlines())

    def remove(self, made: Worktree) -> str:
        """Remove a tree whose work is in a snapshot, and its branch if others have its commits. Why
        not, or ""."""
        shared = shared_place(made.common)
        with self._locked(made.common):
            reason = self.why_not(made) or remove_tree(made.tree)
            if reason:
                return reason
            removal = ("worktree", "remove", str(made.tree))
            gone = self.git.ask(shared, *removal, timeout=LONG_TIMEOUT_SECONDS)
            if not gone.ok and made.git_dir.is_dir():
                return f"git does not remove it: {gone.err}"
            self._remove_branch(made)
        return ""

    def unlock(self, made: Worktree) -> None:
        """Unlock a worktree that was never made in full."""
        self.git.ask(shared_place(made.common), "worktree", "unlock", str(made.tree))

    def _remove_branch(self, made: Worktree) -> None:
        """Remove the attempt's branch if nobody uses it, and others have its commits."""
        branch = branch_ref(made)
        found = self.refs(made.common, branch).get(branch) if branch else None
        if found is not None and self.is_branch_free(made, found):
            self.delete_refs(made.common, {branch: found.commit})

    def is_branch_free(
        self, made: Worktree, branch: FoundRef | None, *, is_applied: bool = False
    ) -> bool:
        """Whether the attempt's branch is there, nobody uses it, and others have its commits or its
        work `is_applied` elsewhere."""
        if branch is None or branch.worktree:
            return False
        return is_applied or self.is_elsewhere(made, branch.commit)

    def delete_refs(self, common: Path, refs: Mapping[str, str]) -> None:
        """Delete refs, each only if it is still at the commit that it was seen at."""
        if not refs:
            return
        shared = shared_place(common)
        with memory_file() as listing:
            listing.writelines(f"delete {ref} {refs[ref]}\n".encode() for ref in refs)
            listing.seek(0)
            words = ("update-ref", "--no-deref", "--stdin")
            if self.git.ask(shared, *words, stdin=listing).ok:
                return
        # All or nothing, and one has moved: that one stays.
        for ref in refs:
            self.git.ask(shared, "update-ref", "--no-deref", "-d", ref, refs[ref])

    def refs(self, common: Path, *below: str) -> dict[str, FoundRef]:
        """The refs of these names, or below them; "" is no name."""
        words = ("for-each-ref", "--format=%(refname) %(objectname) %(worktreepath)")
        found = self.git.ask(shared_place(common), *words, *filter(None, below))
        lines = (line.split(" ", 2) for line in found.text.splitlines())
        return {each[0]: FoundRef(each[1], each[2] if len(each) > 2 else "") for each in lines}

    # -- asking ------------------------------------------------------------------------------------

    def _place(self, made: Worktree) -> GitLocation:
        place = GitLocation(made.tree, made.git_dir, lock=made.lock)
        return replace(place, filters=filters_of(self.git, place))

    def _is_ancestor(self, place: GitLocation, commit: str, of: str) -> bool:
        return self.git.ask(place, "merge-base", "--is-ancestor", commit, of).ok

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


def branch_ref(made: Worktree) -> str:
    """The whole name of the attempt's branch; "" if it has none."""
    return f"refs/heads/{made.branch}" if made.branch else ""


def shared_place(git_dir: Path) -> GitLocation:
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
    return next((words for name, words in UNDER_WAY.items() if (made.git_dir / name).exists()), "")


def _lock_reason(made: Worktree) -> str:
    try:
        with (made.git_dir / "locked").open("rb") as file:
            reason = " ".join(file.read(200).decode("utf-8", "replace").split())
    except OSError:
        return ""
    return f" ({reason})" if reason else ""
