"""What the loops of notify, kanban and git have in common: lanes that plugins of a table carry.

Each plugin has its own lane of the outbox, thread, process and back-off: one that hangs delays
nobody else, and what it could not take waits for it in the ledger.

Lanes stay open while the process that carries them is away. Once an installation that has carried
them finds that its settings have no such table any more, and nobody else has taken them over for a
while, it closes them: else what waits there would grow for ever.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agentq.contracts.doorbell import lane_topic
from agentq.core.access import SYSTEM
from agentq.daemon.carriers import Carriers, PluginPlace, PluginTable, TableSettings
from agentq.daemon.loop import Loop, log
from agentq.plugins.health import forget_health, has_health

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.contracts.service_values import OutboundEffect
    from agentq.plugins.carrier import Carrier

T = TypeVar("T", bound=TableSettings)
#: What the table says of one plugin, by the domain's own reading of it.
Row = TypeVar("Row")

#: In case the doorbell did not ring, and for what was held until a moment.
POLL_SECONDS = 5.0
#: How long lanes that the settings here name nobody for are left to others.
PATIENCE_SECONDS = 60.0
#: How often it is made sure that the lanes are open: another process may have closed them.
_LANES_SECONDS = 30.0


class PluginLoop(Loop, Generic[T, Row]):
    """Carries out the lanes `DOMAIN:NAME`, one for each plugin that the table DOMAIN names."""

    spacing = 0.05

    def __init__(
        self, service: Service, place: PluginPlace, domain: str, read: Callable[[str], T],
        patience: float = PATIENCE_SECONDS,
    ) -> None:  # fmt: skip
        """`patience` is how many seconds lanes are left to others before they are closed."""
        super().__init__()
        self.service = service
        self.domain = domain
        self.known: T | None = None
        self.carriers = Carriers(domain, place, self.alarm.ring)
        self._place = place
        self._file = PluginTable(domain, place.source, read)
        #: Another one, as the leader asks from its own thread.
        self._seen_by_leader = PluginTable(domain, place.source, read)
        self._patience = patience
        #: Since when the settings have no such table, though lanes of it were carried from here.
        self._gone_since: float | None = None
        self._lanes_at = 0.0

    @abstractmethod
    def rows(self, settings: T) -> Mapping[str, Row]:
        """Who is named in the table, by name; also those that cannot be used as they stand."""

    @abstractmethod
    def carry(self, row: Row, carrier: Carrier[Any]) -> float:
        """Use what a plugin has answered, and ask it more; in how many seconds to look again."""

    def changed(self, settings: T) -> None:
        """Settings are new, and will be used from now on."""
        return

    def wants_term(self) -> bool:
        """Only a process whose settings have the table shall run it, or who is to close it."""
        settings = self._seen_by_leader.look()
        return settings.stated or self._is_over(settings)

    def run_once(self) -> float:
        settings = self._file.look()
        if settings is not self.known:
            self._follow(settings)
        elif settings.stated and time.monotonic() >= self._lanes_at:
            self._open_lanes(settings)
        if self._is_over(settings):
            self._close_lanes()
        pause = POLL_SECONDS
        for name, row in self.rows(settings).items():
            carrier = self.carriers.get(name)
            if carrier is not None:
                pause = min(pause, self.carry(row, carrier))
        self.carriers.write_health()
        return pause

    def close(self) -> None:
        self.carriers.close()

    def retry(self, carrier: Carrier[Any], effects: Sequence[OutboundEffect]) -> None:
        """Let what a plugin did not take come again when it may be asked again: one back-off, not
        two of which each is over while the other still runs."""
        until = self.service.now() + int(carrier.pause() * 1000)
        self.service.settle_outbox(SYSTEM, [], effects, until)

    def _follow(self, settings: T) -> None:
        self.changed(settings)
        if settings.stated:
            self._open_lanes(settings)
        for problem in settings.problems:
            log.error("%s: %s", self.domain, problem)
        self.carriers.follow(settings.plugins)
        self.topics = frozenset(
            lane_topic(f"{self.domain}:{name}") for name in self.rows(settings)
        )  # fmt: skip
        self.known = settings

    def _open_lanes(self, settings: T) -> None:
        self.service.carry_lanes(SYSTEM, self.domain, list(self.rows(settings)))
        self._lanes_at = time.monotonic() + _LANES_SECONDS

    def _is_over(self, settings: T) -> bool:
        """Whether lanes were carried from here, the table is gone, and nobody else has come."""
        is_file = Path(self._place.source).is_file()  # not for who is given only an address
        gone = is_file and not settings.stated and not settings.problem
        if not gone or not has_health(self._place.home, self.domain):
            self._gone_since = None
            return False
        if self._gone_since is None:
            self._gone_since = time.monotonic()
        return time.monotonic() >= self._gone_since + self._patience

    def _close_lanes(self) -> None:
        if self.service.carry_lanes(SYSTEM, self.domain, []):
            log.warning("%s: the settings have no [%s] any more, and nobody else carries what it"
                        " was for: nothing is stored for it now, and what waited is dropped",
                        self.domain, self.domain)  # fmt: skip
        forget_health(self._place.home, self.domain)
