"""Ledger, artifacts, keys and sockets are their owner's alone, whatever the umask says."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentq import private_files
from agentq.delivery.local.doorbell import SocketDoorbell
from tests.interfaces.conftest import doctor_checks, run_here, run_program
from tests.servers.machine import NOBODY, as_nobody


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """The modes of everything below a folder."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        found[str(path.relative_to(folder))] = stat.S_IMODE(path.lstat().st_mode)
    return found


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277], ids=lambda mask: f"umask {mask:04o}")
def filled(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """An installation in which everything was made under such a umask."""
    here = tmp_path / "project"
    here.mkdir(0o755)
    monkeypatch.chdir(here)
    monkeypatch.setenv("USER", "alice")
    with umask(request.param):
        fill(here)
        waiter = SocketDoorbell(here / ".agentq" / "ledger.db.bells").listen(["a"])
    yield here
    waiter.close()


def fill(here: Path) -> None:
    """Leave everything that an installation leaves."""
    run_here("init").ok()
    (here / "task-1.md").write_text("Do it.")
    (here / "task-1.md").chmod(0o600)
    run_here("submit", "--to", "w", "--file", "task-1.md").ok()
    run_here("claim", "task-1").ok()
    put = ("artifacts", "put", "task-1", "-", "--name", "patch", "--epoch", "1")
    run_here(*put, stdin="x").ok()
    run_here("complete", "task-1", "--epoch", "1").ok()
    run_here("db", "backup", str(here / ".agentq" / "copy.db")).ok()


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o277], ids=lambda mask: f"umask {mask:04o}")
def test_a_user_without_greater_rights_gets_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    """Not even a umask that takes the owner's own rights keeps agentq from its files."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path)  # imports all that nobody may not read on some machines
    run_here("artifacts", "get", "task-1", "patch").ok()
    run_here("verify").ok()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, NOBODY, NOBODY)
        monkeypatch.chdir(folder)
        with as_nobody(), umask(mask):
            fill(Path(folder))
            assert run_here("artifacts", "get", "task-1", "patch").ok().out == "x"
            run_here("verify").ok()
        found = modes(Path(folder) / ".agentq")
        assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}
        monkeypatch.chdir("/")


def test_nothing_is_open_to_others(filled: Path) -> None:
    found = modes(filled / ".agentq")
    kinds = {name.split("/")[0] for name in found}
    assert kinds >= {"ledger.db", "ledger.db.bells", "artifacts", "tasks", "copy.db"}
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}
    assert all(mode & 0o400 for mode in found.values()), "and their owner can read it"


def test_what_sqlite_keeps_beside_the_ledger(home: Path) -> None:
    import apsw

    with umask(0):
        opened = apsw.Connection(str(home / ".agentq" / "ledger.db"))
        opened.execute("BEGIN IMMEDIATE; UPDATE roles SET id = id; COMMIT")
        names = {"ledger.db-wal", "ledger.db-shm"}
        found = {name: mode for name, mode in modes(home / ".agentq").items() if name in names}
        opened.close()
    assert found == dict.fromkeys(names, 0o600)


def open_up(home: Path) -> list[Path]:
    """Give everything to everybody, as an earlier version under a wide umask did."""
    opened = [home / ".agentq", *(home / ".agentq").iterdir()]
    for path in opened:
        path.chmod(0o777 if path.is_dir() else 0o666)
    return opened


class TestWhatWasOpenBefore:
    def test_doctor_names_it_with_a_command_that_mends_it(self, home: Path) -> None:
        reachable(home)
        assert doctor_checks()["files"]["status"] == "ok"
        open_up(home)
        found = doctor_checks()["files"]
        assert found["status"] == "warning" and "read and write" in found["detail"]
        assert f"{home}/.agentq (0777)" in found["detail"]
        command = found["remedy"].split("`")[1]
        assert command == f"chmod -R go-rwx {home}/.agentq", "all else is below it"
        assert os.system(command) == 0  # noqa: S605 - what a person would type
        assert doctor_checks()["files"]["status"] == "ok"
        assert not any(mode & 0o077 for mode in modes(home / ".agentq").values())

    def test_a_ledger_in_a_folder_of_somebody_elses(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reachable(tmp_path)
        monkeypatch.chdir(tmp_path)
        run_here("--url", f"sqlite:///{tmp_path}/my ledger.db", "init").ok()
        assert doctor_checks()["files"]["status"] == "ok"
        (tmp_path / "my ledger.db").chmod(0o664)
        (tmp_path / "my ledger.db.clock").chmod(0o664)
        found = doctor_checks()["files"]
        assert found["status"] == "warning"
        command = found["remedy"].split("`")[1]
        assert command == f"chmod -R go-rwx '{tmp_path}/my ledger.db'*"
        assert os.system(command) == 0  # noqa: S605 - what a person would type
        assert doctor_checks()["files"]["status"] == "ok"

    def test_init_takes_it_back_and_says_so(self, home: Path) -> None:
        reachable(home)
        open_up(home)
        changed = run_here("init", "--json").ok().json()["changed"]
        assert f"other users may not read {home}/.agentq any more" in changed
        assert modes(home / ".agentq")["."] == 0o700
        assert run_here("init", "--json").ok().json()["changed"] == []

    def test_a_worker_takes_it_back_and_says_so(self, home: Path) -> None:
        reachable(home)
        run_here("submit", "--to", "w", "--instructions", "x").ok()
        open_up(home)
        worker = run_program("worker", "w", "--tasks", "1", "--", "true", cwd=home).ok()
        assert "other users could read or write these until now" in worker.err
        assert f"{home}/.agentq" in worker.err and modes(home / ".agentq")["."] == 0o700

    def test_a_folder_with_other_things_in_it_keeps_its_mode(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reachable(tmp_path)
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o755)
        monkeypatch.chdir(tmp_path)
        with umask(0):
            run_here("init", "--artifacts", str(shared)).ok()
            (tmp_path / "task-1.md").write_text("Do it.")
            run_here("submit", "--to", "w", "--file", "task-1.md").ok()
        assert stat.S_IMODE(shared.stat().st_mode) == 0o755
        assert {name: mode & 0o077 for name, mode in modes(shared).items() if name != "."} == {
            name: 0 for name in modes(shared) if name != "."
        }

    def test_what_belongs_to_somebody_else_is_named_and_left(self, home: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("Giving a file away needs root.")
        reachable(home)
        (home / ".agentq").chmod(0o755)
        theirs = home / ".agentq" / "tasks"
        theirs.mkdir(exist_ok=True)
        os.chown(theirs, NOBODY, NOBODY)
        theirs.chmod(0o700)
        found = doctor_checks()["files"]
        assert f"user {NOBODY}, who owns it, may read and write {theirs}" in found["detail"]
        assert f"chown -R 0 {theirs}" in found["remedy"]
        assert str(theirs) not in private_files.tighten([str(theirs)])


def test_settings_that_others_may_change(home: Path) -> None:
    reachable(home)
    assert doctor_checks()["agentq.toml"]["status"] == "ok"
    (home / "agentq.toml").chmod(0o666)
    found = doctor_checks()["agentq.toml"]
    assert found["status"] == "warning" and "agentq.toml (0666)" in found["detail"]
    (home / "agentq.toml").chmod(0o644)
    home.chmod(0o777)  # they could put another file in its place
    assert f"{home} (0777)" in doctor_checks()["agentq.toml"]["detail"]
    home.chmod(0o1777)  # but not where all keep what is theirs
    assert doctor_checks()["agentq.toml"]["status"] == "ok"


def reachable(folder: Path) -> None:
    """Let others come as far as this folder, whatever the temporary folder of the tests says."""
    for path in (folder, *folder.parents):
        if path.stat().st_uid == os.geteuid() and str(path) not in ("/", "/tmp"):
            path.chmod(path.stat().st_mode | 0o055)


class TestAttack:
    """Another user of the machine, who may enter the project's folder."""

    def test_reads_nothing_and_rings_nobody(self, filled: Path) -> None:
        reachable(filled)
        bells = filled / ".agentq" / "ledger.db.bells"
        (socket_file,) = bells.iterdir()
        # Even if the folders above them were open,
        for folder in (filled / ".agentq", bells, filled / ".agentq" / "artifacts"):
            folder.chmod(0o755)
        files = [path for path in (filled / ".agentq").rglob("*") if path.is_file()]
        assert len(files) >= 4
        os.chdir(bells)  # their whole path is too long for an address
        with as_nobody():
            for path in files:
                with pytest.raises(PermissionError):
                    path.read_bytes()
            with (
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller,
                pytest.raises(PermissionError),
            ):
                caller.sendto(b"a", socket_file.name)

    def test_a_link_is_not_followed_when_modes_are_taken_back(self, tmp_path: Path) -> None:
        reachable(tmp_path)
        target = tmp_path / "theirs"
        target.write_text("x")
        target.chmod(0o644)
        link = tmp_path / ".token-key"
        link.symlink_to(target)
        assert private_files.tighten([str(link)]) == []
        assert stat.S_IMODE(target.stat().st_mode) == 0o644
