"""Removes secrets from the output of an agent before it is stored.

Two kinds are found: the values that the worker itself gave to the agent, and whatever has the shape
of a secret (`agentq.protocol.secret_detection`). The unit is the line: a line is redacted as a
whole, so it does not matter in which pieces it came. A secret of several lines is found line by
line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from agentq.protocol.secret_detection import find_secret, redact

#: A known value shorter than this hides nothing and would blacken half of every log.
SECRET_CHARS_MIN = 4
#: A secret by shape is at most this long, unless its beginning alone is enough to find it.
_SHAPE_BYTES_MAX = 4096

_MARK = b"[redacted: known secret]"
_KEY_MARK = b"[redacted: private key]"
#: What the lines of a key file look like, perhaps quoted or numbered by whatever printed them.
_KEY_LINE = re.compile(
    rb"\s*[A-Za-z0-9+/=]{0,80}\s*|.*[A-Za-z0-9+/=]{16}.*"
    rb"|\s*(?:Proc-Type|DEK-Info|Comment|Version):.*"
)
#: No key file has more lines.
_KEY_LINES_MAX = 400


class Redactor:
    """Redacts one stream, line after line: it remembers when it is in the middle of a key file."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._known = as_written(secrets)
        self._key_lines_left = 0
        #: Whoever cuts a long line must have this much of it beyond the cut, and drop it after.
        self.margin = max((_SHAPE_BYTES_MAX, *map(len, self._known)))

    def is_clean(self, block: bytes) -> bool:
        """Whether these whole lines can be stored as they are; quick, as most can."""
        if self._key_lines_left or any(secret in block for secret in self._known):
            return False
        return find_secret(_decoded(block)) is None

    def line(self, line: bytes) -> bytes:
        """Redact one line, given without its end."""
        line = self._without_known(line)
        if self._key_lines_left:
            self._key_lines_left -= 1
            if b"-----END" in line:
                self._key_lines_left = 0
                return _KEY_MARK
            if _KEY_LINE.fullmatch(line):
                return _KEY_MARK if line.strip() else line
            self._key_lines_left = 0
        text = _decoded(line)
        clean = redact(text)
        if clean == text:
            return line
        redacted = clean.encode("utf-8", "surrogateescape")
        if _KEY_MARK in redacted and b"-----END" not in line:
            self._key_lines_left = _KEY_LINES_MAX
        return redacted

    def _without_known(self, line: bytes) -> bytes:
        known = [secret for secret in self._known if secret in line]
        if not known:
            return line
        # Each byte of a secret is marked, so that secrets that overlap leave nothing behind. One
        # more byte than the line has ends the last of them.
        hidden = bytearray(len(line) + 1)
        for secret in known:
            start = line.find(secret)
            while start >= 0:
                hidden[start : start + len(secret)] = b"\1" * len(secret)
                start = line.find(secret, start + 1)
        parts, done = [], 0
        while (start := hidden.find(1, done)) >= 0:
            parts += [line[done:start], _MARK]
            done = hidden.find(0, start)
        return b"".join([*parts, line[done:]])


def without_secrets(data: bytes, secrets: Collection[str]) -> bytes:
    """A whole file with its secrets taken out; `data` itself if it has none."""
    redactor = Redactor(secrets)
    if redactor.is_clean(data):
        return data
    return b"\n".join(redactor.line(line) for line in data.split(b"\n"))


def redacted_text(text: str, secrets: Collection[str]) -> str:
    """A whole text (a summary, a result, an error) with its secrets taken out."""
    raw = text.encode("utf-8", "surrogatepass")
    clean = without_secrets(raw, secrets)
    return text if clean is raw else clean.decode("utf-8", "replace")


def _decoded(data: bytes) -> str:
    # Whatever is not UTF-8 survives there and back.
    return data.decode("utf-8", "surrogateescape")


def as_written(secrets: Collection[str]) -> set[bytes]:
    """Each line of each secret, as it is and as JSON and addresses write it."""
    from urllib.parse import quote

    found = set()
    for secret in secrets:
        for line in {secret, *secret.splitlines()}:
            plain = line.strip()
            if len(plain) < SECRET_CHARS_MIN or "\n" in plain:
                continue
            in_json = (json.dumps(plain, ensure_ascii=escaped)[1:-1] for escaped in (True, False))
            in_address = quote(plain.encode("utf-8", "surrogateescape"), safe="")
            forms = (plain, *in_json, in_address)
            found |= {form.encode("utf-8", "surrogateescape") for form in forms}
    return found
