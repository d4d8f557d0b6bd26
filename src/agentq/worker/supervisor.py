"""The supervisor: a small program beside the worker that keeps every process an agent starts.

Killing a process group misses children that called `setsid`; watching a parent misses orphans; and
a worker killed by `kill -9` cannot clean up at all. So each attempt gets a *reaper*: a process that
is a subreaper (whatever is orphaned below it becomes its own child) and holds one end of a socket
whose other end the worker has. When the worker says so, or is gone (the socket ends), the reaper
ends the tree: its children die, theirs become its own, and so on until it has none left. That it
has none is the kernel's word, not a guess. Should a reaper itself be killed, its orphans come to
the supervisor, which ends them the same way.

The supervisor runs as a program of its own, with the standard library only: it must be small and
have one thread, because it forks for every attempt. Its second argument is not for itself: by it
`agentq.client.ancestry` tells that a process runs inside an attempt, and of which ledger.

`agentq.worker.processes` sends it requests, one packet each: the open files `CONTROL, REQUEST,
STDIN, STDOUT, STDERR` and perhaps `LOCK`, which is kept open until nothing of the tree is left (see
`agentq.worker.workspace_locks`); the packet itself is their number. REQUEST holds, separated by
NUL: how many wrappers stand between the reaper and the agent, the folder, the number of arguments,
the arguments, and the environment as `NAME=value`.

Sent on CONTROL, to the worker: `started REAPER AGENT` or `failed STEP ERRNO`, then `exit CODE
SIGNAL` for the agent itself, then `gone` when nothing of its tree is left. From the worker: `T`
(SIGTERM to the tree), `K` (SIGKILL to the tree).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator

#: How long a tree may take to clean up after SIGTERM once nobody waits for it any more.
GRACE_SECONDS = 1.0
#: After the worker's end, reapers have this long; then the supervisor ends them and their trees.
REAPERS_GRACE_SECONDS = 2.5
FILES_PER_REQUEST = 5
_FILES_MAX = FILES_PER_REQUEST + 1
#: A tree that grows faster than it is listed must not keep the listing busy for ever.
_WALK_MAX = 20_000
_PAUSE_MAX_SECONDS = 0.05

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_OURS_TO_IGNORE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
#: Whoever started the worker may have ignored any of them; an agent gets the defaults.
_BACK_TO_NORMAL = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}

_prctl = ctypes.CDLL(None).prctl


# -- looking at processes --------------------------------------------------------------------------


def children_of(pid: int) -> list[int]:
    """The children of a process, oldest first; none if it is gone."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:
        if not os.access("/proc/thread-self/children", os.F_OK):
            return children_by_scan(pid)  # a kernel without these files
    return found


