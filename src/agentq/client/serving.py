"""Python functions as workers in this process: claim, run, renew, report, stop in good order.

Each role has a dispatcher thread, which claims for its free slots and sleeps until a commit, a
freed slot or `stop` wakes it. Each attempt runs in a thread of its own; coroutines run in the event
loop that the server was given, and the thread waits for them. Leases are renewed by the client's
heartbeats, which no handler can block.
"""

from __future__ import annotations

import inspect
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from agentq.client.cancellation import drain
from agentq.client.failures import Block, Fail, Leave, Retry
from agentq.client.presence import Presence, this_process
from agentq.client.reader import POLL_SECONDS
from agentq.contracts.overview_values import BusySlot, WorkerReport
from agentq.core.errors import AgentqError, Invalid, Refused, Stale, Unavailable
from agentq.core.limits import SUMMARY_CHARS_MAX, shorten
from agentq.core.triggers import FailureKind
from agentq.core.values import replace
from agentq.protocol.spec_validation import check_role

if TYPE_CHECKING:
    import asyncio

    from agentq.client.claim import Claim
    from agentq.client.client import Client
    from agentq.client.durations import Duration
    from agentq.contracts.delivery import Inbox

log = logging.getLogger("agentq.serving")

#: What does the work of one attempt. A text it returns becomes the result.
Handler = Callable[[Any], "str | Coroutine[Any, Any, str | None] | None"]

#: How long handlers may go on after `stop` before their tasks are given back.
GRACE_SECONDS = 30.0
#: How long those who are told that they have lost their task may take to leave.
LEAVE_SECONDS = 2.0


@dataclass
class ServedRole:
    """A role, the function that does its work, and the attempts that run now."""

    role: str
    function: Handler
    slots: int = 1
    lease: Duration | None = None
    running: dict[Claim, Future[str | None] | None] = field(default_factory=dict)
    #: When a claim was last asked for in vain.
    empty_at: float = 0.0

    def __post_init__(self) -> None:
        check_role(self.role)
        if not callable(self.function):
            raise Invalid(f"A handler is a function, got {type(self.function).__name__}.")
        if self.slots < 1:
            raise Invalid(f"slots: expected a number from 1, got {self.slots}.")


