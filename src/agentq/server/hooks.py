"""The door for webhooks: verified, stored and answered; what they mean is decided elsewhere.

A delivery is answered once it is on disk. Those that come while one commit is under way share the
next, so that a burst costs few commits, and a single one no wait.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentq.contracts.hook_values import IncomingDelivery, Intake
from agentq.core.access import SYSTEM
from agentq.core.errors import AgentqError, Invalid, NotFound, Refused, Unavailable
from agentq.hooks.model import BYTES_MAX, Hook
from agentq.hooks.reading import HookFolder
from agentq.hooks.signatures import Proof, check_signature
from agentq.server.api import Response, encode
from agentq.server.body import Receive, read_body
from agentq.server.errors import HttpError

if TYPE_CHECKING:
    from agentq.contracts.service import Service

log = logging.getLogger("agentq.server")

HOOKS_PATH = "/hooks/"
#: Deliveries that are stored in one transaction, and what may wait for it in memory.
_BATCH_MAX = 256
_BYTES_WAITING_MAX = 64 << 20
_ID_CHARS_MAX = 200
#: Headers that rules may ask for, and how much of them is kept.
_KEPT = ("content-type", "user-agent", "webhook-id", "webhook-timestamp")
_HEADERS_MAX, _HEADER_CHARS_MAX = 40, 500
#: Never kept: who can read the ledger must not be able to sign. (And the request id is ours.)
_SECRET_WORDS = ("signature", "token", "secret", "auth", "cookie", "key", "request-id")
#: What the delivery of a hook that is not there is compared with.
_NOBODY = Proof("hmac", "x-hub-signature-256", "sha256=")


class InThread(Protocol):
    """Makes a call in a thread, and waits for what it returns."""

    def __call__(self, call: Callable[..., Any], *arguments: Any) -> Awaitable[Any]: ...


class HookDoor:
    """Answers `POST /hooks/NAME`. `folder` has the hook files; None: there are no hooks."""

    def __init__(
        self,
        folder: Path | None,
        service: Service,
        in_thread: InThread,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = None if folder is None else HookFolder(folder)
        self._clock = clock
        self._nobody = secrets.token_hex(32)
        self._intake = DeliveryIntake(
            lambda deliveries: service.take_deliveries(SYSTEM, deliveries), in_thread
        )

    async def answer(
        self, scope: Mapping[str, Any], headers: Mapping[str, str], receive: Receive
    ) -> Response:
        """The answer to a delivery; raises `HttpError` for one that is not taken."""
        name = scope["path"][len(HOOKS_PATH) :]
        if scope["method"] != "POST":
            raise HttpError(405, "A hook takes POST.", "Send it so.", code="no_route")
        hook, secret = self._find(name)
        body = await self._body(name, hook, headers, receive)
        try:
            proof = _NOBODY if hook is None else hook.proof
            check_signature(proof, secret, headers, body, self._clock())
        except Refused as error:
            if hook is not None:
                log.warning("hook %s: refused: %s", name, error.cause)
                raise HttpError(401, error.cause, error.remedy, code=error.code) from None
        if hook is None:
            raise HttpError(404, "There is no such hook. Nothing was stored.",
                            "Check the address.", code="no_hook")  # fmt: skip
        delivery = _delivery(hook, headers, body)
        taken = await self._intake.take(delivery)
        if taken is Intake.BACKLOG:
            log.warning("hook %s: %d deliveries wait, no more are taken for now", name,
                        hook.backlog)  # fmt: skip
            raise HttpError(429, "Too many deliveries wait to be worked on. This one was not"
                            " stored.", "Send it again later.", code="backlog")  # fmt: skip
        duplicate = taken is Intake.DUPLICATE
        plain = {"delivery": delivery.id, "duplicate": duplicate}
        return Response(200 if duplicate else 202, encode(plain))

    def _find(self, name: str) -> tuple[Hook | None, str]:
        """The hook and its secret; None and a secret that nobody knows, if there is none."""
        if self._folder is None:
            return None, self._nobody
        try:
            return self._folder.find(name)
        except NotFound:
            return None, self._nobody
        except AgentqError as error:
            # A person mends it, and the sender tries again.
            log.error("hook %s: cannot be used: %s", name, error)  # noqa: TRY400
            raise Unavailable(
                "This hook cannot be used as it is. Nothing was stored.", "`agentq hooks check`"
                " says why, where it runs.", code="bad_hook",
            ) from None  # fmt: skip

    @staticmethod
    async def _body(
        name: str, hook: Hook | None, headers: Mapping[str, str], receive: Receive
    ) -> bytes:
        length = headers.get("content-length", "")
        size = int(length) if length.isdigit() else None
        bytes_max = BYTES_MAX if hook is None else hook.bytes_max
        try:
            return await read_body(receive, size, bytes_max)
        except HttpError as error:
            if error.status == 413:
                log.warning("hook %s: a delivery of %s bytes is too large: at most %d are taken",
                            name[:80], length or "many", bytes_max)  # fmt: skip
            raise


class DeliveryIntake:
    """Stores deliveries that come at once together: one commit for all that waited for it."""

    def __init__(
        self, store: Callable[[Sequence[IncomingDelivery]], list[Intake]], in_thread: InThread
    ) -> None:
        self._store = store
        self._in_thread = in_thread
        self._waiting: list[tuple[IncomingDelivery, asyncio.Future[Intake]]] = []
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None

    async def take(self, delivery: IncomingDelivery) -> Intake:
        """What became of the delivery, once that is on disk."""
        if self._bytes > _BYTES_WAITING_MAX:
            return Intake.BACKLOG
        future: asyncio.Future[Intake] = asyncio.get_running_loop().create_future()
        self._waiting.append((delivery, future))
        self._bytes += len(delivery.body)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_BATCH_MAX], self._waiting[_BATCH_MAX:]
                await self._settle(batch)
                self._bytes -= sum(len(delivery.body) for delivery, _ in batch)
        finally:
            self._task = None

    async def _settle(self, batch: list[tuple[IncomingDelivery, asyncio.Future[Intake]]]) -> None:
        try:
            taken = await self._in_thread(self._store, [delivery for delivery, _ in batch])
        except Invalid as error:
            if len(batch) > 1:  # one that cannot be stored must not take others with it
                for each in batch:
                    await self._settle([each])
                return
            self._fail(batch, error)
        except Exception as error:  # noqa: BLE001 - it is raised where each is answered
            self._fail(batch, error)
        else:
            for (_, future), outcome in zip(batch, taken, strict=True):
                if not future.done():
                    future.set_result(outcome)

    @staticmethod
    def _fail(
        batch: list[tuple[IncomingDelivery, asyncio.Future[Intake]]], error: Exception
    ) -> None:
        for _, future in batch:
            if not future.done():
                future.set_exception(error)


def _delivery(hook: Hook, headers: Mapping[str, str], body: bytes) -> IncomingDelivery:
    given = headers.get(hook.id_header, "").strip() if hook.id_header else secrets.token_hex(16)
    if not (0 < len(given) <= _ID_CHARS_MAX and given.isascii() and given.isprintable()):
        raise HttpError(
            400, f"{hook.id_header} names the delivery in 1 to {_ID_CHARS_MAX} plain characters."
            " Nothing was stored.", "Send it.", code="no_delivery_id",
        )  # fmt: skip
    remember_ms = hook.remember_seconds * 1000
    return IncomingDelivery(hook.name, given, _kept(headers), body, hook.backlog, remember_ms)


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value[:_HEADER_CHARS_MAX]
        for name, value in headers.items()
        if (name in _KEPT or name.startswith("x-"))
        and not any(word in name for word in _SECRET_WORDS)
    }
    return dict(list(kept.items())[:_HEADERS_MAX])
