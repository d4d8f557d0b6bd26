"""A connection between a client and its server that loses answers: the server has acted, the client
never learns it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class LosingProxy:
    """Passes requests on. An answer for which `loses` says so is dropped, with its connection."""

    def __init__(self, url: str, loses: Callable[[], bool]) -> None:
        address = urlsplit(url)
        self._server = (str(address.hostname), address.port or 80)
        self._loses = loses
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.lost = 0
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
            except OSError:
                return  # closed
            self._lines += [client, server]
            self._start(self._pass_on, client, server, False)
            self._start(self._pass_on, server, client, True)

    def _pass_on(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if answers and data.startswith(b"HTTP/1.1 ") and self._loses():
                    self.lost += 1
                    break
                sink.sendall(data)
        for line in (source, sink):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for line in (self._listener, *self._lines):
            line.close()
