"""What an attempt changed in its worktree: one patch against the base, and the list of commits.

Neither the attempt's index nor the repository's objects are touched by looking, and a file whose
changes git was told to overlook is looked at all the same.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from agentq.core.errors import AgentqError
from agentq.core.reserved_names import CHANGES_PATCH, COMMITS, TASK_FOLDER, WORKER_FOLDER
from agentq.core.values import replace
from agentq.repository.git import LONG_TIMEOUT_SECONDS, Git, GitLocation, failed

#: Why there is no patch. It is the worker's record: it meets no expected artifact.
NOTE = f"{WORKER_FOLDER}changes.txt"
COMMITS_MAX = 1000
_LISTING_BYTES_MAX = 256 * 1024 * 1024

_DIFF = (
    "diff-index", "--cached", "-p", "--binary", "--full-index", "-M", "--no-color",
    "--no-ext-diff", "--no-textconv", "--no-relative", "--ignore-submodules=none",
    "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip
_COMMIT_LINE = "--format=%H%x09%aI%x09%an <%ae>%x09%s"


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """A file for the artifact store."""

    name: str
    content: bytes


def collect(
    git: Git, place: GitLocation, common: Path, base: str, folder: Path, patch_bytes: int = 0
) -> list[EvidenceFile]:
    """The patch from the base to the tree as it is, and the commits; `folder` is empty and ours. A
    patch of more than `patch_bytes`, unless that is 0, is a note instead.

    A tree that git cannot read any more gives the reason as evidence: whether that will do is for
    the gates to say.
    """
    try:
        limit = patch_bytes or sys.maxsize
        return [*_patch(git, place, common, base, folder, limit), *_commits(git, place, base)]
    except AgentqError as error:
        return [_note(f"The changes in {place.folder} could not be collected.\n{error}\n")]


def hidden(git: Git, place: GitLocation) -> dict[str, list[bytes]]:
    """Files whose changes git was told not to see, by the option that lifts it."""
    found: dict[str, list[bytes]] = {}
    with TemporaryFile() as listing:
        git.ask(place, "ls-files", "-v", "-z", into=listing, limit=_LISTING_BYTES_MAX)
        for line in entries(listing):
            tag, name = line[:1], line[2:]
            if tag.islower():
                found.setdefault("--no-assume-unchanged", []).append(name)
            # Outside a sparse checkout the file is not there; if it is, somebody hid it.
            is_ours = name.split(b"/", 1)[0] == TASK_FOLDER.encode()
            if tag in b"Ss" and not is_ours and os.path.lexists(place.folder / os.fsdecode(name)):
                found.setdefault("--no-skip-worktree", []).append(name)
    return found


def hide_task_folder(git: Git, place: GitLocation) -> None:
    """Let git overlook that the worker's folder lies where the repository has something too.

    Else the agent would commit, and everybody see, that the repository's own files are gone.
    """
    with TemporaryFile() as listing:
        git.ask(place, "ls-files", "-z", "--", TASK_FOLDER, into=listing, limit=_LISTING_BYTES_MAX)
        if listing.tell():
            listing.seek(0)
            git.do(place, "update-index", "--skip-worktree", "-z", "--stdin", stdin=listing)


def without_task_folder(git: Git, beside: GitLocation, commit: str) -> None:
    """Let an index have of `.agentq-task/` what the commit has, whatever lies there now."""
    if not git.ask(beside, "diff-index", "--cached", "--quiet", commit, "--", TASK_FOLDER).ok:
        git.do(beside, "reset", "--quiet", commit, "--", TASK_FOLDER)
        hide_task_folder(git, beside)  # an entry that comes back is not hidden


def _patch(
    git: Git, place: GitLocation, common: Path, base: str, folder: Path, limit: int
) -> Iterator[EvidenceFile]:
    size = changed_bytes(git, place)
    if size > limit:
        yield _note(f"{size} bytes have changed, more than {limit} (evidence_bytes).\n")
        return
    beside = aside(git, place, common, folder)
    # What cannot be read is left out, and the rest is taken.
    git.ask(beside, "add", "--all", "--ignore-errors", ".", timeout=LONG_TIMEOUT_SECONDS)
    without_task_folder(git, beside, base)
    patch = folder / "changes.patch"
    with patch.open("xb") as target:
        answer = git.ask(
            beside, *_DIFF, base, "--",
            into=target, limit=limit, timeout=LONG_TIMEOUT_SECONDS,
        )  # fmt: skip
    if answer.is_cut:
        yield _note(f"The patch is larger than {limit} bytes (evidence_bytes).\n")
    elif not answer.ok:
        raise failed(_DIFF, place, answer)
    elif patch.stat().st_size:
        yield EvidenceFile(CHANGES_PATCH, patch.read_bytes())


def _commits(git: Git, place: GitLocation, base: str) -> Iterator[EvidenceFile]:
    head = git.tip(place, "HEAD")
    if not head:
        return
    words = ("rev-list", "--no-commit-header", f"--max-count={COMMITS_MAX}", _COMMIT_LINE)
    listed = git.do(place, *words, head, f"^{base}", "--")
    if listed.out.strip():
        yield EvidenceFile(COMMITS, listed.out)


def changed_bytes(git: Git, place: GitLocation) -> int:
    """The size of what is in the tree and not, or not so, in its index."""
    total = 0
    with TemporaryFile() as listing:
        git.ask(
            place, "ls-files", "-z", "--others", "--modified", "--exclude-standard",
            into=listing, limit=_LISTING_BYTES_MAX, timeout=LONG_TIMEOUT_SECONDS,
        )  # fmt: skip
        for name in entries(listing):
            try:
                total += (place.folder / os.fsdecode(name)).lstat().st_size
            except OSError:
                continue  # deleted, or not ours to look at: it adds nothing
    return total


def aside(git: Git, place: GitLocation, common: Path, folder: Path) -> GitLocation:
    """The same place with an index and new objects of its own, hiding nothing."""
    objects, index = folder / "objects", folder / "index"
    (objects / "info").mkdir(parents=True)
    (objects / "info" / "alternates").write_bytes(os.fsencode(common / "objects") + b"\n")
    extra = {"GIT_INDEX_FILE": str(index), "GIT_OBJECT_DIRECTORY": str(objects)}
    beside = replace(place, extra=extra)
    assert place.git_dir is not None
    theirs = place.git_dir / "index"
    # A copy keeps what git knows of unchanged files, and what was added against .gitignore.
    if theirs.is_file() and not theirs.is_symlink():
        shutil.copyfile(theirs, index)
    if git.ask(beside, "diff-index", "--cached", "--quiet", "HEAD", "--").code > 1:
        index.unlink(missing_ok=True)
        git.do(beside, "read-tree", git.tip(place, "HEAD") or "--empty")
    show_hidden(git, beside)
    return beside


def show_hidden(git: Git, place: GitLocation) -> None:
    """Lift the marks in an index by which git was told not to look at a file."""
    for option, names in hidden(git, place).items():
        with TemporaryFile() as listing:
            listing.writelines(name + b"\0" for name in names)
            listing.seek(0)
            git.ask(place, "update-index", option, "-z", "--stdin", stdin=listing)


def entries(listing: IO[bytes]) -> Iterator[bytes]:
    """The entries of a `-z` listing, from its beginning, a piece at a time."""
    listing.seek(0)
    rest = b""
    while chunk := listing.read(1 << 20):
        *names, rest = (rest + chunk).split(b"\0")
        yield from names


def _note(words: str) -> EvidenceFile:
    return EvidenceFile(NOTE, words.encode("utf-8", "replace"))
