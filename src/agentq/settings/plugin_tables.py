"""The tables of agentq.toml that are for plugins: read where they are used, one by one.

A mistake in one of them must not keep anybody from working. Each is read by itself, what is wrong
is kept as words beside it, and the rest goes on.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentq.core.durations import parse_duration
from agentq.core.errors import Invalid, Unavailable
from agentq.settings.addresses import remember_passwords, remember_secrets
from agentq.settings.references import resolve

TIMEOUT_SECONDS = 30
_TIMEOUT_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """Which plugin does something, with which options, and how long a call may take."""

    name: str
    plugin: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeout: int = TIMEOUT_SECONDS
    #: Why it cannot be used as it stands; "" if it can.
    problem: str = ""


def plugin_table(source: str, name: str) -> tuple[dict[str, Any] | None, Path]:
    """The table of this name in the file that settings are from, as it is now, and the file.

    None if there is no such table, or settings are from no file: an address on the command line or
    in a variable.
    """
    path = Path(source)
    if not path.is_absolute():
        return None, path
    try:
        plain = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None, path
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror or error}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise Invalid(f"{path} cannot be read as TOML: {error}.", "Mend the file.") from error
    table = plain.get(name)
    if table is not None and not isinstance(table, dict):
        raise Invalid(f"[{name}] in {path} must be a table, got a {type(table).__name__}.")
    return table, path


def resolved(options: Mapping[str, Any], where: str, base: Path) -> dict[str, Any]:
    """Options with their references followed; what is found is taken out of logs and errors."""
    found = {}
    for name, value in options.items():
        if isinstance(value, str) and value.startswith(("env:", "file:")):
            secret = resolve(value, f"{name} of {where}", base).value
            remember_secrets(secret)
            remember_passwords(secret)
            value = secret  # noqa: PLW2901 - what the option means
        found[name] = value
    return found


def refuse_plain_secret(options: Mapping[str, Any], name: str, where: str) -> None:
    """Refuse a secret that stands in the settings themselves."""
    value = options.get(name, "")
    if not isinstance(value, str) or not value:
        raise Invalid(f"{name} of {where} must be a text.", f'As in {name} = "env:NAME".')
    if not value.startswith(("env:", "file:")):
        raise Invalid(
            f"{name} of {where} must not stand there itself: it holds a secret, and settings are"
            " copied and shown.",
            f'Name where it is: {name} = "env:NAME" or "file:PATH".',
        )


def timeout_of(row: Mapping[str, Any], where: str) -> int:
    """How long a call may take, in seconds."""
    if "timeout" not in row:
        return TIMEOUT_SECONDS
    seconds = parse_duration(row["timeout"], field=f"timeout of {where}")
    if seconds > _TIMEOUT_SECONDS_MAX:
        raise Invalid(f"timeout of {where} is at most {_TIMEOUT_SECONDS_MAX}s, got {seconds}s.")
    return seconds


def text_of(row: Mapping[str, Any], name: str, where: str, default: str = "") -> str:
    """A text among the settings of a plugin."""
    value = row.get(name, default)
    if not isinstance(value, str) or (name in row and not value.strip()):
        raise Invalid(f"{name} of {where} must be a text, got {value!r}.")
    return value


def texts_of(row: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    """A list of texts among the settings of a plugin."""
    value = row.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise Invalid(f"{name} of {where} must be a list of texts, got {value!r}.")
    return tuple(value)
