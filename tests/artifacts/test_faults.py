"""Full disks, read-only disks and kill -9: a clear error, nothing half-visible, and on it goes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from agentq.artifacts.files.store import FileArtifacts
from agentq.contracts.artifacts import ArtifactStore
from agentq.core.errors import Damaged, Unavailable
from tests.artifacts.trees import files_below, sha256
from tests.servers.machine import as_nobody

MEGABYTE = b"x" * (1 << 20)


def test_a_full_disk(small_disk: Path) -> None:
    root = small_disk / "shared"
    store = FileArtifacts(root)
    store.put("task-1", 1, "small.md", b"fits")
    before = files_below(root)
    with pytest.raises(Unavailable, match="the disk is full") as refusal:
        store.put("task-1", 1, "large.bin", MEGABYTE)
    assert "large.bin" in refusal.value.cause and "Free some space" in refusal.value.remedy
    with pytest.raises(Unavailable, match="the disk is full"):
        store.stage_context("task-2", MEGABYTE)
    assert files_below(root) == before
    # The space is free again, and the store works as before.
    stored = store.put("task-1", 1, "large.bin", b"y" * 500_000)
    assert store.check("task-1", 1, "large.bin", stored.sha256, stored.size) is None


def test_a_read_only_disk(small_disk: Path) -> None:
    root = small_disk / "shared"
    store = FileArtifacts(root)
    stored = store.put("task-1", 1, "a.md", b"evidence")
    staged = store.stage_context("task-1", b"context")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for write in (
        lambda: store.put("task-1", 1, "b.md", b"x"),
        lambda: store.stage_context("task-2", b"x"),
        lambda: store.publish_result("task-1", 1, "a.md", stored.sha256),
        lambda: store.publish_context("task-1", staged.sha256),
        lambda: store.remove("task-1"),
        lambda: store.discard("task-1", 1, "a.md"),
        store.probe,
    ):
        with pytest.raises(Unavailable, match="the disk is read-only"):
            write()
    assert store.read("task-1", 1, "a.md", stored.sha256, stored.size) == b"evidence"
    assert store.context("task-1", staged.sha256) == b"context"


def run_child(program: str, root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE, text=True
    )


LIMITED = """
import resource, sys
from agentq.artifacts.files.store import FileArtifacts
from agentq.core.errors import Unavailable

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
store = FileArtifacts(sys.argv[1])
store.put("task-1", 1, "small.md", b"fits")
for write in (
    lambda: store.put("task-1", 1, "large.bin", b"x" * 20_000),
    lambda: store.stage_context("task-1", b"x" * 20_000),
):
    try:
        write()
    except Unavailable as error:
        print(error.cause)
"""


def test_a_file_larger_than_the_host_allows(root: Path) -> None:
    child = run_child(LIMITED, root)
    said = child.communicate(timeout=60)[0].splitlines()
    assert child.returncode == 0
    assert len(said) == 2 and all("larger than this host allows" in line for line in said)
    assert files_below(root) == {"artifacts/task-1/1/small.md"}


def test_a_folder_of_somebody_else() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        store = FileArtifacts(Path(folder) / "shared")
        store.put("task-1", 1, "a.md", b"x")
        with as_nobody(), pytest.raises(Unavailable, match="permission denied"):
            store.put("task-1", 1, "b.md", b"x")


KILLED_WHILE_WRITING = """
import sys
from agentq.artifacts.files.store import FileArtifacts

class NeverEnding:
    started = False
    def read(self, size):
        if self.started:
            print("halfway", flush=True)
            sys.stdin.buffer.read()  # for ever
        self.started = True
        return b"x" * 100_000

FileArtifacts(sys.argv[1]).put("task-1", 1, "a.md", NeverEnding())
"""


def test_a_writer_killed_halfway_leaves_nothing_visible(store: ArtifactStore, root: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED_WHILE_WRITING, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "halfway\n"
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)

    assert not (root / "artifacts/task-1/1/a.md").exists()
    with pytest.raises(Damaged, match="is missing"):
        store.read("task-1", 1, "a.md", sha256(b"x" * 100_000), 100_000)
    assert store.put("task-1", 1, "a.md", b"whole").size == 5
    store.remove("task-1")
    assert files_below(root) == set()


KILLED_BEFORE_PUBLISHING = """
import os, signal, sys
from agentq.artifacts.files.store import FileArtifacts

store = FileArtifacts(sys.argv[1])
store.stage_context("task-1", b"accepted")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_submitter_killed_after_its_commit_loses_nothing(
    store: ArtifactStore, root: Path
) -> None:
    child = run_child(KILLED_BEFORE_PUBLISHING, root)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    assert store.context("task-1", sha256(b"accepted")) == b"accepted"
    assert files_below(root) == {"tasks/task-1.md"}


class FailingDisk:
    """Lets the n-th call that changes the disk fail."""

    def __init__(self, failing: int, patch: pytest.MonkeyPatch) -> None:
        self.left = failing
        for name in ("open", "write", "fsync", "link", "mkdir"):
            patch.setattr(os, name, partial(self.call, getattr(os, name)))

    def call(self, real: Callable[..., object], *args: object, **options: object) -> object:
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **options)


def test_a_disk_that_fails_at_any_step(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in count(1):
        store = FileArtifacts(root)
        with monkeypatch.context() as patch, suppress(Unavailable):
            disk = FailingDisk(step, patch)
            store.put("task-1", step, "a.md", b"evidence")
            assert disk.left > 0
            break  # there are no more steps
        # The folder is synced last: when that fails, the file is there, whole, and not recorded.
        assert files_below(root) <= {f"artifacts/task-1/{step}/a.md"}
        stored = store.put("task-1", step, "a.md", b"evidence")
        assert store.read("task-1", step, "a.md", stored.sha256, stored.size) == b"evidence"
        store.remove("task-1")
    assert step > 10
    assert files_below(root) == {f"artifacts/task-1/{step}/a.md"}
