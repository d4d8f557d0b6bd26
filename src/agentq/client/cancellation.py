"""How the work of an attempt learns that it should stop, within a moment of the cancel's commit.

A commit that takes a task from its holder rings for that holder. `CancelListener` hears it and has
the leases renewed at once; what is not renewed is lost, and its `CancelToken` is set.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from agentq.client.durations import Duration, seconds_or_none
from agentq.contracts.doorbell import holder_topic
from agentq.core.errors import Stale

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentq.contracts.doorbell import Doorbell
    from agentq.core.task import Task

#: The listener asks by itself so often, where rings are lost: renewals are the net below that.
_LOOK_SECONDS = 60.0


class CancelToken:
    """Set once the attempt holds its task no longer: it was cancelled, or its lease ended."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._cancelled = False
        # Made when somebody waits: a worker of many short tasks never does.
        self._event: threading.Event | None = None

    def __repr__(self) -> str:
        return f"<CancelToken of {self._task.id}{', cancelled' if self.cancelled else ''}>"

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def wait(self, timeout: Duration | None = None) -> bool:
        """Sleep until it is set, at most for `timeout`; return whether it is."""
        seconds = seconds_or_none(timeout, "timeout")
        if self._event is None:
            self._event = threading.Event()
        return self._cancelled or self._event.wait(seconds)

    def check(self) -> None:
        """Raise `Stale` once it is set, which ends the work without a report."""
        if self._cancelled:
            raise Stale(
                f"Attempt {self._task.epoch} no longer holds {self._task.id}: its lease ended or"
                " the task was cancelled. Nothing was recorded.",
                "Stop working on it.",
            )

    def set(self) -> None:
        """Set it: the ledger has said that the attempt is over."""
        self._cancelled = True
        if self._event is not None:
            self._event.set()


class CancelListener:
    """Calls `look` when somebody takes a task from one of these holders."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._holders: set[str] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = self._waker = -1
        self._closed = False

    def listen_for(self, holder: str, doorbell: Doorbell) -> None:
        """Listen from now on for this holder, too."""
        if holder in self._holders:
            return
        with self._lock:
            if self._closed or holder in self._holders:
                return
            self._holders = {*self._holders, holder}
            if self._thread is None:
                self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
                self._thread = threading.Thread(
                    target=self._run, args=(doorbell,), name="agentq-cancels", daemon=True
                )
                self._thread.start()
            else:
                os.write(self._waker, b"!")

    def close(self) -> None:
        """End the thread. Closing twice is fine."""
        with self._lock:
            self._closed, thread, self._thread = True, self._thread, None
            if thread is None:
                return
            # The thread may have seen that it is closed by itself, and be gone with its end.
            with contextlib.suppress(BrokenPipeError):
                os.write(self._waker, b"!")
        if thread is not threading.current_thread():
            thread.join(timeout=5)
        os.close(self._waker)

    def _run(self, doorbell: Doorbell) -> None:
        try:
            while not self._closed:
                holders = self._holders
                waiter = doorbell.listen([holder_topic(each) for each in holders])
                try:
                    self._look()  # for what was rung before we listened
                    while not self._is_over(holders):
                        if waiter.wait(_LOOK_SECONDS, self._wake):
                            self._look()
                        else:
                            drain(self._wake)
                finally:
                    waiter.close()
        finally:
            os.close(self._wake)

    def _is_over(self, holders: set[str]) -> bool:
        """Whether to listen no more, or for others."""
        return self._closed or holders is not self._holders


def drain(pipe: int) -> None:
    """Read what woke whoever sleeps on this pipe; it may have been the time."""
    try:
        os.read(pipe, 512)
    except BlockingIOError:
        return
