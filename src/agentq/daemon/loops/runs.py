"""Runs: each one that has something to do gets its next steps, by its workflow's file of today."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.doorbell import role_topic
from agentq.core.task import RUN_ROLE
from agentq.daemon.loop import Loop
from agentq.workflows.runner import RUNS_AT_ONCE, advance_runs

if TYPE_CHECKING:
    from agentq.contracts.service import Service

_POLL_SECONDS = 5.0


class RunsLoop(Loop):
    """Advances runs. Any number of processes may: a run is claimed like any other task."""

    name = "runs"
    term = "runs"
    topics = frozenset({role_topic(RUN_ROLE)})

    def __init__(self, service: Service, folder: Path, holder: str) -> None:
        """`folder` has the workflow files."""
        super().__init__()
        self._service = service
        self._folder = folder
        self._holder = holder
        #: Until a round has ended well: the process, or the round, before it may not have.
        self._claim_first = True

    def run_once(self) -> float:
        claim_first, self._claim_first = self._claim_first, True
        advanced = advance_runs(self._service, self._folder, self._holder, claim_first=claim_first)
        self._claim_first = False
        self.tally.add("advanced", advanced)
        # Fewer than it could take: there are no more. One that becomes ready from now on rings.
        return 0.0 if advanced >= RUNS_AT_ONCE else _POLL_SECONDS
