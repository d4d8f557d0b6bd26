"""Errors of agentq itself in the middle of an attempt, which nobody foresaw.

They end the attempt as crashed, and never the worker: the reason names the kind of error and its
place, and the whole traceback is kept among the evidence.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.core.reserved_names import WORKER_FOLDER
from agentq.worker.redaction import redacted_text

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt

log = logging.getLogger("agentq.worker")

#: The artifact that holds the traceback.
INTERNAL_ERROR = f"{WORKER_FOLDER}internal-error.txt"
_CHARS_MAX = 300


def named(error: BaseException) -> str:
    """An error by its type, its words and the place in the code where it came up."""
    frames = traceback.extract_tb(error.__traceback__)
    words = " ".join(str(error).split())[:_CHARS_MAX]
    shown = f"{type(error).__name__}: {words}" if words else type(error).__name__
    # The last place in our own code: below it are libraries, which did as they were asked.
    ours = [each for each in frames if "/agentq/" in each.filename] or frames
    if not ours:
        return shown
    place = ours[-1]
    file = place.filename.rpartition("/agentq/")[2]
    return f"{shown} (at {file}:{place.lineno}, in {place.name})"


def crashed_by(error: Exception, attempt: Attempt) -> AttemptResult:
    """Return the verdict on an attempt that agentq itself has broken off; keep the traceback."""
    attempt.failed_at = attempt.step
    reason = f"an error of agentq itself: {redacted_text(named(error), attempt.secrets)}"
    log.error("%s: %s: %s", attempt.task.id, attempt.step, reason)
    text = redacted_text("".join(traceback.format_exception(error)), attempt.secrets)
    try:
        attempt.evidence.store((INTERNAL_ERROR, text.encode("utf-8", "replace")))
    except Exception as unstored:  # noqa: BLE001 - it may be what broke: the reason says enough
        log.error("%s: its traceback was not stored: %s", attempt.task.id, named(unstored))  # noqa: TRY400
    return AttemptResult(AttemptOutcome.CRASHED, reason)


def unfailing(show: Callable[..., None]) -> Callable[..., None]:
    """What only shows something, so that an error in it is logged once and never raised."""
    is_logged = False

    def shown(*arguments: Any) -> None:
        nonlocal is_logged
        try:
            show(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is: nobody's work depends on it
            if not is_logged:
                is_logged = True
                log.warning("what happens cannot be shown, the work goes on: %s", named(error))

    return shown
