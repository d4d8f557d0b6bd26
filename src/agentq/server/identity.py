"""Who asks: by the token of a request, by the session of a browser, or for an attempt.

What is refused here stands in the audit log, with where it came from.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from agentq.contracts.routes import ATTEMPT_HEADER
from agentq.contracts.service import Service
from agentq.core.access import ALL, SYSTEM, Action, Principal, allowed, on_behalf, parse_grants
from agentq.core.access import refusal as access_refusal
from agentq.core.errors import Refused
from agentq.core.values import replace
from agentq.server.errors import HttpError
from agentq.server.failures import Failures
from agentq.server.login import Logins

log = logging.getLogger("agentq.server")

#: The principal of a token; None if there is no such token. May ask a database.
Authenticate = Callable[[str], Principal | None]
Headers = Mapping[str, str]
_FORWARDED_CHARS_MAX = 60
_TRUSTED_MAX = 1000


class Identities:
    """Knows tokens and sessions. Its calls may ask the ledger, and so may block.

    A good token is believed for `trust_seconds` without asking again, where asking takes a way to a
    database: that long somebody may go on whose token was revoked by another process.
    """

    def __init__(
        self,
        service: Service,
        authenticate: Authenticate,
        logins: Logins,
        failures: Failures,
        trust_seconds: float = 0.0,
    ) -> None:
        self._service = service
        self._authenticate = authenticate
        self._logins = logins
        self._failures = failures
        self._trust_seconds = trust_seconds
        self._trusted: dict[str, tuple[Principal, float]] = {}

    def trusted(self, scope: Mapping[str, Any], headers: Headers) -> Principal | None:
        """Whoever has shown this token a moment ago; None if that must be asked. Never blocks."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or ATTEMPT_HEADER in headers:
            return None
        principal, until = self._trusted.get(_digest(token.strip()), (None, 0.0))
        if principal is None or time.monotonic() >= until:
            return None
        return replace(principal, origin=origin_of(client_of(scope), headers))

    def forget(self) -> None:
        """Ask about every token again."""
        self._trusted.clear()

    def _trust(self, token: str, principal: Principal) -> None:
        if self._trust_seconds:
            if len(self._trusted) >= _TRUSTED_MAX:
                self._trusted.clear()
            self._trusted[_digest(token)] = (principal, time.monotonic() + self._trust_seconds)

    def identify(self, scope: Mapping[str, Any], headers: Headers) -> Principal:
        """The principal of the token, else of the browser's session; guessing is slowed down,
        address by address."""
        client = client_of(scope)
        kind, _, token = headers.get("authorization", "").partition(" ")
        principal: Principal | None = None
        if kind.lower() == "bearer":
            principal = self._authenticate(token.strip()) if token else None
            if principal is not None:
                self._trust(token.strip(), principal)
        else:  # also beside what a proxy in front asks for, such as Basic
            principal = self._logins.principal(scope, headers)
        if principal is None:
            raise self._unknown(client)
        principal = replace(principal, origin=origin_of(client, headers))
        attempt = headers.get(ATTEMPT_HEADER, "")
        return self._speaks_for(principal, attempt) if attempt else principal

    def reader(self, scope: Mapping[str, Any], headers: Headers) -> Principal | None:
        """Whoever may read everything and shows a token; None for all others. Writes nothing."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or ATTEMPT_HEADER in headers:
            return None
        who = self._authenticate(token.strip()) if token else None
        if who is None or allowed(who, Action.READ) is not ALL:
            return None
        return replace(who, origin=origin_of(client_of(scope), headers))

    def _unknown(self, client: str) -> HttpError:
        error = HttpError(
            401, "This server answers to tokens, and the request brought none that it knows.",
            "Set AGENTQ_TOKEN or send it as a Bearer; `agentq token create` makes one.",
            code="bad_token",
        )  # fmt: skip
        log.warning("refused: no good token from %s", client)
        self._service.note_refusal(None, error, "login", origin=client)
        # A good one is never refused for the sake of others behind the same proxy.
        if self._failures.too_many(client):
            return HttpError(
                429, "Too many requests from this address brought no good token.",
                "Wait a minute.", code="busy",
            )  # fmt: skip
        self._failures.note(client)
        return error

    def _speaks_for(self, principal: Principal, attempt: str) -> Principal:
        """The attempt of this header, if it is for the principal to speak for it."""
        try:
            asking = asked_for(principal, attempt)
            if asking is not principal:
                self._check_role(principal, asking)
        except Refused as error:
            named = attempt.partition("/")[0]
            self._service.note_refusal(principal, error, Action.COMPLETE, named)
            raise
        return asking

    def _check_role(self, worker: Principal, asking: Principal) -> None:
        """The role in the header is a word, and must be that of the task: what an attempt submits
        bears its name."""
        task = self._service.tasks_by_id(SYSTEM, [asking.task_id]).get(asking.task_id)
        if task is not None and task.to != asking.role:
            raise access_refusal(worker, Action.COMPLETE, asking.task_id)


def _digest(token: str) -> str:
    """Found by this, so the time a look takes tells nothing about any token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def asked_for(who: Principal, attempt: str) -> Principal:
    """Who asks: a worker may ask for the attempt of its agent, which may less than itself."""
    named, *grants = attempt.split(" ")
    parts = named.split("/")
    if len(parts) != 3 or not (parts[1].isascii() and parts[1].isdigit() and len(parts[1]) < 19):
        raise HttpError(
            400, f"The header {ATTEMPT_HEADER} names no attempt: {attempt[:80]!r}.",
            "It is task/epoch/role, then what the role is granted.",
        )  # fmt: skip
    wanted = parse_grants(grants, f"the header {ATTEMPT_HEADER}")
    return on_behalf(who, unquote(parts[0]), int(parts[1]), unquote(parts[2]), wanted)


def client_of(scope: Mapping[str, Any]) -> str:
    """Where a request comes from, as its connection says: a header could be anybody's word."""
    client = scope.get("client")
    return str(client[0]) if client else "unix socket"


def origin_of(client: str, headers: Headers) -> str:
    """The same for the log, with the address that a proxy says it has forwarded from."""
    said = headers.get("x-forwarded-for", "").rpartition(",")[2].strip()[:_FORWARDED_CHARS_MAX]
    return f"{client}, forwarded for {said}" if said else client
