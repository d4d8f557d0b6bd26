"""The steps that a script may hold, and what each of them needs; `actions.py` plays them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from agentq.core.durations import parse_duration
from agentq.core.errors import Invalid
from agentq.core.task import Usage

#: A rehearsal of more than a month is a slip of the finger.
SECONDS_MAX = 31 * 86_400
ORPHANS_MAX = 100
_WHOLE_MAX = 2**53

_SIZE = re.compile(r"([0-9]{1,12})(k|M|G)?i?B?", re.IGNORECASE)
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

#: Ways of speaking nonsense.
NONSENSE = ("all", "garbage", "truncated", "binary")


@dataclass(frozen=True, slots=True)
class ScriptStep:
    name: str
    needs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Form:
    """What a step needs: checks by name, what stands in for what is left out, and the one that a
    plain value after the step's name means."""

    checks: Mapping[str, Callable[[object, str], Any]]
    defaults: Mapping[str, Any]
    main: str = ""
    #: Whether a mapping after the step's name is its one value, and not what it needs by name.
    takes_all: bool = False


# -- kinds of values -------------------------------------------------------------------------------


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def wrong(where: str, expected: str, got: object) -> Invalid:
    return Invalid(
        f"{where}: expected {expected}, got {shown(got)}. Nothing was played.", "Mend the script."
    )


def text(value: object, where: str) -> str:
    if isinstance(value, bool):
        raise wrong(where, "text (YAML reads yes, no, on and off as switches: quote them)", value)
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str) or "\x00" in value:
        raise wrong(where, "text", value)
    return value


def anything(value: object, where: str) -> object:
    return value