class Server:
    """Serves roles until it is stopped. It runs once."""

    def __init__(
        self,
        client: Client,
        roles: list[ServedRole],
        *,
        grace: float = GRACE_SECONDS,
        idle: float | None = None,
        wrap: Callable[[Claim], Any] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not roles:
            raise Invalid("There is nothing to serve.", "Register a function with handler(role).")
        for each in roles:
            if loop is None and inspect.iscoroutinefunction(each.function):
                raise Invalid(
                    f"The handler of {each.role} is a coroutine, and a Queue has no event loop.",
                    "Serve it with AsyncQueue.",
                )
        self._client = client
        self._roles = roles
        self._grace = grace
        self._idle = idle
        self._wrap = wrap
        self._loop = loop
        self._stopping = self._hurry = False
        self._error: AgentqError | None = None
        self._busy_at = time.monotonic()
        #: Guards `running` of every role; notified when an attempt ends.
        self._ended = threading.Condition()
        #: One for whoever waits in `run`, one for each dispatcher.
        self._pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(1 + len(roles))]

    # -- from outside ------------------------------------------------------------------------------

    def stop(self) -> None:
        """Claim no more. What runs may finish within the grace, then it is given back."""
        self._stopping = True
        self._wake_all()

    def run(self, *, signals: bool = True) -> None:
        """Serve until `stop`, SIGTERM or Ctrl-C. Signals are heeded in the main thread only."""
        with Presence(self._client, *(partial(self._report, each) for each in self._roles)):
            self._run(signals=signals)

    def _report(self, role: ServedRole) -> WorkerReport:
        with self._ended:
            held = list(role.running)
        now = time.monotonic()
        busy = tuple(BusySlot(each.id, each.epoch, seconds=now - each.began) for each in held)
        idle = this_process(role.role, agent="python", slots=role.slots)
        return replace(idle, is_ending=self._stopping, busy=busy)

    def _run(self, *, signals: bool) -> None:
        heeds = signals and threading.current_thread() is threading.main_thread()
        restore = self._heed_signals() if heeds else None
        threads = [
            threading.Thread(target=self._dispatch, args=(role, pipe), name=f"serve-{role.role}")
            for role, (pipe, _) in zip(self._roles, self._pipes[1:], strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            while not self._stopping:
                select.select([self._pipes[0][0]], [], [])
                drain(self._pipes[0][0])
        finally:
            self.stop()
            for thread in threads:
                thread.join()
            self._finish()
            if restore is not None:
                restore()
            with self._ended:
                for reads, writes in self._pipes:
                    os.close(reads)
                    os.close(writes)
                self._pipes = []
        if self._error is not None:
            raise self._error

    def _heed_signals(self) -> Callable[[], None]:
        """The first signal asks for a good end, the second for a quick one; returns how to undo
        it."""

        def heard(number: int, frame: object) -> None:
            if self._stopping:
                self._hurry = True
            self.stop()

        before = {each: signal.signal(each, heard) for each in (signal.SIGTERM, signal.SIGINT)}
        # Another thread may be given the signal; then the main one sleeps on unless it is woken.
        woken = signal.set_wakeup_fd(self._pipes[0][1], warn_on_full_buffer=False)

        def restore() -> None:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)

        return restore

    def _wake_all(self) -> None:
        with self._ended:
            for _, writes in self._pipes:
                try:
                    os.write(writes, b"!")
                except BlockingIOError:
                    continue  # it is awake already

    # -- claiming ----------------------------------------------------------------------------------

    def _dispatch(self, role: ServedRole, wake: int) -> None:
        inbox = None
        try:
            inbox = self._client.inbox(role.role)
            while not self._stopping:
                if not self._fill(role):
                    self._nap(inbox, role, wake)
        except AgentqError as error:
            self._error = error
            self.stop()
        finally:
            if inbox is not None:
                inbox.close()

    def _free(self, role: ServedRole) -> int:
        with self._ended:
            return role.slots - len(role.running)

    def _fill(self, role: ServedRole) -> bool:
        """Claim for the free slots and start what was claimed; whether there may be more."""
        free, now = self._free(role), time.monotonic()
        if not free:
            return False
        try:
            claims = self._client.claim_many(role.role, free, lease=role.lease)
        except Unavailable as error:
            if error.code == "moved":  # for good
                raise
            log.warning("nothing can be claimed at the moment: %s", error)
            return False
        for claim in claims:
            self._begin(role, claim)
        if not claims:
            role.empty_at = now
        return len(claims) == free

    def _nap(self, inbox: Inbox, role: ServedRole, wake: int) -> None:
        pause = POLL_SECONDS * (0.8 + time.perf_counter_ns() % 200 / 1000)
        if self._idle is not None:
            left = self._busy_at + self._idle - time.monotonic()
            if left <= 0 and self._is_idle():
                self.stop()
                return
            pause = min(pause, max(left, 0.05))
        try:
            wake_at = self._client.next_wake()
        except Unavailable:
            wake_at = 0
        if wake_at:
            pause = min(pause, max((wake_at - self._client.now()) / 1000, 0.05))
        # Hints only say that there may be work: what can be claimed is asked of the ledger.
        inbox.settle(inbox.take(self._free(role), pause, wake))
        drain(wake)

    def _is_idle(self) -> bool:
        """Whether nothing runs, and every role has looked for work in vain since something did:
        what has just ended may have made a task of another role ready."""
        with self._ended:
            return not any(role.running or role.empty_at <= self._busy_at for role in self._roles)

    # -- attempts ----------------------------------------------------------------------------------

    def _begin(self, role: ServedRole, claim: Claim) -> None:
        with self._ended:
            role.running[claim] = None
        threading.Thread(
            target=self._attempt, args=(role, claim), name=f"task-{claim.id}", daemon=True
        ).start()

    def _attempt(self, role: ServedRole, claim: Claim) -> None:
        try:
            with claim:
                self._work(role, claim)
        except (Stale, CancelledError):
            log.info("%s: attempt %d holds it no longer", claim.id, claim.epoch)
        except AgentqError as error:
            # Its lease will end by itself; somebody else takes the task then.
            log.error("%s: the attempt could not be reported: %s", claim.id, error)  # noqa: TRY400
        except Exception:
            log.exception("%s: the handler raised, attempt %d failed", claim.id, claim.epoch)
        finally:
            with self._ended:
                self._busy_at = time.monotonic()
                role.running.pop(claim, None)
                self._ended.notify_all()
            self._wake_all()

    def _work(self, role: ServedRole, claim: Claim) -> None:
        try:
            text = self._call(role, claim)
        except Retry as error:
            if error.delay is None:
                claim.fail(error.reason)
            else:
                claim.release(error.reason, delay=error.delay)
        except Block as error:
            claim.block(error.reason)
        except Leave as error:
            _leave(claim, error)
        except Fail as error:
            claim.fail(error.reason, error.kind)
        else:
            _complete(claim, text)

    def _call(self, role: ServedRole, claim: Claim) -> str | None:
        if not inspect.iscoroutinefunction(role.function):
            returned = role.function(claim)
            if returned is None or isinstance(returned, str):
                return returned
            raise Fail(
                f"The handler returned {type(returned).__name__}; expected text or None.",
                FailureKind.BAD_OUTPUT,
            )
        assert self._loop is not None, "checked when the server was made"
        from asyncio import run_coroutine_threadsafe

        given = claim if self._wrap is None else self._wrap(claim)
        future = run_coroutine_threadsafe(role.function(given), self._loop)
        with self._ended:
            role.running[claim] = future
        claim.on_lost = future.cancel  # type: ignore[assignment]
        # The token is asked for so that a cancel is heard at once; it may have come before.
        if claim.cancel_token.cancelled:
            future.cancel()
        text: str | None = future.result()
        return text

    # -- stopping ----------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Wait for what runs, then give back what still does, and see it leave."""
        self._wait_ended(self._grace)
        with self._ended:
            late = [each for role in self._roles for each in role.running.items()]
        for claim, future in late:
            try:
                claim.release("its worker was stopped")
            except AgentqError as error:
                log.warning("%s was not given back: %s", claim.id, error)
            if future is not None:
                future.cancel()
            claim.lose()
        # Whoever heeds the token is about to end; a thread that does not cannot be ended.
        self._hurry = False
        self._wait_ended(LEAVE_SECONDS)

    def _wait_ended(self, seconds: float) -> None:
        """Wait until nothing runs, but no longer than that."""
        deadline = time.monotonic() + seconds
        with self._ended:
            while any(role.running for role in self._roles):
                left = deadline - time.monotonic()
                if left <= 0 or self._hurry:
                    return
                # A signal that another thread was given is handled only when this one wakes.
                self._ended.wait(min(left, 0.5))


def _leave(claim: Claim, asked: Leave) -> None:
    try:
        claim.yield_(asked.wait, asked.note, signals=asked.signals)
    except (Invalid, Refused) as error:
        if isinstance(error, Stale):
            raise
        # There is nothing to wait for, say: the next attempt would find the same.
        claim.fail(str(error), FailureKind.BAD_OUTPUT)


def _complete(claim: Claim, text: str | None) -> None:
    if claim.reported:
        return
    summary = text.strip().partition("\n")[0] if text else ""
    try:
        claim.complete(shorten(summary, SUMMARY_CHARS_MAX), text)
    except Refused as error:
        if isinstance(error, Stale):
            raise
        # A gate refused it: evidence that was expected is missing, say.
        claim.fail(str(error), FailureKind.BAD_OUTPUT)
