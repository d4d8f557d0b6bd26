"""Numbers: the log is counted into stored samples, once a minute, by one process of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.core.access import SYSTEM
from agentq.daemon.loop import Loop

if TYPE_CHECKING:
    from agentq.contracts.service import Service

EVERY_SECONDS = 60.0
#: Between two pages of a log that is far ahead: others write, too.
_AGAIN_SECONDS = 0.05


class NumbersLoop(Loop):
    """Counts. Should two processes do so at once, the ledger lets each event count once."""

    name = "numbers"
    term = "numbers"

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service

    def run_once(self) -> float:
        return _AGAIN_SECONDS if self._service.count_numbers(SYSTEM) else EVERY_SECONDS
