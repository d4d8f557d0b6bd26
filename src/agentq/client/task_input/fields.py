"""The fields a task may have in front matter, each read to its proper type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from agentq.core.durations import parse_duration
from agentq.core.errors import Invalid

#: A task after a task after a task: more are a workflow, not a chain written into one file.
_CHAIN_MAX = 8


def check_text(text: str, where: str) -> None:
    """Refuse what only looks like text: it could not be stored or shown."""
    if "\0" in text:
        raise Invalid(f"{where}: expected text, got a NUL character.", "Is it a binary file?")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Invalid(
                f"{where}: character {error.start} is half of a surrogate pair and no text.",
                "Write the whole character.",
            ) from error


class _Where(NamedTuple):
    """Which field of what, for messages."""

    source: str
    line: int | None
    field: str

    def __str__(self) -> str:
        at = f", line {self.line}" if self.line is not None else ""
        return f"{self.source}{at}: {self.field}"

    def wrong(self, expected: str, value: object, remedy: str = "") -> Invalid:
        return Invalid(f"{self}: expected {expected}, got {_shown(value)}.", remedy)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if abs(value) < 10**20 else "a very large number"
    if isinstance(value, str | float):
        shown = ascii(value)
        return shown if len(shown) <= 60 else f"{shown[:57]}..."
    return {"list": "a list", "dict": "a mapping"}.get(type(value).__name__, type(value).__name__)


def _text(where: _Where, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**20:
        return str(value)  # id: 123
    if not isinstance(value, str):
        raise where.wrong("text", value, "Put it in quotes.")
    if not value.strip():
        raise where.wrong("some text", value, "Leave the field out instead.")
    check_text(value, str(where))
    return value


def _texts(where: _Where, value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return list(dict.fromkeys(_text(where, each) for each in values))


def _separated(where: _Where, value: object) -> list[str]:
    """A list, or words with commas between them."""
    if isinstance(value, str):
        value = [word.strip() for word in value.split(",") if word.strip()] or value
    return _texts(where, value)


def _whole(where: _Where, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise where.wrong("a whole number", value)
    if not 0 <= value < 2**63:
        raise where.wrong("a whole number from 0 to 9223372036854775807", value)
    return value


def _amount(where: _Where, value: object) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise where.wrong("a number", value)
    if not 0 <= value < 1e15 or not math.isfinite(value):
        raise where.wrong("a number from 0", value)
    return value


def _flag(where: _Where, value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("yes", "no", "on", "off"):
        return value.lower() in ("yes", "on")
    if not isinstance(value, bool):
        raise where.wrong("true or false", value)
    return value


def _duration(where: _Where, value: object) -> int:
    return parse_duration(value, field=str(where))


def _duration_or_none(where: _Where, value: object) -> int | None:
    return parse_duration(value, field=str(where), allow_zero=True) or None


def _seconds(where: _Where, value: object) -> int:
    return parse_duration(_whole(where, value), field=str(where))


def _seconds_or_none(where: _Where, value: object) -> int | None:
    return parse_duration(_whole(where, value), field=str(where), allow_zero=True) or None


def _mapping(where: _Where, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise where.wrong("`key: value` pairs", value)
    for key in value:
        _text(where, key)
    return value


def _approval(where: _Where, value: object) -> object:
    """`true`, or how it is waited for; what that says is read with the other fields."""
    return value if isinstance(value, bool) else _mapping(where, value)


def _labels(where: _Where, value: object) -> dict[str, str]:
    labels: dict[str, str] = {}
    for key, label in _mapping(where, value).items():
        written = str(label).lower() if isinstance(label, bool) else label
        labels[key] = _text(where._replace(field=f"labels.{key}"), written)
    return labels


def _parts(readers: Mapping[str, _Reader]) -> _Reader:
    """A reader for a mapping with these keys."""

    def read(where: _Where, value: object) -> dict[str, object]:
        parts: dict[str, object] = {}
        for key, part in _mapping(where, value).items():
            if key not in readers:
                raise _unknown(where.source, where.line, f"{where.field}.{key}", key, readers)
            if part is not None:
                parts[key] = readers[key](where._replace(field=f"{where.field}.{key}"), part)
        return parts

    return read


_Reader = Callable[[_Where, object], object]

#: What may be written, what it is called afterwards, and how it is read.
_FIELDS: dict[str, tuple[str, _Reader]] = {
    **{name: (name, _text) for name in (
        "id", "title", "to", "from", "type", "priority", "on_dependency_failure",
        "idempotency_key", "reply_to", "instructions", "traceparent",
    )},
    **{name: (f"{name}_seconds", _duration) for name in (
        "ttl", "timeout", "lease", "approval_timeout",
    )},
    **{name: (name, _seconds) for name in (
        "ttl_seconds", "timeout_seconds", "lease_seconds", "approval_timeout_seconds",
    )},
    "delay": ("delay_seconds", _duration_or_none),
    "delay_seconds": ("delay_seconds", _seconds_or_none),
    "max_attempts": ("max_attempts", _whole),
    **{name: (name, _flag) for name in ("irreversible", "requires_approval", "review")},
    "after": ("after", _separated),
    "base": ("base", _separated),
    "resource": ("resources", _texts),
    "resources": ("resources", _texts),
    "expect": ("expect", _separated),
    "expected_output": ("expected_output", _parts({"format": _text, "artifacts": _separated})),
    **{f"{name}_usd": (f"{name}_usd", _amount) for name in ("budget", "tree_budget")},
    **{name: (name, _parts(
        {"usd": _amount, "tokens": _whole, "turns": _whole, "seconds": _duration}
    )) for name in ("budget", "tree_budget")},
    "labels": ("labels", _labels),
    **{name: (name, _text) for name in ("parent", "each", "workflow", "verify", "reviewer")},
    **{name: (name, _whole) for name in ("min_score", "max_rounds")},
    "gates": ("gates", _mapping),
    "approval": ("approval", _approval),
    "wait_for": ("wait_for", _separated),
    "inputs": ("inputs", _mapping),
    "next": ("next", _texts),
    "next_tasks": ("next", _texts),
}  # fmt: skip


def check_fields(
    fields: Mapping[str, object], source: str, lines: Mapping[str, int], chain: int = 1
) -> dict[str, object]:
    """Return the fields by their full names, each of its proper type; null means not given.

    Durations become `…_seconds`, `expect` joins `expected_output`, `budget_usd` joins `budget`
    (and `tree_budget_usd` `tree_budget`), and what may be one or many becomes a list. Values are
    not judged further: `core` does that.
    """
    checked: dict[str, object] = {}
    written: dict[str, str] = {}
    for name, value in fields.items():
        if name not in _FIELDS:
            raise _unknown(source, lines.get(name), name, name, _FIELDS)
        if value is None:
            continue
        target, reader = _FIELDS[name]
        where = _Where(source, lines.get(name), name)
        if target in written:
            raise Invalid(
                f"{where} and {written[target]} say the same twice.", "Leave one of them out."
            )
        written[target] = name
        read = _next(where, value, chain) if target == "next" else reader(where, value)
        if read is not None:
            checked[target] = read
    _join(checked, source, lines)
    return checked


def _next(where: _Where, value: object, chain: int) -> list[object]:
    """Paths of task files, or the fields of the next tasks themselves."""
    if chain > _CHAIN_MAX:
        raise Invalid(f"{where}: nested deeper than {_CHAIN_MAX}.", "Use task files, or --after.")
    return [
        check_fields(each, str(where), {}, chain + 1)
        if isinstance(each, Mapping)
        else _text(where, each)
        for each in (value if isinstance(value, list) else [value])
    ]


def _join(checked: dict[str, object], source: str, lines: Mapping[str, int]) -> None:
    """Move what has a short name of its own to where it belongs."""
    expect = checked.pop("expect", None)
    if isinstance(expect, list):
        output = checked.setdefault("expected_output", {})
        assert isinstance(output, dict)
        output["artifacts"] = list(dict.fromkeys([*output.get("artifacts", ()), *expect]))
    for name in ("budget", "tree_budget"):
        usd = checked.pop(f"{name}_usd", None)
        if usd is None:
            continue
        budget = checked.setdefault(name, {})
        assert isinstance(budget, dict)
        if "usd" in budget:
            where = _Where(source, lines.get(f"{name}_usd"), f"{name}_usd")
            raise Invalid(f"{where} and {name}.usd say the same twice.", "Leave one of them out.")
        budget["usd"] = usd


def _unknown(
    source: str, line: int | None, shown: str, name: str, known: Mapping[str, object]
) -> Invalid:
    from difflib import get_close_matches

    near = get_close_matches(name[:60].lower().replace("-", "_"), known, 1)
    remedy = f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(sorted(known))}."
    at = f", line {line}" if line is not None else ""
    return Invalid(f"{source}{at}: there is no field {shown[:60]!a}.", remedy)
