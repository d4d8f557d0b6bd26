"""Everybody who may stand before a server, with what they show, over connections that stay open."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from agentq.contracts.routes import ATTEMPT_HEADER
from agentq.contracts.service import Service
from agentq.core import access
from agentq.core.access import GRANTABLE, SYSTEM, Action, Principal
from agentq.core.scopes import principal_of_scopes
from agentq.server.app import HttpApp
from agentq.server.attempt_api import AttemptApi
from agentq.server.attempt_socket import AttemptSocket
from agentq.server.failures import Failures
from agentq.server.serving import LOOPBACK_NAMES
from agentq.settings import Settings
from agentq.wiring import WiredInstallation, open_installation
from tests.contracts.service.over_http import serving
from tests.eventually import eventually
from tests.server.rights import BUILDER, Family, Sent

#: Scopes of tokens, alone and together.
SCOPES: tuple[tuple[str, ...], ...] = (
    ("read",), ("submit",), ("submit:builder",), ("submit:deployer",), ("work",),
    ("work:builder",), ("work:deployer",), ("approve",), ("admin",), ("submit", "approve"),
    ("submit:builder", "approve"), ("read", "work:builder"), ("read", "submit:builder"),
    ("submit:builder", "submit:deployer"), ("admin", "submit:builder"),
)  # fmt: skip
ALL_GRANTS = " ".join(GRANTABLE)


class Answered(NamedTuple):
    status: int
    code: str
    body: bytes

    @property
    def is_refusal(self) -> bool:
        """Whether it says: not you."""
        return self.status in (401, 403) or self.code in ("not_permitted", "reserved_name")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the socket of an attempt."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(20)
        self.sock.connect(self._path)


@dataclass
class Asker:
    """Somebody who asks. `who` is whom the table shall take them for; None if nobody lets them in,
    and then `status` is what they are told."""

    name: str
    connection: http.client.HTTPConnection
    headers: dict[str, str]
    who: Principal | None = None
    status: int = 401
    at_attempt_api: bool = False

    def ask(self, sent: Sent) -> Answered:
        headers = {**sent.headers, **self.headers}
        self.connection.request(sent.method, sent.target, sent.body, headers)
        answer = self.connection.getresponse()
        if answer.getheader("content-type", "").startswith("text/event-stream"):
            self.connection.close()  # it would go on for ever
            return Answered(answer.status, "", b"")
        body = answer.read()
        code = ""
        if answer.status >= 400 and body:
            code = json.loads(body)["error"]["code"]
        return Answered(answer.status, code, body)


@dataclass
class Gate:
    """A server over one ledger, and everybody who stands before it."""

    url: str
    installation: WiredInstallation
    ends: ExitStack
    _tokens: dict[tuple[str, ...], str] = field(default_factory=dict)

    @property
    def service(self) -> Service:
        return self.installation.service

    def token(self, *scopes: str) -> str:
        """A good token of these scopes; each has one, whose name tells them."""
        if scopes not in self._tokens:
            made = self.service.create_token(SYSTEM, name_of(scopes), scopes)
            self._tokens[scopes] = made[1]
        return self._tokens[scopes]

    def connection(self) -> http.client.HTTPConnection:
        made = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=20)
        self.ends.callback(made.close)
        return made

    def asker(
        self,
        name: str,
        who: Principal | None = None,
        token: str = "",
        attempt: str = "",
        status: int = 401,
    ) -> Asker:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        if attempt:
            headers[ATTEMPT_HEADER] = attempt
        return Asker(name, self.connection(), headers, who, status)

    def holders_of_tokens(self) -> Iterator[Asker]:
        for scopes in SCOPES:
            who = principal_of_scopes(name_of(scopes), scopes)
            yield self.asker(" ".join(scopes), who, self.token(*scopes))

    def attempts(self, made: Family) -> Iterator[Asker]:
        """The agent at `own`, by each way that it may ask, with and without grants."""
        own = made.own
        header = f"{own.id}/{own.epoch}/{BUILDER}"

        def agent(*grants: Action) -> Principal:
            return access.attempt(own.id, own.epoch, BUILDER, grants)

        for scopes in (("work:builder",), ("work",), ("admin",)):
            token, by = self.token(*scopes), scopes[0]
            yield self.asker(f"the attempt by {by}", agent(), token, header)
            granted = agent(*GRANTABLE) if by == "admin" else agent(Action.READ)
            claimed = f"{header} {ALL_GRANTS}"
            yield self.asker(f"the attempt by {by}, granted", granted, token, claimed)
        for name, grants in (("plain", ()), ("granted", tuple(GRANTABLE))):
            who = agent(*grants)
            api = AttemptApi(self.service, self.installation.doorbell, who)
            door = AttemptSocket(api)
            door.start()
            self.ends.callback(door.close)
            connection = _UnixConnection(door.url.removeprefix("http+unix:"))
            self.ends.callback(connection.close)
            headers = {"authorization": f"Bearer {door.token}"}
            yield Asker(f"the attempt API, {name}", connection, headers, who, at_attempt_api=True)

    def strangers(self, made: Family) -> Iterator[Asker]:
        """Whoever is let in nowhere."""
        own = made.own
        header = f"{own.id}/{own.epoch}/{BUILDER}"
        yield self.asker("without a token")
        yield self.asker("with an attempt's header and no token", attempt=header)
        yield self.asker("with a token that nobody made", token=f"agq_{'A' * 43}")
        yield self.asker("with a token of an attempt", token=f"agqa_{'A' * 43}")
        yield self.asker("with a revoked token", token=self._revoked())
        yield self.asker("with an expired token", token=self._expired())
        for scopes in (("read",), ("submit",), ("submit:builder",), ("approve",),
                       ("submit", "approve"), ("work:deployer",)):  # fmt: skip
            name = f"for the attempt, with {' '.join(scopes)}"
            yield self.asker(name, None, self.token(*scopes), header, 403)
        forged = {
            "the role of another": f"{own.id}/{own.epoch}/deployer",
            "the role of a person": f"{own.id}/{own.epoch}/ann",
            "the task of another role": f"{made.targets['foreign-held'].id}/1/{BUILDER}",
        }
        for name, attempt in forged.items():
            for by in ("work:builder", "work"):
                yield self.asker(f"{by} with {name}", None, self.token(by), attempt, 403)

    def _revoked(self) -> str:
        info, secret = self.service.create_token(SYSTEM, "gone", ["admin"])
        self.service.revoke_token(SYSTEM, info.id)
        return secret

    def _expired(self) -> str:
        info, secret = self.service.create_token(SYSTEM, "late", ["admin"], 1)
        eventually(lambda: self.service.now() > info.expires_at, what="a millisecond to pass")
        return secret

    def everybody(self, made: Family) -> Iterator[Asker]:
        yield from self.holders_of_tokens()
        yield from self.attempts(made)
        yield from self.strangers(made)


def name_of(scopes: tuple[str, ...]) -> str:
    return "holder-of-" + "-".join(scopes).replace(":", "-")


@contextmanager
def open_gate(folder: Path, url: str = "") -> Iterator[Gate]:
    """A server that knows the ledger's own tokens; at the end its log still tells what is there."""
    url = url or f"sqlite:///{folder / 'ledger.db'}"
    settings = Settings(url, str(folder / "files"), "the test")
    with ExitStack() as ends:
        installation = ends.enter_context(closing(open_installation(settings, create=True)))
        service = installation.service
        app = HttpApp(service, installation.doorbell, service.principal_of_token, LOOPBACK_NAMES)
        # Those without a good token are told so as often as they ask.
        app._identities._failures = _Patient()
        address, _ = ends.enter_context(serving(app))
        yield Gate(address, installation, ends)
        assert [found for _, found in service.verify(SYSTEM) if found] == []


class _Patient(Failures):
    def too_many(self, client: str) -> bool:
        return False
