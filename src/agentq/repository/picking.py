"""What a task changed, laid over a commit: computed among git's objects, without any work tree.

A `Pick` is one commit in the making: what `theirs` has changed since `base`. Where the user's
branch has that base in its history it is merged as git would. Elsewhere the base counts all the
same, so that nothing comes along that is not the task's: then both sides are given that base as
their only parent. Attributes are those of the user's own checkout; the attempt's say nothing here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from agentq.core.errors import Refused
from agentq.core.reserved_names import TASK_FOLDER
from agentq.core.values import replace
from agentq.repository.git import LONG_TIMEOUT_SECONDS, Git, GitLocation, failed, memory_file

#: For commits that only compute something: nobody ever sees them.
_NOBODY = {
    "GIT_AUTHOR_NAME": "agentq", "GIT_AUTHOR_EMAIL": "agentq@localhost",
    "GIT_COMMITTER_NAME": "agentq", "GIT_COMMITTER_EMAIL": "agentq@localhost",
    "GIT_AUTHOR_DATE": "@1 +0000", "GIT_COMMITTER_DATE": "@1 +0000",
}  # fmt: skip
MODES = ("squash", "merge", "cherry-pick")
_COMMITS_MAX = 1000


class Person(msgspec.Struct, frozen=True):
    """Name and address, as git says them."""

    name: str
    email: str


class TaskWork(msgspec.Struct, frozen=True):
    """The commits of a task: where it started, its last commit, and that with uncommitted work."""

    task_id: str
    epoch: int
    base: str
    head: str
    commit: str
    #: What names of objects in it stand for, as far as somebody has looked (`look_up`).
    known: Mapping[str, str] = msgspec.field(default_factory=dict)


class Pick(msgspec.Struct, frozen=True):
    """One commit to be made upon the user's branch."""

    theirs: str
    base: str
    message: str
    #: Whether the branch has the base in its history: then git finds what to merge from.
    is_known: bool = False
    #: The tree of `theirs`, if it is known.
    tree: str = ""
    #: Author and date of the commit that is replayed; None: the user, now.
    author: Person | None = None
    date: str = ""
    #: The second parent of a merge.
    second: str = ""


class MergedTree(msgspec.Struct, frozen=True):
    """The tree of a merge, and the paths and words of its conflicts."""

    tree: str
    conflicts: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def names_of(commit: str, base: str) -> tuple[str, str, str, str]:
    """All that planning needs of a commit and its base: their trees and the task folder in each."""
    return (
        f"{commit}^{{tree}}", f"{commit}:{TASK_FOLDER}", f"{base}^{{tree}}", f"{base}:{TASK_FOLDER}"
    )  # fmt: skip


