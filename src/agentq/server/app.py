"""The HTTP server: an ASGI application over the route table.

What a request means is decided in `server.api`, in a thread of a small pool, as the service is
synchronous. Here is only what needs the event loop: bodies that come in pieces, requests that wait
(claims, events), answers that flow, and clients that go away.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, unquote

from agentq.contracts.doorbell import Doorbell, role_topic
from agentq.contracts.routes import (
    ATTEMPT_HEADER,
    EVENT_STREAM_TYPE,
    FILES_TYPE,
    PREFIX,
    WAKEUPS_PATH,
)
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM, Action, Principal, is_of_role, on_behalf, parse_grants
from agentq.core.access import refusal as access_refusal
from agentq.core.errors import AgentqError, Unavailable
from agentq.server.api import Api, Request, Response, RouteMatch, encode, find, refusal
from agentq.server.body import ClientGone, Files, read_body, until_gone
from agentq.server.errors import HttpError
from agentq.server.events import follow
from agentq.server.failures import Failures
from agentq.server.ranges import cut
from agentq.server.repeats import Repeats
from agentq.server.wakeups import Wakeups

log = logging.getLogger("agentq.server")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
#: The principal of a token; None if there is no such token. May ask a database.
Authenticate = Callable[[str], Principal | None]

THREADS = 16
#: Requests at work or waiting for a thread; more are asked to come again.
BUSY_MAX = 500
LONG_POLL_SECONDS_MAX = 60.0
_BLOCK = 1 << 18
_SECURITY = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}


class HttpApp:
    """One server. `hosts` are the names under which it may be asked, empty for any; `ready` raises
    `Unavailable` while it cannot serve."""

    def __init__(
        self,
        service: Service,
        doorbell: Doorbell,
        authenticate: Authenticate,
        hosts: Sequence[str] = (),
        ready: Callable[[], None] | None = None,
    ) -> None:
        self._ready = ready or (lambda: service.check_writable(SYSTEM))
        self._service = service
        self._api = Api(service)
        self._authenticate = authenticate
        self._hosts = frozenset(hosts)
        self._wakeups = Wakeups(doorbell)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="agentq-http")
        self._repeats = Repeats()
        self._failures = Failures()
        self._busy = 0
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._wakeups.start()
        try:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        except asyncio.CancelledError:
            return  # told to end before it had begun
        finally:
            self.end_streams()
            await self._wakeups.stop()
            self._repeats.clear()
            self._pool.shutdown(wait=False)
        await send({"type": "lifespan.shutdown.complete"})

    def end_streams(self) -> None:
        """Let requests that wait end now: the server is about to."""
        self.stopping = True
        self._wakeups.ring_all()

    def end_streams_soon(self) -> None:
        """The same from another thread."""
        self._wakeups.call_soon(self.end_streams)

    async def in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, call, *arguments)

    # -- one request -----------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, number = time.monotonic(), secrets.token_hex(6)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in
                   scope["headers"]}  # fmt: skip
        status, who = 0, "-"
        try:
            answer, who = await self._reach(scope, headers, receive, send)
            if answer is not None:
                status = answer.status
                await self._send(answer, number, send, head=scope["method"] == "HEAD")
        except ClientGone:
            status = 499
        except OSError:
            status = 499
        finally:
            log.info(
                "%s %s %s %s %d %.1fms", number, who, scope["method"], scope["path"][:200], status,
                (time.monotonic() - began) * 1000,
            )  # fmt: skip

    async def _reach(
        self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send
    ) -> tuple[Response | None, str]:
        who = "-"
        try:
            self._check_host(headers.get("host", ""))
            plain = await self._plain_answer(scope["path"])
            if plain is not None:
                return plain, who
            principal = await self._who(headers, (scope.get("client") or ("local",))[0])
            who = f"{principal.kind}:{principal.name}"
            if scope["path"] == PREFIX + WAKEUPS_PATH:
                return await self._ring(scope, receive), who
            found = find(scope["method"], raw_path(scope))
            if self._busy >= BUSY_MAX:
                raise HttpError(429, "The server has too much to do.", "Try again in a moment.",
                                code="busy")  # fmt: skip
            self._busy += 1
            try:
                return await self._route(principal, found, scope, headers, receive, send), who
            finally:
                self._busy -= 1
        except AgentqError as error:
            return refusal(error), who
        except (ClientGone, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("a request failed in a way that nobody thought of")
            return refusal(AgentqError("The server failed.", "Its log says why.")), who

    def _check_host(self, host: str) -> None:
        """A page of another site must not reach this server under a name of its own."""
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if self._hosts and name not in self._hosts:
            raise HttpError(
                421, f"This server is not asked under the name {name[:100]!r}.",
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

    async def _who(self, headers: dict[str, str], client: str) -> Principal:
        """The principal of the token; guessing is slowed down, address by address."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        principal: Principal | None = None
        if kind.lower() == "bearer" and token:
            principal = await self.in_thread(self._authenticate, token.strip())
        if principal is None:
            # A good one is never refused for the sake of others behind the same proxy.
            if self._failures.too_many(client):
                raise HttpError(
                    429, "Too many requests from this address brought no good token.",
                    "Wait a minute.", code="busy",
                )  # fmt: skip
            self._failures.note(client)
            log.warning("refused: no good token from %s", client)
            raise HttpError(
                401, "This server answers to tokens, and the request brought none that it knows.",
                "Set AGENTQ_TOKEN or send it as a Bearer; `agentq token create` makes one.",
                code="bad_token",
            )  # fmt: skip
        asking = asked_for(principal, headers.get(ATTEMPT_HEADER, ""))
        if asking is not principal:
            await self.in_thread(self._check_role, principal, asking.task_id)
        return asking

    def _check_role(self, worker: Principal, task_id: str) -> None:
        """The role in the header is a word; the one of the task is what the token must be for."""
        task = self._service.tasks_by_id(SYSTEM, [task_id]).get(task_id)
        if task is not None and not is_of_role(worker, task.to) and worker.role:
            raise access_refusal(worker, Action.COMPLETE, task_id)

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
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        request = Request(scope["method"], scope["path"], query)
        if call == "events_after" and EVENT_STREAM_TYPE in headers.get("accept", ""):
            await follow(self, self._service, self._wakeups, who, query, headers, receive, send)
            return None
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

            def act() -> Response:
                return self._call(who, found, arguments)

            if call == "claim" and arguments["wait_seconds"] > 0:
                return await self._claim(who, found, arguments, receive)
            key = headers.get("idempotency-key", "")
            if found.route.method != "GET" and key:
                return await self._repeats.once((who, key[:200]), lambda: self.in_thread(act))
            answer: Response = await self.in_thread(act)
            return cut(answer, headers["range"]) if "range" in headers else answer
        finally:
            files.close()

    def _call(self, who: Principal, found: RouteMatch, arguments: dict[str, Any]) -> Response:
        try:
            return self._api.call(who, found, dict(arguments))
        except AgentqError as error:
            return refusal(error)

    # -- requests that wait ----------------------------------------------------------------------

    async def _ring(self, scope: Scope, receive: Receive) -> Response:
        """Answer when one of these topics is rung, or was since the cursor of the client."""
        query = parse_qsl(scope["query_string"].decode("latin-1"))
        plain = {name: value for name, value in query if name != "topic"}
        topics = frozenset(value for name, value in query if name == "topic")
        seconds = _seconds(plain.get("seconds", "0"))
        cursor = plain.get("since", "")
        await self._wakeups.listen()
        if not cursor:
            return Response(200, encode({"cursor": self._wakeups.cursor, "rung": []}))
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            with self._wakeups.bell(topics) as bell:
                rung = self._wakeups.rung_since(cursor, topics)
                if not rung and seconds > 0 and not self.stopping:
                    waiting = asyncio.ensure_future(bell.wait(seconds))
                    await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
                    if gone.done():
                        waiting.cancel()
                        raise ClientGone
                    rung = self._wakeups.rung_since(cursor, topics)
                return Response(200, encode({"cursor": self._wakeups.cursor, "rung": rung}))
        finally:
            gone.cancel()

    async def _claim(
        self, who: Principal, found: RouteMatch, arguments: dict[str, Any], receive: Receive
    ) -> Response:
        """Claim, or wait until something can be claimed; nothing for a client that left."""
        deadline = time.monotonic() + min(arguments["wait_seconds"], LONG_POLL_SECONDS_MAX)
        await self._wakeups.listen()
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            with self._wakeups.bell((role_topic(str(arguments["role"])),)) as bell:
                while True:
                    answer: Response = await self.in_thread(self._call, who, found, arguments)
                    left = deadline - time.monotonic()
                    if answer.status != 200 or answer.body != _NOTHING or left <= 0:
                        return answer
                    waiting = asyncio.ensure_future(bell.wait(min(left, _LOOK_SECONDS)))
                    await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
                    if gone.done():
                        waiting.cancel()
                        raise ClientGone
                    if self.stopping:
                        return answer
        finally:
            gone.cancel()

    # -- sending ---------------------------------------------------------------------------------

    async def _send(self, answer: Response, number: str, send: Send, *, head: bool) -> None:
        headers = {**_SECURITY, **answer.headers, "x-request-id": number}
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


