"""A worker whose output goes nowhere: no reader, a full disk, a terminal that was closed or that
takes nothing. Its work goes on as if somebody watched, and every signal still ends it in order."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from tests.eventually import eventually

AGENTQ = [sys.executable, "-m", "agentq"]
ROLE = "w"
UP = ("up", "--no-http", "--grace", "1s")
BOTH = pytest.mark.parametrize(
    "words", [(), pytest.param(UP, marks=pytest.mark.long)], ids=["worker", "up"]
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agentq.toml").write_text(
        f'[roles.{ROLE}]\nlease = "5s"\ngrace = "1s"\ncommand = ["/bin/sh", "-c",'
        f' "echo started; test ! -e {tmp_path}/hold || sleep 600; echo done"]\n'
    )
    return tmp_path


@pytest.fixture
def queue(folder: Path) -> Iterator[Queue]:
    with Queue.create(f"sqlite:///{folder}/.agentq/ledger.db") as made:
        yield made


def surroundings() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")} | {"TERM": "xterm"}


@contextmanager
def started(folder: Path, *words: str, **files: int) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "errors").open("wb") as errors:
        given = {"stdin": subprocess.DEVNULL, "stderr": errors, **files}
        process = subprocess.Popen(
            [*AGENTQ, *(words or ("worker", ROLE, "--grace", "1s"))],
            cwd=folder, env=surroundings(), process_group=0, **given,  # type: ignore[call-overload]
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def do_some(queue: Queue, count: int = 3) -> None:
    tasks = [queue.submit(to=ROLE, instructions=f"task {n}") for n in range(count)]
    for task in tasks:
        eventually(lambda task=task: queue.task(task.id).state is State.COMPLETE)  # type: ignore[misc]


def ends(process: subprocess.Popen[bytes], number: signal.Signals, folder: Path) -> None:
    process.send_signal(number)
    assert process.wait(60) == 0, (folder / "errors").read_text()
    assert "Traceback" not in (folder / "errors").read_text()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_reader_that_has_gone(folder: Path, queue: Queue, number: signal.Signals) -> None:
    """As `agentq worker … | head -1` leaves it."""
    reader, writer = os.pipe()
    with started(folder, stdout=writer) as worker:
        os.close(writer)
        do_some(queue, 1)
        os.read(reader, 1)
        os.close(reader)
        do_some(queue)
        ends(worker, number, folder)
    assert "cannot be written (Broken pipe); the work goes on" in (folder / "errors").read_text()


def test_head_in_a_shell(folder: Path, queue: Queue) -> None:
    queue.submit(to=ROLE, instructions="the first")
    line = f"{' '.join(AGENTQ)} worker {ROLE} --tasks 4 --grace 1s | head -1"
    with (folder / "errors").open("wb") as errors:
        shell = subprocess.Popen(
            ["/bin/sh", "-c", line], cwd=folder, env=surroundings(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    do_some(queue)
    shown, _ = shell.communicate(timeout=60)
    assert shown.count(b"\n") == 1 and b"task-" in shown
    assert shell.returncode == 0 and "Traceback" not in (folder / "errors").read_text()
    assert all(task.state is State.COMPLETE for task in queue.tasks())


@BOTH
def test_a_full_disk(folder: Path, queue: Queue, words: tuple[str, ...]) -> None:
    with (
        open("/dev/full", "wb") as full,  # noqa: PTH123
        started(folder, *words, stdout=full.fileno(), stderr=full.fileno()) as process,
    ):
        do_some(queue)
        ends(process, signal.SIGTERM, folder)


@pytest.mark.long
def test_no_output_at_all(folder: Path, queue: Queue) -> None:
    closed = f"exec {' '.join(AGENTQ)} worker {ROLE} --grace 1s >&- 2>&-"
    process = subprocess.Popen(["/bin/sh", "-c", closed], cwd=folder, env=surroundings())
    try:
        do_some(queue)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()


@pytest.mark.long
def test_a_reader_that_does_not_read(folder: Path, queue: Queue) -> None:
    """A pager that waits for a key, a terminal after Ctrl-S: its pipe is full from the start."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    with started(folder, stdout=writer) as worker:
        do_some(queue)
        ends(worker, signal.SIGTERM, folder)
    os.close(reader)
    os.close(writer)


@pytest.mark.long
@BOTH
def test_a_terminal_that_was_closed(folder: Path, queue: Queue, words: tuple[str, ...]) -> None:
    """With `nohup` the work goes on without it: the agent that runs ends, and the next is begun."""
    (folder / "hold").touch()
    held = queue.submit(to=ROLE, instructions="runs while the terminal goes")
    ours, theirs = pty.openpty()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which the child inherits, as by `nohup`
    try:
        with started(folder, *words, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            signal.signal(signal.SIGHUP, before)
            os.close(theirs)
            eventually(lambda: queue.task(held.id).state is State.IN_PROGRESS)
            os.read(ours, 100)
            os.close(ours)
            (folder / "hold").unlink()
            queue.cancel(held.id, by="somebody")
            do_some(queue)
            process.terminate()
            assert process.wait(60) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.long
def test_hanging_up_ends_it_in_order(folder: Path, queue: Queue) -> None:
    """Without `nohup`: what runs is given back and costs the task nothing."""
    (folder / "hold").touch()
    held = queue.submit(to=ROLE, instructions="runs while the terminal goes", max_attempts=1)
    ours, theirs = pty.openpty()
    with started(folder, stdin=theirs, stdout=theirs, stderr=theirs) as worker:
        os.close(theirs)
        eventually(lambda: queue.task(held.id).state is State.IN_PROGRESS)
        os.close(ours)
        worker.send_signal(signal.SIGHUP)
        assert worker.wait(60) == 0
    after = queue.task(held.id)
    assert after.state is State.READY and after.details.failures == after.details.crashes == 0
