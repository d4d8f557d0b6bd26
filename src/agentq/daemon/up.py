"""`agentq up`: starts the loops and the workers of this machine in order, ends them in reverse.

Any part may be killed at any moment: what it did is in the ledger or is done again. Several
processes may run, on one machine or many: each loop runs in the one that leads it (see
`daemon.leader`), workers run in all.
"""

from __future__ import annotations

import secrets
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.core.access import SYSTEM
from agentq.core.effects import lanes_of
from agentq.core.errors import AgentqError, Unavailable
from agentq.daemon.carriers import PluginPlace
from agentq.daemon.leader import TERM_SECONDS, Leader
from agentq.daemon.loop import Alarm, Loop, Runner, log
from agentq.daemon.loops.capacity import CapacityLoop
from agentq.daemon.loops.dashboard import Dashboard
from agentq.daemon.loops.due import Due
from agentq.daemon.loops.git import GitLoop
from agentq.daemon.loops.hooks import HooksLoop
from agentq.daemon.loops.ingest import Ingest
from agentq.daemon.loops.kanban import KanbanLoop
from agentq.daemon.loops.notify import NotifyLoop
from agentq.daemon.loops.numbers import NumbersLoop
from agentq.daemon.loops.prune import Prune
from agentq.daemon.loops.reconcile import Reconcile
from agentq.daemon.loops.relay import Relay
from agentq.daemon.loops.reply import Replies
from agentq.daemon.loops.results import Results
from agentq.daemon.loops.runs import RunsLoop
from agentq.daemon.loops.schedules import SchedulesLoop
from agentq.daemon.loops.seal import SealLoop
from agentq.daemon.loops.wakes import WakesLoop
from agentq.daemon.loops.webhooks import Targets, WebhooksLoop
from agentq.daemon.role_changes import RoleChanges
from agentq.daemon.shared_publisher import SharedPublisher
from agentq.daemon.workers import Workers
from agentq.plugins.health import has_health
from agentq.server.serving import HttpServer, address_of, allowed_hosts, listen_on, make_app

if TYPE_CHECKING:
    from agentq.client.pull_requests import PullRequests
    from agentq.contracts.installation import Installation
    from agentq.schedules.sources import ScheduleSource
    from agentq.server.app import HttpApp
    from agentq.server.page_requests import MakePages