_NOTHING = encode({"value": []})
#: The net under a ring that was lost.
_LOOK_SECONDS = 10.0


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), LONG_POLL_SECONDS_MAX)
    except ValueError:
        raise HttpError(400, f"seconds is a number, got {text[:40]!r}.") from None


def asked_for(who: Principal, attempt: str) -> Principal:
    """Who asks: a worker may ask for the attempt of its agent, which may less than itself."""
    if not attempt:
        return who
    named, *grants = attempt.split(" ")
    parts = named.split("/")
    if len(parts) != 3 or not (parts[1].isascii() and parts[1].isdigit() and len(parts[1]) < 19):
        raise HttpError(
            400, f"The header {ATTEMPT_HEADER} names no attempt: {attempt[:80]!r}.",
            "It is task/epoch/role, then what the role is granted.",
        )  # fmt: skip
    wanted = parse_grants(grants, f"the header {ATTEMPT_HEADER}")
    return on_behalf(who, unquote(parts[0]), int(parts[1]), unquote(parts[2]), wanted)


def raw_path(scope: Scope) -> str:
    """The path as it was sent: `%2F` in a name is part of that name."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1")


def _next_piece(pieces: BinaryIO | Iterator[bytes]) -> bytes:
    try:
        return next(iter(pieces), b"")
    except Unavailable:
        raise OSError("the ledger went away") from None
