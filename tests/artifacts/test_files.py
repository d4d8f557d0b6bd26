"""Evidence and results: visible means complete, recorded means checked, stored means for good."""

from __future__ import annotations

import errno
import io
import os
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from agentq.artifacts.files import FileArtifacts
from agentq.contracts.artifacts import ArtifactStore, Source, Stored
from agentq.core.errors import AgentqError, Conflict, Damaged, Invalid, NotFound, Unavailable
from tests.artifacts.trees import alter, files_below, sha256

BIG = bytes(range(256)) * 20_000  # several chunks


def test_making_a_store_touches_nothing(root: Path) -> None:
    store = FileArtifacts(root)
    store.context_ref("task-1"), store.result_ref("task-1"), store.attempt_dir("task-1", 1)
    assert not root.exists()


# ---- putting and reading ------------------------------------------------------------------------


def test_put_and_read_back(store: ArtifactStore, root: Path) -> None:
    stored = store.put("task-1", 2, "logs/test-output.txt", BIG)
    assert stored == Stored("logs/test-output.txt", len(BIG), sha256(BIG), "text/plain")
    assert files_below(root) == {"artifacts/task-1/2/logs/test-output.txt"}
    assert store.read("task-1", 2, stored.name, stored.sha256, stored.size) == BIG
    with store.open("task-1", 2, stored.name, stored) as file:
        assert file.read(10) == BIG[:10] and file.read() == BIG[10:]
    assert store.check("task-1", 2, stored.name, stored.sha256, stored.size) is None


def test_stored_files_are_read_only(store: ArtifactStore, root: Path) -> None:
    store.put("task-1", 1, "a.md", b"a")
    assert (root / "artifacts/task-1/1/a.md").stat().st_mode & 0o222 == 0


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


def test_the_same_again_is_the_same(store: ArtifactStore, root: Path) -> None:
    first = store.put("task-1", 1, "a.md", b"one")
    inode = (root / "artifacts/task-1/1/a.md").stat().st_ino
    assert store.put("task-1", 1, "a.md", b"one") == first
    assert (root / "artifacts/task-1/1/a.md").stat().st_ino == inode
    assert files_below(root) == {"artifacts/task-1/1/a.md"}


def test_evidence_is_never_overwritten(store: ArtifactStore, root: Path) -> None:
    store.put("task-1", 1, "a.md", b"one")
    with pytest.raises(Conflict, match=r"Task task-1: the file .*/1/a\.md exists with other"):
        store.put("task-1", 1, "a.md", b"two")
    assert (root / "artifacts/task-1/1/a.md").read_bytes() == b"one"
    assert files_below(root) == {"artifacts/task-1/1/a.md"}
    store.put("task-1", 2, "a.md", b"two")  # another attempt has its own folder


def test_a_file_is_no_folder_and_a_folder_no_file(store: ArtifactStore, root: Path) -> None:
    store.put("task-1", 1, "a", b"file")
    store.put("task-1", 1, "b/c", b"file")
    with pytest.raises(Conflict, match="in the way"):
        store.put("task-1", 1, "a/b", b"x")
    with pytest.raises(Conflict, match="in the way"):
        store.put("task-1", 1, "b", b"x")
    assert files_below(root) == {"artifacts/task-1/1/a", "artifacts/task-1/1/b/c"}


def test_a_file_written_straight_to_its_place_is_adopted(store: ArtifactStore) -> None:
    folder = Path(store.attempt_dir("task-1", 1))
    folder.mkdir(parents=True)
    (folder / "a.md").write_bytes(b"by the agent")
    stored = store.put("task-1", 1, "a.md", folder / "a.md")
    assert stored.sha256 == sha256(b"by the agent")
    assert (folder / "a.md").stat().st_mode & 0o222 == 0


def test_of_many_writers_one_wins_and_all_know(store: ArtifactStore, root: Path) -> None:
    start = threading.Barrier(8)
    outcomes: list[Stored | Conflict] = []

    def run(number: int) -> None:
        content = b"%d" % number * 100_000
        start.wait(timeout=30)
        try:
            outcomes.append(FileArtifacts(root).put("task-1", 1, "a.md", content))
        except Conflict as conflict:
            outcomes.append(conflict)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    [winner] = [outcome for outcome in outcomes if isinstance(outcome, Stored)]
    assert len(outcomes) == 8
    assert store.check("task-1", 1, "a.md", winner.sha256, winner.size) is None
    assert files_below(root) == {"artifacts/task-1/1/a.md"}


