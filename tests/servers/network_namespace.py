"""A machine of its own, as far as the network can tell: a network namespace with one bridge to us.

Servers of tests listen on the loopback of this machine, where a namespace cannot reach them; so
each is forwarded at our end of the bridge. `cut` takes the link down: nothing arrives any more,
and no program is told, as when a cable is pulled. `lose_packets` does the same further away, as
when a cable is pulled behind the next switch: here not even the kernel knows.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

Address = tuple[str, int] | str


class IslandUnavailable(Exception):
    """This machine cannot make network namespaces; the message says why."""


class NetworkNamespace:
    """One namespace. Use it as `with`."""

    def __init__(self) -> None:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise IslandUnavailable("network namespaces need root and the program ip")
        mark = secrets.token_hex(3)
        self.name = f"aq-{mark}"
        self._ours, self._theirs, self._bridge = f"aqh{mark}", f"aqn{mark}", f"aqb{mark}"
        number = secrets.randbelow(250) + 1
        self.host, self._guest = f"10.213.{number}.1", f"10.213.{number}.2"
        self._listeners: list[socket.socket] = []
        self._lines: list[socket.socket] = []

    def __enter__(self) -> Self:
        try:
            _ip("netns", "add", self.name)
            _ip("link", "add", self._ours, "type", "veth", "peer", "name", self._theirs)
            _ip("link", "set", self._theirs, "netns", self.name)
            # An address of its own, or it would change with what hangs on it.
            _ip(
                "link",
                "add",
                self._bridge,
                "address",
                f"02:00:{_pairs(self.name[3:])}:01",
                "type",
                "bridge",
            )
            _ip("addr", "add", f"{self.host}/30", "dev", self._bridge)
            _ip("link", "set", self._ours, "master", self._bridge)
            _ip("link", "set", self._bridge, "up")
            _ip("link", "set", self._ours, "up")
            for words in (
                ("addr", "add", f"{self._guest}/30", "dev", self._theirs),
                ("link", "set", self._theirs, "up"),
                ("link", "set", "lo", "up"),
            ):
                _ip("-n", self.name, *words)
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise IslandUnavailable(error.stderr.decode(errors="replace").strip()) from error
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._listeners, *self._lines):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for words in (
            ("link", "del", self._ours), ("link", "del", self._bridge), ("netns", "del", self.name),
        ):  # fmt: skip
            subprocess.run(["ip", *words], capture_output=True, check=False)

    def words(self, argv: Sequence[str]) -> list[str]:
        """The command that runs this one in the namespace."""
        return ["ip", "netns", "exec", self.name, *argv]

    def cut(self) -> None:
        _ip("link", "set", self._ours, "down")

    def lose_packets(self) -> None:
        _ip("link", "set", self._ours, "nomaster")

    def mend(self) -> None:
        _ip("link", "set", self._ours, "master", self._bridge)
        _ip("link", "set", self._ours, "up")

    def forward(self, target: Address) -> int:
        """Let the namespace reach this address of ours; the port it finds it at."""
        listener = socket.create_server((self.host, 0))
        self._listeners.append(listener)
        threading.Thread(target=self._serve, args=(listener, target), daemon=True).start()
        return int(listener.getsockname()[1])

    def _serve(self, listener: socket.socket, target: Address) -> None:
        while True:
            try:
                guest, _ = listener.accept()
            except OSError:
                return  # the namespace is gone
            try:
                host = _connect(target)
            except OSError:
                guest.close()
                continue
            self._lines += [guest, host]
            for source, sink in ((guest, host), (host, guest)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pairs(mark: str) -> str:
    return ":".join(mark[place : place + 2] for place in range(0, 6, 2))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _connect(target: Address) -> socket.socket:
    if isinstance(target, str):
        line = socket.socket(socket.AF_UNIX)
        line.connect(target)
        return line
    return socket.create_connection(target, 5)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
