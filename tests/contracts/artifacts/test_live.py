"""Live logs: readers follow a writer, and however much it says, little is kept."""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import pairwise

import pytest

from agentq.contracts.artifacts import ArtifactStore, LivePart, left_out
from agentq.core.errors import Invalid, NotFound
from tests.artifacts.logs import KEEP, TASK, numbered, read_all
from tests.artifacts.test_escapes import BAD_EPOCHS, BAD_IDS
from tests.contracts.artifacts.backends import Backend


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


def test_another_process_follows(store: ArtifactStore, backend: Backend) -> None:
    """It sees the first word at once, and whatever else is said soon, with nothing said after."""
    reader = backend.open()
    store.live_append(TASK, 1, b"one\n")
    assert reader.live_read(TASK, 1, 0, 100) == LivePart(b"one\n", 4)
    store.live_append(TASK, 1, b"two\n")
    store.live_append(TASK, 1, b"three\n")
    position, got, deadline = 4, b"", threading.Event()
    for _ in range(500):
        part = reader.live_read(TASK, 1, position, 100)
        position, got = part.position, got + part.data
        if got == b"two\nthree\n":
            break
        deadline.wait(0.02)
    assert got == b"two\nthree\n"


def test_another_process_goes_on_where_the_first_left_off(
    store: ArtifactStore, backend: Backend
) -> None:
    lines = numbered(600)
    for line in lines[:300]:
        store.live_append(TASK, 1, line, keep_bytes=KEEP)
    assert store.live_read(TASK, 1, 0, 100).data
    heir = backend.open()
    for line in lines[300:]:
        heir.live_append(TASK, 1, line, keep_bytes=KEEP)
    parts = read_all(heir)
    assert parts[-1].position == sum(map(len, lines))
    assert parts[-1].data.endswith(lines[-1])
    assert sum(len(part.data) + part.dropped for part in parts) == sum(map(len, lines))


def test_the_beginning_and_the_end_are_kept(store: ArtifactStore, backend: Backend) -> None:
    lines = numbered(2000)
    for number, line in enumerate(lines):
        store.live_append(TASK, 1, line, keep_bytes=KEEP)
        if number % 100 == 0:
            assert backend.size() <= KEEP  # in one look: a thread writes and deletes meanwhile
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
    assert len(backend.names()) <= 16


def test_a_reader_that_keeps_up_misses_nothing(store: ArtifactStore) -> None:
    lines, position, seen = numbered(1000), 0, b""
    # Line by line into the third file, then some at a time.
    for start, end in pairwise([*range(300), *range(300, len(lines) + 1, 5)]):
        store.live_append(TASK, 1, b"".join(lines[start:end]), keep_bytes=KEEP)
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
        part = LivePart(b"", 0)
        with suppress(NotFound):  # it has not begun
            part = store.live_read(TASK, 1, position, 100_000)
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


def test_a_line_longer_than_all_that_is_kept(store: ArtifactStore) -> None:
    store.live_append(TASK, 1, b"begin\n", keep_bytes=KEEP)
    store.live_append(TASK, 1, b"x" * 100_000 + b"\nend\n", keep_bytes=KEEP)
    parts = read_all(store)
    kept = b"".join(part.data for part in parts)
    assert kept.startswith(b"begin\n") and kept.endswith(b"x\nend\n") and len(kept) <= KEEP
    assert len(kept) + sum(part.dropped for part in parts) == 100_011


def test_bad_words_are_refused(store: ArtifactStore, backend: Backend) -> None:
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
    assert not backend.touched()


def test_removing_a_task_removes_its_live_logs(store: ArtifactStore, backend: Backend) -> None:
    store.live_append(TASK, 1, b"one\n")
    store.live_append(TASK, 2, b"two\n")
    store.live_append("task-2", 1, b"stays\n")
    store.remove(TASK)
    [left] = backend.names()
    assert left.startswith("live/task-2/1/head")
    assert store.live_read("task-2", 1, 0, 100) == LivePart(b"stays\n", 6)
