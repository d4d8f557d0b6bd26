"""The properties of a message as it came: written by anybody, so nothing in them may do harm.

py-amqp reads a header in one go: an odd time in one field loses all of it, or ends the reader. Here
each part is read by itself. A text that is no UTF-8 is empty, a value that means nothing to us is
None, and a header that breaks off gives what came before the break. Nothing here raises.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

#: What a content header has, in its order; a bit each, the highest first.
_FIELDS = (
    ("content_type", "text"), ("content_encoding", "text"), ("application_headers", "table"),
    ("delivery_mode", "B"), ("priority", "B"), ("correlation_id", "text"), ("reply_to", "text"),
    ("expiration", "text"), ("message_id", "text"), ("timestamp", "Q"), ("type", "text"),
    ("user_id", "text"), ("app_id", "text"), ("cluster_id", "text"),
)  # fmt: skip
#: Before the bits: class, weight and the length of the body.
_FLAGS_AT = 12
#: Values of a table that have one length, by the letters of RabbitMQ. A time stays a number.
_NUMBERS = {
    "t": "?", "b": "b", "B": "B", "s": "h", "U": "h", "u": "H", "I": "i", "i": "I", "l": "q",
    "L": "q", "f": "f", "d": "d", "T": "Q", "D": "Bi",
}  # fmt: skip
#: Tables within tables: what is deeper is passed over.
_DEPTH_MAX = 8


class _Broken(Exception):
    """The bytes end before what they announce, or what follows cannot be found."""


def read_properties(header: bytes) -> dict[str, Any]:
    """What the content header of a message says, by py-amqp's names."""
    properties: dict[str, Any] = {}
    reader = _PropertyReader(header, _FLAGS_AT)
    try:
        flags = reader.number("H")
        for place, (name, kind) in enumerate(_FIELDS):
            if not flags & 1 << (15 - place):
                continue
            if kind == "text":
                properties[name] = reader.text("B")
            elif kind == "table":
                properties[name] = _table(reader.part("I"), 0)
            else:
                properties[name] = reader.number(kind)
    except _Broken:
        return properties
    return properties


class _PropertyReader:
    """Reads AMQP values from a byte string, in order."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def left(self) -> bool:
        return self._at < len(self._data)

    def number(self, format: str) -> Any:
        """Read numbers of this format; return the last."""
        size = struct.calcsize(f">{format}")
        return struct.unpack(f">{format}", self._next(size))[-1]

    def part(self, length: str) -> bytes:
        """Read bytes that are preceded by their length."""
        return self._next(self.number(length))

    def text(self, length: str) -> str:
        return _text(self.part(length)) or ""

    def _next(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise _Broken
        part, self._at = self._data[self._at : end], end
        return part


def _text(data: bytes) -> str | None:
    try:
        return data.decode()  # strictly: half a character could never be written again
    except UnicodeDecodeError:
        return None


def _table(data: bytes, depth: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    reader = _PropertyReader(data)

    def read_one() -> None:
        key = _text(reader.part("B"))
        value = _value(reader, depth)
        if key is not None:
            table[key] = value

    _until_broken(reader, read_one)
    return table


def _array(data: bytes, depth: int) -> list[Any]:
    values: list[Any] = []
    reader = _PropertyReader(data)
    _until_broken(reader, lambda: values.append(_value(reader, depth)))
    return values


def _until_broken(reader: _PropertyReader, read_one: Callable[[], None]) -> None:
    try:
        while reader.left:
            read_one()
    except _Broken:
        return


def _value(reader: _PropertyReader, depth: int) -> Any:
    letter = chr(reader.number("B"))
    if letter in _NUMBERS:
        number = reader.number(_NUMBERS[letter])
        return None if letter == "D" else number  # nobody needs decimals
    if letter == "V":
        return None
    if letter not in "SxFA":
        raise _Broken  # nobody knows how long it is
    data = reader.part("I")
    if letter == "S":
        return _text(data)
    if letter == "x" or depth >= _DEPTH_MAX:
        return None
    return _table(data, depth + 1) if letter == "F" else _array(data, depth + 1)
