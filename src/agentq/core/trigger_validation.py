"""Validates triggers before they are logged: texts bounded and readable, the author named."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any

from agentq.core.errors import Invalid
from agentq.core.limits import (
    DATA_CHARS_MAX,
    INSTRUCTIONS_BYTES_MAX,
    NAME_CHARS_MAX,
    NOTE_CHARS_MAX,
    PROGRESS_CHARS_MAX,
    SUMMARY_CHARS_MAX,
)
from agentq.core.spec_types import (
    check_gates,
    check_usage,
    first_wrong_kind,
    is_readable,
    wrong_kind,
)
from agentq.core.states import State
from agentq.core.task import NO_GATES, NO_USAGE, Gates, Spec, Usage
from agentq.core.triggers import FailureKind, Resolution, Ruling, Trigger
from agentq.core.values import fields_of

#: How long each text of a trigger may be, where it is not a note.
_LIMITS = {
    "by": NAME_CHARS_MAX,
    "how": 2 * NAME_CHARS_MAX,
    "holder": NAME_CHARS_MAX,
    "note": PROGRESS_CHARS_MAX,
    "summary": SUMMARY_CHARS_MAX,
    "reason": SUMMARY_CHARS_MAX,
    "name": 4 * NAME_CHARS_MAX,
    "result": 4 * NAME_CHARS_MAX,
    "sha256": NAME_CHARS_MAX,
    "result_sha256": NAME_CHARS_MAX,
    "digest": NAME_CHARS_MAX,
    "media_type": NAME_CHARS_MAX,
    "dependency": NAME_CHARS_MAX,
    "claim": NAME_CHARS_MAX,
    "commit": NAME_CHARS_MAX,
    "branch": 4 * NAME_CHARS_MAX,
    "instructions": INSTRUCTIONS_BYTES_MAX,
    "context_sha256": NAME_CHARS_MAX,
    "message": SUMMARY_CHARS_MAX,
    "data": DATA_CHARS_MAX,
    "review": NAME_CHARS_MAX,
    "wait": NAME_CHARS_MAX,
}
#: The same, of one kind of trigger.
_LIMITS_OF = {("Yield", "note"): SUMMARY_CHARS_MAX}
_CALLED = {
    "by": "the name of who says it",
    "holder": "the holder's name",
    "commit": "the commit",
    "name": "the artifact's name",
}
_REQUIRED = frozenset({"by", "holder", "commit"})


#: Field types as the triggers write them -> the type a value must have.
_KINDS: dict[str, type] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "Usage": Usage,
    "FailureKind": FailureKind,
    "Resolution": Resolution,
    "Ruling": Ruling,
    "State": State,
    "Spec": Spec,
    "Gates": Gates,
}
_WHOLE_MAX = 2**63 - 1
#: Numbers with a smaller limit.
_MOST = {"percent": 100, "denied": 10_000, "score": 100}
#: Numbers that may be below 0: without a score it is -1.
_LEAST = {"score": -1}


class _Shape:
    """What a kind of trigger holds: everything needed to check one in a few steps."""

    def __init__(self, kind: type) -> None:
        self.names = tuple(each.name for each in fields_of(kind))
        self.kinds = tuple(_KINDS.get(str(each.type), tuple) for each in fields_of(kind))
        places = list(enumerate(zip(self.names, self.kinds, strict=True)))
        self.texts = tuple(
            (
                place,
                name,
                _LIMITS_OF.get((kind.__name__, name), _LIMITS.get(name, NOTE_CHARS_MAX)),
                name in _REQUIRED,
            )
            for place, (name, held) in places
            if held is str
        )
        self.others = tuple(
            (place, name, held)
            for place, (name, held) in places
            if held in (int, float, Usage, Gates, tuple)
        )
        self.values = attrgetter(*self.names) if len(self.names) > 1 else self._one_or_none

    def _one_or_none(self, trigger: object) -> tuple[Any, ...]:
        return tuple(getattr(trigger, name) for name in self.names)


_shape = cache(_Shape)


def check_trigger(trigger: Trigger) -> None:
    """Raise `Invalid`, naming the field, unless the log can keep every field of the trigger."""
    kind: Any = type(trigger)
    shape = _shape(kind)
    values = shape.values(trigger)
    if tuple(map(type, values)) != shape.kinds:
        raise first_wrong_kind(shape.names, shape.kinds, values)
    for place, name, limit, required in shape.texts:
        text = values[place]
        if text:
            if required or len(text) > limit or not text.isascii() or "\x00" in text:
                _check_text(name, text, limit)
        elif required:
            _check_text(name, text, limit)
    for place, name, held in shape.others:
        value = values[place]
        if value and value is not NO_USAGE and value is not NO_GATES:
            _check_other(name, held, value)


def check_cause(cause: str) -> None:
    """Raise `Invalid` for what cannot name the cause of a comment."""
    if len(cause) > 200 or not cause.isprintable():
        raise Invalid(
            f"The cause of a comment is a name of at most 200 characters, got {cause[:60]!r}."
            " Nothing was recorded.",
            "Name for example the delivery or the attempt that it comes from.",
        )


def check_comment(text: str) -> None:
    """Raise `Invalid` for an empty comment."""
    if not text.strip():
        raise Invalid("A comment needs some text, got none. Nothing was recorded.", "Write one.")


def check_message(text: str) -> None:
    """Raise `Invalid` for an empty message."""
    if not text.strip():
        raise Invalid("A message needs some text, got none. Nothing was recorded.", "Write one.")


def _check_text(name: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise Invalid(
            f"{_called(name)} may have {limit} characters, this one has {len(text)}."
            " Nothing was recorded.",
            "Put the long text into an artifact and keep the message short.",
        )
    if (not text.isascii() or "\x00" in text) and not is_readable(text):
        raise Invalid(
            f"{_called(name)} holds bytes that are not text. Nothing was recorded.",
            "Send UTF-8 without NUL characters.",
        )
    if name in _REQUIRED and (not text.strip() or "\n" in text or "\r" in text):
        raise Invalid(
            f"{_called(name)} must be one line, got {text[:60]!r}. Nothing was recorded.",
            "Say who it is.",
        )


def _check_other(name: str, kind: type, value: Any) -> None:
    if kind is int:
        least, most = _LEAST.get(name, 0), _MOST.get(name, _WHOLE_MAX)
        if not least <= value <= most:
            raise Invalid(f"{_called(name)} must be from {least} to {most}, got {value}.")
    elif kind is float:
        if not 0 <= value <= 1:
            raise Invalid(f"{_called(name)} must be from 0 to 1, got {value}.")
    elif kind is Usage:
        check_usage(name, value)
    elif kind is Gates:
        check_gates(value)
    else:
        for each in value:
            if type(each) is str:
                _check_text(name, each, NOTE_CHARS_MAX)
            elif type(each) is not tuple:
                raise wrong_kind(name, str, each)


def _called(name: str) -> str:
    words = _CALLED.get(name, f"the {name}")
    return words[0].upper() + words[1:]
