"""The HTTP server: an ASGI application over the route table.

What a request means is decided in `server.api`, in a thread of a small pool, as the service is
synchronous. Here is only what needs the event loop: bodies that come in pieces, requests that wait
(claims, events), answers that flow, and clients that go away.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl

from agentq.contracts.doorbell import Doorbell
from agentq.contracts.routes import (
    EVENT_STREAM_TYPE,
    FILES_TYPE,
    LINKS_HEADER,
    PREFIX,
    WAKEUPS_PATH,
)
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM, Principal
from agentq.core.errors import AgentqError, Unavailable
from agentq.core.values import replace
from agentq.server.access_log import log_request, request_id
from agentq.server.api import (
    Api,
    Request,
    Response,
    RouteMatch,
    encode,
    find,
    match_version,
    redirect_to,
    refusal,
)
from agentq.server.body import ClientGone, Files, read_body
from agentq.server.browser_rules import SECURITY_HEADERS, host_name
from agentq.server.errors import HttpError
from agentq.server.event_feed import EventFeed
from agentq.server.events import follow, start_of
from agentq.server.failures import Failures
from agentq.server.headers import check_once
from agentq.server.hooks import HOOKS_PATH, HookDoor
from agentq.server.identity import Authenticate, Identities, client_of
from agentq.server.live_log import LiveLog, follow_log
from agentq.server.login import Logins
from agentq.server.metrics import METRICS_PATH, Checks, Metrics
from agentq.server.page_requests import PAGES_PATH, MakePages, PageRequest, Pages
from agentq.server.pages import home_page
from agentq.server.ranges import cut
from agentq.server.repeats import Repeats
from agentq.server.request_key import request_key
from agentq.server.session_files import SessionFiles
from agentq.server.sessions import Login, Sessions
from agentq.server.streams import StillGood
from agentq.server.threads import T, Threads, Ts
from agentq.server.waiting import WaitingClaims, rings
from agentq.server.wakeups import Wakeups

log = logging.getLogger("agentq.server")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

THREADS = 16
#: Calls at work or waiting for a thread; while there are more, requests are asked to come again.
#: Streams, long polls and bodies on their way are none: they are bounded as connections.
BUSY_MAX = 500
_BLOCK = 1 << 18
#: Calls whose answer may come as events.
_STREAMED = frozenset({"events_after", "live_read"})


class HttpApp:
    """One server. `hosts` are the names under which it may be asked, empty for any; `ready` raises
    `Unavailable` while it cannot serve; `reads_at_once` says that a look at one row of the ledger
    is over before a thread would have begun, else a token is believed for `trust_seconds` without
    asking for it again. `hooks` is the folder of hook files; without one no webhooks are taken.
    `pages` makes the pages for people; without it there is only the API, and who one is. `checks`
    are what else metrics tell of. `sessions` is the folder of browsers' sessions; without one they
    end with the server."""

    def __init__(
        self,
        service: Service,
        doorbell: Doorbell,
        authenticate: Authenticate,
        hosts: Sequence[str] = (),
        ready: Callable[[], None] | None = None,
        *,
        reads_at_once: bool = False,
        trust_seconds: float = 0.0,
        hooks: Path | None = None,
        pages: MakePages | None = None,
        checks: Checks | None = None,
        sessions: Path | None = None,
    ) -> None:
        self._ready = ready or (lambda: service.check_writable(SYSTEM))
        self._service = service
        self._api = Api(service)
        self._hosts = frozenset(name.lower() for name in hosts)
        self._reads_at_once = reads_at_once
        self.wakeups = Wakeups(doorbell)
        self._threads = Threads(THREADS, "agentq-http")
        self._claims = WaitingClaims(self.wakeups)
        self._feed = EventFeed(service, self.wakeups, self.in_thread)
        self._repeats = Repeats()
        self._failures = Failures()
        self._pages = pages(self, service) if pages is not None else None
        self._logins = Logins(
            authenticate, self.in_thread, self._failures, self._note_login,
            self._pages.home if self._pages is not None else home_page,
            Sessions(files=SessionFiles(sessions)) if sessions is not None else Sessions(),
        )  # fmt: skip
        self._identities = Identities(
            service, authenticate, self._logins, self._failures, trust_seconds
        )
        self._metrics = Metrics(service, checks)
        self._hooks = HookDoor(hooks, service, self.in_thread)
        self._busy = 0
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self.wakeups.start()
        try:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        except asyncio.CancelledError:
            return  # told to end before it had begun
        finally:
            self.end_streams()
            await self.wakeups.stop()
            self._threads.stop()
        await send({"type": "lifespan.shutdown.complete"})

    def end_streams(self) -> None:
        """Let requests that wait end now: the server is about to."""
        self.stopping = True
        self._claims.stop()
        self._feed.stop()
        if self._pages is not None:
            self._pages.stop()
        self.wakeups.ring_all()

    def end_streams_soon(self) -> None:
        """The same from another thread."""
        self.wakeups.call_soon(self.end_streams)

    def _note_login(self, error: AgentqError, client: str) -> None:
        self._service.note_refusal(None, error, "login", origin=client)

    def login_code(self, person: Principal) -> str:
        """A code that logs a browser in as this person, once and soon."""
        return self._logins.sessions.issue_code(Login(person))

    async def in_thread(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        self._busy += 1
        try:
            return await self._threads.run(call, *arguments)
        finally:
            self._busy -= 1

    # -- one request -----------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in
                   scope["headers"]}  # fmt: skip
        number = headers["x-request-id"] = request_id(headers.get("x-request-id", ""))
        status, who = 499, "-"
        try:
            answer, who = await self._reach(scope, headers, receive, send)
            status = 200 if answer is None else answer.status
            if answer is not None:
                await self._send(answer, number, send, head=scope["method"] == "HEAD")
        except ClientGone:
            status = 499
        except OSError:
            status = 499
        finally:
            log_request(
                number, who, client_of(scope), scope["method"],
                raw_path(scope), status, time.monotonic() - began,
            )  # fmt: skip

    async def _reach(
        self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send
    ) -> tuple[Response | None, str]:
        who = "-"
        try:
            check_once(scope["headers"])
            self._check_host(headers.get("host", ""))
            plain = await self._plain_answer(scope["path"])
            if plain is not None:
                return plain, who
            if scope["path"].startswith(HOOKS_PATH):
                return await self._hooks.answer(scope, headers, receive), who
            page = await self._logins.answer(scope, headers, receive)
            if page is not None:
                return page, who
            if self._pages is not None and scope["path"].startswith(PAGES_PATH):
                return await self._page(self._pages, scope, headers, receive, send)
            if _is_quick(scope, headers):
                return await self._quick_answer(scope, headers)
            principal = self._identities.trusted(scope, headers)
            if principal is None:
                principal = await self.in_thread(self._identities.identify, scope, headers)
            who = _name(principal)
            if scope["path"] == PREFIX + WAKEUPS_PATH:
                return await rings(
                    self.wakeups, _query_of(scope), receive, lambda: self.stopping
                ), who
            found = find(scope["method"], raw_path(scope))
            self._check_busy()
            return await self._route(principal, found, scope, headers, receive, send), who
        except AgentqError as error:
            return refusal(error), who
        except (ClientGone, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("a request failed in a way that nobody thought of")
            return refusal(AgentqError("The server failed.", "Its log says why.")), who

    async def _page(
        self, pages: Pages, scope: Scope, headers: dict[str, str], receive: Receive, send: Send
    ) -> tuple[Response | None, str]:
        """Something that pages are made of: files that anybody may have, or what one may see."""
        asset = pages.asset(scope["path"], headers)
        if asset is not None:
            return asset, "-"
        who = await self.in_thread(self._identities.identify, scope, headers)
        self._check_busy()
        asked = PageRequest(
            who, scope["method"], scope["path"][len(PAGES_PATH) :], dict(_query_of(scope)), headers,
            self._still_good(who, scope, headers),
        )  # fmt: skip
        send = _with_request_id(send, headers["x-request-id"])
        return await pages.answer(asked, receive, send), _name(who)

    def _check_busy(self) -> None:
        if self._busy >= BUSY_MAX:
            raise HttpError(429, "The server has too much to do.", "Try again in a moment.",
                            code="busy")  # fmt: skip

    def _check_host(self, host: str) -> None:
        """A page of another site must not reach this server under a name of its own."""
        if self._hosts and host_name(host) not in self._hosts:
            raise HttpError(
                421, f"This server is not asked under the name {host[:100]!r}.",
                "Use the address it was started with, or name more with --allow-host.",
                code="wrong_host",
            )  # fmt: skip

    async def _plain_answer(self, path: str) -> Response | None:
        """Answers that need no token."""
        if path == "/healthz":
            return Response(200, encode({"ok": True}))
        if path == "/readyz":
            await self.in_thread(self._ready)
            return Response(200, encode({"ok": True}))
        if path == f"{PREFIX}/openapi.json":
            from agentq.server.openapi import document_bytes

            return Response(200, await self.in_thread(document_bytes))
        return None

    async def _quick_answer(self, scope: Scope, headers: dict[str, str]) -> tuple[Response, str]:
        """Answer a question without a body in one go: a thread takes longer to reach than most
        answers take to find."""
        if self._reads_at_once and _is_small(scope["path"]):
            reader = self._identities.reader(scope, headers)
            if reader is not None:
                return self._look(reader, scope, headers)
        self._check_busy()
        trusted = self._identities.trusted(scope, headers)
        if trusted is not None:
            return await self.in_thread(self._look, trusted, scope, headers)
        return await self.in_thread(self._identify_and_look, scope, headers)

    def _identify_and_look(self, scope: Scope, headers: dict[str, str]) -> tuple[Response, str]:
        try:
            return self._look(self._identities.identify(scope, headers), scope, headers)
        except AgentqError as error:
            return refusal(error), "-"

    def _look(self, who: Principal, scope: Scope, headers: dict[str, str]) -> tuple[Response, str]:
        try:
            if scope["path"] == METRICS_PATH:
                return self._metrics.answer(who, headers.get("accept", "")), _name(who)
            found = find(scope["method"], raw_path(scope))
            request = Request(scope["method"], scope["path"], _query_of(scope))
            arguments = self._api.arguments(found, request)
            if LINKS_HEADER in headers and found.route.call == "open_artifact":
                link = self._service.artifact_link(who, **arguments)
                if link is not None:
                    return redirect_to(link), _name(who)
            answer = self._api.call(who, found, arguments)
            return (cut(answer, headers["range"]) if "range" in headers else answer), _name(who)
        except AgentqError as error:
            return refusal(error), _name(who)

    async def _route(
        self,
        who: Principal,
        found: RouteMatch,
        scope: Scope,
        headers: dict[str, str],
        receive: Receive,
        send: Send,
    ) -> Response | None:
        call = found.route.call
        query = _query_of(scope)
        request = Request(scope["method"], scope["path"], query)
        if EVENT_STREAM_TYPE in headers.get("accept", "") and call in _STREAMED:
            return await self._stream(who, found, scope, headers, receive, send)
        length = headers.get("content-length", "")
        size = int(length) if length.isdigit() else None
        files = Files()
        try:
            if headers.get("content-type", "") == FILES_TYPE:
                await files.read(receive, size)
                request.files, request.arguments = files.open, files.arguments
            else:
                request.body = await read_body(receive, size)
            arguments = self._api.arguments(found, request)
            if "if-match" in headers and found.route.method != "GET":
                match_version(arguments, headers["if-match"])
            key = headers.get("idempotency-key", "")
            if found.route.method != "GET" and key:
                who = replace(who, request=request_key(key, found, request, arguments))

            def act() -> Response:
                try:
                    return self._call(who, found, arguments)
                finally:
                    if call == "revoke_token":
                        self._identities.forget()

            if call == "claim" and arguments["wait_seconds"] > 0:
                still_good = self._still_good(who, scope, headers)
                return await self._claims.claim(
                    arguments, lambda: self.in_thread(act), still_good, receive
                )
            return await self._repeats.once(who, lambda: self.in_thread(act))
        finally:
            files.close()

    async def _stream(
        self,
        who: Principal,
        found: RouteMatch,
        scope: Scope,
        headers: dict[str, str],
        receive: Receive,
        send: Send,
    ) -> Response | None:
        """Events, or what an agent says, as they come."""
        query = _query_of(scope)
        position = start_of(query, headers)
        send = _with_request_id(send, headers["x-request-id"])

        still_good = self._still_good(who, scope, headers)
        await self.wakeups.listen()
        if found.route.call == "events_after":
            await follow(self, self._service, self._feed, who, still_good, position, receive, send)
            return None
        asked = [each for each in query if each[0] not in ("position", "limit")]
        plain = Request("GET", "", [*asked, ("position", "0"), ("limit", "0")])
        named = self._api.arguments(found, plain)
        live = LiveLog(self._service, who, named["ref"], named["epoch"])
        return await follow_log(self, live, still_good, position or 0, receive, send)

    def _still_good(self, who: Principal, scope: Scope, headers: dict[str, str]) -> StillGood:
        """Whether a request that has waited would still be let in: tokens end, and are revoked."""

        async def still_good() -> bool:
            try:
                return await self.in_thread(self._identities.identify, scope, headers) == who
            except AgentqError:
                return False

        return still_good

    def _call(self, who: Principal, found: RouteMatch, arguments: dict[str, Any]) -> Response:
        try:
            return self._api.call(who, found, dict(arguments))
        except AgentqError as error:
            return refusal(error)

    # -- sending ---------------------------------------------------------------------------------

    async def _send(self, answer: Response, number: str, send: Send, *, head: bool) -> None:
        headers = {**SECURITY_HEADERS, **answer.headers, "x-request-id": number}
        body = answer.body
        if isinstance(body, bytes):
            headers["content-length"] = str(len(body))
        listed = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": listed})
        if isinstance(body, bytes):
            await send({"type": "http.response.body", "body": b"" if head else body})
            return
        read = body.read if hasattr(body, "read") else None
        try:
            while True:
                if read is not None:
                    piece = await self.in_thread(read, _BLOCK)
                else:
                    piece = await self.in_thread(_next_piece, body)
                await send({"type": "http.response.body", "body": piece, "more_body": bool(piece)})
                if not piece:
                    return
        finally:
            if hasattr(body, "close"):
                await self.in_thread(body.close)


def _with_request_id(send: Send, number: str) -> Send:
    async def send_with_id(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"x-request-id", number.encode())]
        await send(message)

    return send_with_id


def _is_quick(scope: Scope, headers: dict[str, str]) -> bool:
    """Whether this is a question that neither brings anything nor waits for anything."""
    return (
        scope["method"] == "GET"
        and headers.get("content-length", "0") == "0"
        and "transfer-encoding" not in headers
        and EVENT_STREAM_TYPE not in headers.get("accept", "")
        and scope["path"] != PREFIX + WAKEUPS_PATH
    )


_TASKS = f"{PREFIX}/tasks/"


def _is_small(path: str) -> bool:
    """Whether the question is for one task: a row, and not its files or its history."""
    return path.startswith(_TASKS) and "/" not in path[len(_TASKS) :]


def _name(who: Principal) -> str:
    return f"{who.kind}:{who.name}"


def _query_of(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def raw_path(scope: Scope) -> str:
    """The path as it was sent: `%2F` in a name is part of that name."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1")


def _next_piece(pieces: BinaryIO | Iterator[bytes]) -> bytes:
    try:
        return next(iter(pieces), b"")
    except Unavailable:
        raise OSError("the ledger went away") from None
