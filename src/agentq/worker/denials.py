"""What an agent was not allowed to do, as evidence: in the ledger and in the reason of a failure,
in front of whoever looks at the task next, be it a person or the next attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.contracts.agent import AttemptResult
from agentq.core.counting import counted
from agentq.core.errors import AgentqError
from agentq.worker.redaction import redacted_text

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt

#: How many different ones are named, and how much of each.
_NAMED_MAX, _CHARS_MAX = 10, 200


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


def record(attempt: Attempt, result: AttemptResult) -> None:
    """Keep in the ledger what the agent of an attempt was denied. That it could not be kept is
    shown, and fails nothing: the agent may have reported by itself, and its attempt be over."""
    if not result.denials:
        return
    text = described(_redacted(attempt, result))
    attempt.shared.show_step(attempt.task.id, "stream", text)
    try:
        attempt.claim.comment(text, denied=len(result.denials))
    except AgentqError as error:
        attempt.shared.show_step(attempt.task.id, "stream", f"that was not recorded: {error.cause}")


def reason_with_denials(reason: str, attempt: Attempt, result: AttemptResult) -> str:
    """The reason of a failure, with what was denied: most likely the one follows from the other."""
    denied = described(_redacted(attempt, result))
    return f"{reason} ({denied})" if denied else reason


def _redacted(attempt: Attempt, result: AttemptResult) -> list[str]:
    """Each as a whole, before it is shortened: half of a secret is not known as one."""
    return [redacted_text(each, attempt.secrets) for each in result.denials]