def look_up(
    git: Git, place: GitLocation, *names: str, known: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """The objects that these names stand for, "" for those that are not here; in one call, or none
    if all of them are `known`."""
    if known and all(name in known for name in names):
        return known
    with memory_file() as listing:
        listing.write("".join(f"{name}\n" for name in names).encode())
        listing.seek(0)
        found = git.do(place, "cat-file", "--batch-check=%(objectname)", stdin=listing).text
    lines = found.splitlines()
    return {
        name: "" if line.endswith((" missing", " ambiguous")) else line
        for name, line in zip(names, lines, strict=True)
    }


def tree_of(git: Git, place: GitLocation, commit: str) -> str:
    return git.do(place, "rev-parse", f"{commit}^{{tree}}").text


def is_ancestor(git: Git, place: GitLocation, commit: str, of: str) -> bool:
    return commit == of or git.ask(place, "merge-base", "--is-ancestor", commit, of).ok


def without_task_folder(
    git: Git, place: GitLocation, commit: str, base: str, known: Mapping[str, str] | None = None
) -> str:
    """The tree of a commit, but of the task folder only what the base has."""
    its, own_folder, _, base_folder = names_of(commit, base)
    found = look_up(git, place, its, own_folder, base_folder, known=known)
    if found[own_folder] == found[base_folder]:
        return found[its]
    theirs = git.do(place, "ls-tree", "-z", f"{commit}:").out
    own = _entry(theirs)
    kept = _entry(git.do(place, "ls-tree", "-z", base, "--", TASK_FOLDER).out)
    with memory_file() as listing:
        for line in theirs.split(b"\0")[:-1]:
            entry = kept if line == own else line
            listing.write(entry + b"\0" if entry else b"")
        listing.seek(0)
        return git.do(place, "mktree", "-z", stdin=listing).text


def _entry(listing: bytes) -> bytes:
    name = b"\t" + TASK_FOLDER.encode()
    return next((line for line in listing.split(b"\0") if line.endswith(name)), b"")


def commit_tree(
    git: Git, place: GitLocation, tree: str, parents: Sequence[str], message: str = "",
    names: dict[str, str] | None = None,
) -> str:  # fmt: skip
    """Make a commit without moving anything."""
    words = [word for parent in dict.fromkeys(parents) for word in ("-p", parent)]
    there = replace(place, extra={**place.extra, **(names or _NOBODY)})
    with memory_file() as text:
        text.write(message.encode("utf-8", "surrogateescape"))
        text.seek(0)
        made = ("commit-tree", "--no-gpg-sign", *words, "-F", "-", tree)
        return git.do(there, *made, stdin=text).text


# -- planning --------------------------------------------------------------------------------------


def plan(git: Git, place: GitLocation, work: TaskWork, head: str, mode: str, message: str
         ) -> list[Pick]:  # fmt: skip
    """The commits that applying a task comes to, in order; none if nothing was changed."""
    names = names_of(work.commit, work.base)
    found = look_up(git, place, *names, known=work.known)
    theirs_tree, _, base_tree, _ = names
    tree = without_task_folder(git, place, work.commit, work.base, found)
    if tree == found[base_tree]:
        return []
    if mode == "cherry-pick":
        return _each(git, place, work, tree, message)
    is_known = is_ancestor(git, place, work.base, head)
    clean = work.commit
    if tree != found[theirs_tree]:
        parents = git.do(place, "rev-list", "--parents", "-1", work.commit).text.split()[1:]
        clean = commit_tree(git, place, tree, parents, f"What task {work.task_id} left")
    if mode == "squash":
        return [Pick(clean, work.base, message, is_known, tree)]
    _check_merge(git, place, work, is_known)
    return [Pick(clean, work.base, message, is_known, tree, second=clean)]


def _check_merge(git: Git, place: GitLocation, work: TaskWork, is_known: bool) -> None:
    if not is_known:
        raise Refused(
            f"--merge would also bring commits that are not the task's: it started from"
            f" {work.base[:12]}, which your branch does not have. Nothing was changed.",
            "Merge that branch first, or use --squash or --cherry-pick, which bring the task's"
            " changes alone.",
            code="base_not_here",
        )
    kept = git.do(place, "rev-list", "-1", f"{work.base}..{work.head}", "--", TASK_FOLDER).text
    if kept:
        raise Refused(
            f"The attempt's commit {kept[:12]} holds {TASK_FOLDER}/, and --merge would keep it in"
            " your history. Nothing was changed.",
            "Use --squash or --cherry-pick: they leave that folder behind.",
            code="task_folder",
        )


def _each(git: Git, place: GitLocation, work: TaskWork, tree: str, message: str) -> list[Pick]:
    """One pick for each commit of the attempts, and one for what they had not committed."""
    words = ("rev-list", "--reverse", "--topo-order", "--parents", f"--max-count={_COMMITS_MAX}")
    picks = []
    for line in git.do(place, *words, f"{work.base}..{work.head}").text.splitlines():
        commit, *parents = line.split()
        if len(parents) != 1:
            raise Refused(
                f"The attempt's commit {commit[:12]} is a merge, which cannot be replayed by"
                " itself. Nothing was changed.",
                "Use --squash or --merge.",
                code="merge_commit",
            )
        picks.append(_replayed(git, place, commit, parents[0], work.base))
    last = without_task_folder(git, place, work.head, work.base)
    if tree != last:
        below = commit_tree(git, place, last, [work.base])
        picks.append(Pick(commit_tree(git, place, tree, [below]), below, message))
    return [pick for pick in picks if pick.theirs != pick.base]


def _replayed(git: Git, place: GitLocation, commit: str, parent: str, base: str) -> Pick:
    shown = git.do(
        place, "log", "-1", "--no-show-signature", "--encoding=UTF-8",
        "--format=%an%x00%ae%x00%at %ai%x00%B", commit,
    )  # fmt: skip
    name, email, date, message = shown.out.decode("utf-8", "surrogateescape").split("\0", 3)
    seconds, _, rest = date.partition(" ")
    before = without_task_folder(git, place, parent, base)
    after = without_task_folder(git, place, commit, base)
    if before == after:
        return Pick(commit, commit, "")  # it changed the task folder alone
    below = commit_tree(git, place, before, [base])
    theirs = commit_tree(git, place, after, [below])
    when = f"@{seconds} {rest.rpartition(' ')[2]}"
    return Pick(theirs, below, message, author=Person(name, email), date=when)


# -- merging ---------------------------------------------------------------------------------------


def sides(git: Git, place: GitLocation, ours: str, pick: Pick) -> tuple[str, str]:
    """The two commits whose merge is the pick laid over `ours`."""
    if pick.is_known:
        return ours, pick.theirs
    ours_tree, theirs_tree = tree_of(git, place, ours), tree_of(git, place, pick.theirs)
    mine = commit_tree(git, place, ours_tree, [pick.base])
    # What is the same on both sides must not be the same commit: git would find no base.
    return mine, commit_tree(git, place, theirs_tree, [pick.base], "theirs")


def merge(git: Git, place: GitLocation, ours: str, pick: Pick) -> MergedTree:
    """Lay a pick over a commit; says where both have changed the same."""
    if ours == pick.base or (pick.is_known and is_ancestor(git, place, ours, pick.theirs)):
        return MergedTree(pick.tree or tree_of(git, place, pick.theirs))
    mine, theirs = sides(git, place, ours, pick)
    words = ("merge-tree", "--write-tree", "-z", "--name-only", "--messages")
    found = git.ask(place, *words, mine, theirs, timeout=LONG_TIMEOUT_SECONDS)
    if found.is_cut or found.code not in (0, 1):
        raise failed(words, place, found)
    tree, _, rest = found.out.partition(b"\0")
    if found.code == 0:
        return MergedTree(tree.decode())
    names, _, messages = rest.partition(b"\0\0")
    paths = tuple(dict.fromkeys(os.fsdecode(name) for name in names.split(b"\0") if name))
    return MergedTree(tree.decode(), paths, tuple(_words(messages)))


def _words(messages: bytes) -> list[str]:
    """What git says about each conflict: `<number> <paths…> <kind> <words>`, each ended by NUL."""
    parts = messages.split(b"\0")
    said = []
    while len(parts) > 2 and parts[0].isdigit():
        count = int(parts[0])
        kind, text = parts[count + 1], parts[count + 2]
        if kind.startswith(b"CONFLICT"):
            said.append(" ".join(text.decode("utf-8", "replace").split()))
        parts = parts[count + 3 :]
    return said


def finish(git: Git, place: GitLocation, ours: str, pick: Pick, tree: str, user: Person) -> str:
    """The commit of a pick whose tree is known."""
    author = pick.author or user
    names = {
        "GIT_AUTHOR_NAME": author.name, "GIT_AUTHOR_EMAIL": author.email,
        "GIT_COMMITTER_NAME": user.name, "GIT_COMMITTER_EMAIL": user.email,
        **({"GIT_AUTHOR_DATE": pick.date} if pick.date else {}),
    }  # fmt: skip
    parents = [ours, pick.second] if pick.second else [ours]
    return commit_tree(git, place, tree, parents, pick.message, names)
