"""`[notify]` of agentq.toml: who is told of what, by which way, and when."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from agentq.core.durations import parse_duration
from agentq.core.errors import AgentqError, Invalid
from agentq.core.rates import NO_RATE
from agentq.core.values import replace
from agentq.plugins.routing import KINDS, SEVERITIES, NoticeRules, QuietHours
from agentq.settings import only_known
from agentq.settings.key_limits import read_rate
from agentq.settings.plugin_tables import (
    PluginSettings,
    plugin_table,
    refuse_plain_secret,
    resolved,
    text_of,
    texts_of,
    timeout_of,
)

#: What may stand in [notify] itself, and counts for all targets that do not say otherwise.
_SHARED = ("digest", "rate", "burst", "quiet", "zone", "severity", "events", "roles")
_OF_TARGET = ("plugin", "timeout", *_SHARED)
#: The options of each built-in plugin; of others all that agentq does not know is for the plugin.
_OPTIONS = {"apprise": ("url",), "command": ("command",), "file": ("path",)}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_QUIET = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True, slots=True)
class NotifyTarget:
    """Somebody who is told: by which plugin, and what they want to know."""

    settings: PluginSettings
    rules: NoticeRules

    @property
    def name(self) -> str:
        return self.settings.name


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """All who are told. Those with a problem are kept: what waits for them must not be dropped."""

    targets: tuple[NotifyTarget, ...] = ()
    #: Whether the file has a table [notify] at all.
    stated: bool = False
    #: What is wrong with the table as a whole.
    problem: str = ""

    @property
    def plugins(self) -> list[PluginSettings]:
        return [each.settings for each in self.targets]

    @property
    def problems(self) -> list[str]:
        own = [each.settings.problem for each in self.targets if each.settings.problem]
        return [self.problem, *own] if self.problem else own


def read_notify(source: str) -> NotifySettings:
    """Who is told, by the file that settings are from. Never raises for what is wrong in it."""
    try:
        table, file = plugin_table(source, "notify")
    except AgentqError as error:
        return NotifySettings(problem=str(error))
    if table is None:
        return NotifySettings()
    problem, where = "", f"[notify] in {file}"
    shared: dict[str, Any] = {}
    severities: dict[str, str] = {}
    try:
        only_known(table, ("targets", "severities", *_SHARED), where)
        rows = table.get("targets", {})
        only_known(rows, rows, f"[notify.targets] in {file}")
        severities = _severities(table.get("severities", {}), f"[notify.severities] in {file}")
        shared = {name: table[name] for name in _SHARED if name in table}
        _rules(shared, severities, where)
    except AgentqError as error:
        problem = str(error)
        shared, severities = {}, {}
    rows = table.get("targets", {})
    listed = rows if isinstance(rows, dict) else {}
    named = {name: row for name, row in listed.items() if NAME.fullmatch(name)}
    targets = [_target(name, row, shared, severities, file, problem) for name, row in named.items()]
    if strange := [name for name in listed if name not in named]:
        problem = problem or (
            f"A target in [notify.targets] in {file} cannot be called {strange[0][:60]!r}: names"
            " have letters, digits, dots, dashes and underscores. It is left out."
        )
    return NotifySettings(tuple(targets), True, problem)


def _target(
    name: str,
    row: Any,
    shared: Mapping[str, Any],
    severities: dict[str, str],
    file: Path,
    problem: str,
) -> NotifyTarget:
    """One target, with what is wrong with it if something is."""
    where = f"[notify.targets.{name}] in {file}"
    row = {"url": row} if isinstance(row, str) else row
    plugin = PluginSettings(name, "", problem=problem)
    rules = NoticeRules()
    try:
        if problem:
            raise Invalid(problem)
        only_known(row, row, where)
        plugin = replace(plugin, plugin=text_of(row, "plugin", where, "apprise"))
        if plugin.plugin in _OPTIONS:
            only_known(row, (*_OF_TARGET, *_OPTIONS[plugin.plugin]), where)
        rules = _rules({**shared, **row}, severities, where)
        options = {key: value for key, value in row.items() if key not in _OF_TARGET}
        if plugin.plugin == "apprise":
            refuse_plain_secret(options, "url", where)
        if plugin.plugin == "file" and isinstance(options.get("path"), str):
            options["path"] = str(file.parent / Path(options["path"]).expanduser())
        options = resolved(options, where, file.parent)
        plugin = replace(plugin, options=options, timeout=timeout_of(row, where))
    except AgentqError as error:
        plugin = replace(plugin, problem=str(error))
    return NotifyTarget(plugin, rules)


def _rules(row: Mapping[str, Any], severities: dict[str, str], where: str) -> NoticeRules:
    events = texts_of(row, "events", where)
    only_known(dict.fromkeys(events), tuple(KINDS), f"events of {where}")
    severity = _one_of(text_of(row, "severity", where, "info"), SEVERITIES, f"severity of {where}")
    digest = parse_duration(row["digest"], field=f"digest of {where}") if "digest" in row else 0
    rate = read_rate(row, where) if "rate" in row or "burst" in row else NO_RATE
    roles = texts_of(row, "roles", where)
    return NoticeRules(events, roles, severity, digest, rate, _quiet(row, where), severities)


def _severities(table: Any, where: str) -> dict[str, str]:
    only_known(table, tuple(KINDS), where)
    return {name: _one_of(each, SEVERITIES, f"{name} in {where}") for name, each in table.items()}


def _quiet(row: Mapping[str, Any], where: str) -> QuietHours | None:
    zone = text_of(row, "zone", where, "UTC")
    try:
        there = ZoneInfo(zone)
    except (ValueError, OSError, KeyError) as error:
        raise Invalid(
            f"zone of {where} is no time zone: {zone[:60]!r}.", "As in Europe/Berlin, or UTC."
        ) from error
    if "quiet" not in row:
        return None
    text = text_of(row, "quiet", where)
    found = _QUIET.fullmatch(text)
    if found is None:
        raise Invalid(f"quiet of {where} must be hours, got {text[:60]!r}.", "As in 22:00-07:00.")
    hours = [int(each) for each in found.groups()]
    begin, end = hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
    if begin == end:
        raise Invalid(f"quiet of {where} begins when it ends: {text}.", "As in 22:00-07:00.")
    return QuietHours(begin, end, there)


def _one_of(value: Any, known: tuple[str, ...], what: str) -> str:
    if value not in known:
        raise Invalid(f"{what} is one of {', '.join(known)}, got {value!r}.")
    return str(value)
