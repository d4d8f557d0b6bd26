"""Where artifacts are kept, looked at from outside, as a person or an attacker would."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import obstore
from obstore.store import S3Store

from agentq.artifacts.files import FileArtifacts
from agentq.artifacts.objects import ObjectArtifacts
from agentq.contracts.artifacts import ArtifactStore


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Shelf(Protocol):
    """One place. Each `open` is a store of its own, as another process would have it."""

    def open(self) -> ArtifactStore: ...

    def names(self) -> set[str]:
        """Every file, hidden ones too, by its path."""
        ...

    def content(self, name: str) -> bytes: ...

    def plant(self, name: str, content: bytes) -> None:
        """Write a file, replacing what is there, behind the store's back."""
        ...

    def drop(self, name: str) -> None: ...

    def staged_name(self, task_id: str, digest: str) -> str:
        """How a staged context of somebody else is called."""
        ...

    def later_ms(self) -> int:
        """A time after everything that was written; what is written next is younger than it."""
        ...


class FileShelf:
    """A folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self) -> ArtifactStore:
        return FileArtifacts(self.root)

    def names(self) -> set[str]:
        return {p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_file()}

    def content(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def plant(self, name: str, content: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content)

    def drop(self, name: str) -> None:
        (self.root / name).unlink()

    def staged_name(self, task_id: str, digest: str) -> str:
        return f"tasks/.staged/{task_id}.{digest}.{os.urandom(8).hex()}"

    def later_ms(self) -> int:
        clock = self.root / "clock"
        clock.write_bytes(b"")
        before_ms = clock.stat().st_ctime_ns // 1_000_000 + 1
        while clock.write_bytes(b"") or clock.stat().st_ctime_ns < before_ms * 1_000_000:
            continue  # the disk's clock moves every few milliseconds
        clock.unlink()
        return before_ms


class ObjectShelf:
    """A prefix in a bucket."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.url = url
        self.options = options
        self.raw = S3Store.from_url(
            url,
            endpoint=options["endpoint"],
            region=options["region"],
            client_options={"allow_http": True},
        )

    def open(self) -> ArtifactStore:
        return ObjectArtifacts(self.url, self.options)

    def names(self) -> set[str]:
        return {meta["path"] for meta in self._metas()}

    def content(self, name: str) -> bytes:
        return bytes(obstore.get(self.raw, name).bytes())

    def plant(self, name: str, content: bytes) -> None:
        obstore.put(self.raw, name, content)

    def drop(self, name: str) -> None:
        obstore.delete(self.raw, name)

    def staged_name(self, task_id: str, digest: str) -> str:
        return f"tasks/.staged/{task_id}/{digest}.{os.urandom(8).hex()}"

    def later_ms(self) -> int:
        """The server tells the time of an object in whole seconds: wait for the next one."""
        before_ms = self._now_ms() + 1000
        while self._now_ms() < before_ms:
            continue
        obstore.delete(self.raw, "clock")
        return before_ms

    def _now_ms(self) -> int:
        obstore.put(self.raw, "clock", b"")
        return int(obstore.head(self.raw, "clock")["last_modified"].timestamp() * 1000)

    def _metas(self) -> Iterator[obstore.ObjectMeta]:
        for batch in obstore.list(self.raw):
            yield from batch
