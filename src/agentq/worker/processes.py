"""Starts and owns agent processes: the worker's side of `worker/supervisor.py`.

A `Supervisor` starts processes from any thread; each is an `AgentProcess` with its output to read
and its tree to end. Nothing here blocks on an agent: output is read by whoever waits on the child's
files, input lies in a file before the agent starts, and its end is reported through `status_fd`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from agentq.contracts.agent import Exit
from agentq.core.errors import AgentqError, Invalid, Unavailable
from agentq.worker.sandbox import BWRAP_PROCESSES, Sandbox, wrap

#: What may wait for an agent that does not read its standard input.
UNSENT_MAX_BYTES = 8 * 1024 * 1024

_PROGRAM = Path(__file__).with_name("supervisor.py")
_START_SECONDS = 30.0
_CLOSE_SECONDS = 6.0
#: Files on their way through a socket count against a limit of the kernel; a start sends six.
_STARTS_AT_ONCE = 16
_MESSAGE_MAX_BYTES = 256
_SHOWN_MAX = 200
_LAST_WORDS_MAX_BYTES = 2000


class AgentProcess:
    """One agent and all that it started.

    Reading, writing and `close` belong to one thread; `terminate` and `kill` may come from any.
    Closing it, also by the end of the worker, ends what is left of the tree.
    """

    def __init__(self, control: socket.socket, stdin: int, stdout: int, stderr: int) -> None:
        self._control = control
        self._status_lock = threading.Lock()
        self._exit: Exit | None = None
        self._gone = False
        self._lost = False
        self._unsent = b""
        self._reaper = 0
        self.pid = 0
        #: Non-blocking; -1 once closed. `stdin` is -1 from the start unless it is kept open.
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr

    # -- its end -----------------------------------------------------------------------------------

    @property
    def status_fd(self) -> int:
        """Readable when `poll` or `gone` changes, and for ever after; -1 once closed."""
        return self._control.fileno()

    def poll(self) -> Exit | None:
        """How the agent itself ended; None while it runs. Others of its tree may still live."""
        self._read_status()
        return self._exit

    @property
    def gone(self) -> bool:
        """Whether no process of its tree is left."""
        self._read_status()
        if self._lost and not self._gone:
            # Nobody is left who could report it: both reaper and supervisor were killed. The kernel
            # ends the agent itself then.
            self._gone = not os.access(f"/proc/{self.pid}", os.F_OK)
        return self._gone

    def wait_gone(self, timeout: float) -> bool:
        """Wait until no process of its tree is left; False if some are after so many seconds."""
        deadline = time.monotonic() + timeout
        while not self.gone:
            left = deadline - time.monotonic()
            if left <= 0 or self.status_fd < 0:
                return False
            if self._lost:
                time.sleep(0.01)  # no message will come any more: look again
                continue
            waiting = select.poll()
            waiting.register(self.status_fd, select.POLLIN)
            waiting.poll(left * 1000)
        return True

    def _read_status(self) -> None:
        """Read the status messages of the reaper that came since the last call."""
        with self._status_lock:
            while not self._gone and not self._lost:
                try:
                    message = self._control.recv(_MESSAGE_MAX_BYTES, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return
                except OSError:
                    message = b""  # closed by us, or reset
                match message.decode().split():
                    case ["exit", code, number] if self._exit is None:
                        self._exit = Exit(int(code), int(number))
                    case ["gone"]:
                        self._gone = True
                    case []:
                        self._lost = True
                        self._exit = self._exit or Exit(signal=int(signal.SIGKILL))

    # -- ending it ---------------------------------------------------------------------------------

    def terminate(self) -> None:
        """SIGTERM to the whole tree."""
        self._send(b"T")

    def kill(self) -> None:
        """SIGKILL to the whole tree, again and again until nothing is left."""
        self._send(b"K")

    def _send(self, word: bytes) -> None:
        if self._gone or self._lost:
            return
        with contextlib.suppress(OSError):  # it ended just now: what was asked for has happened
            self._control.send(word, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Close its files; the reaper ends what is left of its tree."""
        for name in ("stdin", "stdout", "stderr"):
            self._close_file(name)
        self._control.close()

    def _close_file(self, name: str) -> None:
        number = getattr(self, name)
        setattr(self, name, -1)
        if number >= 0:
            os.close(number)

    # -- its standard input ------------------------------------------------------------------------

    @property
    def unsent(self) -> int:
        """How many bytes still wait to be written: `flush` when `stdin` is writable."""
        return len(self._unsent)

    def send(self, data: bytes) -> None:
        """Write to its standard input: at once what fits, the rest by `flush`."""
        if self.stdin < 0:
            return  # it has closed its standard input
        if len(self._unsent) + len(data) > UNSENT_MAX_BYTES:
            raise Unavailable(
                f"The agent does not read its standard input: {len(self._unsent)} bytes wait.",
                "See with `agentq logs` what it does instead.",
            )
        self._unsent += data
        self.flush()

    def flush(self) -> None:
        """Write what the pipe takes now."""
        try:
            while self._unsent and self.stdin >= 0:
                written = os.write(self.stdin, self._unsent)
                self._unsent = self._unsent[written:]
        except BlockingIOError:
            return
        except OSError:
            self.close_stdin()  # the agent has closed its end

    def close_stdin(self) -> None:
        self._unsent = b""
        self._close_file("stdin")


