"""What a request asks for, told apart from every other by its digest."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from agentq.core.access import RequestKey
from agentq.server.api import Request, RouteMatch, encode

#: Of each file of a request so much is looked at: all of one that is in memory still.
_HASHED_BYTES = 1 << 20


def request_key(
    key: str, found: RouteMatch, request: Request, arguments: dict[str, Any]
) -> RequestKey:
    """The key of a request with the digest of all that it asks for: the call, the task that its
    path names, its body and its condition, and of large files their beginning and size."""
    asked = [found.route.call, found.values, request.arguments, arguments.get("if_version")]
    digest = hashlib.sha256(encode(asked))
    digest.update(request.body)
    for file in request.files:
        digest.update(file.read(_HASHED_BYTES))
        digest.update(str(file.seek(0, os.SEEK_END)).encode())
        file.seek(0)
    return RequestKey(key, digest.hexdigest())
