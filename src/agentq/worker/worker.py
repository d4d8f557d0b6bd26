"""The worker: claims while a slot is free, runs each claim in a thread, and ends in good order.

One loop, one place where it sleeps: until a hint comes, a timer of the ledger is due, a slot is
free again or the worker must end. It needs no daemon: whoever claims also ticks.

Without a broker a hint only wakes the worker, which claims whatever its role has. With one, each
hint names a task: the worker takes as many as it has free slots, claims them, and only then settles
the messages. A thousand idle workers ask the database for nothing, but for a look now and then.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.core.errors import AgentqError, Invalid, Unavailable
from agentq.core.triggers import FailureKind
from agentq.worker.attempt import Attempt
from agentq.worker.disk_quota import TotalQuota
from agentq.worker.internal_errors import named, unfailing
from agentq.worker.places import Slot, WorkerPlace
from agentq.worker.readiness import Readiness
from agentq.worker.stream import Stop
from agentq.worker.told_messages import MessageRounds
from agentq.worker.worker_context import WorkerContext

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.contracts.delivery import Hint, Inbox
    from agentq.contracts.service import Service
    from agentq.core.access import Principal
    from agentq.worker.live_settings import LiveSettings

log = logging.getLogger("agentq.worker")

#: How long the loop sleeps at most, should a wake-up be lost.
POLL_SECONDS = 5.0
#: The same where a broker publishes ready tasks, and `agentq up` publishes them again if need be;
#: and where the broker is away. Then a worker that finds work goes on until it finds none: a
#: thousand idle ones must not ask the database more often than it can bear.
LOOK_SECONDS = 60.0
_AWAY_SECONDS = 30.0
_BEAT_SECONDS = 1.0
#: After so long hints are followed again for which the ledger was not available.
_RETRY_SECONDS = 1.0
#: How long a worker that ends at once waits for what runs. After that it leaves it: the supervisor
#: ends the agents, and the ledger their leases.
_HURRY_SECONDS = 20.0
_NO_SUCH_TASK = (
    "the ledger has no task of this id; a message on agentq.tasks only says that a task is ready,"
    " and `agentq submit` makes one"
)


class Worker:
    """Runs one role. `drain` and `hurry` may be called from signal handlers."""

    def __init__(
        self,
        shared: WorkerContext,
        ended: Callable[[Attempt, AttemptResult], None],
        *,
        grace: float,
        health: Path | None = None,
        limit: int = 0,
        live: LiveSettings | None = None,
        started: Callable[[Attempt], None] = lambda _: None,
        place: WorkerPlace | None = None,
    ) -> None:
        """Without `live` the settings stay what they are. `place` is for one of many workers in
        a process: what it hears by, and what it knows from before."""
        self.shared = shared
        self._inbox = place.inbox if place is not None else None
        self._together = place.together if place is not None else None
        known = place.readiness if place is not None else None
        if known is None:
            known = Readiness(shared, self.look_now)
        else:
            known.go_on(shared, self.look_now)
        self.readiness = shared.readiness = known
        self._live = live
        self._quota = TotalQuota(shared.workspaces.root)
        self.slots: list[Slot] = []
        self._add_slots()
        self.draining = False
        self.completed = 0
        self.failed = 0
        #: Hints that came too late: their tasks were over, or somebody else's, by then.
        self.refused_hints = 0
        self._hurry = self._is_finishing = False
        self._grace = grace
        self._health = health
        self._left = limit or -1
        self._started, self._ended = unfailing(started), unfailing(ended)
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._beat_at = 0.0
        self._look_at = self._eager_until = 0.0
        self._worked_at = -LOOK_SECONDS
        self._idle_since = time.monotonic()
        self._messages = MessageRounds()
        self._hints: list[Hint] = []
        #: Of the hints that were followed last, those that gave no claim.
        self._refused: list[Hint] = []
        self._error = self._broker_error = self._health_error = ""
        #: Why there will never be anything to do here again.
        self._over: Unavailable | None = None

    # -- from outside ------------------------------------------------------------------------------

    def drain(self) -> None:
        """Claim no more; what runs has its grace, then it is given back."""
        self.draining = True
        self._wake_up()

    def finish(self) -> None:
        """Claim no more, and end once all that runs is done, however long that takes."""
        self._is_finishing = True
        self._wake_up()

    def hurry(self) -> None:
        """End at once."""
        self.draining = self._hurry = True
        self._wake_up()

    def ringer(self) -> int:
        """A file that wakes the claim loop when it is written to; the caller closes it."""
        return os.dup(self._waker)

    def look_now(self) -> None:
        """Wake the loop to claim: what kept it from that is gone, or known."""
        self._look_at = 0.0
        self._wake_up()

    def _wake_up(self) -> None:
        with suppress(OSError):  # it is awake already, or over
            os.write(self._waker, b"!")

    @property
    def running(self) -> list[Attempt]:
        return [slot.attempt for slot in self.slots if slot.attempt is not None]

    @property
    def idle_seconds(self) -> float:
        """For how long nothing has run here."""
        return 0.0 if self.running else time.monotonic() - self._idle_since

    @property
    def problem(self) -> str:
        """Why nothing is claimed here; "" if something is."""
        return self.readiness.problem or self._quota.problem or self._error

    # -- the loop ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until `drain` or `hurry`, or until `limit` tasks are done and nothing runs, or
        until nothing runs after `finish`."""
        inbox = self._inbox or self.shared.queue.inbox(self.shared.role)
        try:
            while not self.draining and (self._wants_more or self.running):
                self._write_health()
                if not (self._may_look(inbox) and self._fill(self._claim)):
                    self._wait(inbox)
            self._drain(inbox)
            if self._over is not None:
                raise self._over
        finally:
            self._end_slots()
            self.readiness.close()
            inbox.close()
            for slot in self.slots:
                if slot.warm is not None:
                    slot.warm.close()
            os.close(self._wake)
            waker, self._waker = self._waker, -1  # `hurry` may still come
            os.close(waker)

    @property
    def _wants_more(self) -> bool:
        return self._left != 0 and not self._is_finishing

    def _write_health(self) -> None:
        if self._health is None:
            return
        counts = {"running": len(self.running), "completed": self.completed,
                  "failed": self.failed, "refused_hints": self.refused_hints,
                  "problem": self.readiness.problem}  # fmt: skip
        problem = ""
        try:
            self._health.write_text(json.dumps(counts) + "\n", "utf-8")
        except OSError as error:
            problem = str(error)  # a full disk must not end the work: the file's age shows it
        if problem and problem != self._health_error:
            log.warning("the health file cannot be written: %s", problem)
        self._health_error = problem

    def _may_look(self, inbox: Inbox) -> bool:
        """Whether to ask the ledger for any task of the role, without a hint."""
        now = time.monotonic()
        if not inbox.names_tasks:
            return True
        self._note_broker_error(inbox, now)
        if now < self._look_at:
            return False
        # A hint that was refused may have been about a task that only has to wait, for a limit or
        # a provider. No hint may come for it for a while, so we look more often for a while.
        eager = POLL_SECONDS if now < self._eager_until else LOOK_SECONDS
        most = _AWAY_SECONDS if self._broker_error else LOOK_SECONDS
        self._look_at = now + min(eager, most) * spread()
        return True

    def _note_broker_error(self, inbox: Inbox, now: float) -> None:
        """Log once that there are no hints; meanwhile the worker looks by itself."""
        if inbox.error == self._broker_error:
            return
        if not self._broker_error:
            # Where there was work lately there may be more, and no hint comes for it now.
            busy = now - self._worked_at < LOOK_SECONDS
            self._look_at = 0.0 if busy else min(self._look_at, now + _AWAY_SECONDS * spread())
            log.warning(
                "no hints come, work is looked for every %.0f s and after each task: %s",
                _AWAY_SECONDS, inbox.error,
            )  # fmt: skip
        elif not inbox.error:
            log.info("hints come again")
        self._broker_error = inbox.error

    def _wanted(self) -> int:
        if not self._wants_more:
            return 0
        running = self._together.running() if self._together is not None else len(self.running)
        free = max(self.shared.settings.slots - running, 0)
        if free and not self.readiness.may_claim():
            return 0
        if free and self._quota.is_over(self.shared.settings.disk_total_bytes):
            return 0
        return free if self._left < 0 else min(free, self._left)

    def _add_slots(self) -> None:
        """Have as many slots as the settings say; those that are too many are just not filled."""
        for number in range(len(self.slots) + 1, self.shared.settings.slots + 1):
            self.slots.append(Slot(number))

    def _refresh(self) -> None:
        """Take over settings that have changed; attempts that run keep theirs."""
        if self._live is not None:
            before, self.shared = self.shared, self._live.refreshed(self.shared)
            if self.shared is not before:
                self.readiness.look_at(self.shared)
                self._add_slots()

    def _fill(self, claim_some: Callable[[int], list[Claim]]) -> bool:
        """Claim for the free slots; True if something was claimed."""
        self._refresh()
        with nullcontext() if self._together is None else self._together.lock:
            return self._fill_slots(claim_some)

    def _fill_slots(self, claim_some: Callable[[int], list[Claim]]) -> bool:
        wanted = self._wanted()
        if not wanted:
            return False
        free = [slot for slot in self.slots if slot.attempt is None]
        try:
            claims = claim_some(wanted)
        except Unavailable as error:
            if error.code == "moved":  # for good
                self._over = error
                self.drain()
            self._log_error(str(error))
            return False
        self._error = ""
        if self._left > 0:
            self._left -= len(claims)
        for slot, claim in zip(free, claims, strict=False):
            self._begin(slot, claim)
        return bool(claims)

    def _claim(self, wanted: int) -> list[Claim]:
        shared = self.shared
        return shared.queue.claim_many(
            shared.role, wanted, lease=shared.settings.lease, provider=shared.provider,
            gated=bool(shared.settings.verify), gates=shared.settings.gates,
        )  # fmt: skip

    def _claim_hinted(self, hints: Sequence[Hint]) -> list[Claim]:
        shared = self.shared
        try:
            claims = shared.queue.claim_hinted(
                shared.role, hints, lease=shared.settings.lease, provider=shared.provider,
                gated=bool(shared.settings.verify), gates=shared.settings.gates,
            )  # fmt: skip
        except Invalid as error:
            # Anybody may write to a broker. What is real among them is published again.
            log.warning("%d hints are dropped, one is none of ours: %s", len(hints), error)
            claims = []
        claimed = {claim.id for claim in claims}
        self._refused = [hint for hint in hints if hint.task_id not in claimed]
        if self._refused:
            self.refused_hints += len(self._refused)
            now = time.monotonic()
            self._eager_until = now + LOOK_SECONDS
            self._look_at = min(self._look_at, now + POLL_SECONDS * spread())
        return claims

    def _log_error(self, text: str) -> None:
        if text != self._error:  # once, not every five seconds
            self._error = text
            log.warning("nothing can be claimed at the moment: %s", text)

    def _begin(self, slot: Slot, claim: Claim) -> None:
        self._worked_at = time.monotonic()
        try:
            slot.renew(self.shared)
            slot.attempt = Attempt(self.shared, claim, slot.warm)
            args, name = (slot, slot.attempt), f"slot-{slot.number}"
            # A daemon: one that hangs in spite of all must not keep the process from ending.
            slot.thread = threading.Thread(target=self._run_one, args=args, name=name, daemon=True)
            slot.thread.start()
        except Exception as error:  # noqa: BLE001 - no thread, no file: nothing of it has begun
            slot.attempt = None
            self._give_up(claim, error)

    def _give_up(self, claim: Claim, error: Exception) -> None:
        """Report an attempt that could not even begin."""
        self.failed += 1
        reason = f"claim: {named(error)}"
        log.error("%s: the attempt could not begin: %s", claim.id, reason)
        try:
            claim.fail(reason, FailureKind.CRASHED)
        except AgentqError as unreported:
            log.error("%s: that could not be reported: %s", claim.id, unreported)  # noqa: TRY400

    def _run_one(self, slot: Slot, attempt: Attempt) -> None:
        try:
            self._started(attempt)
            verdict = self._verdict_of(attempt)
            if verdict.outcome is AttemptOutcome.COMPLETED:
                self.completed += 1
            elif verdict.outcome is not AttemptOutcome.YIELDED:
                self.failed += 1
            self._ended(attempt, verdict)
        finally:
            slot.attempt, self._idle_since = None, time.monotonic()
            if self._broker_error or time.monotonic() < self._eager_until:
                self._look_at = 0.0  # no hint may come for the next
            self._wake_up()
            if self._together is not None:
                self._together.wake_others(self)

    @staticmethod
    def _verdict_of(attempt: Attempt) -> AttemptResult:
        try:
            return attempt.run()
        except AgentqError as error:
            # Its lease will end by itself; somebody else takes the task then.
            log.error("%s: the attempt could not be reported: %s", attempt.task.id, error)  # noqa: TRY400
            return AttemptResult(AttemptOutcome.TRANSIENT, str(error))
        except Exception as error:  # noqa: BLE001 - of agentq itself: the slot must be free again
            log.error("%s: the attempt ended by an error: %s", attempt.task.id, named(error))  # noqa: TRY400
            return AttemptResult(AttemptOutcome.CRASHED, named(error))

    def _wait(self, inbox: Inbox) -> None:
        hints, self._hints = self._hints, []
        pause = self._pause(inbox)
        if hints:
            inbox.take(0, min(pause, _RETRY_SECONDS), self._wake)
        else:
            hints = inbox.take(self._wanted(), pause, self._wake)
        self._drain_pipe()
        now = time.monotonic()
        rung = inbox.control_received
        self._messages.look(self.shared, self.running, rung=rung)
        if rung and self.running and now - self._beat_at >= _BEAT_SECONDS:
            self._beat_at = now
            self.shared.queue.heartbeats.beat_now()
        if hints and inbox.names_tasks:
            self._follow(inbox, hints)

    def _follow(self, inbox: Inbox, hints: list[Hint]) -> None:
        """Claim what these hint at, and settle them. Those that must wait, for the ledger or for a
        slot, go to others if we die before."""
        wanted = self._wanted()
        now, later = hints[:wanted], hints[wanted:]
        if now:
            self._fill(lambda _: self._claim_hinted(now))
            if self._error or not self._settle(inbox, now):
                later = hints
        self._hints = later

    def _settle(self, inbox: Inbox, hints: Sequence[Hint]) -> bool:
        """Settle hints that were followed; False if the ledger could not be asked about them.

        Whoever may write to the task exchange may name a task that nobody submitted. Only `agentq
        submit` makes one, so that message will never be work: it becomes a dead letter.
        """
        shared, refused = self.shared, [hint.task_id for hint in self._refused]
        try:
            known = shared.service.tasks_by_id(shared.who, refused) if refused else {}
        except Unavailable as error:
            self._log_error(str(error))
            return False
        unknown = [hint for hint in self._refused if hint.task_id not in known]
        inbox.settle([hint for hint in hints if hint not in unknown])
        if unknown:
            log.warning("%d messages name tasks that nobody has submitted", len(unknown))
            inbox.reject(unknown, _NO_SUCH_TASK)
        return True

    def _pause(self, inbox: Inbox) -> float:
        """Until the next timer of the ledger, but no longer than the safety poll."""
        if inbox.names_tasks:
            until_look = max(self._look_at - time.monotonic(), 0)
            return min(until_look, self.readiness.pause(), self._messages.pause(self.running))
        service, who = self.shared.service, self.shared.who
        pause = min(POLL_SECONDS * spread(), self.readiness.pause())
        try:
            return min(pause, until_due(service, who))
        except Unavailable as error:
            self._log_error(str(error))
        return pause

    def _drain_pipe(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)

    # -- the end -----------------------------------------------------------------------------------

    def _drain(self, inbox: Inbox) -> None:
        deadline = time.monotonic() + self._grace
        stop_sent = hurried = False
        while self.running:
            if self._hurry and not hurried:
                hurried = stop_sent = True
                deadline = time.monotonic() + _HURRY_SECONDS
                self._stop_all(at_once=True)
            elif hurried and time.monotonic() >= deadline:
                return
            elif not stop_sent and time.monotonic() >= deadline:
                stop_sent = True
                self._stop_all(at_once=False)
            left = deadline - time.monotonic() if hurried or not stop_sent else POLL_SECONDS
            inbox.take(0, max(0.0, min(left, POLL_SECONDS)), self._wake)
            self._drain_pipe()

    def _end_slots(self) -> None:
        """End what still runs, after an error or in a hurry, and wait for it; not for ever."""
        deadline = time.monotonic() + (1.0 if self._hurry else _HURRY_SECONDS)
        self._stop_all(at_once=True)
        for slot in self.slots:
            if slot.thread is not None:
                slot.thread.join(max(deadline - time.monotonic(), 0))
        if self.running:
            names = ", ".join(attempt.task.id for attempt in self.running)
            log.error("these attempts do not end and are left; their leases will: %s", names)

    def _stop_all(self, *, at_once: bool) -> None:
        for attempt in self.running:
            attempt.stop(Stop(AttemptOutcome.INTERRUPTED, "the worker shuts down", at_once))


def until_due(service: Service, who: Principal) -> float:
    """Seconds until the next timer of the ledger; one that is due is applied."""
    wake_at = service.next_wake(who)
    if not wake_at:
        return math.inf
    left = (wake_at - service.now()) / 1000
    if left > 0:
        return left
    service.tick(who)
    return 0.0


def spread() -> float:
    """A random factor around 1: a thousand workers must not ask at the same moment."""
    return 0.8 + time.perf_counter_ns() % 400 / 1000
