"""The sandbox: what an agent inside can see, write and reach; and that it ends like any other."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.contracts.agent import Exit
from agentq.core.errors import Invalid, Unavailable
from agentq.worker.processes import Supervisor
from agentq.worker.sandbox import Sandbox, available, wrap
from tests.worker.unruly import PROGRAM
from tests.worker.watching import PLAIN, SURVIVAL_SECONDS, Watched, everything, exit_of, lines

BOXED = Sandbox("bwrap")

needs_bubblewrap = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with Supervisor() as supervisor:
        yield supervisor


def unruly(mode: str, workspace: Path) -> list[str]:
    """The program lies in the workspace: inside, /tmp is empty, and a checkout there not seen."""
    interpreter = os.path.realpath(sys.executable)
    return [interpreter, "-S", str(shutil.copy(PROGRAM, workspace)), mode]


def output(
    supervisor: Supervisor, script: str, cwd: Path, sandbox: Sandbox
) -> tuple[str, Exit | None]:
    child = supervisor.start(["sh", "-c", script], env=PLAIN, cwd=cwd, sandbox=sandbox)
    with contextlib.closing(child):
        return (everything(child.stdout) + everything(child.stderr)).decode(), exit_of(child)


def test_bad_settings_are_named() -> None:
    with pytest.raises(Invalid, match="absolute; got 'build'"):
        Sandbox("bwrap", writable=(Path("build"),))


def test_without_bubblewrap_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    available.cache_clear()
    try:
        assert not available()
        with pytest.raises(Unavailable, match=r"Install the package `bubblewrap`.*\"none\""):
            wrap(["true"], tmp_path, BOXED)
    finally:
        available.cache_clear()


@needs_bubblewrap
def test_agentq_itself_is_seen_also_where_it_is_installed_in_tmp(
    tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, workspace = tmp_path / "venv", tmp_path / "workspace"
    for folder in (installed, workspace):
        folder.mkdir()
    (installed / "launcher").write_text("here")
    (tmp_path / "secret").write_text("not for agents")
    monkeypatch.setattr(sys, "prefix", str(installed))
    script = f"cat {installed}/launcher; cat {tmp_path}/secret; echo > {installed}/launcher"
    said, _ = output(supervisor, script, workspace, BOXED)
    assert said.startswith("here")
    assert "not for agents" not in said
    assert (installed / "launcher").read_text() == "here"


@needs_bubblewrap
def test_paths_that_would_undo_the_sandbox_are_refused(tmp_path: Path) -> None:
    (tmp_path / "root").symlink_to("/")
    for path in (Path("/"), tmp_path / "root", Path("/proc/self")):
        with pytest.raises(Invalid, match="would open /"):
            wrap(["true"], tmp_path, Sandbox("bwrap", writable=(path,)))
    with pytest.raises(Invalid, match="does not exist"):
        wrap(["true"], tmp_path, Sandbox("bwrap", writable=(tmp_path / "nowhere",)))


@needs_bubblewrap
def test_only_the_workspace_and_named_paths_can_be_written(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    workspace, cache, other = (tmp_path / name for name in ("workspace", "cache", "other"))
    for folder in (workspace, cache, other):
        folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(workspace)
    sandbox = Sandbox("bwrap", writable=(cache,))
    script = f"echo a > here && echo b > {cache}/there && echo c > /tmp/mine && pwd -P"
    said, ended = output(supervisor, script, link, sandbox)
    assert ended == Exit() and said.strip() == str(workspace.resolve())
    assert (workspace / "here").read_text() == "a\n" and (cache / "there").read_text() == "b\n"
    assert not Path("/tmp/mine").exists(), "/tmp is a private one"
    outside = Path(__file__).resolve()
    before = outside.read_bytes()
    said, ended = output(supervisor, f"echo '#' >> {outside}", workspace, sandbox)
    assert ended is not None and not ended.clean and said
    assert outside.read_bytes() == before
    said, ended = output(supervisor, f"touch {other}/file", workspace, sandbox)
    assert ended is not None and not ended.clean and not list(other.iterdir())


@needs_bubblewrap
def test_the_network_is_there_only_if_allowed(supervisor: Supervisor, tmp_path: Path) -> None:
    script = "tail -n +3 /proc/net/dev | cut -d: -f1 | sort"
    without, _ = output(supervisor, script, tmp_path, Sandbox("bwrap", network=False))
    assert without.split() == ["lo"]
    with_network, _ = output(supervisor, script, tmp_path, BOXED)
    assert len(with_network.split()) >= len(without.split())
    namespace = Path("/proc/self/ns/net").readlink()
    inside, _ = output(supervisor, "readlink /proc/self/ns/net", tmp_path, BOXED)
    assert inside.strip() == str(namespace)


@needs_bubblewrap
def test_other_processes_cannot_be_seen(supervisor: Supervisor, tmp_path: Path) -> None:
    said, ended = output(supervisor, "ls /proc | grep -c '^[0-9]'; kill -0 $PPID", tmp_path, BOXED)
    assert int(said.split()[0]) <= 5, "its own few, in a namespace of its own"
    assert ended == Exit()


@needs_bubblewrap
def test_exit_codes_pass_through_and_a_missing_program_is_named(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    assert output(supervisor, "exit 42", tmp_path, BOXED) == ("", Exit(42))
    with pytest.raises(Invalid, match="'no-such-program' was not found"):
        supervisor.start(["no-such-program"], env=PLAIN, cwd=tmp_path, sandbox=BOXED)


@needs_bubblewrap
def test_signals_reach_the_agent_not_the_sandbox(supervisor: Supervisor, tmp_path: Path) -> None:
    """Bubblewrap itself dies of SIGTERM at once, and everything inside with it, uncleaned."""
    argv = unruly("polite", tmp_path)
    child = supervisor.start(argv, env={}, cwd=tmp_path, sandbox=BOXED)
    with contextlib.closing(child):
        lines(child.stdout, 2)
        child.terminate()
        assert everything(child.stdout) == b"child cleaned up\ncleaned up\n"
        assert exit_of(child) == Exit(7) and child.wait_gone(SURVIVAL_SECONDS)


@needs_bubblewrap
@pytest.mark.parametrize("act", ["kill", "close"])
def test_nothing_inside_survives(supervisor: Supervisor, tmp_path: Path, act: str) -> None:
    argv = unruly("stubborn", tmp_path)
    child = supervisor.start(argv, env={}, cwd=tmp_path, sandbox=BOXED)
    with contextlib.closing(child):
        lines(child.stdout, 3)
        pids = processes_of_namespace(child.pid)
        assert len(pids) >= 4, "process 1, and the three that said they were there"
        with Watched([child.pid, *pids]) as watched:
            getattr(child, act)()
            assert watched.all_end()


def processes_of_namespace(wrapper: int) -> list[int]:
    """Those inside, seen from outside: bubblewrap's child is process 1 there."""
    first = int(Path(f"/proc/{wrapper}/task/{wrapper}/children").read_text().split()[0])
    space = Path(f"/proc/{first}/ns/pid").readlink()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if (folder / "ns/pid").readlink() == space:
                    found.append(int(folder.name))
    return found
