"""Commits what an agent left uncommitted in its worktree, on the attempt's own branch.

The worker commits and not the agent, because tools deny it to theirs: the git folder of a linked
worktree lies outside the workspace. The commit is made before the check of the role runs, so it
holds exactly what was checked: whatever the check itself writes is no part of it.

It is built aside, with an index and objects of its own, and only what is in it reaches the
repository. Left out, and named in the report, are files that hold a secret which the agent was
given, repositories within the tree, files that go through a filter (which the worker never runs),
and files that cannot be read. `.agentq-task/` and what `.gitignore` names are never looked at. No
hook runs and nothing is signed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO

from agentq.core.errors import AgentqError
from agentq.core.reserved_names import TASK_FOLDER
from agentq.core.task import Task
from agentq.core.values import replace
from agentq.repository.git import LONG_TIMEOUT_SECONDS, Git, GitLocation
from agentq.worker.changes import aside, changed_bytes, entries, without_task_folder
from agentq.worker.redaction import as_written, redacted_text

_SUBJECT_CHARS_MAX = 72
#: Always the same: where the log of a branch is a link, git appends to whatever it leads to.
_REFLOG_WORDS = "agentq: what the agent left uncommitted"
_PIECE_BYTES = 1 << 20
#: Modes of a repository within the tree, and of a file that is there no longer.
_GITLINK, _GONE = b"160000", b"000000"
_CHANGED = (
    "diff-index", "--cached", "--raw", "--no-renames", "--no-abbrev", "-z",
    "--ignore-submodules=none",
)  # fmt: skip

_SECRET = "it holds a secret that the agent was given"  # noqa: S105 - no password
_REPOSITORY = "it is a git repository of its own"
_FILTERED = "it goes through a git filter, which the worker does not run"
_UNREADABLE = "it cannot be read"


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What a commit says, and what must not be in it; `bytes_max` of 0 is no limit."""

    role: str
    message: str
    secrets: Collection[str] = ()
    bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of it: the commit, "" if there was nothing to commit or `problem` says why not.

    `left_out` are names and reasons, `unsolved` names of files that the task began with conflicts
    in, and that still have them.
    """

    commit: str = ""
    left_out: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    unsolved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Change:
    """One path that differs: its mode before and now, and the blob that is there now."""

    name: bytes
    before: bytes
    mode: bytes
    blob: bytes

    @property
    def is_new_repository(self) -> bool:
        return self.mode == _GITLINK and self.before != _GITLINK


def request_for(
    task: Task, epoch: int, role: str, secrets: Collection[str], bytes_max: int
) -> CommitRequest:
    """The request for one attempt. The subject is the title: instructions are not for everybody."""
    subject = redacted_text(task.spec.title.strip(), secrets) or f"Work on {task.id}"
    if len(subject) > _SUBJECT_CHARS_MAX:
        subject = f"{subject[: _SUBJECT_CHARS_MAX - 1]}…"
    message = f"{subject}\n\nAgentq-Task: {task.id}\nAgentq-Attempt: {epoch}\n"
    return CommitRequest(role, message, secrets, bytes_max)


def commit(
    git: Git, place: GitLocation, common: Path, branch: str, folder: Path, request: CommitRequest
) -> Committed:
    """Commit the tree as it is to `branch`, where HEAD must be; `folder` is empty and ours."""
    try:
        return _Commit(git, place, common, branch, folder, request).make()
    except AgentqError as error:
        return Committed(problem=error.cause)
    except OSError as error:
        return Committed(problem=f"{error.strerror or error}")


class _Commit:
    """One commit in the making."""

    def __init__(
        self,
        git: Git,
        place: GitLocation,
        common: Path,
        branch: str,
        folder: Path,
        request: CommitRequest,
    ) -> None:
        self._git = git
        self._place = place
        self._common = common
        self._ref = f"refs/heads/{branch}"
        self._branch = branch
        self._folder = folder
        self._request = request
        self._aside = place
        self._left_out: dict[bytes, str] = {}

    def make(self) -> Committed:
        git, place, limit = self._git, self._place, self._request.bytes_max
        head, on = git.tip(place, "HEAD"), git.ask(place, "symbolic-ref", "-q", "HEAD").text
        if not head or on != self._ref:
            where = on.removeprefix("refs/heads/") or "no branch"
            return Committed(problem=f"HEAD is on {where}, and not on {self._branch}")
        size = changed_bytes(git, place)
        if limit and size > limit:
            words = f"{size} bytes have changed, more than {limit} (evidence_bytes)"
            return Committed(problem=words)
        self._aside = aside(git, place, self._common, self._folder)
        if git.ask(self._aside, "ls-files", "--unmerged").out:
            return Committed(problem="there are conflicts that nobody has resolved")
        git.ask(
            self._aside, "add", "--all", "--ignore-errors", ".", timeout=LONG_TIMEOUT_SECONDS
        )  # fmt: skip
        without_task_folder(git, self._aside, "HEAD")
        self._leave_out()
        left_out = tuple((os.fsdecode(name), why) for name, why in self._left_out.items())
        tree = git.do(self._aside, "write-tree").text
        if tree == git.do(place, "rev-parse", f"{head}^{{tree}}").text:
            return Committed(left_out=left_out)
        return Committed(self._land(head, tree), left_out)

    # -- what stays out ----------------------------------------------------------------------------

    def _leave_out(self) -> None:
        """Take out of the index aside what must not be committed, and remember why."""
        changed = list(self._changed())
        self._left_out |= {each.name: _REPOSITORY for each in changed if each.is_new_repository}
        files = [each for each in changed if each.mode not in (_GITLINK, _GONE)]
        self._filtered([each.name for each in files])
        self._secret([each for each in files if each.name not in self._left_out])
        if self._left_out:
            with _given(self._left_out) as names:
                self._git.ask(
                    self._aside, "reset", "--quiet", "HEAD", "--pathspec-from-file=-",
                    "--pathspec-file-nul", stdin=names,
                )  # fmt: skip
        self._unreadable()

    def _changed(self) -> Iterator[_Change]:
        """What differs from HEAD in the index aside."""
        with TemporaryFile() as listing:
            self._git.ask(self._aside, *_CHANGED, "HEAD", "--", into=listing, limit=sys.maxsize)
            found = entries(listing)
            for line, name in zip(found, found, strict=False):
                before, mode, _, blob, _ = line.removeprefix(b":").split(b" ")
                yield _Change(name, before, mode, blob)

    def _filtered(self, names: list[bytes]) -> None:
        if not self._place.filters or not names:
            return
        with _given(names) as asked, TemporaryFile() as told:
            self._git.ask(
                self._aside, "check-attr", "-z", "--stdin", "filter",
                stdin=asked, into=told, limit=sys.maxsize,
            )  # fmt: skip
            found = entries(told)
            for name, _, value in zip(found, found, found, strict=False):
                if os.fsdecode(value) in self._place.filters:
                    self._left_out[name] = _FILTERED

    def _secret(self, files: list[_Change]) -> None:
        known = as_written(self._request.secrets)
        if not known or not files:
            return
        with TemporaryFile() as asked, TemporaryFile() as told:
            asked.write(b"".join(each.blob + b"\n" for each in files))
            asked.seek(0)
            self._git.ask(
                self._aside, "cat-file", "--batch", stdin=asked, into=told, limit=sys.maxsize,
                timeout=LONG_TIMEOUT_SECONDS,
            )  # fmt: skip
            told.seek(0)
            for each in files:
                _, kind, *size = told.readline().split() or (b"", b"missing")
                if kind == b"missing":  # an agent may add to the index what is not there
                    self._left_out[each.name] = _UNREADABLE
                    continue
                if _holds(told, int(size[0]), known) or any(part in each.name for part in known):
                    self._left_out[each.name] = _SECRET
                told.read(1)

    def _unreadable(self) -> None:
        """Name what is still not in the index aside, though nothing says that it should not be."""
        with TemporaryFile() as listing:
            self._git.ask(
                self._aside, "ls-files", "-z", "--others", "--modified", "--exclude-standard",
                into=listing, limit=sys.maxsize,
            )  # fmt: skip
            for name in entries(listing):
                if name.split(b"/", 1)[0] != TASK_FOLDER.encode():
                    self._left_out.setdefault(name.rstrip(b"/"), _UNREADABLE)

    # -- into the repository -----------------------------------------------------------------------

    def _land(self, head: str, tree: str) -> str:
        git, role = self._git, self._request.role
        names = {
            "GIT_AUTHOR_NAME": f"agentq/{role}", "GIT_AUTHOR_EMAIL": f"{role}@agentq.invalid",
            "GIT_COMMITTER_NAME": "agentq", "GIT_COMMITTER_EMAIL": "agentq@agentq.invalid",
        }  # fmt: skip
        place = replace(self._aside, extra={**self._aside.extra, **names})
        with TemporaryFile() as message:
            message.write(self._request.message.encode("utf-8", "replace"))
            message.seek(0)
            made = git.do(
                place, "commit-tree", tree, "-p", head, "-F", "-", stdin=message
            ).text  # fmt: skip
        self._copy_objects(made, head)
        # The index first: should we die between the two, everything is staged.
        self._install_index()
        place = replace(self._place, extra=names)
        git.do(place, "update-ref", "-m", _REFLOG_WORDS, self._ref, made, head)
        return made

    def _copy_objects(self, made: str, head: str) -> None:
        """Bring the objects of the commit, and no others, into the repository."""
        with TemporaryFile() as wanted, TemporaryFile() as pack:
            wanted.write(f"{made}\n^{head}\n".encode())
            wanted.seek(0)
            words = ("pack-objects", "--revs", "--stdout", "--quiet")
            self._git.do(
                self._aside, *words, stdin=wanted, into=pack, limit=sys.maxsize,
                timeout=LONG_TIMEOUT_SECONDS,
            )  # fmt: skip
            pack.seek(0)
            self._git.do(
                self._place, "unpack-objects", "-q", stdin=pack, timeout=LONG_TIMEOUT_SECONDS
            )  # fmt: skip

    def _install_index(self) -> None:
        """Make the index aside that of the tree, as git itself would: by its lock file."""
        assert self._place.git_dir is not None
        git_dir = Path(os.path.realpath(self._place.git_dir))
        if not git_dir.is_relative_to(os.path.realpath(self._common)):
            raise FileExistsError(None, f"{self._place.git_dir} leads out of its repository")
        lock = git_dir / "index.lock"
        try:
            number = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            raise FileExistsError(None, f"its index is locked ({lock} is there)") from None
        with os.fdopen(number, "wb") as target, (self._folder / "index").open("rb") as source:
            shutil.copyfileobj(source, target)
        lock.replace(git_dir / "index")


def _given(names: Collection[bytes]) -> IO[bytes]:
    """A file with these names, each ended by a NUL, to be read from its beginning."""
    file = TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(b"".join(name + b"\0" for name in names))
    file.seek(0)
    return file


def _holds(file: BinaryIO | IO[bytes], size: int, known: Collection[bytes]) -> bool:
    """Whether one of these is in the next `size` bytes, all of which are read."""
    overlap = max(map(len, known)) - 1
    kept, found = b"", False
    while size > 0 and (piece := file.read(min(size, _PIECE_BYTES))):
        size -= len(piece)
        kept += piece
        found = found or any(secret in kept for secret in known)
        kept = kept[-overlap:] if overlap else b""
    return found
