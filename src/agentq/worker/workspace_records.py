"""Records of workspaces: what is written down about each before it is made, and at every step.

    <root>/<task>/                    the workspace of a task on this machine
    <root>/<task>@<epoch>/            another one, of an attempt that could not have that path
    <root>/.records/<name>.json       the record of either, written first: whatever crashes, nothing
                                      is unknown

Earlier versions had a path for every attempt, `<root>/<task>-<epoch>`, with its record beside it.
Those are still known.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from agentq.core.errors import Invalid
from agentq.core.limits import SNAPSHOT_BYTES
from agentq.private_files import make_folder
from agentq.protocol.spec_validation import check_id
from agentq.repository.snapshot_refs import WorkSnapshot
from agentq.repository.work_starts import WorkStart

FOLDER = ".records"
_OLD_NAME = re.compile(r"(?P<task>.+)-(?P<epoch>0|[1-9][0-9]{0,18})")
_RECORD_BYTES_MAX = 256 * 1024
_EPOCH_MAX = 2**63 - 1


class Record(msgspec.Struct, frozen=True):
    """What is written down about a workspace."""

    task_id: str
    #: The attempt that works there, or did so last.
    epoch: int
    kind: Literal["folder", "git"]
    created_at: int
    repo: str = ""
    common: str = ""
    git_dir: str = ""
    branch: str = ""
    base: str = ""
    push: str = ""
    push_sha256: str = ""
    #: The commit that was pushed.
    pushed: str = ""
    #: Whether making it came to its end, and whether its evidence was taken.
    is_made: bool = False
    is_collected: bool = False
    #: The folder's name; "" if an earlier version made it.
    name: str = ""
    #: When the task was submitted: a later one may have the same id.
    submitted_at: int = 0
    #: Attempts that worked at this path: tools find their conversations by it.
    attempts: tuple[int, ...] = ()
    #: Attempts whose work is in the tree.
    holds: tuple[int, ...] = ()
    #: Whether the attempt has ended and `snapshot` is what it left. Not after `kill -9`.
    is_over: bool = False
    snapshot: WorkSnapshot | None = None
    snapshot_bytes: int = SNAPSHOT_BYTES
    #: Where the task began, if not at the base of its role.
    start: WorkStart | None = None
    #: When it was first seen that the task is over; 0 before.
    over_at: int = 0


class Kept(msgspec.Struct, frozen=True):
    """A workspace on disk.

    Flags: `unfinished` (making it was interrupted), `missing` (the tree is gone), `collected`,
    `pushed`, `snapshot` (its work is under a ref), `unreadable` (its record cannot be read),
    `unrecorded` (it has none).
    """

    task_id: str
    epoch: int
    kind: str
    path: Path
    branch: str = ""
    base: str = ""
    repo: str = ""
    created_at: int = 0
    flags: tuple[str, ...] = ()
    record: Record | None = None


#: Made once, before threads share it: msgspec learns a class only while nobody else asks for it.
_decode_record = msgspec.json.Decoder(Record).decode


class Records:
    """The records below one folder of workspaces."""

    # No sync: a record lost with the power leaves a tree that is flagged, and is never removed.

    def __init__(self, root: Path) -> None:
        self.root = root

    def path_of(self, name: str) -> Path:
        """Where the record of this name is, or would be."""
        new = self.root / FOLDER / f"{name}.json"
        old = self.root / f"{name}.json"
        is_old = _OLD_NAME.fullmatch(name) and not os.path.lexists(new) and os.path.lexists(old)
        return old if is_old else new

    def read(self, name: str) -> Record | None:
        """The record of this name; None if there is none that can be read and is about it."""
        record = _read(self.path_of(name))
        return record if record is not None and _name_of(record) == name else None

    def is_there(self, name: str) -> bool:
        return os.path.lexists(self.path_of(name))

    def write(self, record: Record) -> None:
        """Write the record of a workspace, or replace it, in one step."""
        path = self.path_of(_name_of(record))
        make_folder(self.root / FOLDER)
        temporary = self.root / FOLDER / f".tmp-{os.urandom(8).hex()}"
        temporary.write_bytes(msgspec.json.encode(record))
        temporary.replace(path)

    def remove(self, name: str) -> None:
        self.path_of(name).unlink(missing_ok=True)

    def names(self) -> set[str]:
        """Every name that has a record, or a folder that could be a workspace."""
        try:
            top = [entry.name for entry in self.root.iterdir()]
        except FileNotFoundError:
            return set()
        folders = {name for name in top if not name.startswith(".") and self._is_folder(name)}
        old = {name.removesuffix(".json") for name in top if name.endswith(".json")} - folders
        recorded = {name for name in old if _OLD_NAME.fullmatch(name)}
        with suppress(FileNotFoundError):
            for entry in (self.root / FOLDER).iterdir():
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    recorded.add(entry.name.removesuffix(".json"))
        return recorded | folders

    def _is_folder(self, name: str) -> bool:
        is_scratch = name.endswith(".scratch") and _OLD_NAME.fullmatch(name[: -len(".scratch")])
        return not is_scratch and (self.root / name).is_dir()

    def kept(self, name: str) -> Kept | None:
        """The workspace of this name; None if no workspace can be called so."""
        task_id, epoch = _parts(name)
        if name.startswith(".") or not task_id:
            return None
        path = self.root / name
        if not self.is_there(name):
            return Kept(task_id, epoch, "?", path, flags=("unrecorded",))
        record = self.read(name)
        if record is None:
            return Kept(task_id, epoch, "?", path, flags=("unreadable",))
        flags = {
            "unfinished": not record.is_made,
            "missing": not os.path.lexists(path),
            "collected": record.is_collected,
            "pushed": bool(record.pushed),
            "snapshot": record.snapshot is not None and bool(record.snapshot.ref),
        }
        return Kept(
            record.task_id, record.epoch, record.kind, path, record.branch, record.base,
            record.repo, record.created_at,
            tuple(word for word, holds in flags.items() if holds), record,
        )  # fmt: skip


def attempt_name(task_id: str, epoch: int) -> str:
    """A name that belongs to one attempt alone; no task has such an id."""
    if type(epoch) is not int or not 0 <= epoch <= _EPOCH_MAX:
        raise Invalid(f"An epoch is a whole number from 0; got {epoch!r}.")
    return f"{check_id(task_id)}@{epoch}"


def _name_of(record: Record) -> str:
    return record.name or f"{record.task_id}-{record.epoch}"


def _parts(name: str) -> tuple[str, int]:
    """Task and epoch by the name alone: for what has no record to say so."""
    task, _, epoch = name.rpartition("@")
    if task and epoch.isdecimal():
        return task, int(epoch)
    old = _OLD_NAME.fullmatch(name)
    return (old["task"], int(old["epoch"])) if old else (name, 0)


def _read(path: Path) -> Record | None:
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as stream:
            return _decode_record(stream.read(_RECORD_BYTES_MAX))
    return None
