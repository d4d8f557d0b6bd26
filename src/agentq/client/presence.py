"""Tells the ledger that this process claims for a role, and what it is doing, for those who look.

Nothing depends on it: a report that is lost is followed by the next, and one that is late keeps
nobody from working. A worker that says nothing new is quiet for half a minute, so that a thousand
idle ones cost a ledger next to nothing.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from agentq.contracts.overview_values import WorkerReport
from agentq.core.errors import AgentqError, Refused
from agentq.core.values import replace

if TYPE_CHECKING:
    from agentq.client.client import Client

log = logging.getLogger("agentq.presence")

#: How often it is looked whether there is something new to say, and said that there is not.
LOOK_SECONDS, QUIET_SECONDS = 3.0, 30.0
#: How long a worker counts as there after a report: three that are lost.
LEASE_MS = 100_000
#: How long the end of a worker waits for its last report.
_LAST_SECONDS = 2.0


class Presence:
    """Reports from a thread of its own, while the context manager is open."""

    def __init__(self, client: Client, *reports: Callable[[], WorkerReport]) -> None:
        """`reports` make one for each role that the process claims for."""
        self._client = client
        self._reports = reports
        self._ended = threading.Event()
        #: What was last said of each role, and when.
        self._said: dict[str, tuple[WorkerReport, float]] = {}
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="agentq-presence", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        while not self._ended.is_set():
            for report in self._reports:
                if not self._look(report()):
                    return
            self._ended.wait(LOOK_SECONDS)
        for report in self._reports:
            self._tell(report(), 0)

    def _look(self, report: WorkerReport) -> bool:
        """Report if there is something new, or nothing was said for long; False if nobody may."""
        now = time.monotonic()
        # That time passes is no news.
        news = replace(report, busy=tuple(replace(each, seconds=0.0) for each in report.busy))
        said, said_at = self._said.get(report.role, (None, 0.0))
        if news == said and now - said_at < QUIET_SECONDS:
            return True
        self._said[report.role] = (news, now)
        return self._tell(report, LEASE_MS)

    def _tell(self, report: WorkerReport, lease_ms: int) -> bool:
        client, problem = self._client, ""
        try:
            client.service.report_worker(client.who, client.holder, report, lease_ms)
        except Refused as error:
            log.debug("what this worker does is not reported: %s", error)
            return False
        except AgentqError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - the ledger was closed: nothing depends on this
            problem = f"{type(error).__name__}: {error}"
        if problem and problem != self._problem:
            log.debug("what this worker does could not be reported: %s", problem)
        self._problem = problem
        return True


def this_process(role: str, *, agent: str, slots: int) -> WorkerReport:
    """A report of this process that runs nothing."""
    from agentq import __version__

    machine = os.uname().nodename
    return WorkerReport(role, machine, os.getpid(), __version__, agent, slots)
