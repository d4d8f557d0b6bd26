"""YAML front matter as plain data: a small, safe part of YAML, and the line of each field.

People write front matter by hand, so what they see is what they get. Only `true` and `false` are
switches, only plain decimal numbers are numbers; dates, `no`, `0123` and `1:30` stay the text they
are. Aliases, tags and repeated keys are refused: they are either a mistake or an attack.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from agentq.core.errors import Invalid

if TYPE_CHECKING:
    from yaml.events import Event

_DEPTH_MAX = 20

_OPENING = re.compile(r"---[ \t]*\r?\n")
_CLOSING = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,17}(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, object] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


#: The way to a value: names of fields, and places in lists from 0.
FieldPath = tuple[str | int, ...]


class LocatedFields(NamedTuple):
    """Fields, and where in the file each of them and each part of them stands."""

    fields: dict[str, object]
    #: The line of a field's name, or where an item of a list starts.
    lines: dict[FieldPath, int]
    #: The first line of a text; below its field, if it is written with | or >.
    text_lines: dict[FieldPath, int]


def split_front_matter(text: str, source: str, chars_max: int) -> tuple[str, str] | None:
    """Return the front matter and what follows it; None if the text does not start with one."""
    opening = _OPENING.match(text)
    if opening is None:
        return None
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        raise Invalid(
            f"{source}, line 1: front matter is opened with --- but never closed.",
            "End it with a line of three dashes, or start the text without them.",
        )
    if closing.start() - opening.end() > chars_max:
        raise Invalid(
            f"{source}: front matter may have {chars_max} characters, this has"
            f" {closing.start() - opening.end()}.",
            "Put long text below the front matter.",
        )
    return text[opening.end() : closing.start()], text[closing.end() :]


def load_front_matter(
    text: str, source: str, first_line: int = 1
) -> tuple[dict[str, object], dict[str, int]]:
    """Return the fields, and the line of each; `first_line` is where `text` starts in `source`."""
    located = locate_fields(text, source, first_line)
    lines = {str(path[0]): line for path, line in located.lines.items() if len(path) == 1}
    return located.fields, lines


def locate_fields(text: str, source: str, first_line: int = 1) -> LocatedFields:
    """Return the fields, and where each part of them stands."""
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
    return LocatedFields(fields, builder.lines, builder.text_lines)


_REMEDY = "Write `field: value` lines between two lines of three dashes."


class _Builder:
    """Builds dicts and lists from YAML events; the innermost unfinished one is last."""

    def __init__(self, source: str, first_line: int) -> None:
        self.root: object = None
        self.lines: dict[FieldPath, int] = {}
        self.text_lines: dict[FieldPath, int] = {}
        self._source = source
        self._first_line = first_line
        self._open: list[dict[str, object] | list[object]] = []
        self._keys: list[str | None] = []
        #: The way to each open one, and to what was added last.
        self._paths: list[FieldPath] = []
        self._added: FieldPath = ()

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
            self._paths.pop()
        elif kind == "AliasEvent":
            raise self._refuse(event, "references (*name) are not allowed")
        elif kind == "DocumentStartEvent" and self.root is not None:
            raise self._refuse(event, "expected one document, got a second one")

    def _scalar(self, event: Any) -> None:
        self._check_decoration(event)
        if self._expects_key():
            self._key(event.value, event)
        else:
            self._add(_plain_value(event.value) if event.implicit[0] else event.value, event)
            below = event.style in ("|", ">")
            self.text_lines[self._added] = event.start_mark.line + self._first_line + below

    def _start(self, container: dict[str, object] | list[object], event: Any) -> None:
        self._check_decoration(event)
        if self._expects_key():
            raise self._refuse(event, "a field's name must be a word")
        if len(self._open) >= _DEPTH_MAX:
            raise self._refuse(event, f"nested deeper than {_DEPTH_MAX} levels")
        self._add(container, event)
        self._open.append(container)
        self._keys.append(None)
        self._paths.append(self._added)

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
        self.lines[(*self._paths[-1], key)] = event.start_mark.line + self._first_line
        self._keys[-1] = key

    def _add(self, value: object, event: Any) -> None:
        if not self._open:
            self.root = value
            return
        container, key = self._open[-1], self._keys[-1]
        if isinstance(container, list):
            self._added = (*self._paths[-1], len(container))
            self.lines[self._added] = event.start_mark.line + self._first_line
            container.append(value)
        else:
            assert key is not None, "a mapping's value comes after its name"
            self._added = (*self._paths[-1], key)
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
