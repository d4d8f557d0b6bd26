"""Which ids and names may become paths, what they are called as addresses, and what they hold.

A name is checked by what it may consist of, never by comparing paths: no separator, no leading
dot, no `..`, no control or look-alike character can get through, so no path can leave its folder.
"""

from __future__ import annotations

import codecs
import os
import re

from agentq.core.errors import Invalid

_TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ +@=-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
SEGMENTS_MAX = 4
_EPOCH_MAX = 2**63 - 1

_URI_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")

#: The system's own table differs from host to host; records must not.
_MEDIA_TYPES = {
    "css": "text/css", "csv": "text/csv", "diff": "text/x-diff", "gif": "image/gif",
    "gz": "application/gzip", "htm": "text/html", "html": "text/html", "jpeg": "image/jpeg",
    "jpg": "image/jpeg", "js": "text/javascript", "json": "application/json",
    "jsonl": "application/jsonl", "log": "text/plain", "md": "text/markdown",
    "patch": "text/x-diff", "pdf": "application/pdf", "png": "image/png", "py": "text/x-python",
    "svg": "image/svg+xml", "tar": "application/x-tar", "toml": "application/toml",
    "txt": "text/plain", "webp": "image/webp", "xml": "application/xml",
    "yaml": "application/yaml", "yml": "application/yaml", "zip": "application/zip",
}  # fmt: skip


def check_task_id(task_id: object) -> str:
    """Return the id, or raise `Invalid` when it cannot name a file."""
    if not isinstance(task_id, str) or not _TASK_ID.fullmatch(task_id) or ".." in task_id:
        raise Invalid(
            f"A task id is 1 to 128 letters, digits, '.', '_' or '-', starts with a letter or digit"
            f" and has no '..'; got {_shown(task_id)}.",
            "Use the id that submit gave.",
        )
    return task_id


def check_epoch(epoch: object) -> str:
    """Return the epoch as its folder is called."""
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch <= _EPOCH_MAX:
        raise Invalid(
            f"An epoch is a whole number from 0; got {_shown(epoch)}.",
            "Use the epoch that claim gave.",
        )
    return str(epoch)


def check_name(name: object) -> tuple[str, ...]:
    """Return the segments of an artifact's name, or raise `Invalid`."""
    segments = tuple(name.split("/", SEGMENTS_MAX)) if isinstance(name, str) else ("",)
    if len(segments) > SEGMENTS_MAX or not all(
        _SEGMENT.fullmatch(segment) and ".." not in segment for segment in segments
    ):
        raise Invalid(
            f"An artifact's name is 1 to {SEGMENTS_MAX} parts joined by '/', each of letters,"
            " digits, space and . _ + @ = -, starting with a letter or digit, with no '..' and at"
            f" most 200 characters; got {_shown(name)}.",
            "Choose a name like report.md or logs/test-output.txt.",
        )
    return segments


def check_sha256(sha256: object) -> str:
    """Return the digest, or raise `Invalid`: it is part of a staged file's name."""
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise Invalid(
            f"A SHA-256 digest is 64 lower-case hexadecimal digits; got {_shown(sha256)}.",
            "Use the digest that was recorded when the file was stored.",
        )
    return sha256


def media_type(name: str, head: bytes) -> str:
    """Return what a file holds, by its ending, else by whether its beginning is text."""
    stem, dot, ending = name.rpartition("/")[2].rpartition(".")
    known = _MEDIA_TYPES.get(ending.lower()) if stem and dot else None
    if known is not None:
        return known
    try:
        codecs.utf_8_decode(head, "strict", False)  # the last character may be cut in two
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "application/octet-stream" if b"\0" in head else "text/plain"


def uri_quoted(path: str) -> str:
    """Return a path as it is written in an address (start-up: no urllib for one function)."""
    raw = path.encode("utf-8", "surrogateescape")
    return "".join(chr(b) if b in _URI_SAFE else f"%{b:02X}" for b in raw)


_TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{24}")


def temporary_name() -> str:
    """Return a name that no artifact can have and no two writers share."""
    return f".tmp-{os.urandom(12).hex()}"


def is_temporary(name: str) -> bool:
    return name.startswith(".tmp-")


def is_temporary_name(name: str) -> bool:
    """Whether this is exactly what `temporary_name` gives."""
    return _TEMPORARY.fullmatch(name) is not None


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    shown = ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
