"""Evidence and results: visible means complete, recorded means checked, stored means for good."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentq.contracts.artifacts import ArtifactStore, Source, Stored
from agentq.core.errors import AgentqError, Conflict, Damaged, Invalid, NotFound
from tests.artifacts.damage import assert_damage_is_found
from tests.artifacts.trees import sha256
from tests.contracts.artifacts.backends import Backend, race_to_put

BIG = bytes(range(256)) * 20_000  # several chunks


# ---- putting and reading ------------------------------------------------------------------------


def test_put_and_read_back(store: ArtifactStore, backend: Backend) -> None:
    stored = store.put("task-1", 2, "logs/test-output.txt", BIG)
    assert stored == Stored("logs/test-output.txt", len(BIG), sha256(BIG), "text/plain")
    assert backend.names() == {"artifacts/task-1/2/logs/test-output.txt"}
    assert store.read("task-1", 2, stored.name, stored.sha256, stored.size) == BIG
    with store.open("task-1", 2, stored.name, stored) as file:
        assert file.read(10) == BIG[:10] and file.read() == BIG[10:]
    assert store.check("task-1", 2, stored.name, stored.sha256, stored.size) is None


def test_every_kind_of_source(store: ArtifactStore, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    path.write_bytes(BIG)
    with path.open("rb") as stream:
        sources: dict[str, Source] = {
            "bytes": BIG,
            "path": path,
            "stream": stream,
            "memory": io.BytesIO(BIG),
        }
        stored = {kind: store.put("task-1", 1, kind, source) for kind, source in sources.items()}
    assert {(s.size, s.sha256) for s in stored.values()} == {(len(BIG), sha256(BIG))}


def test_an_empty_file_is_a_file(store: ArtifactStore) -> None:
    stored = store.put("task-1", 1, "empty", b"")
    assert stored == Stored("empty", 0, sha256(b""), "text/plain")
    assert store.read("task-1", 1, "empty", stored.sha256, 0) == b""
    with store.open("task-1", 1, "empty", stored) as file:
        assert file.read() == b""


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.md", b"x", "text/markdown"),
        ("A.PNG", b"x", "image/png"),
        ("fix.patch", b"x", "text/x-diff"),
        ("summary", "grün".encode(), "text/plain"),
        ("summary", "é".encode() * 4096, "text/plain"),
        ("core", b"\x7fELF\0\xff", "application/octet-stream"),
        ("data.unknown", b"\xff\xfe", "application/octet-stream"),
        ("png", b"x", "text/plain"),
    ],
)
def test_media_types(store: ArtifactStore, name: str, content: bytes, expected: str) -> None:
    assert store.put("task-1", 1, name, content).media_type == expected


def test_the_same_again_is_the_same(store: ArtifactStore, backend: Backend) -> None:
    first = store.put("task-1", 1, "a.md", b"one")
    assert store.put("task-1", 1, "a.md", b"one") == first
    assert backend.open().put("task-1", 1, "a.md", b"one") == first
    assert backend.names() == {"artifacts/task-1/1/a.md"}


def test_evidence_is_never_overwritten(store: ArtifactStore, backend: Backend) -> None:
    store.put("task-1", 1, "a.md", b"one")
    for other in (b"two", b"longer"):
        with pytest.raises(Conflict, match=r"Task task-1: the file .*/1/a\.md exists with other"):
            store.put("task-1", 1, "a.md", other)
    assert backend.content("artifacts/task-1/1/a.md") == b"one"
    assert backend.names() == {"artifacts/task-1/1/a.md"}
    store.put("task-1", 2, "a.md", b"two")  # another attempt has its own folder


def test_a_folder_does_not_become_a_file(store: ArtifactStore, backend: Backend) -> None:
    store.put("task-1", 1, "b/c", b"file")
    with pytest.raises(Conflict, match="in the way"):
        store.put("task-1", 1, "b", b"x")
    assert backend.names() == {"artifacts/task-1/1/b/c"}


def test_a_file_that_was_put_at_its_place_by_hand_is_adopted(
    store: ArtifactStore, backend: Backend
) -> None:
    backend.plant("artifacts/task-1/1/a.md", b"by the agent")
    assert store.put("task-1", 1, "a.md", b"by the agent").sha256 == sha256(b"by the agent")
    with pytest.raises(Conflict):
        store.put("task-1", 1, "a.md", b"by another")


def test_of_many_writers_one_wins_and_all_know(store: ArtifactStore, backend: Backend) -> None:
    winner = race_to_put(backend, "a.md", [b"%d" % number * 100_000 for number in range(8)])
    assert store.check("task-1", 1, "a.md", winner.sha256, winner.size) is None
    assert backend.names() == {"artifacts/task-1/1/a.md"}


# ---- sources that cannot be read ----------------------------------------------------------------


def test_bad_sources_are_refused_and_leave_nothing(
    store: ArtifactStore, backend: Backend, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    closed = io.BytesIO(b"x")
    closed.close()
    cases: list[tuple[object, type[AgentqError]]] = [
        (tmp_path / "absent.md", NotFound),
        (tmp_path, Invalid),
        (tmp_path / "pipe", Invalid),
        (Path("/dev/zero"), Invalid),
        (Path("nul\0byte"), Invalid),
        ("text", Invalid),
        (None, Invalid),
        (7, Invalid),
    ]
    for source, expected in cases:
        with pytest.raises(expected):
            store.put("task-1", 1, "a.md", source)  # type: ignore[arg-type]
    assert not backend.touched()
    for stream in (io.StringIO("text"), closed):
        with pytest.raises(Invalid):
            store.put("task-1", 1, "a.md", stream)  # type: ignore[arg-type]
    assert backend.names() == set()


class TornStream(io.RawIOBase):
    """Gives some bytes and then fails, as a lost network drive does."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts)

    def read(self, size: int = -1) -> bytes:
        if self.parts:
            return self.parts.pop(0)
        raise OSError(errno.ESTALE, "Stale file handle")


