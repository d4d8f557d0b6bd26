"""A server on loopback over a ledger of its own, and ways to speak to it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from agentq import Queue
from agentq.core import access
from agentq.core.access import Principal
from agentq.remote.installation import RemoteInstallation
from agentq.server.app import HttpApp
from agentq.server.failures import Failures
from agentq.server.identity import Identities
from agentq.server.login import Logins
from agentq.server.serving import LOOPBACK_NAMES, HttpServer
from agentq.settings import Settings
from agentq.wiring import WiredInstallation, open_installation
from tests.contracts.service.over_http import Tokens, serving

ANN = access.person("ann", "token")


@dataclass
class Answered:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        return found


@dataclass
class Served:
    """One server, its ledger, and whoever may ask it."""

    url: str
    installation: WiredInstallation
    tokens: Tokens
    folder: Path
    server: HttpServer
    app: HttpApp
    queues: list[Queue] = field(default_factory=list)

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=20)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        who: Principal | None = ANN,
        headers: dict[str, str] | None = None,
    ) -> Answered:
        sent = dict(headers or {})
        if who is not None:
            sent.setdefault("authorization", f"Bearer {self.tokens.of(who)}")
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = self.connection()
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answered(answer.status, found, answer.read())
        finally:
            connection.close()

    def stop(self) -> None:
        assert self.server.stop()

    def queue(self, who: Principal = ANN) -> Queue:
        home = str(self.folder / "elsewhere")
        settings = Settings(self.url, home, "the test", local=home, token=self.tokens.of(who))
        self.queues.append(Queue(installation=RemoteInstallation(settings)))
        return self.queues[-1]


@contextmanager
def serving_ledger(folder: Path, hosts: Sequence[str] = LOOPBACK_NAMES) -> Iterator[Served]:
    """A server over a new ledger in this folder."""
    settings = Settings(f"sqlite:///{folder / 'ledger.db'}", str(folder / "files"), "the test")
    installation = open_installation(settings, create=True)
    tokens = Tokens()
    app = HttpApp(installation.service, installation.doorbell, tokens.principal, hosts)
    with serving(app) as (url, server):
        found = Served(url, installation, tokens, folder, server, app)
        yield found
        for queue in found.queues:
            queue.close()
    installation.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving_ledger(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def lasting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a module: most of what such a test costs is a server's start."""
    with serving_ledger(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture
def fresh_logins(lasting_server: Served) -> Served:
    """That server, with nobody logged in and no login failed."""
    app = lasting_server.app
    app._failures = Failures()
    authenticate = app._identities._authenticate
    app._logins = Logins(authenticate, app.in_thread, app._failures, app._note_login)
    app._identities = Identities(app._service, authenticate, app._logins, app._failures)
    return lasting_server
