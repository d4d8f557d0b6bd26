"""YAML front matter as plain data: a small, safe part of YAML, and the line of each field.

People write front matter by hand, so what they see is what they get. Only `true` and `false` are
switches, only plain decimal numbers are numbers; dates, `no`, `0123` and `1:30` stay the text they
are. Aliases, tags and repeated keys are refused: they are either a mistake or an attack.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agentq.core.errors import Invalid

if TYPE_CHECKING:
    from yaml.events import Event

_DEPTH_MAX = 20

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,17}(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, object] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


def load_front_matter(
    text: str, source: str, first_line: int = 1
) -> tuple[dict[str, object], dict[str, int]]:
    """Return the fields, and the line of each; `first_line` is where `text` starts in `source`."""
    import yaml

    builder = _Builder(source, first_line)
    try:
        # Events, not objects: they come one by one, so nothing can explode or recurse.
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.take(event)
    except yaml.YAMLError as error:
        raise _unreadable(error, source, first_line) from error
    except ValueError as error:  # a character that has no encoding
        raise Invalid(f"{source}: the front matter is not text: {error}.", _REMEDY) from error
    fields = builder.root if builder.root is not None else {}
    if not isinstance(fields, dict):
        raise builder.refused(0, f"expected `field: value` lines, got {_kind(fields)}")
    return fields, builder.lines


_REMEDY = "Write `field: value` lines between two lines of three dashes."


class _Builder:
    """Builds dicts and lists from YAML events; the innermost unfinished one is last."""

    def __init__(self, source: str, first_line: int) -> None:
        self.root: object = None
        self.lines: dict[str, int] = {}
        self._source = source
        self._first_line = first_line
        self._open: list[dict[str, object] | list[object]] = []
        self._keys: list[str | None] = []

    def take(self, event: Event) -> None:
        kind = type(event).__name__
        if kind == "ScalarEvent":
            self._scalar(event)
        elif kind == "MappingStartEvent":
            self._start({}, event)
        elif kind == "SequenceStartEvent":
            self._start([], event)
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._open.pop()
            self._keys.pop()
        elif kind == "AliasEvent":
            raise self._refuse(event, "references (*name) are not allowed")
        elif kind == "DocumentStartEvent" and self.root is not None:
            raise self._refuse(event, "expected one document, got a second one")

    def _scalar(self, event: Any) -> None:
        self._check_decoration(event)
        if self._expects_key():
            self._key(event.value, event)
        else:
            self._add(_plain_value(event.value) if event.implicit[0] else event.value)

    def _start(self, container: dict[str, object] | list[object], event: Any) -> None:
        self._check_decoration(event)
        if self._expects_key():
            raise self._refuse(event, "a field's name must be a word")
        if len(self._open) >= _DEPTH_MAX:
            raise self._refuse(event, f"nested deeper than {_DEPTH_MAX} levels")
        self._add(container)
        self._open.append(container)
        self._keys.append(None)

    def _check_decoration(self, event: Any) -> None:
        if event.anchor is not None:
            raise self._refuse(event, "anchors (&name) are not allowed")
        if event.tag is not None:
            raise self._refuse(event, "tags (!name) are not allowed")

    def _expects_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1], dict) and self._keys[-1] is None

    def _key(self, key: str, event: Any) -> None:
        container = self._open[-1]
        if key in container:
            raise self._refuse(event, f"the field {key[:60]!r} is given twice")
        if len(self._open) == 1:
            self.lines[key] = event.start_mark.line + self._first_line
        self._keys[-1] = key

    def _add(self, value: object) -> None:
        if not self._open:
            self.root = value
            return
        container, key = self._open[-1], self._keys[-1]
        if isinstance(container, list):
            container.append(value)
        elif key is not None:
            container[key] = value
            self._keys[-1] = None

    def _refuse(self, event: Any, problem: str) -> Invalid:
        return self.refused(event.start_mark.line, problem)

    def refused(self, line: int, problem: str) -> Invalid:
        return Invalid(
            f"{self._source}, line {line + self._first_line}: {problem}. Nothing was read.", _REMEDY
        )


def _plain_value(written: str) -> object:
    if written in _WORDS:
        return _WORDS[written]
    if _INTEGER.fullmatch(written):
        return int(written)
    if _NUMBER.fullmatch(written):
        return float(written)
    return written


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else "a single value"


def _unreadable(error: Exception, source: str, first_line: int) -> Invalid:
    mark = getattr(error, "problem_mark", None)
    where = f"{source}, line {mark.line + first_line}" if mark is not None else source
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    return Invalid(f"{where}: the front matter cannot be read: {problem}.", _REMEDY)
