"""What a worker says of itself to those who look: its slots, its problem, the last words heard."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agentq.client.presence import this_process
from agentq.contracts.overview_values import BusySlot
from agentq.core.values import replace
from agentq.worker.redaction import redacted_text

if TYPE_CHECKING:
    from agentq.contracts.overview_values import WorkerReport
    from agentq.worker.attempt import Attempt
    from agentq.worker.worker import Worker

_WORDS_CHARS_MAX = 200


def report_of(worker: Worker) -> WorkerReport:
    """The worker as it stands now."""
    settings = worker.shared.settings
    return replace(
        this_process(worker.shared.role, agent=settings.shown_agent, slots=settings.slots),
        problem=worker.problem,
        is_ending=worker.draining,
        busy=tuple(busy_of(attempt) for attempt in worker.running),
    )


def busy_of(attempt: Attempt) -> BusySlot:
    """What is said of one attempt."""
    words = redacted_text(attempt.observer.last_words, attempt.secrets)
    seconds = time.monotonic() - attempt.started
    return BusySlot(
        attempt.task.id, attempt.claim.epoch, attempt.step, words[:_WORDS_CHARS_MAX], seconds
    )
