"""Which plugins are installed, and how one of them is loaded.

Finding them reads the metadata of installed packages and imports nothing. Loading runs foreign code
and belongs into the process of that plugin (see `host`).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentq.core.errors import Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    import pluggy


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A plugin by its entry point: what it is called, where it is from, what would be imported."""

    name: str
    package: str
    version: str
    module: str
    #: Another package has a plugin of this name, and comes first.
    hidden: bool = False


def installed_plugins() -> list[InstalledPlugin]:
    """All plugins, by name; where two packages use one name, agentq's own comes first."""
    from importlib.metadata import entry_points

    from agentq.plugins.hooks import GROUP

    found = []
    for point in entry_points(group=GROUP):
        package, version = (point.dist.name, point.dist.version) if point.dist else ("", "")
        found.append(InstalledPlugin(point.name, package, version, point.value))
    found.sort(key=lambda each: (each.name, not _is_ours(each), each.package))
    seen: set[str] = set()
    listed = []
    for each in found:
        taken = each.name in seen
        listed.append(InstalledPlugin(each.name, each.package, each.version, each.module, taken))
        seen.add(each.name)
    return listed


def _is_ours(plugin: InstalledPlugin) -> bool:
    return plugin.module.startswith("agentq.")


def plugin_named(name: str) -> InstalledPlugin:
    """The plugin of this name; `NotFound` says which there are."""
    known = [each for each in installed_plugins() if not each.hidden]
    for each in known:
        if each.name == name:
            return each
    names = [each.name for each in known]
    near = difflib.get_close_matches(name[:60], names, 1)
    hint = f"Did you mean {near[0]}?" if near else f"Installed are: {', '.join(names)}."
    raise NotFound(f"No plugin called {name[:60]!r} is installed here.", hint)


def load_plugin(name: str) -> pluggy.PluginManager:
    """Import one plugin and hold it against the hooks there are; this runs its code."""
    import pluggy

    from agentq.plugins.hooks import GROUP, METHODS, PluginHooks

    entry = plugin_named(name)
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(PluginHooks)
    try:
        plugin = _imported(entry.module)
    except ImportError as error:
        raise Unavailable(
            f"The plugin {name} of {entry.package} cannot be imported: {error}.",
            "Install what it needs, or take it out of agentq.toml.",
        ) from error
    try:
        manager.register(plugin, name=name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        said = str(error).strip().splitlines()[-1]
        raise Invalid(
            f"The plugin {name} of {entry.package} does not fit: {said}",
            f"Hooks are: {', '.join(METHODS)}.",
        ) from error
    return manager


def _imported(value: str) -> Any:
    from importlib.metadata import EntryPoint

    return EntryPoint("", value, "").load()


def hooks_of(manager: pluggy.PluginManager) -> list[str]:
    """The names of the hooks that the plugin of this manager implements."""
    ((_, plugin),) = manager.list_name_plugin()
    return sorted(caller.name for caller in manager.get_hookcallers(plugin) or ())
