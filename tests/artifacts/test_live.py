"""Live logs in a folder. What every store keeps: tests/contracts/artifacts."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentq.artifacts.files.store import FileArtifacts
from agentq.contracts.artifacts import ArtifactStore, LivePart
from agentq.core.errors import Conflict, Unavailable
from tests.artifacts.logs import KEEP, TASK, numbered, read_all
from tests.artifacts.trees import files_below


def text_of(store: ArtifactStore) -> bytes:
    return b"".join(part.text for part in read_all(store))


def test_the_disk_stays_small_whatever_is_said(store: ArtifactStore, root: Path) -> None:
    for line in numbered(2000):
        store.live_append(TASK, 1, line, keep_bytes=KEEP)
        assert sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) <= KEEP
    *numbers, head = sorted(files_below(root / "live" / TASK / "1"))
    assert head == "head" and len(numbers) == 2
    assert len(files_below(root)) == 3


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
