"""One call of the service over HTTP: by the route table, with retries that repeat nothing."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from agentq.contracts.routes import (
    ATTEMPT_HEADER,
    BY_CALL,
    FILES_TYPE,
    JSON_TYPE,
    LOGIN_CODES_PATH,
    PREFIX,
)
from agentq.core import errors
from agentq.core.access import Principal, PrincipalKind
from agentq.core.errors import AgentqError, Invalid, Unavailable
from agentq.ledger.codec import decoder
from agentq.remote.transport import (
    SILENCE_SECONDS,
    Broken,
    HttpReply,
    ServerAddress,
    Transport,
)

if TYPE_CHECKING:
    pass

T = TypeVar("T")

#: How long a server that was there and went away is waited for: longer than a restart takes.
PATIENCE_SECONDS = 75.0
#: The same for one that never answered, and took in a request which may have taken effect.
_UNANSWERED_SECONDS = 20.0
#: Whoever waits longer than this is told what for.
QUIET_SECONDS = 2.0
#: Answers after which the same request may be served: too much to do, or nobody behind a proxy.
_AGAIN = frozenset({429, 502, 503, 504})
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")


class Value(msgspec.Struct, Generic[T]):
    """The shape of an answer that is one value."""

    value: T


class LoginCode(msgspec.Struct):
    """A code for a browser: the path that it opens, and for how long it is good."""

    path: str
    seconds: int


class _ErrorBody(msgspec.Struct):
    code: str
    message: str
    remedy: str = ""
    exit_status: int = 1
    deleted: int = 0
    why: str = ""


class _Refusal(msgspec.Struct):
    error: _ErrorBody


class Caller:
    """Asks one server. `token_of` gives the token that speaks for a principal."""

    def __init__(
        self,
        transport: Transport,
        token_of: Callable[[Principal | None], str],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._transport = transport
        self._token_of = token_of
        self._patience = patience_seconds
        self._reached = False
        self._told = False

    @property
    def address(self) -> ServerAddress:
        """Where the server is."""
        return self._transport.address

    def value(self, kind: Any, call: str, who: Principal | None, /, **arguments: object) -> Any:
        """The value that a call answers with, as this type."""
        return self._decoded(kind, self.reply(call, who, arguments))

    def value_soon(
        self, kind: Any, silence: float, call: str, who: Principal | None, /, **arguments: object
    ) -> Any:
        """The same for a call that is useless when it comes late: the server is asked again on
        another connection when it says nothing for so many seconds."""
        return self._decoded(kind, self.reply(call, who, arguments, silence=silence))

    def _decoded(self, kind: Any, reply: HttpReply) -> Any:
        return decoder(Value[kind]).decode(reply.read()).value

    def reply(
        self,
        call: str,
        who: Principal | None,
        arguments: dict[str, Any],
        files: Callable[[], Iterable[bytes]] | None = None,
        length: int | None = None,
        silence: float = SILENCE_SECONDS,
        *,
        streamed: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> HttpReply:
        """Send a call, again if its answer was lost; raises the error that came instead.

        Unless it is `streamed`, all of the answer has come: only streams can break while they are
        read.
        """
        route = BY_CALL[call]
        target, rest = _target(route.path, arguments)
        headers = {**(headers or {}), "authorization": f"Bearer {self._token_of(who)}"}
        if who is not None and who.kind is PrincipalKind.ATTEMPT:
            headers[ATTEMPT_HEADER] = attempt_header(who)
        body = b""
        if route.method == "GET":
            target += _query(rest)
        elif files is None:
            body = encoded(msgspec.json.encode, rest)
            headers["content-type"] = JSON_TYPE
        else:
            headers["content-type"] = FILES_TYPE
        if route.method != "GET":
            # Under this name the server gives the same answer again instead of acting twice.
            headers["idempotency-key"] = os.urandom(16).hex()
        target = PREFIX + target

        def send() -> HttpReply:
            sent: bytes | Iterable[bytes] = body if files is None else files()
            reply = self._transport.send(route.method, target, headers, sent, length, silence)
            if not streamed and reply.status < 400:
                reply.read()
            return reply

        return self._insist(send, acts=route.method != "GET")

    def login_code(self) -> LoginCode:
        """Ask for a code that logs a browser in as whoever has this token."""
        headers = {"authorization": f"Bearer {self._token_of(None)}"}
        reply = self._insist(lambda: self._transport.send("POST", LOGIN_CODES_PATH, headers))
        try:
            code: LoginCode = decoder(Value[LoginCode]).decode(reply.read()).value
            return code
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(
                f"What answers at {self._transport.address.text} is no agentq server that knows"
                " logins.",
                "Check the address, and that its version is the one here.",
            ) from error

    def _insist(self, send: Callable[[], HttpReply], *, acts: bool = False) -> HttpReply:
        """Send until there is an answer. One that `acts` and was sent may have taken effect: it is
        sent again to whoever comes next, and if nobody does, its error says that it may have."""
        started, pause = time.monotonic(), 0.05
        unknown: AgentqError | None = None
        while True:
            try:
                reply = send()
                if reply.status < 400:
                    self._reached, self._told = True, False
                    return reply
                said = _said(reply)
                # A proxy with nobody behind it, or another program, is not the server.
                self._reached = self._reached or said is not None
                error = _unknown(reply) if said is None else error_from(said)
                if reply.status not in _AGAIN and error.code != "too_slow":
                    raise error
            except (Broken, Unavailable) as broken:
                error = broken if isinstance(broken, Unavailable) else self._away(broken)
                if acts and isinstance(broken, Broken) and broken.sent:
                    unknown = unknown or error
            # Whoever has just typed an address wants to know at once that nobody is there.
            patience = self._patience if self._reached else 0.0
            if unknown is not None:
                patience = max(patience, min(_UNANSWERED_SECONDS, self._patience))
            waited = time.monotonic() - started
            if waited >= patience:
                raise unknown or error
            if waited >= QUIET_SECONDS:
                self._tell(error, patience - waited)
            time.sleep(random.uniform(0, pause))
            pause = min(pause * 2, 2.0)

    def _tell(self, error: AgentqError, left: float) -> None:
        """Say what is waited for, once until the server answers again."""
        if self._told:
            return
        self._told = True
        import logging  # start-up: hardly anybody needs it

        log = logging.getLogger("agentq.remote")
        log.warning("%s It is asked again for up to %.0f s.", error.cause, left)

    def _away(self, broken: Broken) -> Unavailable:
        return Unavailable(
            f"The connection to {self._transport.address.text} broke: {broken}. Whether the request"
            " took effect is not known.",
            "Check that the server runs, then look before you try again.",
            code="server_away",
        )

    def close(self) -> None:
        self._transport.close()


def _target(path: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The path with the arguments that it names, and the others."""
    rest = dict(arguments)
    parts = []
    for part in path.split("/"):
        if part.startswith("{"):
            whole = part.endswith("...}")
            value = rest.pop(part[1:-4] if whole else part[1:-1])
            part = quote(str(value), "/" if whole else "")  # noqa: PLW2901
        parts.append(part)
    return "/".join(parts), rest


