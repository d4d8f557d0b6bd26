"""Large files straight to the artifact store and from it, by links that the server has made.

Whoever cannot reach the store goes through the server as before: a link saves a way, and is never
the only one. No token of ours goes along, and every byte is checked.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import closing
from typing import BinaryIO

from agentq.contracts.artifacts import Uploaded, UploadLink
from agentq.core.errors import AgentqError
from agentq.remote.files import Upload, spooled
from agentq.remote.transport import Broken, HttpReply, ServerAddress, Transport

log = logging.getLogger("agentq.remote")


def may_follow(url: str, server: ServerAddress) -> bool:
    """Whether a link keeps what it carries as secret as the way to the server does."""
    return url.startswith("https://" if server.tls else ("http://", "https://"))


def _opened(url: str) -> tuple[Transport, str]:
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    return Transport(f"{scheme}://{authority}"), f"/{path}"


def sent(link: UploadLink, upload: Upload) -> Uploaded | None:
    """Send a file by its link; None if the store could not be reached or did not take it."""
    transport, target = _opened(link.url)
    digest = hashlib.sha256()

    def pieces() -> Iterator[bytes]:
        for piece in upload.pieces():
            digest.update(piece)
            yield piece

    with closing(transport):
        try:
            reply = transport.send("PUT", target, {}, pieces(), upload.size)
            reply.read()
        except (Broken, AgentqError) as error:
            log.info("the artifact store was not reached by a link: %s", error)
            return None
    if reply.status not in (200, 201, 204):
        log.info("the artifact store did not take a file by a link: status %d", reply.status)
        return None
    return Uploaded(link.temporary, upload.size, digest.hexdigest())


def fetched(url: str, sha256: str) -> BinaryIO | None:
    """The file behind a link, checked; None if the store could not be reached or gave another."""
    transport, target = _opened(url)

    def ask(after: int = 0) -> HttpReply:
        headers = {"range": f"bytes={after}-"} if after else {}
        try:
            reply = transport.send("GET", target, headers)
        except Broken as broken:
            raise AgentqError(f"The connection broke: {broken}.") from broken
        if reply.status not in (200, 206):
            reply.close()
            raise AgentqError(f"The artifact store answered with status {reply.status}.")
        return reply

    with closing(transport):
        try:
            return spooled(ask(), sha256, ask)
        except AgentqError as error:
            log.info("a file did not come by its link: %s", error)
            return None
