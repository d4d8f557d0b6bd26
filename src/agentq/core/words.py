"""Whether what was said to a task can be kept: texts bounded and readable, the speaker named."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from agentq.core.errors import Invalid
from agentq.core.limits import (
    NAME_CHARS_MAX,
    NOTE_CHARS_MAX,
    PROGRESS_CHARS_MAX,
    SUMMARY_CHARS_MAX,
)
from agentq.core.triggers import Trigger

#: How long each text of a trigger may be, where it is not a note.
_LIMITS = {
    "by": NAME_CHARS_MAX,
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
}
_CALLED = {
    "by": "the name of who says it",
    "holder": "the holder's name",
    "note": "the progress note",
    "name": "the artifact's name",
}
_REQUIRED = frozenset({"by", "holder"})


@cache
def _texts_of(kind: type) -> tuple[tuple[str, int], ...]:
    """The fields of a trigger that hold text, and how long they may be."""
    return tuple(
        (each.name, _LIMITS.get(each.name, NOTE_CHARS_MAX))
        for each in fields(kind)
        if each.type == "str"
    )


def check_trigger(trigger: Trigger) -> None:
    """Raise `Invalid`, naming the text, unless the log can keep every word of it."""
    kind: type = type(trigger)
    for name, limit in _texts_of(kind):
        text = getattr(trigger, name)
        if type(text) is not str:
            raise Invalid(f"{_called(name)} must be text, got {str(text)[:60]!r}.")
        if len(text) > limit:
            raise Invalid(
                f"{_called(name)} may have {limit} characters, this one has {len(text)}."
                " Nothing was recorded.",
                "Put the long text into an artifact and keep the message short.",
            )
        if not text.isascii() or "\x00" in text:
            _check_readable(name, text)
        if name in _REQUIRED and (not text or "\n" in text or "\r" in text):
            raise Invalid(
                f"{_called(name)} must be one line, got {text[:60]!r}. Nothing was recorded.",
                "Say who it is.",
            )


def _called(name: str) -> str:
    words = _CALLED.get(name, f"the {name}")
    return words[0].upper() + words[1:]


def _check_readable(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(
            f"{_called(name)} holds bytes that are not UTF-8.", "Send text, not bytes."
        ) from None
    if "\x00" in text:
        raise Invalid(f"{_called(name)} holds a NUL character.", "Send text, not bytes.")