#: What goes to the broker, and is stored in the outbox for it.
BROKER_LANES = frozenset({"delivery", "reply"})
#: What plugins carry, each by the loop of its name.
PLUGIN_DOMAINS = ("notify", "kanban", "git")
#: How long a loop may take to finish its round when all ends.
_LOOP_SECONDS = 5.0
#: How long a worker may take after its grace to stop its agents, and after a second signal.
_WORKER_SECONDS = 30.0
_KILL_SECONDS = 5.0
_HEALTH_SECONDS = 2.0
#: How often loops are checked, in case one died without reporting it.
_CHECK_SECONDS = 5.0
#: A round that takes longer than this hangs.
_ROUND_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `agentq up`. Durations are seconds."""

    term: float = TERM_SECONDS
    #: Delete tasks that ended longer ago; 0: never.
    keep: int = 0
    #: What agents get to finish when all ends.
    grace: int = 30
    health: Path | None = None
    #: The file that workers write to; None: where this process does.
    output: int | None = None
    log_json: bool = False
    #: Where the HTTP API is served, and under which names besides; None: nowhere.
    http: tuple[str, int, Sequence[str]] | None = None
    #: Called when it is served, with its address.
    on_serving: Callable[[HttpApp, str], None] | None = None
    #: The folder of workflow files; None: runs are left to others.
    workflows: Path | None = None
    #: The folder of agents' profiles; None: no dashboard is written for them, and nobody is woken
    #: by events.
    agents: Path | None = None
    #: The folder of hook files; None: webhooks are left to others.
    hooks: Path | None = None
    #: Reads who is told of what happens to tasks; None: that is left to others.
    webhooks: Targets | None = None
    #: Where plugins run; None: nowhere.
    plugins: PluginPlace | None = None
    #: Opens pull requests; None: nobody does.
    pulls: PullRequests | None = None
    #: Reads the settings that decide; None: they are not written down.
    settings: Callable[[], Mapping[str, str]] | None = None
    #: Where schedules come from; without any they are left to others.
    schedules: Sequence[ScheduleSource] = ()
    #: Makes the pages for people that the HTTP server has; None: none.
    pages: MakePages | None = None
    #: The folder of the sessions of browsers; None: they end with this process.
    sessions: Path | None = None


class Daemon:
    """Everything that runs. `stop` and `hurry` may be called from signal handlers."""

    def __init__(
        self,
        installation: Installation,
        holder: str,
        roles: Sequence[str] = (),
        options: Options | None = None,
        role_changes: RoleChanges | None = None,
    ) -> None:
        """`holder` names this process; each of the `roles` gets a worker, and so do those that
        `role_changes` finds later."""
        self._role_changes = role_changes
        self.options = options or Options()
        self._installation = installation
        self._service = installation.service
        self._alarm = Alarm()
        self._stopping = self._hurry = False
        self._health_at = 0.0
        self._health_problem = ""
        self._http: HttpServer | None = None
        loops = self._make_loops(holder)
        self.leader = Leader(
            self._service,
            [loop.term for loop in loops if loop.term],
            f"{holder}:{secrets.token_hex(3)}",
            self.options.term,
            self._gained,
            lambda term: any(loop.wants_term() for loop in loops if loop.term == term),
        )
        self.runners = [
            Runner(loop, installation.doorbell, self.leader.holds, ended=self._alarm.ring)
            for loop in (self.leader, *loops)
        ]
        self.workers = Workers(
            roles,
            grace=self.options.grace,
            log_json=self.options.log_json,
            output=self.options.output,
        )

    def _make_loops(self, holder: str) -> list[Loop]:
        installation, service = self._installation, self._service
        loops: list[Loop] = [
            Due(service),
            Results(service),
            Prune(service, self.options.keep),
            NumbersLoop(service),
            SealLoop(service, self.options.settings),
        ]
        if self.options.workflows is not None:
            loops.append(RunsLoop(service, self.options.workflows, holder))
            if self.options.hooks is not None:
                loops.append(HooksLoop(service, self.options.hooks, self.options.workflows))
        if self.options.agents is not None:
            loops.append(Dashboard(service, self.options.agents))
            loops.append(WakesLoop(service, self.options.agents))
        if self.options.webhooks is not None:
            loops.append(WebhooksLoop(service, self.options.webhooks))
        if self.options.plugins is not None:
            loops.append(NotifyLoop(service, self.options.plugins))
            loops.append(KanbanLoop(service, self.options.plugins))
            if self.options.pulls is not None:
                loops.append(GitLoop(service, self.options.plugins, self.options.pulls))
        if self.options.schedules:
            loops.append(SchedulesLoop(service, self.options.schedules))
        if installation.publisher is None:
            return loops
        publisher = SharedPublisher(installation.publisher, lambda: self.nudge("reconcile"))
        return [
            *loops,
            Relay(installation, publisher, lambda: self.nudge("room")),
            Replies(installation, publisher),
            Reconcile(installation, publisher),
            CapacityLoop(installation, publisher),
            Ingest(installation, publisher),
        ]

    # -- from outside ------------------------------------------------------------------------------

    def stop(self) -> None:
        """End in good order: workers first, then the loops."""
        self._stopping = True
        self._alarm.ring()

    def ringer(self) -> int:
        """A file that wakes the main thread; the caller closes it."""
        return self._alarm.ringer()

    def hurry(self) -> None:
        """End at once."""
        self._stopping = self._hurry = True
        self._alarm.ring()

    def nudge(self, name: str) -> None:
        """Let the loop of this name do a round soon."""
        for runner in self.runners:
            if runner.name == name:
                runner.nudge()

    def _gained(self, term: str) -> None:
        for runner in self.runners:
            if runner.loop.term == term:
                runner.nudge()

    # -- running -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until stopped. The calling thread stays here: workers end with it."""
        self._check_lanes()
        names = ", ".join(runner.name for runner in self.runners)
        roles = ", ".join(child.name for child in self.workers.children) or "none"
        log.info("up: as %s; loops: %s; workers: %s", self.leader.holder, names, roles)
        try:
            for runner in self.runners:
                runner.start()
            self._serve()
            while not self._stopping:
                self._check_moved()
                self._follow_roles()
                pauses = [self.workers.tend(), *(runner.revive() for runner in self.runners)]
                self._sleep(min(*pauses, self._check_health(), _CHECK_SECONDS))
        finally:
            if self._http is not None and not self._http.stop():
                log.warning("up: the HTTP server did not end in time")
            self._end_workers()
            self._end_loops()
            self._alarm.close()
        log.info("up: ended")

    def _follow_roles(self) -> None:
        """Start workers for roles that were added to the settings; retire those of removed ones."""
        if self._role_changes is None:
            return
        change = self._role_changes.look()
        for role in change.added:
            log.info("up: %s was added to the settings: it gets a worker", role)
            self.workers.add(role)
        for role in change.removed:
            log.info("up: %s was removed from the settings: its worker claims no more, and ends"
                     " when what it runs is done", role)  # fmt: skip
            self.workers.retire(role)

    def _serve(self) -> None:
        """Serve the HTTP API. An installation works without it, so this never ends the loops."""
        if self.options.http is None:
            return
        host, port, names = self.options.http
        try:
            listener = listen_on(host, port)
            app = make_app(
                self._installation, allowed_hosts(host, names), self._check_ready,
                self.options.hooks, self.options.pages, self.options.sessions,
            )  # fmt: skip
            self._http = HttpServer(app, [listener])
        except Unavailable as error:
            log.warning("up: runs without HTTP: %s", error)
            return
        self._http.start()
        address = address_of(host, listener)
        log.info("up: serves on %s; `agentq login` prints a link for browsers", address)
        if self.options.on_serving is not None:
            self.options.on_serving(app, address)

    def _check_ready(self) -> None:
        """Raise `Unavailable` unless the ledger can be written to and no loop hangs."""
        self._service.check_writable(SYSTEM)
        hanging = [each.name for each in self.runners if not self._moves(each)]
        if hanging:
            raise Unavailable(f"Loops that do not move: {', '.join(hanging)}.")

    @staticmethod
    def _moves(runner: Runner) -> bool:
        return runner.alive and runner.busy_seconds < _ROUND_SECONDS

    def _check_moved(self) -> None:
        """End if the ledger was moved for good: a restart reads settings that name the new one."""
        error = self.runners[0].error  # the leader's, which writes several times per term
        if error is not None and error.code == "moved":
            raise error

    def _check_lanes(self) -> None:
        lanes = self._service.lanes(SYSTEM)
        missing = BROKER_LANES - lanes
        for domain in () if self.options.plugins is None else PLUGIN_DOMAINS:
            if lanes_of(domain, lanes) and not any(
                loop.loop.wants_term() for loop in self.runners if loop.loop.term == domain
            ):
                assert self.options.plugins is not None
                then = "It waits for an `agentq up` that knows it; an empty table drops it."
                if has_health(self.options.plugins.home, domain):
                    then = "Unless another `agentq up` takes it over it is dropped in a minute."
                log.warning("up: what [%s] is for is stored, and the settings here have no such"
                            " table. %s", domain, then)  # fmt: skip
        if self._installation.publisher is None and len(missing) < len(BROKER_LANES):
            log.warning("up: messages for a broker are stored, and the settings here name none."
                        " They wait for an `agentq up` that knows it.")  # fmt: skip
        elif self._installation.publisher is not None and missing:
            log.warning("up: tasks are not announced to the broker yet; `agentq init --broker URL`"
                        " prepares it.")  # fmt: skip

    def _sleep(self, seconds: float) -> None:
        poller = select.poll()
        poller.register(self._alarm.fd, select.POLLIN)
        for child in self.workers.running:
            poller.register(child.pidfd, select.POLLIN)
        poller.poll(max(seconds, 0) * 1000)
        self._alarm.clear()

    def _check_health(self) -> float:
        if self.options.health is None:
            return 3600.0
        now = time.monotonic()
        if now >= self._health_at:
            self._health_at = now + _HEALTH_SECONDS
            if all(map(self._moves, self.runners)):
                self._touch(self.options.health)
        return self._health_at - now

    def _touch(self, health: Path) -> None:
        """A full disk must not end the work: the file's age shows it."""
        problem = ""
        try:
            health.touch()
        except OSError as error:
            problem = str(error)
        if problem and problem != self._health_problem:
            log.error("up: the health file cannot be touched: %s", problem)
        self._health_problem = problem

    # -- ending ------------------------------------------------------------------------------------

    def _end_workers(self) -> None:
        self.workers.send(signal.SIGTERM)
        deadline = time.monotonic() + self.options.grace + _WORKER_SECONDS
        hurried = False
        while not self.workers.gone():
            now = time.monotonic()
            if self._hurry and not hurried:
                hurried, deadline = True, min(deadline, now + _KILL_SECONDS)
                self.workers.send(signal.SIGTERM)  # its second: it ends at once
            if now >= deadline:
                log.warning("up: workers that did not end are killed; leases end by themselves")
                self.workers.send(signal.SIGKILL)
                deadline = now + 3600
            self._sleep(min(deadline - now, 1.0))

    def _end_loops(self) -> None:
        deadline = time.monotonic() + (0.2 if self._hurry else _LOOP_SECONDS)
        leading, *others = self.runners
        for runner in reversed(others):
            runner.stop()
        hanging = [r.name for r in reversed(others) if not r.join(deadline - time.monotonic())]
        leading.stop()
        if not leading.join(max(deadline - time.monotonic(), 0.2)):
            hanging.append(leading.name)
        elif not self._hurry:  # else the terms end by themselves
            try:
                self.leader.give_up()
            except AgentqError as error:
                log.warning("up: terms end by themselves: %s", error)
        if hanging:
            log.warning("up: %s did not end in time; what they had begun is done again by others",
                        ", ".join(hanging))  # fmt: skip