def switch(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(where, "true or false", value)
    return value


def whole(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _WHOLE_MAX:
        raise wrong(where, "a whole number from 0", value)
    return value


def number(value: object, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise wrong(where, "a number from 0", value)
    if not 0 <= value <= _WHOLE_MAX:
        raise wrong(where, "a number from 0", value)
    return float(value)


def seconds(value: object, where: str) -> float:
    if isinstance(value, str):
        value = parse_duration(value, field=where, allow_zero=True)
    length = number(value, where)
    if length > SECONDS_MAX:
        raise wrong(where, "at most a month", value)
    return length


def period(value: object, where: str) -> float:
    length = seconds(value, where)
    if length < 0.001:
        raise wrong(where, "at least a thousandth of a second", value)
    return length


def size(value: object, where: str) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        return int(match[1]) * _SIZES[(match[2] or "").lower()]
    if isinstance(value, str):
        raise wrong(where, "a size such as 4096, 64kB, 10MB or 2GB", value)
    return whole(value, where)


def path(value: object, where: str) -> str:
    """A place inside the workspace: a rehearsal changes nothing else."""
    if not isinstance(value, str) or not value or "\x00" in value:
        raise wrong(where, "a path", value)
    parts = PurePosixPath(value)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise wrong(where, "a path inside the workspace", value)
    return value


def optional_path(value: object, where: str) -> str:
    return "" if value == "" else path(value, where)


def command_line(value: object, where: str) -> tuple[str, ...]:
    """The words after `agentq`, as a list or as a line."""
    import shlex

    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError:
        words = None
    if not isinstance(words, list) or not words:
        raise wrong(where, "the words of an agentq command", value)
    return tuple(text(word, where) for word in words)


def exit_code(value: object, where: str) -> int:
    code = whole(value, where)
    if code > 255:
        raise wrong(where, "an exit code from 0 to 255", value)
    return code


def http_status(value: object, where: str) -> int:
    status = whole(value, where)
    if not 400 <= status <= 599:
        raise wrong(where, "an HTTP status from 400 to 599", value)
    return status


def signal_number(value: object, where: str) -> int:
    import signal

    if isinstance(value, str):
        name = value.upper() if value.upper().startswith("SIG") else f"SIG{value.upper()}"
        if name in signal.Signals.__members__:
            return int(signal.Signals[name])
    elif isinstance(value, int) and value in set(signal.Signals):
        return int(value)
    raise wrong(where, "a signal such as KILL, SEGV or 9", value)


def nonsense(value: object, where: str) -> str:
    if value not in NONSENSE:
        raise wrong(where, f"one of {', '.join(NONSENSE)}", value)
    return str(value)


def orphans(value: object, where: str) -> int:
    count = whole(value, where)
    if not 1 <= count <= ORPHANS_MAX:
        raise wrong(where, f"a number from 1 to {ORPHANS_MAX}", value)
    return count


def usage(value: object, where: str) -> Usage:
    """`{usd, tokens, turns}`, as in `before:`."""
    needs = _needs(FORMS["spend"], value, where)
    return Usage(needs["usd"], needs["tokens"], needs["turns"])


# -- the steps -------------------------------------------------------------------------------------


def _form(main: str = "", /, defaults: Mapping[str, Any] | None = None, **checks: Any) -> Form:
    return Form(checks, defaults or {}, main)


FORMS: dict[str, Form] = {
    # What an agent does.
    "say": _form("text", text=text),
    "think": _form("seconds", seconds=seconds),
    "work": _form("seconds", {"busy": False, "every": 1.0}, seconds=seconds, busy=switch,
                  every=period),
    "write": _form(path=path, text=text),
    "artifact": _form(name=path, text=text),
    "commit": _form(message=text, file=path, text=text),
    "spend": _form("usd", {"usd": 0.0, "tokens": 0, "turns": 0}, usd=number, tokens=whole,
                   turns=whole),
    "result": _form("text", {"structured": None}, text=text, structured=anything),
    "data": Form({"value": anything}, {}, "value", takes_all=True),
    "agentq": _form("words", words=command_line),
    "ask-permission": _form("what", what=text),
    # How it ends, in its own words.
    "exit": _form("code", {"code": 0}, code=exit_code),
    "api-error": _form("status", {"message": "It says no."}, status=http_status, message=text),
    "fail": _form("message", {"message": "Something went wrong."}, message=text),
    "ask": _form("question", question=text),
    "quota": _form("seconds", {"seconds": 60.0}, seconds=seconds),
    "refuse": _form("reason", {"reason": "I will not do this."}, reason=text),
    "unknown-session": _form(),
    # How it misbehaves.
    "hang": _form(),
    "hang-after-done": _form(),
    "crash": _form("signal", {"signal": None, "exit": None}, signal=signal_number, exit=exit_code),
    "flood": _form("bytes", {"errors": False}, bytes=size, errors=switch),
    "repeat": _form(text=text, times=whole),
    "fork-orphans": _form("count", {"count": 1, "seconds": 600.0, "pids": ""}, count=orphans,
                          seconds=seconds, pids=optional_path),
    "ignore-sigterm": _form(),
    "bad-output": _form("kind", {"kind": "all", "ends": True}, kind=nonsense, ends=switch),
}  # fmt: skip


def read_step(plain: object, where: str) -> ScriptStep:
    """One step as the script has it: `hang`, `say: Hello` or `write: {path: …, text: …}`."""
    name: object
    given: object
    if isinstance(plain, str):
        name, given = plain, None
    elif isinstance(plain, dict) and len(plain) == 1:
        name, given = next(iter(plain.items()))
    else:
        raise wrong(where, "one step, such as `hang` or `say: Hello`", plain)
    form = FORMS.get(name) if isinstance(name, str) else None
    if form is None:
        raise _unknown(name, where)
    return ScriptStep(str(name), _needs(form, given, f"{where} ({name})"))


def _unknown(name: object, where: str) -> Invalid:
    import difflib

    near = difflib.get_close_matches(str(name), FORMS, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return Invalid(
        f"{where}: there is no step {shown(name)}. Nothing was played.",
        f"{hint}Steps are: {', '.join(FORMS)}.",
    )


def _needs(form: Form, given: object, where: str) -> dict[str, Any]:
    if form.takes_all:
        fields: dict[Any, Any] = {form.main: given}
    elif given is None:
        fields = {}
    elif isinstance(given, dict):
        fields = given
    elif form.main:
        fields = {form.main: given}
    elif form.checks:
        raise wrong(where, f"{{{', '.join(f'{name}: …' for name in form.checks)}}}", given)
    else:
        raise wrong(where, "nothing after it", given)
    for name in fields:
        if name not in form.checks:
            known = ", ".join(form.checks) or "nothing"
            raise Invalid(f"{where}: {shown(name)} means nothing here.", f"It takes: {known}.")
    needs = dict(form.defaults)
    for name, check in form.checks.items():
        if name in fields:
            needs[name] = check(fields[name], f"{where}, {name}")
        elif name not in needs:
            raise Invalid(f"{where}: expected `{name}`, got none. Nothing was played.",
                          "Mend the script.")  # fmt: skip
    return needs
