"""A server that others send webhooks to, as tests want it to behave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """What came, and what is answered: the next of `statuses`, then 204."""

    port: int = 0
    statuses: list[int] = field(default_factory=list)
    answer_headers: dict[str, str] = field(default_factory=dict)
    answer_body: bytes = b""
    #: While it is not set, nobody is answered.
    answering: threading.Event = field(default_factory=threading.Event)
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in?x=1"

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("content-length", "0"))
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = request.rfile.read(length)
        if len(body) < length:
            return  # Its sender was killed meanwhile: a request that never came.
        self.received.append(Received(request.path, headers, body))
        self.answering.wait(60)
        request.send_response(self.statuses.pop(0) if self.statuses else 204)
        for name, value in self.answer_headers.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(self.answer_body)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that answers."""
    receiver = Receiver()
    receiver.answering.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.handle(self)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.answering.set()
        server.shutdown()
        server.server_close()
        thread.join()
