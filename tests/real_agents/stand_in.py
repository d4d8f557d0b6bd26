"""A stand-in for the models of all four providers: one HTTP server on the loopback, with a script.

For a person with an agent CLI of their own: `python -m tests.real_agents.by_hand --help`.
"""

from __future__ import annotations

import json
import select
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from tests.real_agents.dialects import Json, Route, route_of
from tests.real_agents.script import (
    CutOff,
    Hang,
    Refuse,
    Say,
    Step,
)

#: The answer to what is asked beside the conversation: a title, a summary.
BESIDE = Say("A short title")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that came in."""

    path: str
    body: Json
    #: The step that answered it; None for what was asked beside the conversation.
    step: Step | None

    def mentions(self, words: str) -> bool:
        """Tell whether the words occur in what was sent, as JSON writes them."""
        return json.dumps(words)[1:-1] in json.dumps(self.body)


@dataclass
class _Play:
    """The script and how far it is, shared by the threads of the server."""

    steps: list[Step]
    asked: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    taken: int = 0
    announce: Callable[[Asked], None] = lambda _: None

    def take(self, path: str, body: Json, *, beside: bool) -> tuple[Step, int]:
        with self.lock:
            step: Step = BESIDE
            if not beside:
                step = self.steps[min(self.taken, len(self.steps) - 1)]
                self.taken += 1
            asked = Asked(path, body, None if beside else step)
            self.asked.append(asked)
            self.announce(asked)
            return step, len(self.asked)


class StandIn:
    """A running stand-in. Use it as `with`."""

    def __init__(
        self,
        steps: Sequence[Step],
        port: int = 0,
        announce: Callable[[Asked], None] = lambda _: None,
    ) -> None:
        self._play = _Play(list(steps), announce=announce)
        self._server = _Server(("127.0.0.1", port), self._play)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for step in self._play.steps:
            if isinstance(step, Hang):
                step.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def play(self, *steps: Step) -> None:
        """Go on with these steps, whatever the script was."""
        with self._play.lock:
            self._play.steps, self._play.taken = list(steps), 0

    @property
    def asked(self) -> list[Asked]:
        """Everything that was asked so far."""
        with self._play.lock:
            return list(self._play.asked)

    @property
    def conversation(self) -> list[Asked]:
        """The requests that took a step of the script."""
        return [each for each in self.asked if each.step is not None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Agents that were killed leave connections; nobody waits for their threads.
    block_on_close = False

    def __init__(self, address: tuple[str, int], play: _Play) -> None:
        super().__init__(address, _Handler)
        self.play = play

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that is killed in the middle of an answer is what tests do; no traceback."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer(200, {"object": "list", "data": [], "models": []})

    def do_HEAD(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = _decoded(self.rfile.read(length))
        path = urlsplit(self.path).path
        route = route_of(path, body)
        if route is None:
            counted = "count" in path.lower()
            return self._answer(200, {"input_tokens": 9, "totalTokens": 9} if counted else {})
        beside = not route.dialect.in_conversation(body)
        step, number = self.server.play.take(path, body, beside=beside)
        match step:
            case Refuse():
                headers = {} if step.retry_after is None else {"retry-after": step.retry_after}
                refusal = route.dialect.error(step.status, step.message)
                return self._answer(step.status, refusal, headers)
            case CutOff():
                return self._cut(route, step, number, body)
            case Hang():
                return self._hang(route, step, number, body)
        if not route.streams:
            assert isinstance(step, Say), f"{path}: only texts are answered without a stream"
            return self._answer(200, route.dialect.whole(step, body))
        self._start_stream()
        for piece in route.dialect.stream(step, number, body):
            self._piece(piece)
        self._piece(b"")
        return None

    def _cut(self, route: Route, step: CutOff, number: int, body: Json) -> None:
        """Send what comes before the end of an answer, and not the end."""
        pieces = list(route.dialect.stream(Say(step.text), number, body))
        self._start_stream()
        for piece in pieces[: len(pieces) // 2]:
            self._piece(piece)
        self.close_connection = True

    def _hang(self, route: Route, step: Hang, number: int, body: Json) -> None:
        pieces = route.dialect.stream(Say("Let me think"), number, body)
        self._start_stream()
        self._piece(next(pieces))
        step.reached.set()
        while not step.released.wait(0.05):
            if select.select([self.connection], [], [], 0)[0]:
                break  # the agent is gone: nothing else is sent on this connection
        self.close_connection = True

    def _start_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _piece(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    def _answer(self, status: int, body: Json, headers: dict[str, Any] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, str(value))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are kept for the test, not printed."""


def _decoded(data: bytes) -> Json:
    try:
        body = json.loads(data)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
