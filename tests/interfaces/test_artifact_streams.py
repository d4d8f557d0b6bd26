"""Files of any size go through the commands a piece at a time; what breaks off is told and removed.

Memory is measured in the command's own process, at its end.
"""

from __future__ import annotations

import filecmp
import os
import pty
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from agentq import Queue
from agentq.core.states import State
from tests.interfaces.conftest import Answer, Submit, clean_environment, run_here, run_program
from tests.servers.seaweed import SeaweedServer

pytestmark = pytest.mark.both_ways

MEGABYTE = 1 << 20
#: `LARGE_FILE_BYTES=1500000000 … -o timeout=600` tries more.
LARGE_MEGABYTES = int(os.environ.get("LARGE_FILE_BYTES", str(110 << 20))) >> 20
#: What Python, the command, its libraries and the pieces under way may take.
FLAT_MEGABYTES = 100

# Not getrusage: that counts what the test run had when it started the child.
MEASURED = """
import atexit, re, sys
from pathlib import Path

def tell():
    status = Path("/proc/self/status").read_text()
    peak = int(re.search("VmHWM:\\\\s*([0-9]+)", status)[1]) // 1024
    print(f"peak {peak}", file=sys.stderr)

atexit.register(tell)
from agentq.cli.main import main
main()
"""