def test_a_source_that_tears_leaves_nothing(store: ArtifactStore, backend: Backend) -> None:
    for parts in ([b"first", b"second"], [bytes(7 << 20)] * 3):
        with pytest.raises(Invalid, match="Stale file handle"):
            store.put("task-1", 1, "a.md", TornStream(*parts))  # type: ignore[arg-type]
        assert backend.names() == set()
    assert store.put("task-1", 1, "a.md", b"whole").size == 5


# ---- missing and altered ------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["missing", "altered", "shorter", "longer"])
def test_damage_is_found_by_every_reader(
    store: ArtifactStore, backend: Backend, damage: str
) -> None:
    stored = store.put("task-1", 1, "a.md", b"evidence")
    store.publish_result("task-1", 1, "a.md", stored.sha256)
    contents = {"altered": b"EVIDENCE", "shorter": b"evid", "longer": b"evidence!"}
    for name in ("artifacts/task-1/1/a.md", "results/task-1.md"):
        if damage in contents:
            backend.plant(name, contents[damage])
        else:
            backend.drop(name)
    assert_damage_is_found(store, stored, "is missing" if damage == "missing" else "was altered")


def test_a_change_that_keeps_the_size_is_found(store: ArtifactStore, backend: Backend) -> None:
    stored = store.put("task-1", 1, "a.bin", BIG)
    flipped = bytearray(BIG)
    flipped[len(BIG) // 2] ^= 1
    backend.plant("artifacts/task-1/1/a.bin", bytes(flipped))
    with pytest.raises(Damaged, match="does not match the recorded SHA-256"):
        store.open("task-1", 1, "a.bin", stored)


# ---- results ------------------------------------------------------------------------------------


def test_a_result_is_published_once(store: ArtifactStore, backend: Backend) -> None:
    stored = store.put("task-1", 3, "result.md", b"# Done")
    store.publish_result("task-1", 3, "result.md", stored.sha256)
    assert store.result("task-1", stored.sha256) == b"# Done"
    assert backend.names() == {"artifacts/task-1/3/result.md", "results/task-1.md"}

    store.publish_result("task-1", 3, "result.md", stored.sha256)
    other = store.put("task-1", 4, "result.md", b"# Done differently")
    with pytest.raises(Conflict, match=r"results/task-1\.md exists with other content"):
        store.publish_result("task-1", 4, "result.md", other.sha256)
    assert store.result("task-1", stored.sha256) == b"# Done"
    assert {name for name in backend.names() if "results" in name} == {"results/task-1.md"}


def test_a_published_result_survives_its_evidence(store: ArtifactStore) -> None:
    stored = store.put("task-1", 1, "result.md", b"# Done")
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    store.discard("task-1", 1, "result.md")
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    assert store.result("task-1", stored.sha256) == b"# Done"


def test_altered_evidence_does_not_become_a_result(store: ArtifactStore, backend: Backend) -> None:
    stored = store.put("task-1", 1, "result.md", b"# Done")
    backend.plant("artifacts/task-1/1/result.md", b"# Gone")
    with pytest.raises(Damaged, match=r"artifacts/task-1/1/result\.md was altered"):
        store.publish_result("task-1", 1, "result.md", stored.sha256)
    assert not backend.touched("results")
    backend.drop("artifacts/task-1/1/result.md")
    with pytest.raises(Damaged, match=r"artifacts/task-1/1/result\.md is missing"):
        store.publish_result("task-1", 1, "result.md", stored.sha256)
    assert backend.names() == set()


def test_a_large_result(store: ArtifactStore) -> None:
    large = BIG * 4  # 20 megabytes: more than is sent at once
    stored = store.put("task-1", 1, "result.md", large)
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    assert store.result("task-1", stored.sha256) == large
    other = store.put("task-1", 2, "result.md", large[:-1] + b"!")
    with pytest.raises(Conflict):
        store.publish_result("task-1", 2, "result.md", other.sha256)


def test_a_result_is_published_again_once_its_evidence_was_checked(store: ArtifactStore) -> None:
    stored = store.put("task-1", 1, "result.md", b"first")
    other = store.put("task-1", 2, "result.md", b"second")
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    with pytest.raises(Damaged):
        store.publish_result("task-1", 2, "result.md", stored.sha256, again=True)
    assert store.result("task-1", stored.sha256) == b"first"
    store.publish_result("task-1", 2, "result.md", other.sha256, again=True)
    assert store.result("task-1", other.sha256) == b"second"


# ---- removing -----------------------------------------------------------------------------------


def test_discard_removes_one_file(store: ArtifactStore, backend: Backend) -> None:
    store.put("task-1", 1, "a/b.md", b"x")
    store.put("task-1", 1, "c.md", b"y")
    store.discard("task-1", 1, "a/b.md")
    store.discard("task-1", 1, "a/b.md")
    store.discard("task-9", 1, "never/there")
    assert backend.names() == {"artifacts/task-1/1/c.md"}


def test_remove_takes_all_of_one_task_and_nothing_else(
    store: ArtifactStore, backend: Backend
) -> None:
    for task_id in ("task-1", "task-1.2", "task-11"):
        stored = store.put(task_id, 1, "deep/er/file", b"x")
        store.publish_result(task_id, 1, "deep/er/file", stored.sha256)
        store.stage_context(task_id, b"published")
        store.publish_context(task_id, sha256(b"published"))
        store.stage_context(task_id, b"left over")
        store.live_append(task_id, 1, b"said\n")
    backend.plant("artifacts/task-1/1/.tmp-crashed", b"x")
    store.remove("task-1")
    store.remove("task-1")
    assert not any("task-1/" in name or "task-1.md" in name for name in backend.names())
    assert not backend.touched("artifacts/task-1")
    assert len(backend.names()) == 2 * 5
    assert store.result("task-1.2", sha256(b"x")) == b"x"


def test_remove_before_anything_was_stored(store: ArtifactStore, backend: Backend) -> None:
    store.remove("task-1")
    assert not backend.touched()


# ---- addresses and health -----------------------------------------------------------------------


def test_addresses_lead_to_the_files(store: ArtifactStore, backend: Backend) -> None:
    stored = store.put("task-1", 1, "a b/c+d@e=f.md", b"x")
    store.publish_result("task-1", 1, stored.name, stored.sha256)
    store.stage_context("task-1", b"y")
    store.publish_context("task-1", sha256(b"y"))
    for address, content in {
        store.artifact_ref("task-1", 1, stored.name): b"x",
        store.result_ref("task-1"): b"x",
        store.context_ref("task-1"): b"y",
    }.items():
        assert address.isascii() and " " not in address
        split = urlsplit(address)
        assert (split.query, split.fragment) == ("", "")
        assert backend.at(address) == content
    assert store.artifact_ref("task-1", 1, "a").endswith("/artifacts/task-1/1/a")
    assert store.attempt_dir("task-1", 1).endswith("/artifacts/task-1/1")


def test_probe_leaves_nothing(store: ArtifactStore, backend: Backend) -> None:
    store.probe()
    assert backend.names() == set()
