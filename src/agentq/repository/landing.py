"""Moves the user's branch to a new commit, with the files and index entries of that change alone.

In this order: the index is locked and copied, collisions are looked for, a journal is written, the
branch is locked at the commit it had, the touched files are written, the copy becomes the index,
the branch moves. Whatever is killed in between, the journal says what was to become of it, and the
next `apply` brings it to its end (`recover`): the paths it touches were the user's last commit
before, so a file that is neither that nor the new one was edited since, and stops it.

No hook runs, no filter runs: what goes through one (large file storage) is written as the
repository has it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from agentq.core.errors import AgentqError, Conflict, Refused, Unavailable
from agentq.core.values import replace
from agentq.repository.checkout import (
    GITLINK,
    GONE,
    Checkout,
    TouchedPath,
    check_case,
    look_at_change,
    touched_paths,
)
from agentq.repository.git import LONG_TIMEOUT_SECONDS, GitLocation, memory_file

_JOURNAL = "agentq-apply.json"
_LOCK = "agentq-apply.lock"
_INDEX = "agentq-apply.index"
_OURS = b"agentq apply\n"
_NAMED_MAX = 10
_BLOB_BYTES_MAX = 1 << 30
_PIECE_BYTES = 1 << 20


class Journal(msgspec.Struct, frozen=True):
    """What a landing was about to do, written before it does so."""

    task_id: str
    epoch: int
    old: str
    new: str
    branch: str


_decode = msgspec.json.Decoder(Journal).decode


@contextmanager
def one_at_a_time(checkout: Checkout) -> Iterator[Checkout]:
    """Keep every other `apply` out of this checkout; gits that we start hold that too."""
    file = os.open(checkout.git_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Unavailable(
                f"Another `agentq apply` is at work in {checkout.tree}. Nothing was changed.",
                "Wait for it to end, then try again.",
            ) from error
        yield replace(checkout, place=replace(checkout.place, lock=file))
    finally:
        os.close(file)


# -- the way there ---------------------------------------------------------------------------------


def land(
    checkout: Checkout, new: str, task_id: str, epoch: int,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:  # fmt: skip
    """Move the branch to `new`; `Refused` names what collides. The caller has the lock."""
    index_lock = _lock_index(checkout)
    try:
        beside = _copied_index(checkout)
        with closing(_HeadMove(checkout)) as move:  # its git starts while others look
            touched, found = look_at_change(checkout, beside, new, meanwhile)
            if found:
                raise _colliding(checkout, found)
            check_case(checkout, touched, new)
            _write_journal(checkout, Journal(task_id, epoch, checkout.head, new, checkout.branch))
            try:
                move.prepare(checkout.head, new)
                words = ("read-tree", "-m", "-u", checkout.head, new)
                checkout.git.do(beside, *words, timeout=LONG_TIMEOUT_SECONDS)
                _install_index(checkout)
                move()
            except AgentqError:
                _put_back(checkout, touched)
                forget(checkout)
                raise
    finally:
        index_lock.unlink(missing_ok=True)
        (checkout.git_dir / _INDEX).unlink(missing_ok=True)


def forget(checkout: Checkout) -> None:
    """Remove the journal: what it tells of has come to its end, and everybody knows."""
    (checkout.git_dir / _JOURNAL).unlink(missing_ok=True)


def recover(checkout: Checkout) -> Journal | None:
    """Bring a landing that was killed to its end; what it was, or None if there was none."""
    path = checkout.git_dir / _JOURNAL
    try:
        journal = _decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        path.unlink()  # killed while it was written: before anything was changed
        return None
    _unlock_index(checkout)
    if checkout.head == journal.new:
        return journal
    if checkout.head != journal.old or checkout.branch != journal.branch:
        forget(checkout)  # somebody has taken the branch elsewhere since
        return None
    _go_on(checkout, journal)
    return journal


def _go_on(checkout: Checkout, journal: Journal) -> None:
    index_lock = _lock_index(checkout)
    try:
        beside = _copied_index(checkout)
        touched = touched_paths(checkout.git, checkout.place, journal.old, journal.new)
        edited = [name for name, path in touched.items() if _is_edited(checkout, path)]
        if edited:
            raise Refused(
                f"Applying {journal.task_id} was interrupted, and since then somebody has edited"
                f" {_named(edited)}.",
                "Move these files elsewhere, then repeat `agentq apply`: it brings it to its end.",
                code="interrupted",
            )
        with closing(_HeadMove(checkout)) as move:
            move.prepare(journal.old, journal.new)
            _write_all(checkout, beside, touched)
            _install_index(checkout)
            move()
    finally:
        index_lock.unlink(missing_ok=True)
        (checkout.git_dir / _INDEX).unlink(missing_ok=True)


# -- the index -------------------------------------------------------------------------------------


def _lock_index(checkout: Checkout) -> Path:
    """Lock the index as git does; what is in the lock says whose it is."""
    _unlock_index(checkout)
    lock = checkout.git_dir / "index.lock"
    try:
        file = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError as error:
        raise Unavailable(
            f"Another git is at work in {checkout.tree}: {lock} is there. Nothing was changed.",
            "Wait for it to end. If there is none, remove that file.",
            code="index_locked",
        ) from error
    with os.fdopen(file, "wb") as stream:
        stream.write(_OURS)
    return lock


def _unlock_index(checkout: Checkout) -> None:
    """Remove a lock of the index that an `apply` which was killed has left: we are the only one."""
    lock = checkout.git_dir / "index.lock"
    with suppress(FileNotFoundError):
        if lock.stat().st_size == len(_OURS) and lock.read_bytes() == _OURS:
            lock.unlink()


def _copied_index(checkout: Checkout) -> GitLocation:
    copy = checkout.git_dir / _INDEX
    for path in (copy, copy.with_name(f"{_INDEX}.lock")):
        path.unlink(missing_ok=True)
    # In pieces, by hand: importing shutil takes longer than copying an index.
    with (
        suppress(FileNotFoundError),
        (checkout.git_dir / "index").open("rb") as index,
        copy.open("wb") as file,
    ):
        while piece := index.read(_PIECE_BYTES):
            file.write(piece)
    extra = {**checkout.place.extra, "GIT_INDEX_FILE": str(copy)}
    return replace(checkout.place, extra=extra)


def _install_index(checkout: Checkout) -> None:
    (checkout.git_dir / _INDEX).replace(checkout.git_dir / "index")


def _write_journal(checkout: Checkout, journal: Journal) -> None:
    path = checkout.git_dir / _JOURNAL
    with path.with_name(f"{_JOURNAL}.new").open("wb") as file:
        file.write(msgspec.json.encode(journal))
        file.flush()
        os.fsync(file.fileno())
    path.with_name(f"{_JOURNAL}.new").replace(path)


# -- files -----------------------------------------------------------------------------------------


def _put_back(checkout: Checkout, touched: Mapping[str, TouchedPath]) -> None:
    """Let every touched file be as the index has it, which is as it was; but for what somebody has
    written in this very moment."""
    ours = [path for path in touched.values() if not _is_edited(checkout, path)]
    _remove(checkout, [path for path in ours if path.before == GONE])
    _check_out(checkout, checkout.place, [p.name for p in ours if _is_file(p.before)], "-f")


def _write_all(checkout: Checkout, beside: GitLocation, touched: Mapping[str, TouchedPath]) -> None:
    """Write every touched file and index entry as the change has it, whatever it is now."""
    _remove(checkout, [path for path in touched.values() if path.after == GONE])
    with memory_file() as listing:
        for path in touched.values():
            name = os.fsencode(path.name)
            listing.write(f"{path.after} {path.new}\t".encode() + name + b"\0")
        listing.seek(0)
        checkout.git.do(beside, "update-index", "-z", "--index-info", stdin=listing)
    _check_out(
        checkout, beside, [p.name for p in touched.values() if _is_file(p.after)], "-f", "-u"
    )


def _check_out(checkout: Checkout, place: GitLocation, names: Sequence[str], *how: str) -> None:
    if not names:
        return
    with memory_file() as listing:
        listing.writelines(os.fsencode(name) + b"\0" for name in names)
        listing.seek(0)
        words = ("checkout-index", *how, "-q", "-z", "--stdin")
        checkout.git.do(place, *words, stdin=listing, timeout=LONG_TIMEOUT_SECONDS)


def _remove(checkout: Checkout, paths: Sequence[TouchedPath]) -> None:
    for path in paths:
        file = checkout.tree / path.name
        if GITLINK in (path.before, path.after) or not _is_reached(checkout, path.name):
            continue
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            file.unlink()
        with suppress(OSError):
            for parent in file.relative_to(checkout.tree).parents:
                (checkout.tree / parent).rmdir()


def _is_reached(checkout: Checkout, name: str) -> bool:
    """Whether the path leads through folders alone, and through no link."""
    top = Path(os.path.realpath(checkout.tree))
    folder = (top / name).parent
    return Path(os.path.realpath(folder)) == folder


def _is_file(mode: str) -> bool:
    return mode not in (GONE, GITLINK)


def _is_edited(checkout: Checkout, path: TouchedPath) -> bool:
    """Whether a touched file is neither what it was nor what it becomes, in part or in full."""
    file = checkout.tree / path.name
    if GITLINK in (path.before, path.after) or not _is_reached(checkout, path.name):
        return False
    if not os.path.lexists(file) or (file.is_dir() and not file.is_symlink()):
        return False
    if file.is_symlink():
        content = os.fsencode(file.readlink())
    else:
        hashed = checkout.git.ask(checkout.place, "hash-object", "--", path.name)
        if hashed.text in (path.old, path.new):
            return False
        content = file.read_bytes()
    for mode, blob in ((path.before, path.old), (path.after, path.new)):
        if not _is_file(mode):
            continue
        whole = checkout.git.do(checkout.place, "cat-file", "blob", blob, limit=_BLOB_BYTES_MAX).out
        if whole == content or (blob == path.new and whole.startswith(content)):
            return False
    return True


# -- the branch ------------------------------------------------------------------------------------


class _HeadMove:
    """A change of HEAD and its branch in two steps: locked and compared first, then done."""

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        command, surroundings = checkout.git.command(
            checkout.place, "update-ref", "-m", "agentq apply", "--stdin"
        )
        self._child = subprocess.Popen(
            command, env=surroundings, cwd=checkout.tree, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def prepare(self, old: str, new: str) -> None:
        self._say(f"start\nupdate HEAD {new} {old}\nprepare\n", "start: ok", "prepare: ok")

    def __call__(self) -> None:
        self._say("commit\n", "commit: ok")

    def _say(self, words: str, *answers: str) -> None:
        assert self._child.stdin is not None and self._child.stdout is not None
        assert self._child.stderr is not None
        with suppress(BrokenPipeError):
            self._child.stdin.write(words.encode())
            self._child.stdin.flush()
        for answer in answers:
            if self._child.stdout.readline().decode().strip() != answer:
                why = " ".join(self._child.stderr.read().decode("utf-8", "replace").split())
                raise Conflict(
                    f"{self._checkout.where} could not be moved: {why[:300]}. Nothing was changed.",
                    "Somebody else works on that branch; look at it, then try again.",
                    code="branch_moved",
                )

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._child.communicate()  # without a commit this gives everything up


# -- words -----------------------------------------------------------------------------------------


def _colliding(checkout: Checkout, found: Sequence[str]) -> Refused:
    return Refused(
        f"The change touches what is not committed in {checkout.tree}: {_named(found)}. Nothing was"
        " changed.",
        "Commit, stash or move these, then repeat; anything else may stay as it is.",
        code="collides",
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
