"""Requests as files, for an agent whose sandbox denies every connection.

A request is `NAME.json` in the outbox of the attempt, written whole by a rename; its body lies in
`NAME.body`. The worker answers with `NAME.answer`, and with a body that is no JSON in
`NAME.answer-body`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from agentq.core.errors import Unavailable
from agentq.remote.transport import (
    SILENCE_SECONDS,
    Broken,
    HttpReply,
    Pending,
    ServerAddress,
    Transport,
)

_POLL_SECONDS = 0.02
_BLOCK = 64 << 10


def can_connect(address: ServerAddress) -> bool:
    """Whether this process may connect to the socket of its attempt."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        try:
            trial.connect(address.socket_path)
        except OSError:
            return False
        return True


class MailboxReply(HttpReply):
    """An answer that was found in the outbox."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes | Path) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    def pieces(self) -> Iterator[bytes]:
        if isinstance(self._body, bytes):
            yield self._body
            return
        try:
            with self._body.open("rb") as file:
                yield from iter(lambda: file.read(_BLOCK), b"")
        except OSError as error:
            raise Broken(str(error), sent=True) from error
        finally:
            self.close()

    def close(self) -> None:
        if isinstance(self._body, Path):
            self._body.unlink(missing_ok=True)


class MailboxTransport(Transport):
    """Puts requests into the outbox of an attempt, and waits for the answers beside them."""

    def __init__(self, url: str, outbox: str) -> None:
        super().__init__(url)
        self._outbox = Path(outbox)

    def send(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | Iterable[bytes] = b"",
        length: int | None = None,
        silence: float = SILENCE_SECONDS,
    ) -> HttpReply:
        name = os.urandom(8).hex()
        request = {"method": method, "target": target, "headers": headers, "body_file": True}
        try:
            with (self._outbox / f"{name}.body").open("xb") as file:
                file.writelines([body] if isinstance(body, bytes) else body)
            written = self._outbox / f"{name}.part"
            written.write_text(json.dumps(request), "utf-8")
            written.rename(self._outbox / f"{name}.json")
        except OSError as error:
            raise Unavailable(
                f"The worker of this attempt cannot be asked: neither is its socket within reach,"
                f" nor can {self._outbox} be written ({error.strerror or error}). Nothing was"
                " changed.",
                "Ask from within the workspace, while the attempt runs.",
                code="server_away",
            ) from error
        return self._answer(name, silence)

    def _answer(self, name: str, silence: float) -> HttpReply:
        place = self._outbox / f"{name}.answer"
        deadline = time.monotonic() + silence
        while True:
            with contextlib.suppress(FileNotFoundError):
                said = json.loads(place.read_text("utf-8"))
                place.unlink()
                break
            if time.monotonic() >= deadline or not self._outbox.is_dir():
                (self._outbox / f"{name}.json").unlink(missing_ok=True)
                raise Broken("the worker does not answer", sent=True)
            time.sleep(_POLL_SECONDS)
        body: bytes | Path = self._outbox / f"{name}.answer-body"
        if "body" in said:
            body = json.dumps(said["body"]).encode()
        return MailboxReply(said["status"], said["headers"], body)

    def begin(self, method: str, target: str, headers: dict[str, str]) -> Pending:
        raise Broken("nobody is rung through a mailbox", sent=False)
