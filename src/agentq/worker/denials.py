"""What an agent was not allowed to do, as evidence: in the ledger and in the reason of a failure,
in front of whoever looks at the task next, be it a person or the next attempt.

It is recorded while the agent runs, not when it has ended: its worker may be killed, and an agent
that reports by itself ends its attempt.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.contracts.agent import AttemptResult
from agentq.core.counting import counted
from agentq.core.errors import AgentqError, Stale
from agentq.worker.redaction import redacted_text

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt

#: How many different ones are named, and how much of each.
_NAMED_MAX, _CHARS_MAX = 10, 200
#: Pauses between two records of one attempt, in seconds: the first, and the longest. Whoever is
#: denied again and again fills no log with it.
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 1.0, 30.0


class DenialLog:
    """Records the denials of one attempt as they come. Safe for several threads.

    The first is recorded at once, what comes soon after it a little later and together. There is
    one note per attempt, which tells of all of them so far.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        self._heard: list[str] = []
        self._recorded = 0
        self._next_at = 0.0
        self._pause = _PAUSE_SECONDS
        self._timer: threading.Timer | None = None
        self._is_over = False

    def add(self, what: str) -> None:
        """Note one denial: now, or with those that come within the pause."""
        with self._lock:
            self._heard.append(what)
            left = self._next_at - time.monotonic()
            if left <= 0:
                self._record()
            elif self._timer is None and not self._is_over:
                self._timer = threading.Timer(left, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Record what is not recorded yet, as before a report that ends the attempt."""
        with self._lock:
            self._stop_timer()
            self._record()

    def finish(self, result: AttemptResult) -> None:
        """Record the rest, with those that the tool told of only at its end."""
        with self._lock:
            self._heard += (Counter(result.denials) - Counter(self._heard)).elements()
        self.flush()
        if self._heard:
            words = described(_redacted(self._attempt, self._heard))
            self._attempt.shared.show_step(self._attempt.task.id, "stream", words)

    def close(self) -> None:
        """Record nothing any more: the attempt is over."""
        with self._lock:
            self._is_over = True
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _record(self) -> None:
        """Keep it in the ledger. That it could not be kept is shown, and fails nothing: the next
        record has it too, unless the agent has reported by itself and its attempt is over."""
        fresh = len(self._heard) - self._recorded
        if not fresh or self._is_over:
            return
        attempt = self._attempt
        text = described(_redacted(attempt, self._heard))
        try:
            attempt.claim.comment(text, denied=fresh, replaces=self._recorded > 0)
            self._recorded = len(self._heard)
        except AgentqError as error:
            self._is_over = isinstance(error, Stale)
            words = f"what was denied was not recorded: {error.cause}"
            attempt.shared.warn(attempt.task.id, "stream", words)
        self._next_at = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _PAUSE_SECONDS_MAX)


def described(denials: Sequence[str]) -> str:
    """Say in one sentence what was denied; "" if nothing was."""
    if not denials:
        return ""
    named = Counter(each[:_CHARS_MAX] for each in denials)
    listed = [
        f"{what} ({count} times)" if count > 1 else what
        for what, count in list(named.items())[:_NAMED_MAX]
    ]
    if len(named) > _NAMED_MAX:
        listed.append(f"and {len(named) - _NAMED_MAX} more")
    were = "was" if len(denials) == 1 else "were"
    return f"{counted(len(denials), 'tool call')} {were} not allowed: {'; '.join(listed)}"


def reason_with_denials(reason: str, attempt: Attempt, result: AttemptResult) -> str:
    """The reason of a failure, with what was denied: most likely the one follows from the other."""
    denied = described(_redacted(attempt, result.denials))
    return f"{reason} ({denied})" if denied else reason


def _redacted(attempt: Attempt, denials: Sequence[str]) -> list[str]:
    """Each as a whole, before it is shortened: half of a secret is not known as one."""
    return [redacted_text(each, attempt.secrets) for each in denials]