def children_by_scan(pid: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                # The name of the program comes before, and may hold anything, also `) R 1`.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # gone since we listed it
        if fields and int(fields[1]) == pid:
            found.append(int(name))
    return sorted(found)


def below(level: Iterable[int]) -> list[int]:
    return [child for parent in level for child in children_of(parent)]


def _tree(top: list[int]) -> Iterator[int]:
    """These processes and all below, parents first, so that none starts a killed child again."""
    level, seen = top, 0
    while level and seen < _WALK_MAX:
        seen += len(level)
        under = below(level)
        yield from level
        level = under


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # it ended just now; or it became somebody else, whom we may not touch


# -- waiting ---------------------------------------------------------------------------------------


class _Poller:
    """Sleeps until a file is readable, a child ends, or a time is up."""

    def __init__(self, file: int) -> None:
        self._poll = select.poll()
        self._file = file
        self._poll.register(file, select.POLLIN)
        self._children, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._children, select.POLLIN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def listen(self, seconds: float | None) -> bool:
        """Sleep for up to `seconds`; return whether the file is readable."""
        ready = self._poll.poll(None if seconds is None else max(seconds, 0) * 1000)
        is_readable = False
        for number, _ in ready:
            if number == self._children:
                os.read(number, 4096)
            else:
                is_readable = True
        return is_readable

    def forget(self) -> None:
        self._poll.unregister(self._file)


def _send(control: int, message: str) -> None:
    try:
        os.write(control, message.encode())
    except OSError:
        return  # the worker has let go of this attempt; its end is seen where we read


# -- one attempt -----------------------------------------------------------------------------------


def _launch(fields: list[bytes], stdio: list[int]) -> tuple[int, str]:
    """Start the agent in a session of its own; its pid, and else the failed step and its errno."""
    folder, count = fields[1], int(fields[2])
    argv = fields[3 : 3 + count]
    env = dict(item.split(b"=", 1) for item in fields[3 + count :])
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    try:
        agent = os.fork()
    except OSError as error:
        return 0, f"fork {error.errno}"
    if agent == 0:
        step = "folder"
        try:
            _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
            os.setsid()
            for number in _BACK_TO_NORMAL:
                signal.signal(number, signal.SIG_DFL)
            os.chdir(folder)
            for place, file in enumerate(stdio):
                os.dup2(file, place)
            step = "program"
            os.execvpe(argv[0], argv, env)  # noqa: S606 - the words come as a list, from the worker
        except OSError as error:
            os.write(write_end, f"{step} {error.errno}".encode())
        finally:
            os._exit(127)
    os.close(write_end)
    failure = os.read(read_end, 100).decode()  # empty when it has become the program
    os.close(read_end)
    if failure:
        os.waitpid(agent, 0)
    return agent, failure


class _Reaper:
    """Owns one agent and whatever it starts, until nothing of it is left."""

    def __init__(self, control: int, agent: int, wrappers: int) -> None:
        self._control = control
        self._agent = agent
        self._wrappers = wrappers
        self._kill_at: float | None = None
        self._pause = 0.001
        self._poller = _Poller(control)

    def watch(self) -> None:
        while self._reap():
            if self._poller.listen(self._timeout()):
                self._read_command()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                # Only our own children, whose numbers nobody else can be given before we reap
                # them. Their children are ours a moment later, and die in the next round.
                for pid in children_of(os.getpid()):
                    _signal(pid, signal.SIGKILL)
        _send(self._control, "gone")

    def _timeout(self) -> float | None:
        if self._kill_at is None:
            return None
        left = self._kill_at - time.monotonic()
        if left > 0:
            return left
        self._pause = min(self._pause * 2, _PAUSE_MAX_SECONDS)
        return self._pause

    def _reap(self) -> bool:
        """Reap children that ended; False once there is no child at all."""
        has_agent_ended = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                break
            if pid == self._agent:
                has_agent_ended = True
                self._agent = -1  # the kernel may give its number to another child
                code = os.waitstatus_to_exitcode(status)
                _send(self._control, f"exit {max(code, 0)} {max(-code, 0)}")
        if has_agent_ended:
            self._end()
        return True

    def _read_command(self) -> None:
        try:
            command = os.read(self._control, 16)
        except OSError:
            command = b""
        if command == b"T":
            self._terminate()
        elif command == b"K":
            self._kill_at = time.monotonic()
        elif not command:  # the worker has closed it, or is dead
            self._poller.forget()
            self._end()

    def _end(self) -> None:
        self._terminate()
        soon = time.monotonic() + GRACE_SECONDS
        self._kill_at = soon if self._kill_at is None else min(self._kill_at, soon)

    def _top(self) -> list[int]:
        """The agent and adopted orphans; not the sandbox around them, which would die first."""
        level = children_of(os.getpid())
        for _ in range(self._wrappers):
            level = below(level)
        return level

    def _terminate(self) -> None:
        for pid in _tree(self._top()):
            _signal(pid, signal.SIGTERM)
            _signal(pid, signal.SIGCONT)  # a stopped process hears nothing until it goes on


def _run_reaper(control: int, request: int, stdio: list[int], locks: list[int]) -> None:
    """Start an agent and own it, in a process of its own."""
    # The supervisor's wakeup pipe: its number may next belong to a file of the agent.
    signal.set_wakeup_fd(-1)
    kept = {0, 1, 2, control, request, *stdio, *locks}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the one that the listing itself had open
                os.close(int(name))
    os.setsid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_NAME, b"agentq-reaper")
    with open(request, "rb") as file:
        fields = file.read().split(b"\0")
    agent, failure = _launch(fields, stdio)
    if failure:
        _send(control, f"failed {failure}")
        return
    for file_number in stdio:
        os.close(file_number)  # or the worker would never see the end of the output
    reaper = _Reaper(control, agent, wrappers=int(fields[0]))
    _send(control, f"started {os.getpid()} {agent}")
    del fields
    reaper.watch()


