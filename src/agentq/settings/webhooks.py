"""`[webhooks.NAME]` of agentq.toml: who is told of what happens to tasks."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentq.core.errors import AgentqError, Invalid
from agentq.core.states import State
from agentq.settings import only_known, read_file
from agentq.settings.reloading import file_signature

log = logging.getLogger("agentq.daemon.webhooks")

_NAMES = ("url", "secret", "events", "roles", "states", "allow_private")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_WORD = re.compile(r"[a-z][a-z_]{0,49}")
_URL_CHARS_MAX = 2000


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """One target. Empty `events`, `roles` and `states` do not restrict; `secret` is a reference,
    whose paths are relative to `folder`."""

    name: str
    url: str
    secret: str
    folder: Path
    events: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    #: Whether it may be at an address of this machine or of a private network.
    allow_private: bool = False


def read_webhooks(tables: Mapping[str, Any], file: Path) -> dict[str, WebhookSettings]:
    """Check the targets of webhooks."""
    return {name: _read(name, table, file) for name, table in tables.items()}


def _read(name: str, table: Any, file: Path) -> WebhookSettings:
    where = f"[webhooks.{name}] in {file}"
    if not _NAME.fullmatch(name):
        raise Invalid(f"{where} is named by at most 64 letters, digits, - and _.", "Rename it.")
    only_known(table, _NAMES, where)
    allow_private = table.get("allow_private", False)
    if not isinstance(allow_private, bool):
        raise Invalid(f"allow_private of {where} is true or false, got {allow_private!r}.")
    secret = table.get("secret", "")
    if not isinstance(secret, str) or not secret.startswith(("env:", "file:")):
        raise Invalid(
            f"secret of {where} names where the secret is, and never is the secret itself.",
            'As in secret = "env:NAME" or "file:PATH".',
        )
    states = _words(table, "states", where)
    unknown = [each for each in states if each not in set(State)]
    if unknown:
        raise Invalid(f"states of {where} has no state {unknown[0]!r}.",
                      f"There are: {', '.join(State)}.")  # fmt: skip
    return WebhookSettings(
        name, _url(table, where, allow_private=allow_private), secret, file.parent,
        _words(table, "events", where), _words(table, "roles", where, any_word=True), states,
        allow_private,
    )  # fmt: skip


def _url(table: Mapping[str, Any], where: str, *, allow_private: bool) -> str:
    url = table.get("url", "")
    remedy = 'As in url = "https://example.com/agentq".'
    if not isinstance(url, str) or not url.isascii() or len(url) > _URL_CHARS_MAX:
        raise Invalid(f"url of {where} is an address.", remedy)
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for what is none
    except ValueError:
        raise Invalid(f"url of {where} cannot be read.", remedy) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise Invalid(f"url of {where} starts with https://.", remedy)
    if parts.username or parts.password:
        raise Invalid(f"url of {where} holds a password.", "Deliveries are signed: leave it out.")
    if parts.scheme == "http" and not allow_private:
        raise Invalid(
            f"url of {where} is not encrypted: everybody on the way could read what is sent.",
            "Use https://, or say allow_private = true for an address of your own network.",
        )
    return url


def _words(
    table: Mapping[str, Any], name: str, where: str, *, any_word: bool = False
) -> tuple[str, ...]:
    value = table.get(name, [])
    if not isinstance(value, list) or not all(
        isinstance(each, str) and (each if any_word else _WORD.fullmatch(each)) for each in value
    ):
        raise Invalid(f"{name} of {where} is a list of words, got {value!r}.")
    return tuple(value)


class WebhooksFile:
    """The targets of a settings file, read again when it has changed: one `stat` while nobody
    changes it. A file that cannot be used changes nothing."""

    def __init__(self, source: str, webhooks: Mapping[str, WebhookSettings]) -> None:
        #: None where settings are from no file: an address on the command line or in a variable.
        self._path = Path(source) if source.startswith("/") else None
        self._webhooks = webhooks
        self._seen = file_signature(self._path)

    def targets(self) -> Mapping[str, WebhookSettings]:
        """The targets as they are now."""
        seen = file_signature(self._path)
        if self._path is not None and seen != self._seen:
            try:
                self._webhooks = read_file(self._path).webhooks
            except AgentqError as error:
                log.warning("webhooks stay as they were: %s", error)
            self._seen = seen  # last: several threads ask, and none must go by what was before
        return self._webhooks
