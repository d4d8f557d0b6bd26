"""A scratch worktree beside the user's checkout: for checks, and for conflicts to be solved in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from agentq.core.errors import Refused
from agentq.core.values import replace
from agentq.private_files import make_folder
from agentq.repository.checkout import Checkout
from agentq.repository.git import LONG_TIMEOUT_SECONDS, GitLocation
from agentq.repository.picking import MergedTree


class Scratch(msgspec.Struct, frozen=True):
    """A worktree without a branch, which `apply` has made and removes."""

    checkout: Checkout
    path: Path

    @property
    def place(self) -> GitLocation:
        return replace(self.checkout.place, folder=self.path, git_dir=self._git_dir())

    def _git_dir(self) -> Path:
        with (self.path / ".git").open("rb") as file:
            return Path(os.fsdecode(file.read(8192).strip().removeprefix(b"gitdir: ")))

    @property
    def _shared(self) -> GitLocation:
        return GitLocation(self.checkout.common, self.checkout.common, is_tree=False)

    def make(self, commit: str) -> None:
        """Check a commit out here; what an `apply` that was killed has left goes first."""
        self.remove()
        make_folder(self.path.parent)
        git = self.checkout.git
        words = ("worktree", "add", "--quiet", "--detach", "--no-checkout", "--force")
        git.do(self._shared, *words, str(self.path), commit)
        self.reset(commit)

    def reset(self, commit: str) -> None:
        """Check another commit out here; files that git ignores stay."""
        words = ("reset", "--quiet", "--hard", "--no-recurse-submodules", commit)
        self.checkout.git.do(self.place, *words, timeout=LONG_TIMEOUT_SECONDS)

    def conflict(self, mine: str, theirs: str, names: Mapping[str, str]) -> None:
        """Merge two commits here, and leave the conflicts in files and index."""
        self.make(mine)
        place = replace(self.place, extra={**self.place.extra, **names})
        words = ("merge", "--squash", "--ff", "--quiet", "--no-verify-signatures", theirs)
        self.checkout.git.ask(place, *words, timeout=LONG_TIMEOUT_SECONDS)

    def solved(self) -> str:
        """The tree as somebody has left it here; `Refused` while there are conflicts in it."""
        git, place = self.checkout.git, self.place
        left = git.do(place, "diff", "--name-only", "--diff-filter=U", "-z").names()
        if left:
            raise Refused(
                f"In {self.path} there are conflicts that nobody has resolved: {', '.join(left)}."
                " Nothing was changed.",
                "Edit these files there and `git add` them, then `agentq apply --continue`.",
                code="conflicts",
            )
        git.do(place, "add", "--all", ".", timeout=LONG_TIMEOUT_SECONDS)
        return git.do(place, "write-tree").text

    def is_there(self) -> bool:
        return (self.path / ".git").is_file()

    def remove(self) -> None:
        """Remove the worktree and everything in it: it is ours."""
        # By name: `prune` would forget worktrees of the user's on disks that are not mounted now.
        words = ("worktree", "remove", "--force", "--force", str(self.path))
        self.checkout.git.ask(self._shared, *words, timeout=LONG_TIMEOUT_SECONDS)
        if os.path.lexists(self.path):
            import shutil

            shutil.rmtree(self.path)


def told(merged: MergedTree) -> str:
    """The conflicts of a merge in words, a line each."""
    lines = merged.words or tuple(f"CONFLICT in {name}" for name in merged.conflicts)
    return "\n".join(f"  {line}" for line in lines[:20])
