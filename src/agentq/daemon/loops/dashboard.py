"""The dashboard: a Markdown file beside agentq.toml, for agents whose profile asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentq.core.access import SYSTEM
from agentq.daemon.loop import Loop, log
from agentq.organisation.dashboard import dashboard_text, is_wanted, write_dashboard
from agentq.settings.profiles import profiles

if TYPE_CHECKING:
    from agentq.contracts.service import Service

EVERY_SECONDS = 300.0


class Dashboard(Loop):
    """Writes the file anew where something has changed."""

    name = "dashboard"

    def __init__(self, service: Service, agents: Path) -> None:
        """`agents` is the folder of profiles; the file stands beside it."""
        super().__init__()
        self._service = service
        self._agents = agents
        self._problem = ""

    def run_once(self) -> float:
        known = profiles(self._agents)
        if not is_wanted(known.values()):
            return EVERY_SECONDS
        problem = ""
        try:
            text = dashboard_text(self._service, SYSTEM, known)
            self.tally.add("written", write_dashboard(self._agents.parent, text))
        except OSError as error:
            problem = str(error)  # a full disk, a folder of somebody else: work goes on without it
        if problem and problem != self._problem:
            log.warning("dashboard: it cannot be written: %s", problem)
        self._problem = problem
        return EVERY_SECONDS
