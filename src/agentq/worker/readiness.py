"""Whether a worker may claim: its role was checked and can work here, or it claims nothing.

The role is checked before the first claim, when its settings or its program have changed, and when
an attempt failed in a way that speaks against the surroundings. While it cannot work, the worker
says why, opens the role's circuit in the ledger, and looks again by itself: once the cause is gone
it goes on, and closes the circuit.

Checks run beside the claim loop, one at a time. An attempt that failed waits for the check that
decides whether it was the surroundings or its task alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.core.errors import AgentqError
from agentq.core.limits import NO_LIMITS
from agentq.core.task import NO_USAGE
from agentq.core.values import replace
from agentq.settings.roles import permissions_of
from agentq.worker.preflight import (
    RoleCheck,
    Surroundings,
    failures,
    has_live_check,
    live_check,
    local_checks,
    program_of,
    shown_live,
    with_release,
)
from agentq.worker.redaction import redacted_text
from agentq.worker.sandbox import hidden_paths
from agentq.worker.setup_trial import setup_problem
from agentq.worker.stream import Ran, Stream

if TYPE_CHECKING:
    from agentq.worker.worker_context import WorkerContext

log = logging.getLogger("agentq.worker")

#: Pauses between two checks of a role that cannot work: the shortest, and the longest; those of a
#: check that calls a model are longer.
_AGAIN_SECONDS, _AGAIN_SECONDS_MAX = 2.0, 60.0
_LIVE_SECONDS, _LIVE_SECONDS_MAX = 15.0, 600.0
#: How often a worker that may claim looks whether its program is still the same.
_STAMP_SECONDS = 5.0
#: How often it asks the ledger whether others have opened the circuit of its role.
_CIRCUIT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0


class Readiness:
    """Decides whether one worker may claim. `judge` is called by attempts, the rest by the loop."""

    def __init__(self, shared: WorkerContext, wake: Callable[[], None]) -> None:
        self._shared = shared
        self._wake = wake
        self._ready = False
        #: Why nothing is claimed; "" if something is, or before the first check.
        self.problem = ""
        #: The release of the role's tool; "" if it is not known.
        self.tool_version = ""
        self._check_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        #: Not whether the thread is alive: it is, when it wakes the loop to claim.
        self._is_checking = False
        self._next_at = 0.0
        self._checks = 0
        self._checked_at = 0.0
        self._is_live = False
        #: Whether the set-up of the role is known to have failed in a fresh tree.
        self._fails_setup = False
        self._verdict: AttemptResult | None = None
        self._stamp: tuple[object, ...] = ()
        self._stamped_at = self._asked_at = 0.0
        self._told = ""
        self._closed = False

    # -- for the claim loop ------------------------------------------------------------------------

    def may_claim(self) -> bool:
        """Whether the role can work, as far as is known; looks again if that may have changed."""
        if self._is_checking:
            return False
        now = time.monotonic()
        if self._ready and not self._has_changed(now):
            return True
        if not self._ready and now < self._next_at and not self._was_closed(now):
            return False
        self._ready, self._is_checking = False, True
        self._thread = threading.Thread(target=self._check_alone, name="preflight", daemon=True)
        self._thread.start()
        return False

    def go_on(self, shared: WorkerContext, wake: Callable[[], None]) -> None:
        """Serve the next worker of the role, which need not find out again what is known."""
        self._shared, self._wake, self._closed = shared, wake, False

    def trust(self, other: Readiness) -> bool:
        """Take over what was found out for another role that works alike in the same place."""
        if not other._ready or other._is_checking:
            return False
        stamp, known = self._stamp_now(), other._stamp
        if stamp[1:] != known[1:] or self._alike() != other._alike():
            return False
        self._stamp, self._stamped_at = stamp, other._stamped_at
        self._ready, self.tool_version = True, other.tool_version
        return True

    def _alike(self) -> object:
        """What two roles have in common of which one cannot work where the other can."""
        settings = self._shared.settings
        word = permissions_of(settings, self._shared.role)
        return replace(settings, instructions="", limits=NO_LIMITS, slots=1, budget=NO_USAGE), word

    def look_at(self, shared: WorkerContext) -> None:
        """Look again before the next claim: the settings of the role have changed."""
        self._shared = shared
        self._stamped_at = self._next_at = 0.0

    def pause(self) -> float:
        """Seconds until it is looked at again; a minute at most."""
        if self._ready:
            return _AGAIN_SECONDS_MAX
        return min(max(self._next_at - time.monotonic(), 0.05), _AGAIN_SECONDS_MAX)

    def close(self) -> None:
        """Start no more checks, and wait a moment for one that runs."""
        self._closed = True
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _has_changed(self, now: float) -> bool:
        """Whether the settings or the program are others, or somebody says the role cannot work."""
        if now - self._stamped_at >= _STAMP_SECONDS:
            self._stamped_at = now
            if self._stamp_now() != self._stamp:
                return True
        return now - self._asked_at >= _CIRCUIT_SECONDS and self._is_open(now)

    def _was_closed(self, now: float) -> bool:
        """Whether somebody has closed the circuit that this worker opened: then it is mended."""
        if not self._told or now - self._asked_at < _AGAIN_SECONDS or self._is_open(now):
            return False
        self._told = ""
        return True

    def _is_open(self, now: float) -> bool:
        self._asked_at = now
        shared = self._shared
        try:
            circuits = shared.service.circuits(shared.who)
        except AgentqError:
            return bool(self._told)  # nobody knows: as it was
        reasons = [row.reason for row in circuits if row.role == shared.role]
        # Another worker may have found that: what passes all other checks is tried then.
        self._fails_setup |= any(reason.startswith("setup:") for reason in reasons)
        return bool(reasons)

    def _where(self) -> Surroundings:
        shared = self._shared
        return Surroundings(
            shared.role, shared.settings, shared.agent, shared.environment, shared.workspaces.root
        )

    def _stamp_now(self) -> tuple[object, ...]:
        """What changes when the program is installed, replaced or removed, or settings change."""
        program = program_of(self._where())
        try:
            found = Path(program).stat() if program else None
        except OSError:
            found = None
        identity = (found.st_ino, found.st_mtime_ns, found.st_size) if found else ()
        return (self._shared.settings, program, identity)

    # -- for attempts ------------------------------------------------------------------------------

    def judge(self, verdict: AttemptResult) -> AttemptResult:
        """Return what an attempt that speaks against the surroundings comes to.

        With the outcome `surroundings` the role cannot work, and the summary says why. Else it was
        the provider, or this task alone.
        """
        since = time.monotonic()
        if self._fails_setup and self.problem and verdict.summary.startswith(self.problem):
            return verdict  # as it was found for this attempt
        with self._check_lock:
            if self._checked_at < since:
                self._check(live=True)
                if self.problem and self.problem != self._told:
                    # The circuit opens with the report of the attempt.
                    self._told = self.problem
                    log.warning("%s needs a person: %s", self._shared.role, self.problem)
            problem, live = self.problem, self._verdict
        if problem:
            return replace(verdict, outcome=AttemptOutcome.SURROUNDINGS, summary=problem)
        if live is not None and live.outcome in (AttemptOutcome.OVERLOADED, AttemptOutcome.QUOTA):
            return replace(live, denials=verdict.denials, cost=verdict.cost)
        alone = f"{verdict.summary} The role was checked and can work: it is this task alone."
        return replace(verdict, outcome=verdict.otherwise, summary=alone)

    def judge_setup(self, words: str, run: Callable[[Stream], Ran], *, is_fresh: bool) -> bool:
        """Whether the role cannot work because its set-up fails, as it did in an attempt.

        In a tree that is not fresh the failure may be the task's own: then it is tried in one that
        is, by `run`, which the attempt can end.
        """
        with self._check_lock:
            found = words if is_fresh else self._setup_problem(run)
            if found:
                self._fails_setup = True
                self._found([RoleCheck("setup", "failed", found)])
                self._told = self.problem  # the circuit opens with the report of the attempt
                log.warning("%s needs a person: %s", self._shared.role, self.problem)
            return bool(found)

    def _setup_problem(self, run: Callable[[Stream], Ran] = Stream.run) -> str:
        """Why the set-up fails in a fresh tree; "" if it passes."""
        shared = self._shared
        hidden = hidden_paths(shared.queue.installation.settings, shared.workspaces.root)
        found = setup_problem(self._where(), shared.supervisor, hidden, run)
        return redacted_text(found, shared.secrets)

    # -- checking ----------------------------------------------------------------------------------

    def _check_alone(self) -> None:
        try:
            with self._check_lock:
                live = self._is_live or self._is_open(time.monotonic())
                self._check(live=live)
                if not self._closed:
                    self._tell()
        finally:
            self._is_checking = False
            self._wake()

    def _check(self, *, live: bool) -> None:
        """Check the role, by a tiny model call too if that is wanted and can be."""
        where = with_release(self._where())
        self.tool_version = where.version
        self._stamp, self._stamped_at = self._stamp_now(), time.monotonic()
        checks, self._verdict = local_checks(where), None
        if live and not failures(checks) and has_live_check(where.agent):
            self._verdict = self._live(where)
            checks = [*checks, shown_live(self._verdict)]
        if self._fails_setup and not failures(checks):
            checks = [*checks, self._setup()]
        self._found(checks)

    def _setup(self) -> RoleCheck:
        """Whether the set-up that failed passes now, in a fresh tree."""
        found = self._setup_problem()
        self._fails_setup = bool(found)
        if found:
            return RoleCheck("setup", "failed", found)
        return RoleCheck("setup", "ok", "it passes in a fresh tree")

    def _found(self, checks: list[RoleCheck]) -> None:
        """Decide by these checks, and when to look again."""
        self.problem = failures(checks)
        self._is_live = bool(self.problem) and self._verdict is not None
        self._ready = not self.problem
        self._checks = self._checks + 1 if self.problem else 0
        self._checked_at = time.monotonic()
        first, most = _AGAIN_SECONDS, _AGAIN_SECONDS_MAX
        if self._is_live or self._fails_setup:
            first, most = _LIVE_SECONDS, _LIVE_SECONDS_MAX
        self._next_at = self._checked_at + min(first * 2.0 ** max(self._checks - 1, 0), most)

    def _live(self, where: Surroundings) -> AttemptResult:
        try:
            return live_check(where, self._shared.supervisor)
        except (AgentqError, OSError) as error:
            return AttemptResult(AttemptOutcome.SURROUNDINGS, str(error))

    def _tell(self) -> None:
        """Say once why nothing is claimed, here and in the ledger; and once that it is over."""
        shared = self._shared
        try:
            if self.problem and self.problem != self._told:
                log.warning("%s claims nothing and needs a person: %s", shared.role, self.problem)
                shared.service.open_role_circuit(shared.who, shared.role, self.problem)
                self._told = self.problem
            elif not self.problem and (self._told or self._is_open(time.monotonic())):
                shared.service.close_role_circuit(shared.who, shared.role)
                log.warning("%s can work, and claims again", shared.role)
                self._told, self._fails_setup = "", False
        except AgentqError as error:
            log.warning("the circuit of %s could not be changed: %s", shared.role, error)
