"""The embedded doorbell: a datagram socket that each waiting process owns beside the database.

A waiter binds a socket in the doorbell folder and puts its topics into the name of the file,
so that ringing is one directory listing and a byte to each that cares. No waiter: no cost. Whatever
goes wrong here costs delay only; callers poll slowly as a safety net.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import select
import socket
import threading
from collections.abc import Iterable

from agentq.contracts.doorbell import ALL_TOPICS
from agentq.private_files import FILE_MODE, make_folder

#: Longer addresses do not fit into a socket address on Linux (108 bytes).
_ADDRESS_MAX = 100
#: Stands for all topics, where those that are listened for do not fit into a name.
_EVERYTHING = "all"
#: A ring names its topics, up to so many bytes.
_RING_BYTES_MAX = 1000
_numbers = itertools.count()


def _mark(topic: str) -> str:
    return hashlib.blake2b(topic.encode(), digest_size=6).hexdigest()


class SocketDoorbell:
    """Rings every waiter of a topic on this machine."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        self._socket: socket.socket | None = None
        self._directory = -1
        #: Threads of one server ring at the same time.
        self._opening = threading.Lock()

    def _address(self, name: str) -> str:
        """A path short enough for a socket, through an open folder where the true one is long."""
        plain = os.path.join(self._folder, name)  # noqa: PTH118 - on the path of every submit
        if len(os.fsencode(plain)) <= _ADDRESS_MAX:
            return plain
        with self._opening:
            if self._directory < 0:
                self._directory = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._directory}/{name}"

    def ring(self, topics: Iterable[str]) -> None:
        if not os.access(self._folder, os.F_OK):
            return  # nobody has ever waited here, and saying so by an exception takes longer
        try:
            names = os.listdir(self._folder)  # noqa: PTH208
        except OSError:
            return
        if not names:
            return
        rung = sorted(set(topics))
        if not rung:
            return
        marks = {_EVERYTHING, *map(_mark, rung)}
        text = "\n".join(rung).encode("utf-8", "replace")
        if len(text) > _RING_BYTES_MAX:
            text = ALL_TOPICS.encode()
        for name in names:
            if not marks.isdisjoint(name.split("-")[2:]):
                self._send(name, text)

    def _send(self, name: str, text: bytes) -> None:
        with self._opening:
            if self._socket is None:
                kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
                self._socket = socket.socket(socket.AF_UNIX, kind)
        try:
            self._socket.sendto(text, self._address(name))
        except ConnectionRefusedError:
            self._remove_stale(name)
        except OSError:
            # Its queue is full: it has been rung already. Or it has just gone: nobody to wake.
            return

    def _remove_stale(self, name: str) -> None:
        """A socket file whose process is gone; the next ring should not meet it again."""
        pid = name.split("-", 1)[0]
        if pid.isdigit() and not _alive(int(pid)):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, name))  # noqa: PTH108, PTH118

    def listen(self, topics: Iterable[str]) -> SocketWaiter | SilentWaiter:
        wanted = set(topics)
        marks = "-".join(sorted(map(_mark, wanted)))
        if ALL_TOPICS in wanted:
            marks = _EVERYTHING
        start = f"{os.getpid()}-{next(_numbers)}-"
        name = start + marks
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            make_folder(self._folder)
            if len(os.fsencode(self._address(name))) > _ADDRESS_MAX:
                name = start + _EVERYTHING  # woken too often is better than never
            os.fchmod(receiver.fileno(), FILE_MODE)  # Linux gives the file the mode of the socket
            receiver.bind(self._address(name))
        except OSError:
            # No folder for sockets (read-only disk, exotic system): polling alone still works.
            receiver.close()
            return SilentWaiter()
        return SocketWaiter(receiver, os.path.join(self._folder, name))  # noqa: PTH118

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1


class SocketWaiter:
    """Waits on a socket: sleeps in the kernel until somebody rings."""

    def __init__(self, receiver: socket.socket, path: str) -> None:
        self._receiver = receiver
        self._path = path
        self._rung: set[str] = set()

    def fileno(self) -> int:
        return self._receiver.fileno()

    def wait(self, timeout: float, wake_fd: int = -1) -> bool:
        self._rung.clear()
        receiver = select.poll()
        receiver.register(self._receiver, select.POLLIN)
        if wake_fd >= 0:
            receiver.register(wake_fd, select.POLLIN)
        ready = receiver.poll(max(timeout, 0) * 1000)
        if not any(fd == self._receiver.fileno() for fd, _ in ready):
            return False
        with contextlib.suppress(BlockingIOError):
            while text := self._receiver.recv(_RING_BYTES_MAX):  # many rings are one
                self._rung.update(text.decode("utf-8", "replace").split("\n"))
        return True

    def rung(self) -> frozenset[str]:
        return frozenset(self._rung)

    def close(self) -> None:
        self._receiver.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)  # noqa: PTH108


class SilentWaiter:
    """A waiter where no socket can be opened: only its timeout wakes it."""

    def wait(self, timeout: float, wake_fd: int = -1) -> bool:
        poller = select.poll()
        if wake_fd >= 0:
            poller.register(wake_fd, select.POLLIN)
        poller.poll(max(timeout, 0) * 1000)
        return False

    def rung(self) -> frozenset[str]:
        return frozenset()

    def close(self) -> None:
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
