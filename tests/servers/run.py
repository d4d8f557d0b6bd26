"""One set of servers for a whole test run, however many processes the run has.

The first process of a run makes a folder and holds a pipe in it open. Whichever process first needs
a server starts it under a lock and leaves its description in that folder; the others read it. When
the first process ends, the pipe closes and the guard of each server takes it down.

Each test has a database, virtual host or folder of its own and shares the server with tests of
other processes. A test that disturbs the server itself (restarts it, fills it, cuts connections)
holds it alone: see `hold`.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from tests.eventually import eventually

#: Tells the other processes of a run where its folder is.
VARIABLE = "SERVERS_OF_THE_RUN"
#: The kinds of servers, in the order in which a test takes hold of them: one order for all tests,
#: so that no two ever wait for each other.
KINDS = ("postgres", "rabbitmq", "s3")
STOP_SECONDS_MAX = 30
#: A disk in memory, and how much must be free there.
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 * 10**9

Server = TypeVar("Server")


class TestRun:
    """The servers of one run, as one of its processes sees them."""

    __test__ = False

    def __init__(self, folder: Path, alive: int | None = None) -> None:
        self.folder = folder
        self._alive = alive
        self._notes = folder / "notes"
        self._known: dict[str, object] = {}
        #: What the test that runs now may use.
        self.held: dict[str, bool] = {}

    @classmethod
    def begin(cls) -> TestRun:
        """In the first process of a run."""
        folder = Path(tempfile.mkdtemp(prefix="agentq-run-", dir=short_temporary_folder()))
        folder.chmod(0o755)  # servers may run as another user
        (folder / "notes").mkdir()
        os.mkfifo(folder / "notes" / "alive")
        os.environ[VARIABLE] = str(folder)
        return cls(folder, os.open(folder / "notes" / "alive", os.O_RDWR))

    @classmethod
    def join(cls) -> TestRun:
        """In a process that the first one started."""
        return cls(Path(os.environ[VARIABLE]))

    @contextmanager
    def alive(self) -> Iterator[int]:
        """The end of the pipe that a guard reads."""
        descriptor = os.open(self._notes / "alive", os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def server(self, kind: str, start: Callable[[TestRun], Server]) -> Server:
        """The server of this kind; started if it is not there yet."""
        if kind not in self._known:
            note = self._notes / f"{kind}.server"
            with self._locked(f"{kind}.start", fcntl.LOCK_EX):
                if note.exists():
                    self._known[kind] = pickle.loads(note.read_bytes())  # noqa: S301 - our own
                else:
                    self._known[kind] = start(self)
                    note.write_bytes(pickle.dumps(self._known[kind]))
        return self._known[kind]  # type: ignore[return-value]

    @contextmanager
    def hold(self, wanted: Mapping[str, bool]) -> Iterator[None]:
        """Use servers of these kinds; True: alone, while no test of another process uses it."""
        with ExitStack() as locks:
            for kind in KINDS:
                if kind in wanted:
                    # Who wants it alone waits at the turnstile, and no newcomer passes.
                    mode = fcntl.LOCK_EX if wanted[kind] else fcntl.LOCK_SH
                    with self._locked(f"{kind}.turnstile", fcntl.LOCK_EX):
                        locks.enter_context(self._locked(f"{kind}.hold", mode))
            self.held = dict(wanted)
            try:
                yield
            finally:
                self.held = {}

    def end(self) -> None:
        """Let every guard take its server down, and wait until they have."""
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None
            eventually(
                lambda: not any(self._server_folders()),
                STOP_SECONDS_MAX,
                f"the end of the test servers in {self.folder}",
            )
            shutil.rmtree(self.folder, ignore_errors=True)

    def _server_folders(self) -> Iterator[Path]:
        yield from self.folder.glob("agentq-*")
        yield from MEMORY.glob(f"{self.folder.name}-*")

    @contextmanager
    def _locked(self, name: str, mode: int) -> Iterator[None]:
        descriptor = os.open(self._notes / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, mode)
            yield
        finally:
            # A child that was forked meanwhile has the descriptor too: closing would not suffice.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def short_temporary_folder() -> str:
    """A Unix socket's path holds about 100 bytes, which a long TMPDIR would exceed."""
    folder = tempfile.gettempdir()
    return folder if len(folder) <= 50 else "/tmp"


def server_folder(prefix: str, run: TestRun | None) -> Path:
    """An empty folder for a server: in that of the run, or by itself."""
    parent = short_temporary_folder() if run is None else str(run.folder)
    return Path(tempfile.mkdtemp(prefix=f"agentq-{prefix}-", dir=parent))


def memory_folder(prefix: str, run: TestRun | None) -> Path:
    """The same, on a disk in memory if there is one with enough room.

    A server that syncs what it writes does so there too, and waits for nobody's disk.
    """
    try:
        disk = os.statvfs(MEMORY)
    except OSError:
        return server_folder(prefix, run)
    if disk.f_bavail * disk.f_frsize < MEMORY_BYTES_MIN or disk.f_flag & os.ST_NOEXEC:
        return server_folder(prefix, run)
    name = "agentq" if run is None else run.folder.name
    return Path(tempfile.mkdtemp(prefix=f"{name}-{prefix}-", dir=MEMORY))
