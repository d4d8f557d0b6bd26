"""Hooks: deliveries that came become tasks, by the hook files of today."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.doorbell import HOOKS_TOPIC
from agentq.daemon.loop import Loop
from agentq.hooks.applying import settle_waiting

if TYPE_CHECKING:
    from agentq.contracts.service import Service

#: Deliveries of one round: bodies are read whole.
_AT_ONCE = 50
#: In case the doorbell did not ring.
_POLL_SECONDS = 10.0


class HooksLoop(Loop):
    """Settles deliveries. Should two processes do so at once, the ledger takes one of both."""

    name = "hooks"
    term = "hooks"
    spacing = 0.02
    topics = frozenset({HOOKS_TOPIC})

    def __init__(self, service: Service, folder: Path, workflows: Path) -> None:
        """`folder` has the hook files."""
        super().__init__()
        self._service = service
        self._folder = folder
        self._workflows = workflows

    def run_once(self) -> float:
        settled, tasks = settle_waiting(self._service, self._folder, self._workflows, _AT_ONCE)
        self.tally.add("settled", settled)
        self.tally.add("submitted", tasks)
        return 0.0 if settled == _AT_ONCE else _POLL_SECONDS
