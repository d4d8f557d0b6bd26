"""How stored files are served to whoever has a link, and what becomes of those never finished."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from email.message import Message
from pathlib import Path

import obstore
import pytest

from agentq.contracts.artifacts import SWEEP_EVIDENCE_MS, ArtifactStore
from tests.artifacts.trees import sha256
from tests.contracts.artifacts.backends import Backend, FileBackend, ObjectBackend

#: More than is sent at once: such a file is uploaded in parts, and copied to its name.
LARGE_PAGE = b"<html><script>alert(document.domain)</script>" + b" " * (9 << 20)
SMALL_PAGE = LARGE_PAGE[:1000]


def served(link: str, content: bytes) -> Message:
    """Fetch it as a browser does, without credentials; what the server says of it."""
    with urllib.request.urlopen(link, timeout=30) as answer:  # noqa: S310 (our own server)
        assert sha256(answer.read()) == sha256(content)
        headers: Message = answer.headers
        return headers


# ---- links --------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [SMALL_PAGE, LARGE_PAGE], ids=["small", "large"])
@pytest.mark.parametrize("name", ["page.html", "picture.svg"])
def test_a_page_is_saved_and_not_shown(objects: ObjectBackend, page: bytes, name: str) -> None:
    """Evidence and results alike: shown, it would run with the rights of the store's host."""
    store = objects.open()
    stored = store.put("task-1", 1, name, page)
    store.publish_result("task-1", 1, name, stored.sha256)
    result = obstore.sign(objects.raw, "GET", "results/task-1.md", timedelta(seconds=60))
    for link in (store.presign("task-1", 1, name, 60), result):
        headers = served(link, page)
        assert headers["Content-Disposition"] == "attachment"
        assert headers.get_content_type() == "binary/octet-stream"
    assert stored.media_type in {"text/html", "image/svg+xml"}  # the record says what it is


def test_what_does_no_harm_keeps_its_type(objects: ObjectBackend) -> None:
    store = objects.open()
    for name, kind in {"a.md": "text/markdown", "b.png": "image/png", "c": "text/plain"}.items():
        store.put("task-1", 1, name, b"text")
        headers = served(store.presign("task-1", 1, name, 60), b"text")
        assert (headers["Content-Disposition"], headers.get_content_type()) == ("attachment", kind)


def test_a_large_file_leaves_nothing_beside_it(objects: ObjectBackend) -> None:
    store = objects.open()
    store.put("task-1", 1, "page.html", LARGE_PAGE)
    assert store.put("task-1", 1, "page.html", LARGE_PAGE).size == len(LARGE_PAGE)
    assert objects.names() == {"artifacts/task-1/1/page.html"}


# ---- what was never finished --------------------------------------------------------------------


def unfinished(folder: str) -> str:
    return f"{folder}/.tmp-{os.urandom(12).hex()}"


def nothing_wanted(_task_id: str, _sha256: str) -> bool:
    return False


def test_unfinished_evidence_of_a_live_task_is_swept(
    store: ArtifactStore, backend: Backend
) -> None:
    kept = {f"artifacts/task-{n}/{n}/notes/a b/{name}" for n in (1, 2) for name in ("x", "tmp-y")}
    for number in (1, 2):
        for name in ("x", "tmp-y"):
            store.put(f"task-{number}", number, f"notes/a b/{name}", b"evidence")
    for folder in ("artifacts/task-1/1", "artifacts/task-2/2/notes/a b", "artifacts/task-3/1"):
        backend.plant(unfinished(folder), b"a part")
    before_ms = backend.later_ms()
    young = unfinished("artifacts/task-1/1")
    backend.plant(young, b"being written")
    assert store.sweep(before_ms, nothing_wanted) == 3
    assert backend.names() == {*kept, young}


def test_evidence_is_looked_through_a_few_times_a_day(
    store: ArtifactStore, backend: Backend
) -> None:
    """`agentq up` sweeps every hour, and there may be millions of files."""
    backend.plant(unfinished("artifacts/task-1/1"), b"a part")
    before_ms = backend.later_ms()
    assert store.sweep(before_ms, nothing_wanted) == 1
    backend.plant(unfinished("artifacts/task-1/1"), b"a part")
    before_ms += SWEEP_EVIDENCE_MS
    assert store.sweep(before_ms - 1, nothing_wanted) == 0
    assert store.sweep(before_ms, nothing_wanted) == 1
    assert backend.open().sweep(before_ms, nothing_wanted) == 0


@pytest.fixture
def folder(tmp_path: Path) -> FileBackend:
    return FileBackend(tmp_path / "files")


Spoil = Callable[[FileBackend], None]


def by_link(backend: FileBackend) -> None:
    outside = backend.root.parent / "outside"
    outside.mkdir()
    (outside / f".tmp-{os.urandom(12).hex()}").write_bytes(b"somebody's")
    (backend.root / "artifacts/task-0").symlink_to(outside, target_is_directory=True)


def by_depth(backend: FileBackend) -> None:
    deep = backend.root / "artifacts/task-0" / "/".join("d" * 60)
    deep.mkdir(parents=True)
    (deep / f".tmp-{os.urandom(12).hex()}").write_bytes(b"an agent's own")


@pytest.mark.parametrize("spoil", [by_link, by_depth])
def test_sweeping_goes_no_further_than_our_own_folders(folder: FileBackend, spoil: Spoil) -> None:
    folder.plant(unfinished("artifacts/task-1/1"), b"a part")
    spoil(folder)
    foreign = [path for path in folder.root.parent.rglob(".tmp-*") if "task-1" not in path.parts]
    assert folder.open().sweep(folder.later_ms(), nothing_wanted) == 1
    assert foreign and all(path.exists() for path in foreign)
