"""Secrets that settings name and do not hold: `env:NAME` and `file:PATH`.

Settings are copied, committed and shown to others. A reference in them says where a secret is, and
each process looks there when it starts.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from agentq.core.errors import Invalid, Unavailable
from agentq.settings.addresses import passwords_in

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: No address or key is longer; a wrong path may lead to something huge.
_BYTES_MAX = 65536
_HOW = 'As in "env:LEDGER_URL" or "file:/run/secrets/ledger-url".'

#: What to do about a password in the settings.
BY_REFERENCE = (
    "put the address into a variable or a file that only you may read, and name that instead,"
    ' as in url = "env:NAME" or url = "file:PATH"'
)


class Resolved(NamedTuple):
    """What a setting stands for; `written` names it in a way that holds in every folder."""

    value: str
    written: str
    #: The file that it was read from, if it was.
    file: str = ""


def resolve_address(text: str, name: str, base: Path) -> Resolved:
    """The address that a setting means; see `resolve`."""
    found = resolve(text, name, base)
    if "://" not in found.value and not found.value.startswith("sqlite:"):
        raise Invalid(
            f"{name} refers to {text[:200]}, which holds no address.",
            "The whole address goes there, as in postgresql://user:password@host/database.",
        )
    return found


def resolve(text: str, name: str, base: Path) -> Resolved:
    """What a setting means: itself, or what it refers to; paths are relative to `base`.

    `name` is what errors call the setting. What is found is never shown.
    """
    if text.startswith("env:"):
        return Resolved(_variable(text.removeprefix("env:"), name), text)
    if text.startswith("file:"):
        path = text.removeprefix("file:")
        path = path.removeprefix("//") if path.startswith("///") else path
        file = base / Path(path).expanduser()
        return Resolved(_content(file, name), f"file:{file}", str(file))
    return Resolved(text, text)


def _variable(variable: str, name: str) -> str:
    if not _VARIABLE.fullmatch(variable):
        raise Invalid(f"{name} refers to the variable {variable[:80]!r}, which is no name.", _HOW)
    value = os.environ.get(variable, "").strip()
    if not value:
        raise Unavailable(
            f"{name} refers to the variable {variable}, which is not set here.",
            f"Set {variable} wherever agentq runs, or write another reference.",
        )
    return _no_reference(value, name, f"the variable {variable}")


def _content(file: Path, name: str) -> str:
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as opened:  # noqa: PTH123 - a descriptor
            data = opened.read(_BYTES_MAX + 1)
        value = data.decode("utf-8").strip()
    except OSError as error:
        raise Unavailable(
            f"{name} refers to the file {file}, which user {os.geteuid()} cannot read:"
            f" {(error.strerror or str(error)).lower()}.",
            "Put the secret there, in a file that only the user of agentq may read (chmod 600).",
        ) from error
    except UnicodeDecodeError:
        raise Invalid(f"{name} refers to the file {file}, which holds no text in UTF-8.") from None
    if not value or len(data) > _BYTES_MAX or "\n" in value:
        what = "is empty" if not value else "holds more than one line"
        raise Invalid(
            f"{name} refers to the file {file}, which {what}.", "One line with the value, no more."
        )
    return _no_reference(value, name, f"the file {file}")


def _no_reference(value: str, name: str, where: str) -> str:
    if value.startswith(("env:", "file:")):
        raise Invalid(
            f"{name} refers to {where}, and that refers to something else again.",
            "Name the last one in the settings.",
        )
    return value


def plain_secrets(file: Path) -> list[str]:
    """The settings of an agentq.toml that hold a password in plain text, by name."""
    import tomllib

    return list(_with_passwords(tomllib.loads(file.read_text("utf-8")), ()))


def _with_passwords(value: Any, path: tuple[str, ...]) -> list[str]:
    if isinstance(value, dict):
        inner = [_with_passwords(each, (*path, name)) for name, each in value.items()]
        return [name for names in inner for name in names]
    if isinstance(value, list):
        inner = [_with_passwords(each, path) for each in value]
        return list(dict.fromkeys(name for names in inner for name in names))
    if isinstance(value, str) and any(passwords_in(word) for word in value.split()):
        return [f"{path[-1]} in [{'.'.join(path[:-1])}]"]
    return []
