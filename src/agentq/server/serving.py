"""Running the server: sockets of its own, in the foreground or in a thread, and a prompt end."""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from agentq.core.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from agentq.contracts.installation import Installation
    from agentq.server.app import HttpApp
    from agentq.server.page_requests import MakePages

log = logging.getLogger("agentq.server")

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8765
#: Names under which a server on loopback may be asked, so that no other site's name leads to it.
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
#: Streams and slow clients get so long to end.
_GRACE_SECONDS = 2
_BACKLOG = 2048
#: How long a token is believed without a way to the database.
_TRUST_SECONDS = 1.0


def listen_on(host: str, port: int) -> socket.socket:
    """A listening TCP socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        address = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4]
        listener = socket.create_server(address, family=family, backlog=_BACKLOG)
    except (UnicodeError, ValueError, TypeError) as error:
        raise Invalid(f"--host is no address: {error}.", "As in 127.0.0.1.") from error
    except OSError as error:
        raise Unavailable(
            f"Port {port} on {host} cannot be listened on: {error.strerror or error}.",
            "Another server may have it (choose another with --port), or it is no address of this"
            " machine.",
            code="port_taken",
        ) from error
    # Inherited by what is accepted: the second half of a small answer must not wait for the
    # client to acknowledge the first, which takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def address_of(host: str, listener: socket.socket) -> str:
    """The address of a server that listens there, as people write it."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


def listen_at(path: str) -> socket.socket:
    """A listening Unix socket that only this user may connect to."""
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode) and not _answers(path):
            os.unlink(path)  # noqa: PTH108 - what a server that was killed has left
    except FileNotFoundError:
        log.debug("nothing at %s yet", path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before it has a name; a umask would be that of all threads.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(path)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"The socket {path} cannot be made: {error.strerror or error}.",
            "Name a path in a folder of yours that is free.",
        ) from error
    return listener


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        return caller.connect_ex(path) == 0


def make_app(
    installation: Installation,
    hosts: Sequence[str] = (),
    ready: Callable[[], None] | None = None,
    hooks: Path | None = None,
    pages: MakePages | None = None,
    sessions: Path | None = None,
) -> HttpApp:
    """The application for one installation; `hooks` is the folder of its hook files, `sessions`
    that of the browsers which have logged in."""
    from agentq.server.app import HttpApp

    service = installation.service
    return HttpApp(
        service,
        installation.doorbell,
        service.principal_of_token,
        hosts,
        ready,
        reads_at_once=installation.reads_at_once,
        trust_seconds=0.0 if installation.reads_at_once else _TRUST_SECONDS,
        hooks=hooks,
        pages=pages,
        checks={"broker": installation.check_broker} if installation.has_broker else {},
        sessions=sessions,
    )


def allowed_hosts(host: str, more: Sequence[str]) -> tuple[str, ...]:
    """The names a server on this address may be asked under; empty for any."""
    if host in ("127.0.0.1", "localhost", "::1"):
        return (*LOOPBACK_NAMES, *more)
    if not more:
        return ()
    return (f"[{host}]" if ":" in host else host, *more)


class HttpServer:
    """One server on sockets that are listening already."""

    def __init__(self, app: HttpApp, listeners: Sequence[socket.socket]) -> None:
        try:
            import uvicorn

            from agentq.server.connections import IDLE_SECONDS, allow_many_files, bounded
        except ImportError as error:
            raise Unavailable(
                f"The HTTP server needs uvicorn, which is not installed ({error}).",
                "pip install 'agentq-orchestrator[server]'",
                code="no_server",
            ) from error
        allow_many_files()
        config = uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=_GRACE_SECONDS,
            timeout_keep_alive=int(IDLE_SECONDS), h11_max_incomplete_event_size=64 << 10,
            server_header=False, lifespan="on", http=bounded(), ws="none",
            # Whoever may connect could name any address in a header: as its own in the audit log,
            # and a new one for each token it tries.
            proxy_headers=False,
        )  # fmt: skip

        # It would write down whole addresses, and a login link holds a code. Ours is in `app`.
        logging.getLogger("uvicorn.access").disabled = True

        class EndingServer(uvicorn.Server):
            """Ends streams as soon as it is told to end itself."""

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                app.end_streams_soon()
                super().handle_exit(sig, frame)

        self._app = app
        self._listeners = list(listeners)
        self._server = EndingServer(config)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until a signal ends it."""
        self._server.run(self._listeners)

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread = threading.Thread(
            target=self._server.run, args=(self._listeners,), name="agentq-http", daemon=True
        )
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._server.started

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self, seconds: float = _GRACE_SECONDS + 2.0) -> bool:
        """End it; False if it has not ended after so long."""
        self._app.end_streams_soon()
        self._server.should_exit = True
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()