class Supervisor:
    """Starts agents so that none outlives the worker. One per worker process; use it as `with`.

    `mark` stands in its command line, where every process below it can read whose agent it is.
    """

    def __init__(self, mark: str = "") -> None:
        self._mark = mark
        self._starts = threading.BoundedSemaphore(_STARTS_AT_ONCE)
        self._children: weakref.WeakSet[AgentProcess] = weakref.WeakSet()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        #: What the supervisor writes to its standard error.
        self._errors = os.fdopen(os.memfd_create("agentq-supervisor-errors"), "w+b", buffering=0)
        words = [sys.executable, "-I", "-S", str(_PROGRAM), str(theirs.fileno()), mark]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    cwd="/",
                )
            except OSError as error:
                self._requests.close()
                self._errors.close()
                raise Unavailable(
                    f"The worker could not start {sys.executable}: {error.strerror}.",
                    "Free some memory or processes, and start the worker again.",
                ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close all agent processes, and wait some seconds at most until their trees are gone."""
        for child in list(self._children):
            child.close()
        self._requests.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            # Something will not die (a hung disk, another user's process). Reapers stay with it.
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdin: bytes = b"",
        keep_stdin: bool = False,
        sandbox: Sandbox | None = None,
        lock: int = -1,
    ) -> AgentProcess:
        """Start a program with exactly this environment; `argv[0]` is looked up in its PATH.

        `stdin` is what it reads, and then the end of it; with `keep_stdin` its standard input stays
        open for `AgentProcess.send`. The file `lock` is kept open, also after the worker's end,
        until nothing of the program's tree is left.
        """
        request = _request(argv, env, cwd, sandbox, self._mark)
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.callback(near.close)
            theirs.callback(far.close)
            if keep_stdin:
                in_read, in_write = _pipe(theirs, ours)
                os.set_blocking(in_write, False)
            else:
                in_read, in_write = _file_with(stdin, theirs), -1
            out_read, out_write = _pipe(ours, theirs)
            error_read, error_write = _pipe(ours, theirs)
            os.set_blocking(out_read, False)
            os.set_blocking(error_read, False)
            child = AgentProcess(near, in_write, out_read, error_read)
            files = [far.fileno(), _file_with(request, theirs), in_read, out_write, error_write]
            files += [lock] if lock >= 0 else []
            with self._starts:
                self._send_request(files)
                theirs.close()  # the supervisor has its own; while ours are open we see no end
                answer = _answer(near)
            match answer:
                case ["started", reaper, agent]:
                    child._reaper, child.pid = int(reaper), int(agent)  # noqa: SLF001
                case ["failed", step, number]:
                    raise _failure(step, int(number), argv, cwd)
                case _:
                    raise self._dead()
            ours.pop_all()
        if keep_stdin:
            child._unsent = stdin  # noqa: SLF001 - larger than a pipe, perhaps: written as it reads
            child.flush()
        self._children.add(child)
        return child

    def _send_request(self, files: list[int]) -> None:
        if self._requests.fileno() < 0:
            raise Unavailable("The supervisor is closed: no process can be started any more.")
        try:
            socket.send_fds(self._requests, [str(len(files)).encode()], files)
        except OSError as error:
            raise self._dead() from error

    def _dead(self) -> Unavailable:
        words = b""
        if not self._errors.closed:
            file = self._errors.fileno()
            start = max(0, os.fstat(file).st_size - _LAST_WORDS_MAX_BYTES)
            # Not by seeking: that would move the position at which the supervisor writes.
            words = os.pread(file, _LAST_WORDS_MAX_BYTES, start)
        quoted = f" Its last words: {words.decode(errors='replace').strip()}" if words else ""
        return Unavailable(
            "The process that starts agents for this worker did not answer, or was killed."
            f"{quoted}",
            "Start the worker again; its tasks are taken up again by themselves.",
        )


# -- what goes to the supervisor, and what comes back ------------------------------------------


def _request(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, sandbox: Sandbox | None, mark: str
) -> bytes:
    if not argv or not argv[0]:
        raise Invalid("A command has at least one word, the program; got none.")
    wrappers = 0
    if sandbox is not None and sandbox.kind != "none":
        # Inside, a missing program would be one more exit code; here it has a name.
        program = cwd / argv[0] if "/" in argv[0] else argv[0]
        if shutil.which(program, path=env.get("PATH", os.defpath)) is None:
            raise _failure("program", errno.ENOENT, argv, cwd)
        argv, wrappers = wrap(argv, cwd, sandbox, mark), BWRAP_PROCESSES
    for name in env:
        if not name or "=" in name:
            raise Invalid(f"The name of an environment variable has no `=`; got {name!r}.")
    words = [str(wrappers), str(cwd), str(len(argv)), *argv]
    words += [f"{name}={value}" for name, value in env.items()]
    if any("\0" in word for word in words):
        raise Invalid("Words of a command, its folder and its environment cannot hold a NUL byte.")
    return b"\0".join(map(os.fsencode, words))


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


def _file_with(data: bytes, owner: contextlib.ExitStack) -> int:
    """A file to read `data` from: neither side blocks, as it would on a pipe."""
    if data:
        with os.fdopen(os.memfd_create("agentq-input"), "wb") as memory:
            memory.write(data)
            number = os.open(f"/proc/self/fd/{memory.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
    else:
        number = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    owner.callback(os.close, number)
    return number


def _answer(control: socket.socket) -> list[str]:
    """Read the answer to a request; empty if the supervisor is gone."""
    control.settimeout(_START_SECONDS)
    try:
        answer = control.recv(_MESSAGE_MAX_BYTES)
    except OSError:  # no answer in time, or reset
        answer = b""
    control.settimeout(None)
    return answer.decode().split()


def _failure(step: str, number: int, argv: Sequence[str], cwd: Path) -> AgentqError:
    program = repr(argv[0][:_SHOWN_MAX])
    reason = os.strerror(number)
    if step == "folder" and number in {errno.ENOENT, errno.ENOTDIR, errno.EACCES}:
        return Invalid(
            f"The agent {program} cannot work in {str(cwd)!r}: {reason}.",
            "Make that folder, or name another.",
        )
    if number == errno.ENOENT:
        return Invalid(
            f"The program {program} was not found, or the interpreter in its first line was not.",
            "Install it, give its whole path, or let PATH pass to the agent.",
        )
    if number in {errno.EACCES, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOEXEC}:
        return Invalid(
            f"The program {program} cannot be run: {reason}.",
            "It must be an executable file (`chmod +x`); a script begins with `#!`.",
        )
    if number == errno.E2BIG:
        size = sum(len(os.fsencode(word)) for word in argv)
        return Invalid(
            f"The arguments ({size} bytes) and environment of {program} are too long to start it.",
            "Let the agent read its prompt from standard input or from AGENTQ_CONTEXT.",
        )
    return Unavailable(
        f"The program {program} could not be started: {reason}.",
        "The machine is short of processes, files or memory: use fewer slots.",
    )
