"""Live logs: readers follow a writer, and however much it says, the disk stays small."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentq.artifacts.files import FileArtifacts
from agentq.contracts.artifacts import ArtifactStore, LivePart, left_out
from agentq.core.errors import Conflict, Invalid, NotFound, Unavailable
from tests.artifacts.test_escapes import BAD_EPOCHS, BAD_IDS
from tests.artifacts.trees import files_below

TASK, KEEP = "task-1", 4096


def read_all(store: ArtifactStore, limit: int = 1000) -> list[LivePart]:
    """Everything from the beginning, as a reader gets it."""
    parts, position = [], 0
    while (part := store.live_read(TASK, 1, position, limit)).data:
        parts.append(part)
        position = part.position
    return parts


def text_of(store: ArtifactStore) -> bytes:
    return b"".join(part.text for part in read_all(store))


def numbered(count: int) -> list[bytes]:
    return [b"line %06d\n" % number for number in range(count)]


def test_a_reader_follows_a_writer(store: ArtifactStore) -> None:
    with pytest.raises(NotFound, match="Attempt 1 of task-1 has no live log"):
        store.live_read(TASK, 1, 0, 100)
    store.live_append(TASK, 1, b"one\n")
    first = store.live_read(TASK, 1, 0, 100)
    assert first == LivePart(b"one\n", 4)
    assert store.live_read(TASK, 1, first.position, 100) == LivePart(b"", 4)
    store.live_append(TASK, 1, b"two\n")
    store.live_append(TASK, 2, b"another attempt\n")
    assert store.live_read(TASK, 1, 4, 2) == LivePart(b"tw", 6)
    assert store.live_read(TASK, 1, 6, 100) == LivePart(b"o\n", 8)
    store.live_end(TASK, 1)
    with pytest.raises(NotFound):
        store.live_read(TASK, 1, 8, 100)
    assert store.live_read(TASK, 2, 0, 100).data == b"another attempt\n"
    store.live_end(TASK, 1)  # again is fine


def test_the_beginning_and_the_end_are_kept(store: ArtifactStore, root: Path) -> None:
    lines = numbered(2000)
    for line in lines:
        store.live_append(TASK, 1, line, keep_bytes=KEEP)
        assert sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) <= KEEP
    parts = read_all(store)
    cut = next(part for part in parts if part.dropped)
    kept = b"".join(part.data for part in parts).splitlines(keepends=True)
    head = KEEP // 2 // len(lines[0])
    assert kept[:head] == lines[:head]
    assert kept[head:] == lines[len(lines) - len(kept) + head :]
    assert len(kept) - head > KEEP // 4 // len(lines[0]) - 1
    assert cut.dropped == (len(lines) - len(kept)) * len(lines[0])
    assert parts[-1].position == sum(map(len, lines))
    assert cut.text.startswith(left_out(cut.dropped))
    assert len(files_below(root)) == 3


def test_a_reader_that_keeps_up_misses_nothing(store: ArtifactStore) -> None:
    lines, position, seen = numbered(3000), 0, b""
    for line in lines:
        store.live_append(TASK, 1, line, keep_bytes=KEEP)
        part = store.live_read(TASK, 1, position, 1000)
        assert part.dropped == 0
        position, seen = part.position, seen + part.data
    assert seen == b"".join(lines)


def test_a_slow_reader_is_told_what_it_missed(store: ArtifactStore) -> None:
    """A reader of its own pace beside a writer that never waits: whole lines, in order, counted."""
    lines = numbered(20_000)
    done = threading.Event()

    def write() -> None:
        for start in range(0, len(lines), 10):
            store.live_append(TASK, 1, b"".join(lines[start : start + 10]), keep_bytes=KEEP)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    position = accounted = 0
    got = b""
    while True:
        last_look = done.is_set()
        try:
            part = store.live_read(TASK, 1, position, 100_000)
        except NotFound:
            continue  # it has not begun
        position = part.position
        accounted += part.dropped + len(part.data)
        got += part.data
        if last_look and not part.data:
            break
    writer.join()
    assert accounted == position == sum(map(len, lines))
    seen = got.splitlines(keepends=True)
    assert seen == sorted(seen) and set(seen) <= set(lines)
    assert seen[-1] == lines[-1]


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=300), max_size=25), st.data())
def test_the_files_do_not_depend_on_the_pieces(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], data: st.DataObject
) -> None:
    whole = [line.replace(b"\n", b"") + b"\n" for line in lines]
    one = FileArtifacts(tmp_path_factory.mktemp("one"))
    other = FileArtifacts(tmp_path_factory.mktemp("other"))
    for line in whole:
        one.live_append(TASK, 1, line, keep_bytes=1024)
    rest = whole
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        other.live_append(TASK, 1, b"".join(rest[:count]), keep_bytes=1024)
        rest = rest[count:]
    if whole:
        assert text_of(one) == text_of(other)


def test_a_line_longer_than_all_that_is_kept(store: ArtifactStore) -> None:
    store.live_append(TASK, 1, b"begin\n", keep_bytes=KEEP)
    store.live_append(TASK, 1, b"x" * 100_000 + b"\nend\n", keep_bytes=KEEP)
    parts = read_all(store)
    kept = b"".join(part.data for part in parts)
    assert kept.startswith(b"begin\n") and kept.endswith(b"x\nend\n") and len(kept) <= KEEP
    assert len(kept) + sum(part.dropped for part in parts) == 100_011


def test_bad_words_are_refused(store: ArtifactStore, root: Path) -> None:
    for bad in BAD_IDS:
        with pytest.raises(Invalid, match="A task id is"):
            store.live_append(bad, 1, b"x")  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="A task id is"):
            store.live_read(bad, 1, 0, 1)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="A task id is"):
            store.live_end(bad, 1)  # type: ignore[arg-type]
    for epoch in BAD_EPOCHS:
        with pytest.raises(Invalid, match="An epoch is"):
            store.live_append(TASK, epoch, b"x")  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="An epoch is"):
            store.live_read(TASK, epoch, 0, 1)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="An epoch is"):
            store.live_end(TASK, epoch)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="at least 1024 bytes"):
        store.live_append(TASK, 1, b"x", keep_bytes=10)
    for position, limit in ((-1, 1), (0, 0), (0, 1 << 30)):
        with pytest.raises(Invalid, match="is read from a position"):
            store.live_read(TASK, 1, position, limit)
    assert not root.exists()


@pytest.mark.parametrize("place", ["live", "live/task-1", "live/task-1/1"])
def test_no_link_to_a_folder_is_followed(
    store: ArtifactStore, root: Path, outside: Path, place: str
) -> None:
    link = root / place
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    (outside / "head").write_bytes(b"secret")
    with pytest.raises(Conflict):
        store.live_append(TASK, 1, b"x\n")
    with pytest.raises(Conflict):
        store.live_read(TASK, 1, 0, 100)
    with suppress(Conflict):
        store.live_end(TASK, 1)
    with suppress(Conflict):
        store.remove(TASK)
    assert files_below(outside) == {"precious.md", "head"}
    assert (outside / "head").read_bytes() == b"secret"


@pytest.mark.parametrize("name", ["head", "00000000000000000100"])
def test_no_link_to_a_file_is_followed(
    store: ArtifactStore, root: Path, outside: Path, name: str
) -> None:
    folder = root / "live" / TASK / "1"
    folder.mkdir(parents=True)
    (folder / name).symlink_to(outside / "precious.md")
    with suppress(Conflict):
        store.live_append(TASK, 1, b"x\n")
    assert b"precious" not in store.live_read(TASK, 1, 0, 100).data
    assert (outside / "precious.md").read_bytes() == b"precious"


def test_a_pipe_in_the_way_holds_nobody_up(store: ArtifactStore, root: Path) -> None:
    folder = root / "live" / TASK / "1"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "head")
    with pytest.raises(Conflict):
        store.live_append(TASK, 1, b"x\n")
    listening = os.open(folder / "head", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(Conflict):
        store.live_append(TASK, 1, b"x\n")
    os.close(listening)
    assert store.live_read(TASK, 1, 0, 100) == LivePart(b"", 0)


def test_removing_a_task_removes_its_live_logs(store: ArtifactStore, root: Path) -> None:
    store.live_append(TASK, 1, b"one\n")
    store.live_append(TASK, 2, b"two\n")
    store.live_append("task-2", 1, b"stays\n")
    store.remove(TASK)
    assert files_below(root) == {"live/task-2/1/head"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "agentq-test", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs more rights")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_leaves_no_half_line(small_disk: Path) -> None:
    store = FileArtifacts(small_disk / "shared")
    store.live_append(TASK, 1, b"before\n")
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * (2 << 20))
    with pytest.raises(Unavailable, match="the disk is full"):
        store.live_append(TASK, 1, b"y" * 100_000 + b"\n")
    assert store.live_read(TASK, 1, 0, 1 << 20).data == b"before\n"
    filler.unlink()
    store.live_append(TASK, 1, b"after\n")
    assert store.live_read(TASK, 1, 0, 1 << 20).data == b"before\nafter\n"
