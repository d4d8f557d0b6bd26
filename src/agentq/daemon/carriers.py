"""The plugins of one domain as a loop uses them: each with a lane, a thread and a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from agentq.daemon.loop import log
from agentq.plugins.carrier import FAILURES_TO_OPEN, Carrier, PluginHealth
from agentq.plugins.health import write_health
from agentq.plugins.process import PluginProcess
from agentq.settings.plugin_tables import PluginSettings
from agentq.settings.reloading import file_signature


@dataclass(frozen=True, slots=True)
class PluginPlace:
    """What plugins need to know of the installation that they run in."""

    #: The file that settings are from.
    source: str
    #: The folder of the installation on this machine.
    home: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


class TableSettings(Protocol):
    """What is read from one table for plugins."""

    @property
    def stated(self) -> bool:
        """Whether the file has that table."""

    @property
    def problem(self) -> str:
        """What is wrong with the file or the table as a whole."""

    @property
    def problems(self) -> list[str]:
        """All that is wrong, with the whole and with each plugin of it."""

    @property
    def plugins(self) -> list[PluginSettings]:
        """The plugins that it names, each with its options."""


T = TypeVar("T", bound=TableSettings)


class PluginTable(Generic[T]):
    """A table of agentq.toml as it is now; costs one `stat` while nobody changes the file."""

    def __init__(self, domain: str, source: str, read: Callable[[str], T]) -> None:
        self._domain, self._source, self._read = domain, source, read
        self._path = Path(source) if source.startswith("/") else None
        self._seen = file_signature(self._path)
        self._settings = read(source)

    def look(self) -> T:
        seen = file_signature(self._path)
        if seen != self._seen:
            self._seen = seen
            found = self._read(self._source)
            if found.stated or not found.problem:
                self._settings = found
            else:  # it cannot be read at all: it may be half written
                log.warning("%s: the settings were changed, and not used: %s",
                            self._domain, found.problem)  # fmt: skip
        return self._settings


class Carriers:
    """Starts and ends carriers as settings come and go."""

    def __init__(self, hook: str, place: PluginPlace, ring: Callable[[], None]) -> None:
        self._hook = hook
        self._place = place
        self._ring = ring
        self._carriers: dict[str, tuple[PluginSettings, Carrier[Any]]] = {}
        self._written: dict[str, PluginHealth] = {}

    def follow(self, wanted: Iterable[PluginSettings]) -> None:
        """Have a carrier for each of these that is sound, and none for others."""
        sound = {each.name: each for each in wanted if not each.problem}
        for name, (settings, carrier) in list(self._carriers.items()):
            if sound.get(name) != settings:
                carrier.close()
                del self._carriers[name]
        for name, settings in sound.items():
            if name not in self._carriers:
                process = PluginProcess(
                    settings.plugin, self._hook, settings.options, self._place.environment
                )
                carrier = Carrier[Any](process, self._ring, float(settings.timeout))
                self._carriers[name] = (settings, carrier)

    def get(self, name: str) -> Carrier[Any] | None:
        found = self._carriers.get(name)
        return found[1] if found else None

    def write_health(self) -> None:
        """Write how they are doing, if that has changed."""
        found = {name: _copy(carrier.health) for name, (_, carrier) in self._carriers.items()}
        if found != self._written:
            self._written = found
            write_health(self._place.home, self._hook, found)

    def close(self) -> None:
        for _, carrier in self._carriers.values():
            carrier.close()
        self._carriers.clear()


def _copy(health: PluginHealth) -> PluginHealth:
    return PluginHealth(**{name: getattr(health, name) for name in PluginHealth.__slots__})


def log_failure(domain: str, name: str, carrier: Carrier[Any], error: str) -> None:
    """Log a failure the first time, and when its breaker opens: not each time."""
    if carrier.health.in_a_row <= 1:
        log.warning("%s: %s failed and is tried again: %s", domain, name, error)
    elif carrier.health.in_a_row == FAILURES_TO_OPEN:
        log.error("%s: %s has failed %d times in a row and is asked only now and then; what it"
                  " shall carry waits: %s", domain, name, FAILURES_TO_OPEN, error)  # fmt: skip
