"""Reads JSON lines of tools: by meaning, tolerantly, and with bounds on what is kept.

Nothing here raises on anything a tool may print. What has an unexpected type counts as absent.
"""

from __future__ import annotations

import json
import re
from collections import deque
from typing import Any

import msgspec

from agentq.core.spec_types import AMOUNT_MAX
from agentq.core.task import NO_USAGE, Usage

#: Longer lines are not parsed. The worker cuts lines well before that.
LINE_BYTES_MAX = 16 * 1024 * 1024
#: An answer that is longer belongs into a file.
RESULT_CHARS_MAX = 1_000_000
TEXT_CHARS_MAX = 500
SUMMARY_CHARS_MAX = 600
DENIALS_MAX = 50

_decode = msgspec.json.Decoder().decode
_SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")


def parsed(line: bytes) -> dict[str, Any] | None:
    """The JSON object on this line; None if it is anything else, cut off, or nested absurdly."""
    start = line[:64].lstrip()[:1]
    if start != b"{" or len(line) > LINE_BYTES_MAX:
        return None
    try:
        found = _decode(line)
    except (ValueError, RecursionError):
        # Tools written in JavaScript cut texts in the middle of a character, and then write half
        # of it. One such character must not cost us the line with the result.
        if not line.rstrip().endswith(b"}"):
            return None
        try:
            found = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return found if type(found) is dict else None


def json_line(**fields: Any) -> bytes:
    return json.dumps(fields).encode("ascii") + b"\n"


def table(value: object) -> dict[str, Any]:
    return value if type(value) is dict else {}


def listed(value: object) -> list[Any]:
    return value if type(value) is list else []


def text(value: object, limit: int = TEXT_CHARS_MAX) -> str:
    """The text, as far as it can be written down; "" if it is none."""
    return clean(value[:limit]) if type(value) is str else ""


def clean(written: str) -> str:
    """Without what a database cannot keep: NUL characters and halves of characters."""
    if "\x00" in written:
        written = written.replace("\x00", "\ufffd")
    if written.isascii():
        return written
    return written.encode("utf-8", "replace").decode()


def number(value: object) -> float:
    """An amount from 0; everything else is 0."""
    if type(value) is int or type(value) is float:
        return float(value) if 0 <= value <= AMOUNT_MAX else 0.0
    return 0.0


def whole(value: object) -> int:
    return int(number(value))


def total(counts: dict[str, Any], *names: str) -> int:
    """The sum of these whole numbers; one that is missing counts as 0."""
    return sum(whole(counts.get(name)) for name in names)


def usage_of(fields: dict[str, Any]) -> Usage:
    return Usage(number(fields.get("usd")), whole(fields.get("tokens")), whole(fields.get("turns")))


def session_id(value: object) -> str:
    """An id that may later stand on a command line; "" for anything that could be an option."""
    return value if type(value) is str and _SESSION_ID.fullmatch(value) else ""


def one_line(value: str, limit: int = TEXT_CHARS_MAX) -> str:
    return " ".join(value[: 4 * limit].split())[:limit]


def summary_of(answer: str) -> str:
    """The first paragraph of an answer."""
    paragraph = answer.strip()[: 4 * SUMMARY_CHARS_MAX].split("\n\n", 1)[0]
    return one_line(paragraph, SUMMARY_CHARS_MAX)


class Tail:
    """Keeps the end of an output, up to so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max
        self._lines: deque[bytes] = deque()
        self._size = 0

    def add(self, line: bytes) -> None:
        if len(line) >= self._max:
            line = line[-self._max + 1 :]
        self._lines.append(line)
        self._size += len(line) + 1
        while self._size > self._max:
            self._size -= len(self._lines.popleft()) + 1

    def __str__(self) -> str:
        return clean(b"\n".join(self._lines).decode("utf-8", "replace"))

    def last(self, lines: int) -> str:
        """The last lines with something on them."""
        kept = [line for line in str(self).splitlines() if line.strip()]
        return "\n".join(kept[-lines:])


class Totals:
    """Turns running totals into differences since the last total; never less than 0."""

    def __init__(self, before: Usage = NO_USAGE) -> None:
        self._before = before

    def grown_to(self, now: Usage) -> Usage:
        before = self._before
        grown = Usage(
            round(max(now.usd - before.usd, 0.0), 9),
            max(now.tokens - before.tokens, 0),
            max(now.turns - before.turns, 0),
        )
        # A total that fell started anew: what is said from here on is measured from there.
        self._before = now
        return grown
