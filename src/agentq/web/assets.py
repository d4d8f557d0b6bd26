"""The files of the pages: style sheets and modules, as they are installed. Nothing is built.

Each is known by the digest of all of them, which is part of its address: a browser keeps it as long
as it likes, and asks for another one after an upgrade.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

from agentq.server.api import Response

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOLDER = "assets"


class Asset(NamedTuple):
    """One file, as it is and smaller."""

    type: str
    plain: bytes
    small: bytes


@cache
def _assets() -> tuple[str, dict[str, Asset]]:
    found: dict[str, Asset] = {}
    digest = hashlib.sha256()
    for file in sorted(resources.files("agentq.web").joinpath("static").iterdir(), key=str):
        kind = _TYPES.get("." + file.name.rpartition(".")[2])
        if kind is None:
            continue
        data = file.read_bytes()
        digest.update(file.name.encode() + b"\0" + data)
        found[file.name] = Asset(kind, data, gzip.compress(data, 9, mtime=0))
    return digest.hexdigest()[:12], found


def version() -> str:
    """By which a page knows whether it is still the newest."""
    return _assets()[0]


def address(name: str) -> str:
    """Where a file is, from the first page on; relative, as a proxy may serve it below a path."""
    return f"board/{_FOLDER}/{version()}/{name}"


def asset(path: str, headers: Mapping[str, str]) -> Response | None:
    """The file of a path; None if there is none. Old addresses lead to the newest file."""
    parts = path.split("/")
    if len(parts) != 5 or parts[2] != _FOLDER:
        return None
    digest, files = _assets()
    found = files.get(parts[4])
    if found is None:
        return None
    small = "gzip" in headers.get("accept-encoding", "")
    answer = {
        "content-type": found.type,
        "cache-control": "public, max-age=31536000, immutable"
        if parts[3] == digest
        else "no-cache",
        "vary": "accept-encoding",
    }
    if small:
        answer["content-encoding"] = "gzip"
    return Response(200, found.small if small else found.plain, answer)
