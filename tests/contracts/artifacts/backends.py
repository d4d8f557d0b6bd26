"""Where artifacts are kept, looked at from outside, as a person or an attacker would."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore.store import S3Store

from agentq.artifacts.files.store import FileArtifacts
from agentq.artifacts.s3.store import ObjectArtifacts
from agentq.contracts.artifacts import ArtifactStore, Stored
from agentq.core.errors import Conflict
from tests.artifacts.trees import files_below, later_ms


class Backend(Protocol):
    """One place. Each `open` is a store of its own, as another process would have it."""

    def open(self) -> ArtifactStore: ...

    def names(self) -> set[str]:
        """Every file, hidden ones too, by its path."""
        ...

    def content(self, name: str) -> bytes: ...

    def size(self) -> int:
        """How many bytes all files have, as one look finds them."""
        ...

    def touched(self, name: str = "") -> bool:
        """Whether there is anything at this path or below it, be it only an empty folder."""
        ...

    def at(self, address: str) -> bytes:
        """What an address leads to."""
        ...

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


class FileBackend:
    """A folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self) -> ArtifactStore:
        return FileArtifacts(self.root)

    def names(self) -> set[str]:
        return files_below(self.root)

    def content(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def size(self) -> int:
        return sum(len(self.content(name)) for name in self.names())

    def touched(self, name: str = "") -> bool:
        return (self.root / name).exists()

    def at(self, address: str) -> bytes:
        split = urlsplit(address)
        assert (split.scheme, split.netloc) == ("file", "")
        return Path(unquote(split.path)).read_bytes()

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
        return later_ms(self.root)


class ObjectBackend:
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

    def size(self) -> int:
        return sum(meta["size"] for meta in self._metas())

    def touched(self, name: str = "") -> bool:
        return any(f"{each}/".startswith(f"{name}/" if name else "") for each in self.names())

    def at(self, address: str) -> bytes:
        assert address.startswith(f"{self.url}/")
        return self.content(unquote(address.removeprefix(f"{self.url}/")))

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


def race(backend: Backend, count: int, run: Callable[[int, ArtifactStore], None]) -> None:
    """Run it in threads that start together, each with a store of its own."""
    start = threading.Barrier(count)

    def begin(number: int) -> None:
        mine = backend.open()
        start.wait(timeout=30)
        run(number, mine)

    threads = [threading.Thread(target=begin, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)


def race_to_put(backend: Backend, name: str, contents: Sequence[bytes]) -> Stored:
    """Store all of them at once, as one file of task-1; the one that won, and all others know."""
    outcomes: list[Stored | Conflict] = []

    def put(number: int, mine: ArtifactStore) -> None:
        try:
            outcomes.append(mine.put("task-1", 1, name, contents[number]))
        except Conflict as conflict:
            outcomes.append(conflict)

    race(backend, len(contents), put)
    [winner] = [outcome for outcome in outcomes if isinstance(outcome, Stored)]
    assert len(outcomes) == len(contents)
    return winner
