"""Seals: what has changed is proved and sealed every ten minutes, by one process of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agentq.core.access import SYSTEM
from agentq.core.errors import Damaged
from agentq.daemon.loop import Loop, log

if TYPE_CHECKING:
    from agentq.contracts.service import Service

EVERY_SECONDS = 600.0


class SealLoop(Loop):
    """Seals what is proved. What cannot be proved is not sealed, and said once."""

    name = "seal"
    term = "seal"

    def __init__(
        self, service: Service, settings: Callable[[], Mapping[str, str]] | None = None
    ) -> None:
        """`settings` reads those that decide."""
        super().__init__()
        self._service = service
        self._settings = settings
        self._sealed = self._logged = ""

    def run_once(self) -> float:
        try:
            settings = self._settings() if self._settings is not None else None
            seal = self._service.seal(SYSTEM, always=False, settings=settings)
        except Damaged as error:
            if error.cause != self._logged:
                self._logged = error.cause
                log.error("seal: %s", error)
            return EVERY_SECONDS
        self._logged = ""
        if seal is not None and seal.digest != self._sealed:
            if self._sealed:
                self.tally.add("seals", 1)
            self._sealed = seal.digest
        return EVERY_SECONDS
