"""Where a file of a task belongs, and the errors that name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, Protocol

from agentq.core.errors import Conflict, Damaged

_RESTORE = "Restore the file from a backup. `agentq verify` lists everything that is damaged."


@dataclass(frozen=True, slots=True)
class ArtifactLocation:
    """Where one file of one task belongs."""

    task_id: str
    root: str
    folders: tuple[str, ...]
    name: str

    @property
    def key(self) -> str:
        """The path below the root: also the key of an object."""
        return "/".join((*self.folders, self.name))

    @property
    def path(self) -> str:
        return f"{self.root}/{self.key}"

    def damaged(self, what: str) -> Damaged:
        return Damaged(f"Task {self.task_id}: the file {self.path} {what}.", _RESTORE)

    def check_size(self, found: int, recorded: int | None) -> None:
        if recorded is not None and found != recorded:
            raise self.damaged(f"was altered: it has {found} bytes, {recorded} were recorded")

    def check_sha256(self, found: str, recorded: str) -> None:
        if found != recorded:
            raise self.damaged(
                f"was altered: its content does not match the recorded SHA-256 {recorded}"
            )

    def taken(self, remedy: str) -> Conflict:
        return Conflict(
            f"Task {self.task_id}: the file {self.path} exists with other content. It was left as"
            " it is.",
            remedy,
        )


class RecordedContent(Protocol):
    """Reads what the ledger has a record of; every byte is checked before it is believed."""

    def open(self, place: ArtifactLocation, sha256: str, size: int | None = None) -> BinaryIO: ...

    def read(self, place: ArtifactLocation, sha256: str, size: int | None = None) -> bytes: ...

    def check(self, place: ArtifactLocation, sha256: str, size: int | None = None) -> object: ...
