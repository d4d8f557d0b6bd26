"""Plugins as users see them: which there are, what they can do, and how each is doing.

>>> from agentq.client.plugins import list_plugins
>>> sorted(each.name for each in list_plugins(describe=False))[:3]
['agents', 'apprise', 'board']
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentq.core.errors import AgentqError
from agentq.plugins.carrier import PluginHealth
from agentq.plugins.health import read_health
from agentq.plugins.hooks import Notice
from agentq.plugins.process import PluginProcess
from agentq.plugins.registry import installed_plugins, plugin_named
from agentq.settings import environment
from agentq.settings.git import read_git
from agentq.settings.kanban import read_kanban
from agentq.settings.notify import NotifyTarget, read_notify
from agentq.settings.plugin_tables import PluginSettings

if TYPE_CHECKING:
    from agentq.settings import Settings

#: How long a plugin may take to be imported and say which hooks it has.
_DESCRIBE_SECONDS = 20.0
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class PluginReport:
    """An installed plugin. `error` says why it cannot be loaded; "" if it can, or nobody tried."""

    name: str
    package: str
    version: str
    module: str
    hooks: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class CarrierReport:
    """One use of a plugin by the settings: its lane, what waits there, and how it is doing."""

    lane: str
    plugin: str
    backlog: int
    problem: str = ""
    health: PluginHealth = field(default_factory=PluginHealth)

    @property
    def breaker(self) -> str:
        """`open` while it is asked only now and then, else `closed`."""
        return "open" if self.health.is_open else "closed"


def list_plugins(*, describe: bool = True) -> list[PluginReport]:
    """All installed plugins; with `describe` each is loaded, in a process of its own."""
    found = [
        PluginReport(
            each.name, each.package, each.version, each.module,
            error="another package has a plugin of this name, which comes first"
            if each.hidden else "",
        )
        for each in installed_plugins()
    ]  # fmt: skip
    if not describe:
        return found
    env = environment()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda each: _described(each, env), found))


def _described(plugin: PluginReport, env: Mapping[str, str]) -> PluginReport:
    if plugin.error:
        return plugin
    process = PluginProcess(plugin.name, "", {}, env)
    try:
        hooks, error = process.describe(_DESCRIBE_SECONDS), ""
    except AgentqError as failed:
        hooks, error = (), failed.cause
    finally:
        process.close()
    return PluginReport(
        plugin.name, plugin.package, plugin.version, plugin.module, hooks, error
    )  # fmt: skip


def used_plugins(settings: Settings) -> list[tuple[str, PluginSettings]]:
    """What the settings use plugins for: the table of each, and how it is set up."""
    source = settings.source
    tables = (("notify", read_notify(source)), ("kanban", read_kanban(source)),
              ("git", read_git(source)))  # fmt: skip
    return [(domain, each) for domain, table in tables for each in table.plugins]


def try_plugin(domain: str, settings: PluginSettings) -> str:
    """Load a plugin with its options, in a process of its own; what went wrong, or ""."""
    process = PluginProcess(settings.plugin, domain, settings.options, environment())
    try:
        process.describe(_DESCRIBE_SECONDS)
    except AgentqError as failed:
        return failed.cause
    finally:
        process.close()
    return ""


def list_carriers(settings: Settings, outbox: Mapping[str, int]) -> list[CarrierReport]:
    """Which plugins the settings use, and what waits for each; `outbox` counts it by lane."""
    found = []
    for domain, plugin in used_plugins(settings):
        lane = f"{domain}:{plugin.name}"
        health = read_health(settings.home, domain).get(plugin.name, PluginHealth())
        problem = plugin.problem or _missing(plugin.plugin)
        found.append(CarrierReport(lane, plugin.plugin, outbox.get(lane, 0), problem, health))
    known = {each.lane for each in found}
    for lane, count in outbox.items():
        if lane.partition(":")[0] in ("notify", "kanban", "git") and lane not in known:
            problem = "the settings here name nobody who takes these"
            found.append(CarrierReport(lane, "", count, problem))
    return found


def _missing(plugin: str) -> str:
    try:
        plugin_named(plugin)
    except AgentqError as error:
        return str(error)
    return ""


def send_test(target: NotifyTarget, text: str, at: str) -> str:
    """Send one notice to a target now; what went wrong, or ""."""
    settings = target.settings
    if settings.problem:
        return settings.problem
    notice = Notice(
        id=f"test-{at}", kind="test", severity="info", task="", role="",
        title="this is only a test", text=text, at=at,
    )  # fmt: skip
    process = PluginProcess(settings.plugin, "notify", settings.options, environment())
    try:
        process.call("send", {"notices": [notice]}, float(settings.timeout))
    except AgentqError as failed:
        return failed.cause
    finally:
        process.close()
    return ""


def plain_carrier(carrier: CarrierReport) -> dict[str, Any]:
    """A carrier as JSON has it; moments are milliseconds, None for never."""
    health = carrier.health
    return {
        "lane": carrier.lane,
        "plugin": carrier.plugin or None,
        "backlog": carrier.backlog,
        "problem": carrier.problem or None,
        "breaker": carrier.breaker,
        "calls": health.calls,
        "failures": health.failures,
        "failures_in_a_row": health.in_a_row,
        "last_error": health.last_error or None,
    }