def peak_of(*words: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> int:
    """Run the command as a program; how many megabytes it took at most."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words],
        env=clean_environment(),
        stdin=stdin or subprocess.DEVNULL,
        stdout=stdout or subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stderr.rsplit("peak ", 1)[1])


def sparse(path: Path, megabytes: int) -> Path:
    """A file that takes no room: zeros, with something at its ends."""
    with path.open("wb") as file:
        file.write(b"begin\n")
        file.seek(megabytes * MEGABYTE)
        file.write(b"end\n")
    return path


def through_all_doors(submit: Submit, large: Path, copy: Path) -> dict[str, int]:
    """Leave it, read it, make it a result and read that; what each took."""
    task_id = submit()
    run_here("claim", task_id, "--as", "worker").ok()
    peaks = {}
    with large.open("rb") as given:
        peaks["put"] = peak_of("artifacts", "put", task_id, "-", "--name", "x.bin", stdin=given)
    with copy.open("wb") as target:
        peaks["get"] = peak_of("artifacts", "get", task_id, "x.bin", stdout=target)
    assert filecmp.cmp(copy, large, shallow=False)
    with large.open("rb") as given:
        peaks["complete"] = peak_of("complete", task_id, "--result-file", "-", stdin=given)
    with copy.open("wb") as target:
        peaks["result"] = peak_of("result", task_id, stdout=target)
    assert filecmp.cmp(copy, large, shallow=False)
    return peaks


@pytest.mark.long
def test_large_files_in_a_folder_take_little_memory(
    home: Path, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(home / "tmp"))
    peaks = through_all_doors(submit, sparse(home / "large", LARGE_MEGABYTES), home / "copy")
    assert max(peaks.values()) < FLAT_MEGABYTES, peaks
    assert not list((home / "tmp").iterdir())


@pytest.mark.beside("makes the installation")
@pytest.mark.long
def test_large_files_in_an_object_store_take_little_memory(
    home: Path, submit: Submit, shared_s3: SeaweedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "objects").mkdir()
    monkeypatch.chdir(home / "objects")
    where = {"root": shared_s3.fresh_root(), **shared_s3.options}
    lines = [f'{name} = "{value}"' for name, value in where.items()]
    Path("agentq.toml").write_text("\n".join(["[artifacts]", *lines, ""]))
    run_here("init").ok()
    peaks = through_all_doors(submit, sparse(home / "large", 70), home / "copy")
    # Parts that are sent at once are held; the size of the whole does not matter.
    assert max(peaks.values()) < FLAT_MEGABYTES, peaks


def test_json_keeps_its_shape(home: Path, submit: Submit) -> None:
    task_id = submit()
    run_here("claim", task_id, "--as", "worker").ok()
    stored = run_here("artifacts", "put", task_id, "-", "--name", "a.txt", "--json", stdin="é").ok()
    read = run_here("artifacts", "get", task_id, "a.txt", "--json").ok().json()
    assert read == {**stored.json(), "text": "é"}
    written = run_here("artifacts", "get", task_id, "a.txt", "-o", "copy", "--json").ok().json()
    assert written == stored.json()
    run_here("complete", task_id, "--result-file", "-", stdin="the result").ok()
    told = run_here("result", task_id, "--json").ok().json()
    assert (told["text"], told["task_id"]) == ("the result", task_id)
    assert set(told) == {"task_id", "text", "sha256", "result_ref", "summary"}


def test_a_result_can_be_opened(queue: Queue, submit: Submit) -> None:
    """The same for programs, beside `result`."""
    with_file, without = submit(), submit()
    for task_id, result in ((with_file, b"\x00\xffbytes"), (without, None)):
        run_here("claim", task_id, "--as", "worker").ok()
        queue.complete(task_id, "done", result)
    task, stream = queue._client.open_result(with_file)
    assert stream is not None
    with stream:
        assert (task.id, stream.read()) == (with_file, b"\x00\xffbytes")
    task, stream = queue._client.open_result(without)
    assert (task.summary, stream) == ("done", None)


# ---- standard input -----------------------------------------------------------------------------


def test_a_terminal_is_asked_for_its_end_once(home: Path, submit: Submit) -> None:
    task_id = submit()
    run_here("claim", task_id, "--as", "worker").ok()
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "agentq", "artifacts", "put", task_id, "-", "--name", "typed"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        env=clean_environment(),
    ) as child:
        os.close(theirs)
        os.write(ours, b"typed\n\x04")
        out, _ = child.communicate(timeout=60)
    os.close(ours)
    assert out.startswith(b"typed: 6 B")


def test_closed_standard_input_is_told(home: Path, submit: Submit) -> None:
    task_id = submit()
    run_here("claim", task_id, "--as", "worker").ok()
    for words in (f"artifacts put {task_id} - --name x", f"complete {task_id} --result-file -"):
        done = subprocess.run(
            ["/bin/sh", "-c", f'exec "$0" -m agentq {words} <&-', sys.executable],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        Answer(done.returncode, done.stdout, done.stderr).refused(2, "Standard input is closed")


@pytest.mark.parametrize("words", ["", "--json"])
def test_closed_standard_output_is_told(home: Path, submit: Submit, words: str) -> None:
    task_id = submit()
    run_here("claim", task_id, "--as", "worker").ok()
    run_here("artifacts", "put", task_id, "-", "--name", "x", stdin="some").ok()
    run_here("complete", task_id, "--result-file", "-", stdin="the result").ok()

    def closed(asked: str) -> Answer:
        done = subprocess.run(
            ["/bin/sh", "-c", f'exec "$0" -m agentq {asked} {words} >&-', sys.executable],
            env=clean_environment(),
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
        return Answer(done.returncode, "", done.stderr)

    if not words:
        for asked in (f"artifacts get {task_id} x", f"result {task_id}"):
            closed(asked).refused(7, "standard output: it is closed", "a file or a pipe")
    # What is wrong is told where somebody may read it,
    closed("result no-such-task").refused(3, "no-such-task")
    # and who only wants something done gets it done.
    assert closed("submit --to worker --instructions x --id task-quiet").ok().err == ""
    assert run_here("status", "task-quiet", "--json").ok().json()["state"] == "ready"


# ---- disks that are full ------------------------------------------------------------------------


@pytest.fixture
def stored(home: Path, submit: Submit) -> str:
    """A task with an artifact of three megabytes, `x.bin`."""
    task_id = submit()
    run_here("claim", task_id, "--as", "worker").ok()
    with Queue() as opened:
        opened.put(task_id, "x.bin", sparse(home / "x", 3))
    return task_id


def on_a_full_disk(*words: str, **more: Any) -> Answer:
    """Run the command where no file may have more than a megabyte."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE, MEGABYTE))

    done = subprocess.run(
        [sys.executable, "-m", "agentq", *words],
        env=clean_environment(),
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=limit,
        **more,
    )
    return Answer(done.returncode, "", done.stderr)


@pytest.mark.parametrize("words", [(), ("--force",)], ids=["new", "replaced"])
@pytest.mark.beside("through a server a whole file is fetched first, into the temporary folder")
def test_a_file_that_cannot_be_written_whole_is_named_and_removed(
    home: Path, stored: str, words: tuple[str, ...]
) -> None:
    target = home / "target"
    if words:
        target.write_text("before")
    answer = on_a_full_disk("artifacts", "get", stored, "x.bin", "-o", str(target), *words)
    answer.refused(7, f"Cannot write {target}: file too large", "is removed")
    assert ("What was there before is gone" in answer.err) == bool(words)
    assert not target.exists()


@pytest.mark.beside("through a server a whole file is fetched first, into the temporary folder")
def test_what_is_not_ours_is_not_removed(home: Path, stored: str) -> None:
    (home / "other").write_text("before")
    (home / "link").symlink_to("other")
    for target in ("link", "/dev/full"):
        words = ("artifacts", "get", stored, "x.bin", "-o", target, "--force")
        on_a_full_disk(*words).refused(7, f"Cannot write {target}", "only a part")
    assert (home / "link").is_symlink() and (home / "other").exists()
    assert Path("/dev/full").is_char_device()


@pytest.mark.beside("through a server a whole file is fetched first, into the temporary folder")
def test_standard_output_that_is_full_is_told(home: Path, stored: str) -> None:
    with Path("/dev/full").open("wb") as full:
        answer = on_a_full_disk("artifacts", "get", stored, "x.bin", stdout=full)
    answer.refused(7, "Cannot write to standard output: no space left on device")


# ---- workers ------------------------------------------------------------------------------------


def in_the_way(place: Path) -> None:
    place.write_text("no folder")


def read_only(place: Path) -> None:
    place.symlink_to("/sys")  # where not even root can make a file


@pytest.mark.parametrize("spoil", [in_the_way, read_only])
@pytest.mark.beside("looks at the files of the installation")
def test_a_worker_that_cannot_write_workspaces_does_not_start(
    home: Path, queue: Queue, submit: Submit, spoil: Callable[[Path], None]
) -> None:
    """Each attempt would fail, and its task would be charged for it."""
    task_id = submit()
    spoil(home / ".agentq/workspaces")
    answer = run_program("worker", "worker", "--tasks", "1", "--", "true")
    answer.refused(7, ".agentq/workspaces", "The worker was not started")
    assert (queue.task(task_id).state, queue.task(task_id).epoch) == (State.READY, 0)