def encoded(encode: Callable[..., bytes], *values: Any) -> bytes:
    """What is sent; raises `Invalid` for what no JSON can hold."""
    try:
        return encode(*values)
    except (UnicodeEncodeError, OverflowError) as error:
        raise Invalid(
            f"The request cannot be sent, as something in it is not text in UTF-8: {error}. Nothing"
            " was changed.",
            "Put binary content into a file and store that as an artifact.",
        ) from error


def quote(text: str, also: str = "") -> str:
    """Text as it stands in a path or a query."""
    plain = _PLAIN | set(also.encode())
    return "".join(
        chr(byte) if byte in plain else f"%{byte:02X}"
        for byte in text.encode("utf-8", "surrogatepass")
    )


def attempt_header(who: Principal) -> str:
    """The attempt that is asked for, as a header can hold it."""
    grants = "".join(f" {each}" for each in sorted(who.grants))
    return f"{quote(who.task_id)}/{who.epoch}/{quote(who.role)}{grants}"


def _query(arguments: Mapping[str, Any]) -> str:
    pairs: list[str] = []
    for name, value in arguments.items():
        many = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
        for each in many:
            text = str(each).lower() if isinstance(each, bool) else str(each)
            pairs.append(f"{name}={quote(text)}")
    return "?" + "&".join(pairs) if pairs else ""


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, one level deep."""
    assert is_dataclass(value)
    return {each.name: getattr(value, each.name) for each in fields(value)}


_CLASSES: dict[int, type[AgentqError]] = {
    kind.exit_status: kind
    for kind in (
        errors.Invalid, errors.NotFound, errors.Refused, errors.Conflict, errors.TimedOut,
        errors.Unavailable, errors.Damaged,
    )
}  # fmt: skip


def _said(reply: HttpReply) -> _ErrorBody | None:
    """What a server has refused a request with; None if what answered is none of ours."""
    body = reply.read()
    try:
        refusal: _Refusal = decoder(_Refusal).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return refusal.error


def _unknown(reply: HttpReply) -> Unavailable:
    return Unavailable(
        f"The server answered with status {reply.status} and no reason that agentq knows.",
        "Check that AGENTQ_URL leads to an agentq server.",
        # A proxy with nobody behind it: as if nobody were there at all.
        code="server_away" if reply.status in _AGAIN else None,
    )


def error_from(said: Any) -> AgentqError:
    """The error that an answer describes, as the class that it was over there."""
    from agentq.contracts.service_values import FilesLeft

    kind = _CLASSES.get(said.exit_status, AgentqError)
    if said.code == "stale":
        kind = errors.Stale
    if said.deleted or said.why:
        left = FilesLeft(said.message, said.remedy, code=said.code)
        left.deleted, left.why = said.deleted, said.why
        return left
    return kind(said.message, said.remedy, code=said.code)


class Outcome(msgspec.Struct):
    """One of many reports: the task, or why it was refused."""

    task: Any = None
    error: _ErrorBody | None = None
