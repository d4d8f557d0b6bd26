"""`[git]` of agentq.toml: where work is pushed, and where pull requests are opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentq.core.durations import parse_duration
from agentq.core.errors import AgentqError
from agentq.settings import only_known
from agentq.settings.plugin_tables import (
    PluginSettings,
    plugin_table,
    refuse_plain_secret,
    resolved,
    text_of,
    timeout_of,
)

_OF_TABLE = ("plugin", "timeout", "base", "remote", "every")
_OPTIONS = {"github": ("repo", "token", "api")}
EVERY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class GitSettings:
    """How pull requests are opened. `settings` is None where there is no table [git]."""

    settings: PluginSettings | None = None
    #: The branch that pull requests are for, and the remote that work is pushed to.
    base: str = "main"
    remote: str = "origin"
    #: How often open ones are looked at, in seconds.
    every: int = EVERY_SECONDS
    #: Why the file cannot be read.
    problem: str = ""

    @property
    def stated(self) -> bool:
        return self.settings is not None

    @property
    def plugins(self) -> list[PluginSettings]:
        return [] if self.settings is None else [self.settings]

    @property
    def problems(self) -> list[str]:
        found = [self.problem, *(each.problem for each in self.plugins)]
        return [each for each in found if each]


def read_git(source: str) -> GitSettings:
    """How pull requests are opened, by the file that settings are from. Never raises for what is
    wrong in it."""
    try:
        table, file = plugin_table(source, "git")
    except AgentqError as error:
        return GitSettings(problem=str(error))
    return GitSettings() if table is None else _read(table, file)


def _read(table: dict[str, Any], file: Path) -> GitSettings:
    where = f"[git] in {file}"
    try:
        plugin = text_of(table, "plugin", where, "github")
        if plugin in _OPTIONS:
            only_known(table, (*_OF_TABLE, *_OPTIONS[plugin]), where)
        options = {key: value for key, value in table.items() if key not in _OF_TABLE}
        if plugin == "github":
            refuse_plain_secret(options, "token", where)
        every = EVERY_SECONDS
        if "every" in table:
            every = parse_duration(table["every"], field=f"every of {where}")
        settings = PluginSettings(
            plugin, plugin, resolved(options, where, file.parent), timeout_of(table, where)
        )
        base, remote = (
            text_of(table, "base", where, "main"),
            text_of(table, "remote", where, "origin"),
        )
        return GitSettings(settings, base, remote, every)
    except AgentqError as error:
        return GitSettings(PluginSettings("github", "", problem=str(error)))
