"""Snapshots: what an attempt left in its worktree, as a commit under `refs/agentq/<task>/<epoch>`.

The tree is read through a git folder and an index of our own: HEAD, index and branches of the
attempt stay as they are, and nothing that the repository's settings or `.gitattributes` could run
or convert has a say. A file is kept byte by byte. The commit's first parent is what HEAD was, so
that a snapshot holds both: the commits of the attempt, and what it had not committed. It is not
signed, and nobody has to look after it: the ref alone keeps it.

What is not in it is named: what exceeds the limit, what cannot be read, the inside of a submodule.
What `.gitignore` excludes and the folder `.agentq-task` are not the attempt's work; but of an
attempt that was killed nobody has taken in what it had left there to be handed in: that is kept.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from agentq.core.errors import AgentqError, Unavailable
from agentq.core.reserved_names import TASK_FOLDER
from agentq.core.values import replace
from agentq.repository.git import LONG_TIMEOUT_SECONDS, Git, GitLocation, failed
from agentq.repository.snapshot_refs import (
    NAMESPACE,
    WorkSnapshot,
    beyond,
    ref_name,
    ref_part,
    refs_of,
    save_foreign,
)
from agentq.repository.work_starts import WorkStart
from agentq.worker.changes import entries, show_hidden, without_task_folder
from agentq.worker.folder_files import files_below, size_of

#: What an agent hands in, below the folder that the worker keeps for it beside its work.
HAND_IN = ("artifacts", "result.md")
#: How many of the files that were left out are named.
NAMED_MAX = 50
_NAME_CHARS_MAX = 200
_LISTING_BYTES_MAX = 256 * 1024 * 1024
_EXCLUDES_BYTES_MAX = 1 << 20
#: Millions of files; more than that is no index.
_INDEX_BYTES_MAX = 1 << 30
#: Every file as it is: no line ends, filters, keywords or encodings.
_ATTRIBUTES = "* -text !eol -ident -filter !working-tree-encoding -merge\n"
_IDENTITY = {
    "GIT_AUTHOR_NAME": "agentq", "GIT_AUTHOR_EMAIL": "agentq@localhost",
    "GIT_COMMITTER_NAME": "agentq", "GIT_COMMITTER_EMAIL": "agentq@localhost",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TreeFiles:
    """A worktree that snapshots are taken of, and put into. `aside` is a folder of our own."""

    git: Git
    tree: Path
    common: Path
    git_dir: Path
    aside: Path
    lock: int = -1

    def own(self) -> GitLocation:
        """The tree as its own git folder knows it."""
        extra = {"GIT_COMMON_DIR": str(self.common)}
        return GitLocation(self.tree, self.git_dir, extra=extra, lock=self.lock)

    def shared(self) -> GitLocation:
        return GitLocation(self.common, self.common, is_tree=False, lock=self.lock)

    def private(self, head: str) -> GitLocation:
        """The tree through a git folder of our own, with the objects of the repository."""
        folder = self.aside / "git"
        for name in ("refs", "info", "objects"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        found = self.git.do(self.shared(), "rev-parse", "--show-object-format").text
        kind = "" if found == "sha1" else f"[extensions]\n\tobjectFormat = {found}\n"
        version = 1 if kind else 0
        settings = f"[core]\n\trepositoryformatversion = {version}\n\tbare = false\n{kind}"
        (folder / "config").write_text(settings, "utf-8")
        (folder / "HEAD").write_text(f"{head or 'ref: refs/heads/none'}\n", "utf-8")
        (folder / "info" / "attributes").write_text(_ATTRIBUTES, "utf-8")
        (folder / "info" / "exclude").write_bytes(_small(self.common / "info" / "exclude"))
        extra = {
            "GIT_OBJECT_DIRECTORY": str(self.common / "objects"),
            "GIT_INDEX_FILE": str(folder / "index"),
            **_IDENTITY,
        }
        return GitLocation(self.tree, folder, extra=extra, lock=self.lock)

    def copy_index(self) -> bool:
        """Copy the attempt's index: git's knowledge of unchanged files, and of those added."""
        theirs, ours = self.git_dir / "index", self.aside / "git" / "index"
        ours.unlink(missing_ok=True)
        if theirs.is_symlink() or not theirs.is_file():
            return False
        if theirs.stat().st_size > _INDEX_BYTES_MAX:
            return False
        shutil.copyfile(theirs, ours)
        return True


# -- taking ----------------------------------------------------------------------------------------


def take(
    files: TreeFiles,
    task_id: str,
    epoch: int,
    base: str,
    branch: str,
    bytes_max: int,
    *,
    replaces: str = "",
    with_hand_in: bool = False,
    keeps_base: bool = False,
) -> WorkSnapshot:
    """Keep the tree as it is now; raises if it cannot be kept at all.

    Files of more than `bytes_max` in all are left out, the largest first; 0 is no limit.
    `replaces` is the commit of an earlier snapshot of the same attempt. `with_hand_in`: what the
    attempt has left to be handed in was not collected, and is kept too. `keeps_base`: nobody else
    has the base, so it gets a ref even if nothing was done.
    """
    if files.tree.is_symlink() or not files.tree.is_dir():
        raise Unavailable(f"There is no folder {files.tree}: nothing can be kept of it.")
    git = files.git
    head, head_tree = _head(files, base)
    private = files.private(head)
    extra = list(hand_in(files.tree)) if with_hand_in else []
    try:
        copied = files.copy_index()
        tree, left_out = _tree_of(files, private, head, bytes_max, extra, copied=copied)
    except AgentqError:
        # An index that cannot be read, or that is in the middle of a merge: from HEAD's own.
        tree, left_out = _tree_of(files, private, head, bytes_max, extra, copied=False)
    tip = git.tip(files.shared(), f"refs/heads/{branch}") if branch else ""
    parents = [head]
    if tip and not _is_ancestor(git, files.shared(), tip, head):
        parents.append(tip)
    commit = head
    if tree != head_tree or len(parents) > 1:
        words = [word for parent in parents for word in ("-p", parent)]
        message = f"What attempt {epoch} of {task_id} left"
        made = ("commit-tree", "--no-gpg-sign", *words, "-m", message, tree)
        commit = git.do(private, *made).text
    ref = "" if commit == base and not keeps_base else ref_name(task_id, epoch)
    if ref:
        save_foreign(git, files.shared(), ref, {commit, replaces})
        _set_ref(git, files.shared(), task_id, ref, commit)
    names = named(left_out)
    return WorkSnapshot(
        epoch, base=base, head=head, commit=commit, ref=ref, left_out=names,
        left_out_more=len(left_out) - len(names),
    )  # fmt: skip


def _head(files: TreeFiles, base: str) -> tuple[str, str]:
    """HEAD and its tree; those of the base if HEAD is not there, or nothing that can be read."""
    words = ("log", "-1", "--no-show-signature", "--format=%H %T")
    for place, name in ((files.own(), "HEAD"), (files.shared(), base)):
        found = files.git.ask(place, *words, name, "--")
        commit, _, tree = found.text.partition(" ")
        # Its objects must be those of the repository: others go with the attempt.
        if found.ok and tree and files.git.tip(files.shared(), commit):
            return commit, tree
    raise Unavailable(f"Neither HEAD nor the base {base[:12]} of {files.tree} can be read.")


def _tree_of(
    files: TreeFiles,
    private: GitLocation,
    head: str,
    bytes_max: int,
    extra: Sequence[tuple[bytes, int | str]],
    *,
    copied: bool,
) -> tuple[str, list[str]]:
    git = files.git
    if copied:
        show_hidden(git, private)
    else:
        git.do(private, "read-tree", head)
    without_task_folder(git, private, head)
    with TemporaryFile() as listing:
        found = git.ask(
            private, "ls-files", "-z", "--others", "--modified", "--deduplicate",
            "--exclude-standard",
            into=listing, limit=_LISTING_BYTES_MAX, timeout=LONG_TIMEOUT_SECONDS,
        )  # fmt: skip
        if not found.ok:
            raise failed(("ls-files",), private, found)
        changed = _sizes(files.tree, entries(listing))
        chosen, left_out = choose([*changed, *extra], bytes_max)
    if chosen:
        with TemporaryFile() as names:
            names.writelines(name + b"\0" for name in chosen)
            names.seek(0)
            words = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
            added = git.ask(private, *words, stdin=names, timeout=LONG_TIMEOUT_SECONDS)
        if not added.ok:
            raise failed(words, private, added)
    return git.do(private, "write-tree", "--missing-ok").text, left_out


def _sizes(tree: Path, names: Iterable[bytes]) -> Iterator[tuple[bytes, int | str]]:
    """Each changed file with its size, or why it cannot be kept."""
    for name in names:
        if name.split(b"/", 1)[0] == TASK_FOLDER.encode():
            continue
        path = tree / os.fsdecode(name)
        if name.endswith(b"/"):
            yield from _of_a_repository(tree, path)
            continue
        size = size_of(path)
        yield name, "it is a submodule" if size == "it is a folder" else size


def hand_in(tree: Path) -> Iterator[tuple[bytes, int | str]]:
    """What an attempt has left to be handed in."""
    folder = tree / TASK_FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return
    for name in HAND_IN:
        path, label = folder / name, os.fsencode(f"{TASK_FOLDER}/{name}")
        if path.is_dir() and not path.is_symlink():
            for inside, size in files_below(path):
                yield label + b"/" + inside, size
        elif path.is_file() and not path.is_symlink():
            yield label, size_of(path)


def _of_a_repository(tree: Path, folder: Path) -> Iterator[tuple[bytes, int | str]]:
    """The files of a repository that the attempt made or cloned inside its tree."""
    inside = os.fsencode(folder.relative_to(tree))
    yield inside + b"/.git", "a repository of its own: its history"
    for name, size in files_below(folder, without=[".git"]):
        yield inside + b"/" + name, size


def choose(
    sizes: Iterable[tuple[bytes, int | str]], bytes_max: int
) -> tuple[list[bytes], list[str]]:
    """Which files are kept, and a line for each that is not: the largest go first."""
    kept: list[tuple[int, bytes]] = []
    left_out: list[str] = []
    for name, size in sizes:
        if isinstance(size, int):
            kept.append((size, name))
        else:
            left_out.append(f"{os.fsdecode(name)} ({size})")
    total = sum(size for size, _ in kept)
    if bytes_max and total > bytes_max:
        kept.sort()
        while total > bytes_max:
            size, name = kept.pop()
            total -= size
            left_out.append(f"{os.fsdecode(name)} ({size} bytes; snapshot_bytes is {bytes_max})")
    return [name for _, name in kept], left_out


def _set_ref(git: Git, shared: GitLocation, task_id: str, ref: str, commit: str) -> None:
    if git.ask(shared, "update-ref", "--no-deref", ref, commit).ok:
        return
    # Nobody else has a name below ours. One that stands in the way was put there by an agent.
    for each in (f"{NAMESPACE}/{ref_part(task_id)}", *refs_of(git, shared, f"{ref}/")):
        git.ask(shared, "update-ref", "--no-deref", "-d", each)
    git.do(shared, "update-ref", "--no-deref", ref, commit)


def _is_ancestor(git: Git, place: GitLocation, commit: str, of: str) -> bool:
    return commit == of or git.ask(place, "merge-base", "--is-ancestor", commit, of).ok


# -- putting back ----------------------------------------------------------------------------------


def put_back(files: TreeFiles, snapshot: WorkSnapshot) -> None:
    """Lay the uncommitted work of a snapshot over a fresh tree that has `head` checked out.

    Index and HEAD stay at `head`, so that the work is as uncommitted as it was.
    """
    if snapshot.commit == snapshot.head:
        return
    private = files.private(snapshot.head)
    if not files.copy_index():
        files.git.do(private, "read-tree", snapshot.head)
    words = ("read-tree", "-m", "-u", snapshot.head, snapshot.commit)
    files.git.do(private, *words, timeout=LONG_TIMEOUT_SECONDS)


# -- secrets ---------------------------------------------------------------------------------------


def holds_secret(
    git: Git, shared: GitLocation, snapshot: WorkSnapshot, secrets: Collection[bytes]
) -> bool:
    """Whether a file, a name or a message that the snapshot adds to the base holds one of these."""
    if not secrets:
        return False
    with TemporaryFile() as listing:
        words = ("rev-list", "--objects", "--no-object-names", snapshot.commit, *beyond(snapshot))
        found = git.ask(shared, *words, into=listing, limit=_LISTING_BYTES_MAX)
        if not found.ok:
            raise failed(words, shared, found)
        listing.seek(0)
        search = _Search(secrets)
        read = git.ask(
            shared, "cat-file", "--batch", "--buffer",
            stdin=listing, into=search, limit=1 << 62, timeout=LONG_TIMEOUT_SECONDS,
        )  # fmt: skip
    if not read.ok:
        raise failed(("cat-file",), shared, read)
    return search.has_found


class _Search:
    """Takes what is written to it, and notes whether one of some values was among it."""

    def __init__(self, values: Collection[bytes]) -> None:
        self._values = values
        self._overlap = max(map(len, values)) - 1
        self._rest = b""
        self.has_found = False

    def write(self, data: bytes) -> None:
        piece = self._rest + data
        self.has_found = self.has_found or any(value in piece for value in self._values)
        self._rest = piece[-self._overlap :] if self._overlap else b""


def _small(path: Path) -> bytes:
    """A small file that may be the agent's; empty if it is anything else."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(file, "rb") as stream:
        is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
        return stream.read(_EXCLUDES_BYTES_MAX) if is_file else b""


def named(left_out: Sequence[str]) -> tuple[str, ...]:
    """The first of some lines, as they may be shown and stored: names may hold any bytes."""
    return tuple(map(shown_name, left_out[:NAMED_MAX]))


def shown_name(name: str | bytes) -> str:
    """One name, or a line with names, as it may be shown and stored."""
    text = name if isinstance(name, str) else os.fsdecode(name)
    return (text if text.isprintable() else ascii(text)[1:-1])[:_NAME_CHARS_MAX]


def at_epoch(
    snapshot: WorkSnapshot, holds: Iterable[int], submitted_at: int, start: WorkStart | None = None
) -> WorkSnapshot:
    """The same snapshot, with what only its workspace knows."""
    holds = tuple(sorted({*holds, snapshot.epoch}))
    return replace(snapshot, holds=holds, submitted_at=submitted_at, start=start)
