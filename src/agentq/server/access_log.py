"""The access log: one line for each request, with an id that its answer carries too.

A line says who asked what, what came of it and how long it took. It holds neither the query nor any
header: there secrets may stand.
"""

from __future__ import annotations

import json
import logging
import re
import secrets

from agentq.server.api import find
from agentq.server.errors import HttpError

log = logging.getLogger("agentq.server")

_PATH_CHARS_MAX = 200
#: What a proxy may call a request: long enough to be told apart, and harmless in every log.
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")


def request_id(given: str) -> str:
    """The id that a proxy has given to the request, if it is a sensible one; else a new one."""
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def log_request(
    number: str, who: str, client: str, method: str, path: str, status: int, seconds: float
) -> None:
    """Write the line of one request; `path` is as it was sent, without its query."""
    if not log.isEnabledFor(logging.INFO):
        return
    fields: dict[str, object] = {
        "request": number,
        "who": who,
        "from": client,
        "method": method[:20],
        "path": path[:_PATH_CHARS_MAX],
        "route": _route(method, path),
        "status": status,
        "ms": round(seconds * 1000, 1),
    }
    text = " ".join(f"{name}={_value(value)}" for name, value in fields.items())
    log.info("%s", text, extra={"fields": fields})


def _route(method: str, path: str) -> str:
    try:
        return find(method, path).route.call
    except HttpError:
        return "-"


def _value(value: object) -> str:
    """As it can stand after `name=`: in quotes where a reader could not tell where it ends."""
    text = str(value) or "-"
    plain = text.isascii() and text.isprintable() and not set(text) & set(' "=\\')
    return text if plain else json.dumps(text)
