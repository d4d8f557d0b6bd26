"""Works for all agents that have profiles, from one process.

One thread hears every ring and knows by it which roles have something to do; now and then it asks
the ledger the same, in one query for all. A role has a `Worker`, in a thread of its own, only while
it has something to do: two thousand agents without work are two thousand files, and no thread, no
process and no question to the database besides that one.

What is costly to find out stays when a worker goes: the next of its role starts from it.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.client.presence import this_process
from agentq.contracts.doorbell import ALL_TOPICS, holder_topic, role_topic
from agentq.contracts.overview_values import FurtherRole
from agentq.core.errors import AgentqError, Unavailable
from agentq.core.values import replace
from agentq.settings.profile_changes import ProfileFolder, ProfileSettings
from agentq.worker.live_settings import LiveSettings
from agentq.worker.places import AgentTogether, WorkerPlace
from agentq.worker.pool_inbox import PoolInbox
from agentq.worker.worker import POLL_SECONDS, Worker, spread, until_due
from agentq.worker.worker_report import busy_of

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.contracts.agent import AttemptResult
    from agentq.contracts.overview_values import WorkerReport
    from agentq.settings.profiles import Profile
    from agentq.settings.roles import RoleSettings
    from agentq.worker.attempt import Attempt
    from agentq.worker.readiness import Readiness
    from agentq.worker.worker_context import WorkerContext

log = logging.getLogger("agentq.worker")

#: A worker that had nothing to do for so long ends, unless tasks of its role are ready.
IDLE_SECONDS = 10.0
#: How often the files are looked at, at most, and the ledger, whatever its timers say.
_FILES_SECONDS, _PAUSE_SECONDS = 2.0, 0.05
#: Readiness of so many roles is kept when their workers are gone.
_KNOWN_MAX = 4096


@dataclass
class RoleWorker:
    """The worker of one role, while there is one."""

    agent: str
    worker: Worker
    thread: threading.Thread
    inbox: PoolInbox | None
    is_ending: bool = False
    is_over: bool = False
    #: Whether it was rung for while it was ending.
    again: bool = False

    def ring(self) -> None:
        if self.inbox is not None:
            self.inbox.ring()
        else:
            self.worker.look_now()


class AgentPool:
    """Runs the agents of a folder. `drain`, `hurry` and `finish` may be called by signals."""

    def __init__(
        self,
        queue: Client,
        folder: ProfileFolder,
        context: Callable[[str, RoleSettings], WorkerContext],
        *,
        grace: float,
        started: Callable[[Attempt], None] = lambda _: None,
        ended: Callable[[Attempt, AttemptResult], None] = lambda *_: None,
        changed: Callable[[Iterable[Profile]], None] = lambda _: None,
        health: Path | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`context` makes what a worker of a role by these settings needs, `changed` is told of
        profiles that are new or differ."""
        self._queue = queue
        self._service, self._who = queue.service, queue.who
        self._folder = folder
        self._context = context
        self._grace = grace
        self._started, self._ended, self._changed = started, ended, changed
        self._health = health
        self._idle_seconds = idle_seconds
        self.workers: dict[str, RoleWorker] = {}
        self._known: dict[str, Readiness] = {}
        self._together: dict[str, AgentTogether] = {}
        #: Why nothing is claimed for an agent that has something to do, by role.
        self.held_back: dict[str, str] = {}
        self._closed: set[str] = set()
        self._logged: dict[str, str] = {}
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll_at = self._files_at = 0.0
        self._draining = self._finishing = self._hurry = False
        self._done = self._failed = 0
        self._error = self._health_error = ""
        self._over: Unavailable | None = None

    # -- from outside ------------------------------------------------------------------------------

    def drain(self) -> None:
        """Claim no more; what runs has its grace, then it is given back."""
        self._draining = True
        self._wake_up()

    def finish(self) -> None:
        """Claim no more, and end once all that runs is done, however long that takes."""
        self._finishing = True
        self._wake_up()

    def hurry(self) -> None:
        """End at once."""
        self._draining = self._hurry = True
        self._wake_up()

    def ringer(self) -> int:
        """A file that wakes the pool when it is written to; the caller closes it."""
        return os.dup(self._waker)

    def _wake_up(self) -> None:
        with suppress(OSError):  # it is awake already, or over
            os.write(self._waker, b"!")

    @property
    def running(self) -> list[Attempt]:
        return [each for one in [*self.workers.values()] for each in one.worker.running]

    @property
    def completed(self) -> int:
        return self._done + sum(each.worker.completed for each in [*self.workers.values()])

    def report(self) -> WorkerReport:
        """All agents in one report: what runs, and why nothing is claimed for some."""
        served = tuple(self._served(role) for role in sorted(self._folder.agents))
        first = served[0] if served else FurtherRole("agents")
        return replace(
            this_process(first.role, agent=first.agent, slots=first.slots),
            problem=first.problem,
            is_ending=self._draining or self._finishing,
            busy=tuple(busy_of(each) for each in self.running),
            also=served[1:],
        )

    def _served(self, role: str) -> FurtherRole:
        profile, one = self._folder.agents.get(role), self.workers.get(role)
        problem = self.held_back.get(role, "") or (one.worker.problem if one is not None else "")
        if profile is None:  # it has gone just now
            return FurtherRole(role, problem=problem)
        return FurtherRole(role, profile.settings.shown_agent, profile.settings.slots, problem)

    # -- the loop ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until told to end. The calling thread stays here."""
        # Opened before the first look, so that no ring falls between.
        waiter = self._queue.installation.doorbell.listen((ALL_TOPICS,))
        try:
            while not (self._draining or self._finishing) and self._over is None:
                if time.monotonic() >= self._poll_at:
                    self._poll()
                self._reap()
                if waiter.wait(max(self._poll_at - time.monotonic(), 0), self._wake):
                    self._hear(waiter.rung())
                self._drain_pipe()
        finally:
            self._end_workers()
            waiter.close()
            os.close(self._wake)
            waker, self._waker = self._waker, -1  # `hurry` may still come
            os.close(waker)
        if self._over is not None:
            raise self._over

    def _hear(self, topics: Iterable[str]) -> None:
        """Let those look whose topics were rung."""
        if ALL_TOPICS in topics:
            self._poll_at = 0.0
        if holder_topic(self._queue.holder) in topics:
            for each in self.workers.values():
                each.ring()
        prefix = role_topic("")
        for topic in topics:
            role = topic.removeprefix(prefix)
            if role != topic and (role in self._folder.agents or role in self.workers):
                self._look(role)

    def _look(self, role: str) -> None:
        found = self.workers.get(role)
        if found is None:
            self._begin(role)
            return
        found.again = True
        found.ring()

    def _poll(self) -> None:
        """Look at the files and the ledger."""
        now = time.monotonic()
        self._poll_at = now + POLL_SECONDS * spread()
        if now >= self._files_at:
            self._files_at = now + _FILES_SECONDS
            self._follow_files()
        try:
            ready = self._service.ready_counts(self._who)
            due = until_due(self._service, self._who)
            self._error = ""
        except Unavailable as error:
            if error.code == "moved":  # for good
                self._over = error
            if str(error) != self._error:
                self._error = str(error)
                log.warning("nothing can be claimed at the moment: %s", error)
            return
        self._poll_at = min(self._poll_at, time.monotonic() + max(due, _PAUSE_SECONDS))
        for role in [each for each in self.held_back if each not in ready]:
            del self.held_back[role]
        for role in ready:
            if role in self._folder.agents and role not in self.workers:
                self._begin(role)
        self._end_idle(ready)
        self._write_health()

    def _follow_files(self) -> None:
        change = self._folder.look()
        if change.added or change.changed:
            names = (*change.added, *change.changed)
            self._changed([self._folder.profiles[each] for each in names])
        for name in change.removed:
            log.warning("agent %s: its profile is gone: it claims no more", name)
        for name, problem in self._folder.problems.items():
            if self._logged.get(name) != problem:
                log.warning("agent %s: %s", name, problem)
        self._logged = dict(self._folder.problems)

    def _end_idle(self, ready: Iterable[str]) -> None:
        """End workers without work, and those that shall have none: by the clock, or for good."""
        for role, each in self.workers.items():
            profile = self._folder.agents.get(role)
            idle = role not in ready and each.worker.idle_seconds >= self._idle_seconds
            if not each.is_ending and (idle or profile is None or self._is_closed(role, profile)):
                each.is_ending, each.again = True, False
                each.worker.finish()

    def _is_closed(self, role: str, profile: Profile) -> bool:
        """Whether the agent is outside its working hours; says it once, and when it is back."""
        now = self._service.now()
        if profile.hours.is_open(now):
            if role in self._closed:
                self._closed.discard(role)
                self.held_back.pop(role, None)
                log.warning("agent %s: its working hours have begun", profile.name)
            return False
        self._closed.add(role)
        opens = time.strftime(
            "%Y-%m-%d %H:%M UTC", time.gmtime(profile.hours.next_open(now) / 1000)
        )
        why = f"it is outside the working hours of {profile.name}, which begin {opens}"
        if self.held_back.get(role) != why:
            self.held_back[role] = why
            log.warning("agent %s: tasks of %s wait: %s", profile.name, role, why)
        return True

    # -- workers -----------------------------------------------------------------------------------

    def _begin(self, role: str) -> None:
        """Have a worker for this role, unless its agent shall not work now."""
        listed = self._folder.agents.get(role)
        if listed is None or self._is_closed(role, listed):
            return
        try:
            self._start(role, listed)
        except (AgentqError, OSError, RuntimeError) as error:
            # No such tool, no thread, no file: the next look tries again.
            if self.held_back.get(role) != str(error):
                self.held_back[role] = str(error)
                log.warning("agent %s: nothing is claimed: %s", listed.name, error)

    def _start(self, role: str, profile: Profile) -> None:
        settings = self._queue.installation.settings
        source = ProfileSettings(self._folder, profile, settings.prices)
        shared = self._context(role, source.settings)
        inbox = None if settings.broker else PoolInbox()
        known = self._known.pop(role, None)
        together = self._together_of(profile)
        worker = Worker(
            shared, self._ended, grace=self._grace, live=LiveSettings(source),
            started=self._note_start, place=WorkerPlace(inbox, known, together),
        )  # fmt: skip
        if known is None:
            active = [each.worker.readiness for each in self.workers.values()]
            any(map(worker.readiness.trust, reversed([*self._known.values(), *active])))
        if together is not None:
            together.workers.append(worker)
        one = RoleWorker(profile.name, worker, threading.current_thread(), inbox)
        one.thread = threading.Thread(target=self._run, args=(one,), name=f"role {role}")
        one.thread.start()
        self.workers[role] = one
        self.held_back.pop(role, None)

    def _together_of(self, profile: Profile) -> AgentTogether | None:
        if len(profile.roles) < 2:
            return None
        return self._together.setdefault(profile.name, AgentTogether())

    def _note_start(self, attempt: Attempt) -> None:
        self._folder.note_run(attempt.shared.settings)
        self._started(attempt)

    def _run(self, one: RoleWorker) -> None:
        worker = one.worker
        try:
            worker.run()
        except Unavailable as error:
            if error.code == "moved":
                self._over = error
            else:
                log.warning("%s: its worker ended: %s", worker.shared.role, error)
        except Exception:
            log.exception("%s: its worker ended by an error of agentq itself", worker.shared.role)
        finally:
            one.is_over = True
            self._wake_up()

    def _reap(self) -> None:
        """Forget workers that have ended; begin again what was rung for meanwhile."""
        for role, each in [*self.workers.items()]:
            if not each.is_over:
                continue
            each.thread.join()
            del self.workers[role]
            self._done += each.worker.completed
            self._failed += each.worker.failed
            if each.agent in self._together:
                self._together[each.agent].workers.remove(each.worker)
            if len(self._known) < _KNOWN_MAX:
                self._known[role] = each.worker.readiness
            if each.again and not (self._draining or self._finishing):
                self._begin(role)

    def _end_workers(self) -> None:
        """Let all workers end, each as it is told to, and wait for them."""
        drained = hurried = False
        for each in self.workers.values():
            each.again = False
            each.worker.finish()
        while self.workers:
            if self._draining and not drained:
                drained = True
                for each in self.workers.values():
                    each.worker.drain()
            if self._hurry and not hurried:
                hurried = True
                for each in self.workers.values():
                    each.worker.hurry()
            for each in [*self.workers.values()][:1]:
                each.thread.join(0.05)
            self._reap()

    # -- what others may know ----------------------------------------------------------------------

    def _write_health(self) -> None:
        if self._health is None:
            return
        problems = {**self._folder.problems, **self.held_back}
        state = {"running": len(self.running), "completed": self.completed,
                 "failed": self._failed + sum(e.worker.failed for e in self.workers.values()),
                 "agents": len(self._folder.profiles), "workers": len(self.workers),
                 "problems": problems}  # fmt: skip
        problem = ""
        try:
            self._health.write_text(json.dumps(state) + "\n", "utf-8")
        except OSError as error:
            problem = str(error)  # a full disk must not end the work: the file's age shows it
        if problem and problem != self._health_error:
            log.warning("the health file cannot be written: %s", problem)
        self._health_error = problem

    def _drain_pipe(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)