# ---- sources that cannot be read ----------------------------------------------------------------


def test_bad_sources_are_refused_and_leave_nothing(
    store: ArtifactStore, root: Path, tmp_path: Path
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
    assert not root.exists()
    for stream in (io.StringIO("text"), closed):
        with pytest.raises(Invalid):
            store.put("task-1", 1, "a.md", stream)  # type: ignore[arg-type]
    assert files_below(root) == set()


class TornStream(io.RawIOBase):
    """Gives some bytes and then fails, as a lost network drive does."""

    def __init__(self) -> None:
        self.parts = [b"first", b"second"]

    def read(self, size: int = -1) -> bytes:
        if self.parts:
            return self.parts.pop(0)
        raise OSError(errno.ESTALE, "Stale file handle")


def test_a_source_that_tears_leaves_nothing(store: ArtifactStore, root: Path) -> None:
    with pytest.raises(Invalid, match="Stale file handle"):
        store.put("task-1", 1, "a.md", TornStream())  # type: ignore[arg-type]
    assert files_below(root) == set()
    assert store.put("task-1", 1, "a.md", b"whole").size == 5


# ---- missing and altered ------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["missing", "altered", "shorter", "longer", "folder", "fifo"])
def test_damage_is_found_by_every_reader(store: ArtifactStore, root: Path, damage: str) -> None:
    stored = store.put("task-1", 1, "a.md", b"evidence")
    store.publish_result("task-1", 1, "a.md", stored.sha256)
    for path in (root / "artifacts/task-1/1/a.md", root / "results/task-1.md"):
        contents = {"altered": b"EVIDENCE", "shorter": b"evid", "longer": b"evidence!"}
        path.unlink()
        if damage in contents:
            path.write_bytes(contents[damage])
        elif damage == "folder":
            path.mkdir()
        elif damage == "fifo":
            os.mkfifo(path)

    said = r"Task task-1: the file .*/artifacts/task-1/1/a\.md (is missing|was (altered|replaced))"
    with pytest.raises(Damaged, match=said):
        store.read("task-1", 1, "a.md", stored.sha256, stored.size)
    with pytest.raises(Damaged, match=said):
        store.open("task-1", 1, "a.md", stored)
    with pytest.raises(Damaged, match=r"Task task-1: the file .*/results/task-1\.md"):
        store.result("task-1", stored.sha256)
    assert "/artifacts/task-1/1/a.md" in str(
        store.check("task-1", 1, "a.md", stored.sha256, stored.size)
    )


def test_a_change_that_keeps_the_size_is_found(store: ArtifactStore, root: Path) -> None:
    stored = store.put("task-1", 1, "a.bin", BIG)
    flipped = bytearray(BIG)
    flipped[len(BIG) // 2] ^= 1
    alter(root / "artifacts/task-1/1/a.bin", bytes(flipped))
    with pytest.raises(Damaged, match="does not match the recorded SHA-256"):
        store.open("task-1", 1, "a.bin", stored)


# ---- results ------------------------------------------------------------------------------------


def test_a_result_is_published_once(store: ArtifactStore, root: Path) -> None:
    stored = store.put("task-1", 3, "result.md", b"# Done")
    store.publish_result("task-1", 3, "result.md", stored.sha256)
    assert store.result("task-1", stored.sha256) == b"# Done"
    assert files_below(root / "results") == {"task-1.md"}

    store.publish_result("task-1", 3, "result.md", stored.sha256)
    other = store.put("task-1", 4, "result.md", b"# Done differently")
    with pytest.raises(Conflict, match=r"results/task-1\.md exists with other content"):
        store.publish_result("task-1", 4, "result.md", other.sha256)
    assert store.result("task-1", stored.sha256) == b"# Done"


def test_a_published_result_survives_its_evidence(store: ArtifactStore) -> None:
    stored = store.put("task-1", 1, "result.md", b"# Done")
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    store.discard("task-1", 1, "result.md")
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    assert store.result("task-1", stored.sha256) == b"# Done"


def test_altered_evidence_does_not_become_a_result(store: ArtifactStore, root: Path) -> None:
    stored = store.put("task-1", 1, "result.md", b"# Done")
    alter(root / "artifacts/task-1/1/result.md", b"# Gone")
    with pytest.raises(Damaged, match=r"artifacts/task-1/1/result\.md was altered"):
        store.publish_result("task-1", 1, "result.md", stored.sha256)
    assert not (root / "results").exists()


def test_evidence_swapped_after_the_check_does_not_become_the_result(
    store: ArtifactStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = store.put("task-1", 1, "result.md", b"# Done")
    evidence = root / "artifacts/task-1/1/result.md"
    real_link = os.link

    def swap_then_link(*names: str, **options: Any) -> None:
        monkeypatch.undo()
        evidence.unlink()
        evidence.write_bytes(b"# Gone")
        real_link(*names, **options)

    monkeypatch.setattr(os, "link", swap_then_link)
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    assert store.result("task-1", stored.sha256) == b"# Done"
    assert files_below(root / "results") == {"task-1.md"}


def test_everything_works_without_hard_links(
    store: ArtifactStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*names: str, **options: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    stored = store.put("task-1", 1, "result.md", BIG)
    assert store.put("task-1", 1, "result.md", BIG) == stored
    with pytest.raises(Conflict):
        store.put("task-1", 1, "result.md", b"other")
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    assert store.result("task-1", stored.sha256) == BIG
    assert files_below(root) == {"artifacts/task-1/1/result.md", "results/task-1.md"}


# ---- removing -----------------------------------------------------------------------------------


def test_discard_removes_one_file(store: ArtifactStore, root: Path) -> None:
    store.put("task-1", 1, "a/b.md", b"x")
    store.put("task-1", 1, "c.md", b"y")
    store.discard("task-1", 1, "a/b.md")
    store.discard("task-1", 1, "a/b.md")
    store.discard("task-9", 1, "never/there")
    assert files_below(root) == {"artifacts/task-1/1/c.md"}


def test_remove_takes_all_of_one_task_and_nothing_else(store: ArtifactStore, root: Path) -> None:
    for task_id in ("task-1", "task-1.2", "task-11"):
        stored = store.put(task_id, 1, "deep/er/file", b"x")
        store.publish_result(task_id, 1, "deep/er/file", stored.sha256)
        store.stage_context(task_id, b"published")
        store.publish_context(task_id, sha256(b"published"))
        store.stage_context(task_id, b"left over")
    (root / "artifacts/task-1/1/.tmp-crashed").write_bytes(b"x")
    store.remove("task-1")
    store.remove("task-1")
    assert not any("task-1/" in name or "task-1.md" in name for name in files_below(root))
    assert not (root / "artifacts/task-1").exists()
    assert len(files_below(root)) == 2 * 4
    assert store.result("task-1.2", sha256(b"x")) == b"x"


def test_remove_before_anything_was_stored(store: ArtifactStore, root: Path) -> None:
    store.remove("task-1")
    assert not root.exists()


def test_remove_takes_trees_deeper_than_the_stack(store: ArtifactStore, root: Path) -> None:
    attempt = Path(store.attempt_dir("task-1", 1))
    attempt.mkdir(parents=True)
    folder = os.open(attempt, os.O_RDONLY)
    for _ in range(1_100):  # a path of this length cannot even be named
        os.mkdir("d", dir_fd=folder)
        deeper = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    store.remove("task-1")
    assert not (root / "artifacts/task-1").exists()


# ---- addresses and health -----------------------------------------------------------------------


def test_addresses_lead_to_the_files(tmp_path: Path) -> None:
    root = tmp_path / "shared files #1 – ü"
    store = FileArtifacts(root)
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
        assert (split.scheme, split.netloc, split.query, split.fragment) == ("file", "", "", "")
        assert Path(unquote(split.path)).read_bytes() == content


def test_a_relative_root_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = FileArtifacts("shared")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.put("task-1", 1, "a.md", b"x")
    assert files_below(tmp_path) == {"shared/artifacts/task-1/1/a.md"}


def test_probe_leaves_nothing(store: ArtifactStore, root: Path) -> None:
    store.probe()
    assert root.is_dir() and files_below(root) == set()


def test_probe_says_what_does_not_work(store: ArtifactStore, root: Path) -> None:
    root.write_bytes(b"not a folder")
    with pytest.raises(Unavailable, match="not a folder"):
        store.probe()
    with pytest.raises(Unavailable, match="not a folder"):
        store.put("task-1", 1, "a.md", b"x")
