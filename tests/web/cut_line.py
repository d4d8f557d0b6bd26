"""A line between a browser and a server that a test can cut and mend."""

from __future__ import annotations

import contextlib
import socket
import threading


class CutLine:
    """Passes bytes on from a port of its own to another, until it is cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._ends: list[socket.socket] = []
        self._carriers: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), reuse_port=True)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def cut(self) -> None:
        """End every connection, and take no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for end in self._ends:
                with contextlib.suppress(OSError):  # it has ended by itself
                    end.shutdown(socket.SHUT_RDWR)
            self._ends.clear()
        for carrier in self._carriers:
            carrier.join()
        self._carriers.clear()

    def mend(self) -> None:
        """Take connections again, on the same port."""
        self._listener = self._listen(self.port)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            with self._lock:
                self._ends += [near, far]
            carrier = threading.Thread(target=self._carry, args=(near, far), daemon=True)
            self._carriers.append(carrier)
            carrier.start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        with near, far:
            back = threading.Thread(target=self._pass_on, args=(far, near), daemon=True)
            back.start()
            self._pass_on(near, far)
            back.join()

    @staticmethod
    def _pass_on(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):  # whoever has gone, has gone
            while data := one.recv(1 << 16):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)
