"""Acts on what the agent of an attempt says while it runs: progress, cost, its conversation."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agentq.contracts.agent import (
    AgentEvent,
    AgentMessage,
    AgentSession,
    AttemptOutcome,
    Denied,
    Limited,
    Listening,
    MessageKind,
    OtherPermissions,
    Spent,
)
from agentq.core.errors import AgentqError
from agentq.core.limits import PROGRESS_CHARS_MAX
from agentq.worker import recovery
from agentq.worker.costs import priced
from agentq.worker.outcomes import note_served
from agentq.worker.redaction import redacted_text
from agentq.worker.stream import Stop
from agentq.worker.told_messages import ToldMessages

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt

PROGRESS_SECONDS = 1.0
_WORDS_CHARS_MAX = 200


class Observer:
    """Hears the events of one attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        #: What it said last, for those who watch.
        self.last_words = ""
        self.told = ToldMessages(attempt)
        self._session = ""
        self._version = attempt.task.version
        self._progress_at = -PROGRESS_SECONDS

    def heard(self, event: AgentEvent) -> None:
        """Act on one event."""
        attempt = self._attempt
        if isinstance(event, AgentMessage):
            if event.text and event.kind is not MessageKind.RESULT:
                self.last_words = event.text[:_WORDS_CHARS_MAX]
            self._note_progress(event)
        elif isinstance(event, Spent):
            price = attempt.shared.settings.price
            attempt.budget.add(priced(event, price), is_done=attempt.is_done)
            if event.cost.tokens or event.cost.usd:
                note_served(attempt)
        elif isinstance(event, AgentSession) and event.id != self._session:
            self._session = event.id
            recovery.remember_session(attempt.claim, event.id)
        elif isinstance(event, Limited):
            self.last_words = event.reason[:_WORDS_CHARS_MAX]
        elif isinstance(event, OtherPermissions):
            # It must not come to its first tool call: it is not asked to end. Most likely a setting
            # of this machine, or another release, does that to every task: the role is checked.
            attempt.stop(Stop(AttemptOutcome.SURROUNDINGS, event.reason, at_once=True))
        elif isinstance(event, Listening):
            self.told.begin()
        elif isinstance(event, Denied):
            self.last_words = f"not allowed: {event.what}"[:_WORDS_CHARS_MAX]
            attempt.denials.add(event.what)

    def shows_life(self) -> bool:
        """Whether the task changed since the last call, as it does by `agentq progress`."""
        try:
            task = self._attempt.stored()
        except AgentqError:
            return True  # nobody knows: the ledger is away
        before, self._version = self._version, task.version if task is not None else 0
        return self._version > before

    def _note_progress(self, record: AgentMessage) -> None:
        """Record the agent's progress in the ledger, not more often than people can read."""
        now, claim = time.monotonic(), self._attempt.claim
        if record.percent < 0 or now - self._progress_at < PROGRESS_SECONDS or claim.lost:
            return
        self._progress_at = now
        note = redacted_text(record.text, self._attempt.secrets)[:PROGRESS_CHARS_MAX]
        claim.progress(min(record.percent, 100), note)
