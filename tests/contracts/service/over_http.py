"""A server for one service, and the service as its clients see it."""

from __future__ import annotations

import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentq.contracts.doorbell import Doorbell
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM, Principal
from agentq.remote.calls import Caller
from agentq.remote.service import RemoteService
from agentq.remote.transport import Transport
from agentq.server.app import HttpApp
from agentq.server.serving import HttpServer, listen_at, listen_on
from tests.eventually import eventually


class Tokens:
    """Tokens as the tests need them: one for whoever asks."""

    def __init__(self) -> None:
        self._tokens: dict[Principal, str] = {}
        self._principals: dict[str, Principal] = {}

    def of(self, who: Principal | None) -> str:
        asks = who or SYSTEM
        if asks not in self._tokens:
            self._tokens[asks] = secrets.token_hex(8)
            self._principals[self._tokens[asks]] = asks
        return self._tokens[asks]

    def principal(self, token: str) -> Principal | None:
        return self._principals.get(token)


@contextmanager
def serving(app: HttpApp, *, by_socket: bool = False) -> Iterator[tuple[str, HttpServer]]:
    """Serve on a free port of this machine, or on a socket; the address, and the server."""
    with tempfile.TemporaryDirectory(prefix="aq-") as folder:
        if by_socket:
            listener, url = listen_at(f"{folder}/api"), f"http+unix:{folder}/api"
        else:
            listener = listen_on("127.0.0.1", 0)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield from _served(app, listener, url)


def _served(app: HttpApp, listener: socket.socket, url: str) -> Iterator[tuple[str, HttpServer]]:
    server = HttpServer(app, [listener])
    server.start()
    try:
        eventually(lambda: server.started or not server.alive, what="the server to start")
        assert server.alive
        yield url, server
    finally:
        assert server.stop()


@contextmanager
def by_token(service: Service, doorbell: Doorbell) -> Iterator[Callable[[str], RemoteService]]:
    """A server that knows the service's own tokens; gives the service to whoever shows one."""
    clients: list[RemoteService] = []

    def shown(token: str) -> RemoteService:
        clients.append(RemoteService(Caller(Transport(url), lambda _: token)))
        return clients[-1]

    with serving(HttpApp(service, doorbell, service.principal_of_token)) as (url, _):
        yield shown
        for client in clients:
            client.close()


@contextmanager
def over_http(
    service: Service, doorbell: Doorbell, *, by_socket: bool = False
) -> Iterator[RemoteService]:
    """The same service at the other end of a connection."""
    tokens = Tokens()
    app = HttpApp(service, doorbell, tokens.principal)
    with serving(app, by_socket=by_socket) as (url, _):
        remote = RemoteService(Caller(Transport(url), tokens.of))
        yield remote
        remote.close()
