"""Snapshots by name: the record of what an attempt left, and the ref `refs/agentq/<task>/<epoch>`.

A ref in a repository is no proof: an agent that may commit may also plant refs. So the worker of an
attempt stores this record among the attempt's evidence, under a name that only a worker may use.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec

from agentq.core.reserved_names import WORKER_FOLDER
from agentq.repository.git import Git, GitLocation
from agentq.repository.work_starts import WorkStart

NAMESPACE = "refs/agentq"
#: The record itself, and what brings the work to another machine where there is no remote.
SNAPSHOT = f"{WORKER_FOLDER}snapshot.json"
BUNDLE = f"{WORKER_FOLDER}snapshot.bundle"
ARCHIVE = f"{WORKER_FOLDER}workspace.tar.gz"
#: No record is larger.
SNAPSHOT_RECORD_BYTES_MAX = 256 * 1024


class WorkSnapshot(msgspec.Struct, frozen=True):
    """What an attempt left: a commit, or an archive of its folder."""

    epoch: int
    kind: Literal["git", "folder"] = "git"
    #: The attempts whose work is in it.
    holds: tuple[int, ...] = ()
    #: The commit that the task's first attempt started from.
    base: str = ""
    #: What HEAD was, and a commit above it that has the uncommitted work too: the same if all was
    #: committed.
    head: str = ""
    commit: str = ""
    #: "" if nothing was done: then `commit` is the base.
    ref: str = ""
    #: Where others find it: at the remote that the role names, or in an artifact of this name.
    is_pushed: bool = False
    artifact: str = ""
    #: Names and reasons of what is not in it, and how many more there are.
    left_out: tuple[str, ...] = ()
    left_out_more: int = 0
    #: When the task was submitted: another task may have the same name later.
    submitted_at: int = 0
    #: Where the task began, if not at the base of its role.
    start: WorkStart | None = None

    @property
    def origins(self) -> tuple[str, ...]:
        """Commits of the repository's own history that it is built on."""
        return self.start.origins if self.start and self.start.origins else (self.base,)


def ref_name(task_id: str, epoch: int) -> str:
    return f"{NAMESPACE}/{ref_part(task_id)}/{epoch}"


def ref_part(task_id: str) -> str:
    # No part of a ref's name may end like git's own lock files.
    return f"{task_id}_" if task_id.endswith(".lock") else task_id


#: Made once, before threads share it: msgspec learns a class only while nobody else asks for it.
_decode = msgspec.json.Decoder(WorkSnapshot).decode


def read_record(data: bytes) -> WorkSnapshot | None:
    """Decode a stored record; None if it is none."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def write_record(snapshot: WorkSnapshot) -> bytes:
    """Encode a snapshot as it is stored among the evidence."""
    return msgspec.json.encode(snapshot)


def beyond(snapshot: WorkSnapshot) -> list[str]:
    """Words for git that leave out what others have already."""
    return [f"^{origin}" for origin in snapshot.origins]


def save_foreign(git: Git, shared: GitLocation, ref: str, ours: Collection[str]) -> None:
    """Keep what somebody else has under our ref, by another name: an installation that shares the
    repository may have a task of the same id."""
    there = git.tip(shared, ref)
    if there and there not in ours:
        git.ask(shared, "update-ref", "--no-deref", f"{ref}.{there[:12]}", there)


def refs_of(git: Git, shared: GitLocation, below: str) -> list[str]:
    """All refs whose names begin so."""
    found = git.ask(shared, "for-each-ref", "--format=%(refname)", below.rstrip("/"))
    return [each for each in found.text.splitlines() if each.startswith(below)]