# -- the supervisor ----------------------------------------------------------------------------


class _SupervisorProcess:
    """Starts reapers, and ends what a killed reaper leaves behind."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        #: CONTROL, and perhaps LOCK, by the pid of its reaper: for a reaper that was killed, we
        #: send `gone`.
        self._reapers: dict[int, list[int]] = {}
        #: The same of reapers that were killed and left orphans.
        self._unfinished: list[list[int]] = []
        self._ends_at: float | None = None
        self._pause = 0.001
        self._poller = _Poller(requests.fileno())

    def watch(self) -> None:
        while True:
            self._reap()
            if self._unfinished:
                self._end_orphans()
            if self._ends_at is not None:
                if not self._reapers and not self._unfinished:
                    return
                if time.monotonic() >= self._ends_at:
                    for pid in self._reapers:
                        _signal(pid, signal.SIGKILL)
            if self._poller.listen(self._timeout()):
                self._serve()

    def _timeout(self) -> float | None:
        if self._unfinished:
            self._pause = min(self._pause * 2, _PAUSE_MAX_SECONDS)
            return self._pause
        self._pause = 0.001
        if self._ends_at is None:
            return None
        return max(self._ends_at - time.monotonic(), _PAUSE_MAX_SECONDS)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                _signal(pid, signal.SIGCONT)  # an agent may have stopped its own reaper
                continue
            files = self._reapers.pop(pid, [])
            if files and status == 0:
                _close(files)
            elif files:
                self._unfinished.append(files)

    def _orphans(self) -> list[int]:
        return [pid for pid in children_of(os.getpid()) if pid not in self._reapers]

    def _end_orphans(self) -> None:
        orphans = self._orphans()
        for pid in orphans:
            _signal(pid, signal.SIGKILL)
        # The kernel's list may skip one while others leave it: we look twice.
        if not orphans and not self._orphans():
            for files in self._unfinished:
                _send(files[0], f"exit 0 {int(signal.SIGKILL)}")
                _send(files[0], "gone")
                _close(files)
            self._unfinished.clear()

    def _serve(self) -> None:
        try:
            data, files, _, _ = socket.recv_fds(self._requests, 16, _FILES_MAX)
        except ConnectionError:
            data, files = b"", []
        for file in files:
            os.set_inheritable(file, False)  # what came through a socket would pass to the agent
        if not data:  # the worker is gone
            self._poller.forget()
            self._ends_at = time.monotonic() + REAPERS_GRACE_SECONDS
            return
        if len(files) == int(data):
            self._start_reaper(files)
        elif files:  # some were lost on the way: we may have too many open
            _send(files[0], f"failed fork {int(errno.EMFILE)}")
            _close(files)

    def _start_reaper(self, files: list[int]) -> None:
        control, request, *stdio = files[:FILES_PER_REQUEST]
        locks = files[FILES_PER_REQUEST:]
        try:
            pid = os.fork()
        except OSError as error:
            _send(control, f"failed fork {error.errno}")
            _close(files)
            return
        if pid == 0:
            status = 1
            try:
                _run_reaper(control, request, stdio, locks)
                status = 0
            except BaseException:  # noqa: BLE001 - a process of its own: the worker reads stderr
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        _close([request, *stdio])
        self._reapers[pid] = [control, *locks]


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


def main(requests: int) -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_NAME, b"agentq-superv")
    # Agents run as the same user: this closes our memory and environment to them.
    _prctl(_PR_SET_DUMPABLE, 0)
    for number in _OURS_TO_IGNORE:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Every reaper is a copy of this process: what is never touched is never copied.
    gc.disable()
    gc.freeze()
    _SupervisorProcess(socket.socket(fileno=requests)).watch()


if __name__ == "__main__":
    main(int(sys.argv[1]))
