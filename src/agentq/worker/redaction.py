"""Removes secrets from the output of an agent before it is stored.

Two kinds are found: the values that the worker itself gave to the agent, and whatever has the shape
of a secret (`agentq.protocol.secret_detection`). The unit is the line: a line is redacted as a
whole, so it does not matter in which pieces it came. A secret of several lines is found line by
line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator

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
        self._known = tuple(sorted(_as_written(secrets), key=len, reverse=True))
        self._key_lines_left = 0
        #: Whoever cuts a long line must have this much of it beyond the cut, and drop it after.
        self.margin = max((_SHAPE_BYTES_MAX, *map(len, self._known)))

    def is_clean(self, block: bytes) -> bool:
        """Whether these whole lines can be stored as they are; made to be quick about it."""
        if self._key_lines_left or any(secret in block for secret in self._known):
            return False
        return find_secret(_decoded(block)) is None

    def line(self, line: bytes) -> bytes:
        """One line, without its end."""
        if self._known:
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
        if clean is text or clean == text:
            return line
        redacted = clean.encode("utf-8", "surrogateescape")
        if _KEY_MARK in redacted and b"-----END" not in line:
            self._key_lines_left = _KEY_LINES_MAX
        return redacted

    def _without_known(self, line: bytes) -> bytes:
        parts, done = [], 0
        for start, end in _merged(_found(line, self._known)):
            parts += [line[done:start], _MARK]
            done = end
        return b"".join([*parts, line[done:]]) if parts else line


def redacted_text(text: str, secrets: Collection[str]) -> str:
    """A whole text (a summary, a result, an error) with its secrets taken out."""
    redactor = Redactor(secrets)
    raw = text.encode("utf-8", "surrogatepass")
    if redactor.is_clean(raw):
        return text
    lines = [redactor.line(line) for line in raw.split(b"\n")]
    return b"\n".join(lines).decode("utf-8", "replace")


def _decoded(data: bytes) -> str:
    # Whatever is not UTF-8 survives there and back.
    return data.decode("utf-8", "surrogateescape")


def _as_written(secrets: Iterable[str]) -> set[bytes]:
    """Each line of each secret, as it is and as JSON and addresses write it."""
    from urllib.parse import quote

    found = set()
    for secret in secrets:
        for line in {secret, *secret.splitlines()}:
            plain = line.strip()
            if len(plain) < SECRET_CHARS_MIN or "\n" in plain:
                continue
            forms = (plain, json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1])
            raw = plain.encode("utf-8", "surrogateescape")
            found |= {form.encode("utf-8", "surrogateescape") for form in forms}
            found.add(quote(raw, safe="").encode())
    return found


def _found(line: bytes, secrets: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    for secret in secrets:
        begun = end = -1
        start = line.find(secret)
        while start >= 0:
            if start > end:
                if end > 0:
                    yield begun, end
                begun = start
            end = start + len(secret)
            start = line.find(secret, start + 1)
        if end > 0:
            yield begun, end


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping ones as one: two secrets that share their ends leave nothing behind."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
