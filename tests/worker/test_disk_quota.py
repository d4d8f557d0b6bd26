"""Disk quotas: who fills their workspace is stopped, and nothing is claimed without room."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.states import State
from agentq.worker import disk_quota
from agentq.worker.disk_quota import TotalQuota, used_bytes, watched
from tests.eventually import eventually
from tests.worker.fleet import ROLE, Fleet, script

pytestmark = pytest.mark.both_ways

MEGABYTE = 1 << 20


def fill(path: Path, size: int = MEGABYTE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    return path


@pytest.mark.long
def test_what_counts_is_the_disk_it_takes(tmp_path: Path) -> None:
    assert used_bytes(tmp_path / "nowhere") == 0
    folder = tmp_path / "folder"
    file = fill(folder / "deep" / "file")
    used = used_bytes(folder)
    assert MEGABYTE <= used < MEGABYTE + 100_000
    # A second name of a file takes nothing; a link takes nothing of what it leads to.
    os.link(file, folder / "again")
    (folder / "link").symlink_to(fill(tmp_path / "outside"))
    (folder / "up").symlink_to(tmp_path)
    assert used_bytes(folder) < used + 20_000
    # A file that only looks large takes nothing either.
    with (folder / "sparse").open("wb") as sparse:
        sparse.truncate(100 * MEGABYTE)
    assert used_bytes(folder) < used + 40_000
    for number in range(20):
        fill(folder / f"many-{number}" / "file")
    assert used_bytes(folder, stop_at=2 * MEGABYTE) < 21 * MEGABYTE <= used_bytes(folder)


def test_a_folder_is_looked_at_while_somebody_works_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_quota, "WORKSPACE_SECONDS", 0.01)
    said: list[str] = []
    heard = threading.Event()

    def over(words: str) -> None:
        said.append(words)
        heard.set()

    with watched(tmp_path, MEGABYTE, over):
        assert not said
        fill(tmp_path / "file", 2 * MEGABYTE)
        assert heard.wait(30)
    assert said == [f"its workspace takes more than {MEGABYTE} bytes of disk (disk_bytes)"]
    before = threading.active_count()
    with watched(tmp_path, 0, over):
        assert threading.active_count() == before, "without a limit nobody looks"
    assert len(said) == 1


@pytest.mark.long
def test_an_agent_that_takes_too_much_is_stopped(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_quota, "WORKSPACE_SECONDS", 0.05)
    task = fleet.queue.submit(to=ROLE, instructions="fill the disk", max_attempts=2)
    program = script(
        "print('filling', flush=True)",
        "open(os.environ['AGENTQ_ARTIFACTS'] + '/notes.md', 'w').write('so far')",
        f"open('large', 'wb').write(os.urandom({3 * MEGABYTE}))",
        "time.sleep(600)",
    )
    verdict = fleet.work(command=program, disk_bytes=2 * MEGABYTE)
    assert verdict.outcome is AttemptOutcome.BAD_OUTPUT
    after = fleet.queue.task(task.id)
    assert after.state is State.PENDING and after.details.failures == 1
    # The next attempt is told, and what there was is kept.
    assert "takes more than 2097152 bytes of disk" in after.details.notes[-1].text
    assert {"output.log", "notes.md"} <= {each.name for each in fleet.queue.artifacts(task.id)}


@pytest.mark.long
def test_nothing_is_claimed_without_room(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(disk_quota, "TOTAL_SECONDS", 0.01)
    monkeypatch.setattr("agentq.worker.worker.POLL_SECONDS", 0.05)
    left = fill(fleet.folder / "workspaces" / "task-before-1" / "large", 2 * MEGABYTE)
    settings = fleet.settings(command=script("print('done')"), disk_total_bytes=MEGABYTE)
    task = fleet.queue.submit(to=ROLE, instructions="wait for room")
    with caplog.at_level(logging.WARNING), fleet.worker(settings, tasks=1):
        eventually(lambda: "nothing is claimed: the workspaces in" in caplog.text)
        assert fleet.queue.task(task.id).state is State.READY
        left.unlink()
        eventually(lambda: fleet.queue.task(task.id).state is State.COMPLETE)
    assert caplog.text.count("nothing is claimed: the workspaces in") == 1
    assert "there is room for workspaces again" in caplog.text


def test_looking_costs_a_small_part_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, now = [], [1000.0]

    def slow(folder: Path, stop_at: int = 0) -> int:
        looks.append(now[0])
        now[0] += 4.0
        return 10

    monkeypatch.setattr(disk_quota, "used_bytes", slow)
    monkeypatch.setattr(disk_quota, "time", SimpleNamespace(monotonic=lambda: now[0]))
    quota = TotalQuota(tmp_path)
    for _ in range(1000):
        assert not quota.is_over(100)
        now[0] += 1.0
    assert 4 <= len(looks) <= 7
    assert quota.is_over(9), "another limit is looked at now"
    assert not quota.is_over(0)
