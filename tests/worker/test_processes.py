"""Owning processes: whatever an agent does, nothing of it is left afterwards.

Real processes throughout. A pidfd tells when a process has ended, so nothing here polls.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentq.contracts.agent import Exit
from agentq.core.errors import Invalid, Unavailable
from agentq.worker.processes import UNSENT_MAX_BYTES, AgentProcess, Supervisor
from agentq.worker.supervisor import children_by_scan, children_of
from tests.worker.unruly import PROGRAM
from tests.worker.watching import (
    PATIENCE,
    PLAIN,
    SURVIVAL_SECONDS,
    Watched,
    everything,
    exit_of,
    lines,
    some,
)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with Supervisor() as supervisor:
        yield supervisor


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path


@contextlib.contextmanager
def shell(
    supervisor: Supervisor, script: str, here: Path, stdin: bytes = b""
) -> Iterator[AgentProcess]:
    child = supervisor.start(["sh", "-c", script], env=PLAIN, cwd=here, stdin=stdin)
    with contextlib.closing(child):
        yield child


@contextlib.contextmanager
def unruly(supervisor: Supervisor, mode: str, here: Path) -> Iterator[AgentProcess]:
    argv = [sys.executable, "-S", PROGRAM, mode]
    with contextlib.closing(supervisor.start(argv, env={}, cwd=here, keep_stdin=True)) as child:
        yield child


# -- an ordinary life ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [("exit 0", Exit()), ("exit 42", Exit(42)), ("kill -9 $$", Exit(signal=9)),
     ("kill -TERM $$", Exit(signal=15)), ("kill -PIPE $$", Exit(signal=13))],
)  # fmt: skip
def test_how_it_ended(supervisor: Supervisor, here: Path, script: str, expected: Exit) -> None:
    with shell(supervisor, script, here) as child:
        assert exit_of(child) == expected
        assert child.wait_gone(PATIENCE)
        assert child.poll() == expected and child.gone, "asking again gives the same answer"
        assert not Path(f"/proc/{child.pid}").exists()


def test_while_it_runs_there_is_no_exit(supervisor: Supervisor, here: Path) -> None:
    with shell(supervisor, "read line", here) as quick:
        assert exit_of(quick) == Exit(1), "no input means the end of it, not a wait"
    with unruly(supervisor, "stay_with_orphans", here) as child:
        assert lines(child.stdout, 3)
        assert child.poll() is None and exit_of(child, 0) is None and not child.gone
        assert not select.select([child.status_fd], [], [], 0)[0]
        child.kill()
        assert select.select([child.status_fd], [], [], PATIENCE)[0]
        assert exit_of(child) == Exit(signal=9)


def test_output_is_complete_and_apart(supervisor: Supervisor, here: Path) -> None:
    script = "head -c 3000000 /dev/zero | tr '\\0' x; echo bad >&2"
    with shell(supervisor, script, here) as child:
        assert hashlib.sha256(everything(child.stdout)).digest() == (
            hashlib.sha256(b"x" * 3_000_000).digest()
        )
        assert everything(child.stderr) == b"bad\n"
        assert exit_of(child) == Exit()


def test_environment_and_folder_are_exactly_what_was_given(
    supervisor: Supervisor, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_SECRET", "s3cret")
    env = {"PATH": "/bin:/usr/bin", "NAME": "a=b\nc", "UNICODE": "žluťoučký", "BYTES": "\udcff"}
    with contextlib.closing(
        supervisor.start(["cat", "/proc/self/environ"], env=env, cwd=here)
    ) as child:
        found = everything(child.stdout).split(b"\0")[:-1]
        assert sorted(found) == sorted(os.fsencode(f"{k}={v}") for k, v in env.items())
    with shell(supervisor, "pwd -P; ls -l /proc/self/fd | wc -l", here) as child:
        folder, files = everything(child.stdout).decode().split()
        assert folder == str(here.resolve())
        # A line of totals, three standard files, and the folder that `ls` reads.
        assert int(files) == 5, "no other file of the worker is open in the agent"


def test_signals_are_back_to_normal(supervisor: Supervisor, here: Path) -> None:
    with shell(supervisor, "grep -E 'Sig(Blk|Ign)' /proc/self/status", here) as child:
        masks = {int(line.split()[1], 16) for line in lines(child.stdout, 2)}
    # Two are the C library's own: nobody else can change them.
    assert {mask & ~(0b11 << 31) for mask in masks} == {0}


def test_each_agent_has_its_own_session(supervisor: Supervisor, here: Path) -> None:
    with shell(supervisor, "cut -d' ' -f1,5,6 /proc/$$/stat", here) as child:
        pid, group, session = lines(child.stdout, 1)[0].split()
        assert pid == group == session == str(child.pid)


# -- standard input --------------------------------------------------------------------------------


def test_input_larger_than_a_pipe_holds_nobody_up(supervisor: Supervisor, here: Path) -> None:
    data = os.urandom(2_000_000)
    with shell(supervisor, "sha256sum", here, stdin=data) as child:
        assert child.stdin == -1
        assert everything(child.stdout).decode().split()[0] == hashlib.sha256(data).hexdigest()


def test_kept_input_takes_what_is_sent_later(supervisor: Supervisor, here: Path) -> None:
    first = b"x" * 300_000 + b"\n"
    with contextlib.closing(
        supervisor.start(["cat"], env=PLAIN, cwd=here, stdin=first, keep_stdin=True)
    ) as child:
        assert child.unsent > 0, "a pipe does not take it all at once"
        heard = b""
        while len(heard) < len(first):
            heard += some(child.stdout)
            child.flush()
        child.send(b"more\n")
        heard += some(child.stdout)
        assert heard == first + b"more\n" and child.unsent == 0
        child.close_stdin()
        assert exit_of(child) == Exit()
        child.send(b"nobody reads this")


def test_input_for_an_agent_that_never_reads_is_bounded(supervisor: Supervisor, here: Path) -> None:
    with contextlib.closing(
        supervisor.start(["sleep", "60"], env=PLAIN, cwd=here, keep_stdin=True)
    ) as child:
        child.send(b"x" * UNSENT_MAX_BYTES)
        with pytest.raises(Unavailable, match="does not read its standard input"):
            child.send(b"x" * UNSENT_MAX_BYTES)


def test_input_for_an_agent_that_closed_it_is_dropped(supervisor: Supervisor, here: Path) -> None:
    argv = ["sh", "-c", "exec 0<&-; echo closed; exec sleep 60"]
    with contextlib.closing(supervisor.start(argv, env=PLAIN, cwd=here, keep_stdin=True)) as child:
        assert lines(child.stdout, 1) == ["closed"]
        child.send(b"hello")
        assert child.stdin == -1 and child.unsent == 0


# -- what cannot be started ------------------------------------------------------------------------


def test_what_cannot_be_started_is_named(supervisor: Supervisor, here: Path) -> None:
    (here / "plain").write_text("text")
    (here / "headless").write_text("no first line")
    (here / "headless").chmod(0o755)
    (here / "lost").write_text("#!/no/such/interpreter\n")
    (here / "lost").chmod(0o755)
    for argv, cwd, message in (
        (["no-such-program"], here, "'no-such-program' was not found"),
        (["./none"], here, "'./none' was not found"),
        ([str(here / "lost")], here, "interpreter in its first line"),
        (["./plain"], here, "'./plain' cannot be run: Permission denied"),
        (["./headless"], here, "'./headless' cannot be run: Exec format"),
        (["true"], here / "nowhere", "cannot work in .*nowhere': No such file"),
        (["true"], here / "plain", "cannot work in .*plain': Not a directory"),
        (["true", "x" * 3_000_000], here, "too long to start"),
        ([], here, "at least one word"),
        (["true", "a\0b"], here, "NUL"),
    ):
        with pytest.raises(Invalid, match=message):
            supervisor.start(argv, env=PLAIN, cwd=cwd)
    with pytest.raises(Invalid, match="has no `=`"):
        supervisor.start(["true"], env={"A=B": "c"}, cwd=here)
    with shell(supervisor, "exit 0", here) as child:
        assert exit_of(child) == Exit(), "and the supervisor goes on"


def test_no_file_is_left_open(here: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    with Supervisor() as supervisor:
        assert supervisor._process is not None
        within = count()
        # A supervisor with so few files could not serve many if she kept any of theirs.
        resource.prlimit(supervisor._process.pid, resource.RLIMIT_NOFILE, (20, 20))
        for _ in range(20):
            with shell(supervisor, "exit 0", here) as child:
                assert child.wait_gone(PATIENCE)
            with pytest.raises(Invalid):
                supervisor.start(["no-such-program"], env=PLAIN, cwd=here, keep_stdin=True)
        assert count() == within
    assert count() == before


def test_a_supervisor_short_of_files_says_so_and_goes_on(
    supervisor: Supervisor, here: Path
) -> None:
    assert supervisor._process is not None
    with shell(supervisor, "exit 0", here) as child:
        assert exit_of(child) == Exit()
    resource.prlimit(supervisor._process.pid, resource.RLIMIT_NOFILE, (9, 20))
    with pytest.raises(Unavailable, match=r"short of processes, files|did not answer"):
        supervisor.start(["true"], env=PLAIN, cwd=here)
    resource.prlimit(supervisor._process.pid, resource.RLIMIT_NOFILE, (20, 20))
    with shell(supervisor, "exit 0", here) as child:
        assert exit_of(child) == Exit()


# -- ending a tree ---------------------------------------------------------------------------------


def test_orphans_do_not_survive_a_normal_exit(supervisor: Supervisor, here: Path) -> None:
    with (
        unruly(supervisor, "leave_orphans", here) as child,
        Watched(map(int, lines(child.stdout, 4))) as watched,
    ):
        child.send(b"go on\n")
        assert exit_of(child) == Exit(3), "told at once, before the orphans are gone"
        assert watched.all_end()
        assert child.wait_gone(SURVIVAL_SECONDS)
        assert watched.none_is_left()


@pytest.mark.parametrize("mode", ["stay_with_orphans", "stubborn"])
def test_kill_ends_the_whole_tree(supervisor: Supervisor, here: Path, mode: str) -> None:
    with (
        unruly(supervisor, mode, here) as child,
        Watched(map(int, lines(child.stdout, 3))) as watched,
    ):
        child.kill()
        assert watched.all_end()
        assert child.wait_gone(SURVIVAL_SECONDS) and watched.none_is_left()
        assert child.poll() == Exit(signal=9)


def test_terminate_lets_the_whole_tree_clean_up(supervisor: Supervisor, here: Path) -> None:
    with unruly(supervisor, "polite", here) as child:
        lines(child.stdout, 2)
        child.terminate()
        assert everything(child.stdout).decode().splitlines() == ["child cleaned up", "cleaned up"]
        assert exit_of(child) == Exit(7) and child.wait_gone(PATIENCE)


def test_a_tree_that_ignores_sigterm_is_killed_when_let_go(
    supervisor: Supervisor, here: Path
) -> None:
    with (
        unruly(supervisor, "stubborn", here) as child,
        Watched(map(int, lines(child.stdout, 3))) as watched,
    ):
        child.terminate()
        assert not watched.all_end(0.2), "it ignores SIGTERM, as asked"
        assert child.poll() is None
        child.close()
        assert watched.all_end()


def test_a_tree_that_forks_as_fast_as_it_can(supervisor: Supervisor, here: Path) -> None:
    """Each process starts the next and exits: none lives long enough to be named."""
    (here / "go").touch()  # ends the storm, should killing it not
    script = """
    next() { if [ -e go ]; then next & fi; }
    next & next & next & next & next & next &
    echo storm
    exec sleep 60
    """
    try:
        with shell(supervisor, script, here) as child:
            assert lines(child.stdout, 1) == ["storm"]
            child.kill()
            assert child.wait_gone(SURVIVAL_SECONDS)
    finally:
        (here / "go").unlink()


# -- when those who watch are hit ------------------------------------------------------------------


def test_nothing_survives_kill_9_of_the_worker() -> None:
    worker = subprocess.Popen([sys.executable, PROGRAM, "worker"], stdout=subprocess.PIPE)
    with worker:
        assert worker.stdout is not None
        # Three trees with their reapers, and the supervisor.
        pids = [int(worker.stdout.readline()) for _ in range(3 + 1 + 3 + 1 + 2 + 1 + 1)]
        with Watched(pids) as watched:
            worker.kill()
            assert watched.all_end(SURVIVAL_SECONDS)
            # The supervisor herself is left to process 1, which is not ours to judge.
            assert not any(Path(f"/proc/{pid}").exists() for pid in pids[:-1])


def test_a_killed_reaper_takes_its_tree_along(supervisor: Supervisor, here: Path) -> None:
    with (
        unruly(supervisor, "stubborn", here) as child,
        shell(supervisor, "exec sleep 60", here) as other,
    ):
        with Watched(map(int, lines(child.stdout, 3))) as watched:
            os.kill(child._reaper, signal.SIGKILL)
            assert watched.all_end()
            assert child.wait_gone(SURVIVAL_SECONDS) and watched.none_is_left()
            assert child.poll() == Exit(signal=9)
        assert other.poll() is None, "others are not touched"


def test_a_stopped_reaper_still_obeys(supervisor: Supervisor, here: Path) -> None:
    with unruly(supervisor, "own_reaper_stopped", here) as child:
        lines(child.stdout, 1)
        child.kill()
        assert child.wait_gone(SURVIVAL_SECONDS)


def test_a_dead_supervisor_is_not_replaced_in_silence(here: Path) -> None:
    with Supervisor() as supervisor, unruly(supervisor, "stubborn", here) as child:
        pids = list(map(int, lines(child.stdout, 3)))
        assert supervisor._process is not None
        supervisor._process.kill()
        supervisor._process.wait()
        with pytest.raises(Unavailable, match="was killed"):
            supervisor.start(["true"], env=PLAIN, cwd=here)
        with Watched(pids) as watched:
            child.kill()
            assert watched.all_end() and child.wait_gone(PATIENCE), "its reaper is still there"


def test_terminal_signals_do_not_reach_reapers(supervisor: Supervisor, here: Path) -> None:
    with shell(supervisor, "echo up; exec sleep 60", here) as child:
        lines(child.stdout, 1)
        assert supervisor._process is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(child._reaper, number)
            os.kill(supervisor._process.pid, number)
        with shell(supervisor, "exit 5", here) as another:
            assert exit_of(another) == Exit(5)
        assert child.poll() is None
        assert os.getsid(supervisor._process.pid) != os.getsid(0)


def test_leaving_the_supervisor_ends_all_of_it(here: Path) -> None:
    with Supervisor() as supervisor:
        child = supervisor.start([sys.executable, "-S", PROGRAM, "stubborn"], env={}, cwd=here)
        watched = Watched([*map(int, lines(child.stdout, 3)), child._reaper])
    with watched:
        assert watched.none_is_left()
        assert child.status_fd == child.stdout == -1
    with pytest.raises(Unavailable, match="closed"):
        supervisor.start(["true"], env=PLAIN, cwd=here)


# -- many ------------------------------------------------------------------------------------------


def test_fifty_at_once_from_fifty_threads(supervisor: Supervisor, here: Path) -> None:
    def run(number: int) -> tuple[bytes, Exit | None, bool]:
        with shell(supervisor, f"echo {number}; exit {number}", here) as child:
            said = everything(child.stdout)
            return said, exit_of(child), child.wait_gone(PATIENCE)

    with ThreadPoolExecutor(50) as pool:
        for number, ended in enumerate(pool.map(run, range(50))):
            assert ended == (f"{number}\n".encode(), Exit(number), True)


def test_children_are_found_without_help_of_the_kernel() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        assert child.pid in children_by_scan(os.getpid())
        assert children_by_scan(os.getpid()) == sorted(children_of(os.getpid()))
        child.kill()
