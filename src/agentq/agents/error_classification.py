"""What a provider's error means for the task: one reading of codes and messages for all tools.

Only what a tool gives as an error is read here, never what an agent wrote. Quota comes first where
words could mean two things: it uses no attempt and holds back the whole provider, so that one empty
account does not fail a queue of tasks one by one. The same goes for a provider that does not serve.
What says that the role cannot work (no login, a wrong option, a model that is not there) is only a
suspicion: the worker checks the role before it believes it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agentq.agents.reset_times import reset_time
from agentq.contracts.agent import AttemptOutcome, Exit

MESSAGE_CHARS_MAX = 4000
LOG_IN = "Somebody must log in or set a valid key; trying again will not help."
PAY = "Somebody must pay for the account; trying again will not help."
SETTINGS = "The role's settings or the task's input must change."


class KnownError(NamedTuple):
    """What an error means, what to add to its message for people, and when it is over."""

    outcome: AttemptOutcome
    advice: str = ""
    resets_at: int = 0
    session_unknown: bool = False


_STATUS = re.compile(
    r"(?:status|error|code|http|api|response)\W{1,3}(?:\w{1,20}\W{1,3}){0,2}([45]\d\d)\b"
    r"|\(([45]\d\d)\)|^\W{0,3}([45]\d\d)\b",
    re.IGNORECASE,
)
_UNKNOWN_SESSION = re.compile(
    r"no conversation found|no rollout found|invalid session identifier"
    r"|(?:session|thread|conversation)(?: id)?(?: \S{1,80})? (?:was )?not found"
    r"|unknown (?:session|thread|conversation)|error resuming session"
    r"|no (?:saved |previous )?sessions? found",
    re.IGNORECASE,
)
#: Resuming this conversation fails the same way each time; a new one starts with an empty context.
_OVERFULL = re.compile(
    r"prompt is too long|context.length.exceeded|context window|maximum context length"
    r"|input token count.{1,40}exceeds",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"rate.?limit|(?:usage|session|weekly|daily|hourly|5-hour|spending|monthly|request) limit"
    r"|too many requests|\bquota\b|resource.?exhausted|exhausted your (?:capacity|\w{1,10} quota)"
    r"|insufficient_quota",
    re.IGNORECASE,
)
_BILLING = re.compile(r"credit balance|out of credits|billing|payment required", re.IGNORECASE)
_OVERLOADED = re.compile(
    r"overload|server.?error|bad gateway|service.?unavailable|gateway time"
    r"|connection (?:error|reset|refused|closed)|ECONN|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|fetch failed"
    r"|network|stream (?:disconnected|error|closed)|at capacity",
    re.IGNORECASE,
)
_TRANSIENT = re.compile(r"timed? ?out|temporarily|try again", re.IGNORECASE)
_AUTH = re.compile(
    r"unauthori[sz]ed|authenticat|invalid.{0,12}(?:api.?key|token|credential)|api.?key.{0,30}"
    r"(?:not (?:found|set|valid)|missing|invalid|required)|not logged in"
    r"|please (?:run )?.{0,12}log.?in|forbidden|set an auth method",
    re.IGNORECASE,
)
_USAGE = re.compile(
    # The list of options that gemini and opencode print instead of naming the one that is wrong.
    r"\s--[\w-]{2,40} {2,}\S.{0,300}\[(?:boolean|string|number|array)\]"
    r"|unknown (?:option|argument|command)|unexpected argument|unrecognized (?:option|argument)"
    r"|invalid value .{1,80} for"
    r"|model(?! metadata).{1,80}(?:not found|not exist|not supported|not available)"
    r"|argument .{1,80} is invalid|cannot be used with root|missing environment variable"
    r"|invalid auth method|is not trusted|unrecognized_model",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"violate.{1,30}(?:policy|policies)|(?:usage|content) polic|prohibited_content"
    r"|safety (?:filter|reasons)",
    re.IGNORECASE,
)


def known_error(
    message: str, now: int, status: int = 0, *, resumed: bool = False
) -> KnownError | None:
    """What this error means; None if nothing in it is known.

    `status` is the HTTP status if the tool named it. `resumed` says that it went on from an earlier
    conversation, so that one may be lost.
    """
    message = message[:MESSAGE_CHARS_MAX]
    if resumed and (_UNKNOWN_SESSION.search(message) or _OVERFULL.search(message)):
        return KnownError(AttemptOutcome.TRANSIENT, session_unknown=True)
    status = status or _status_in(message)
    if status == 429 or (
        _QUOTA.search(message) and status != 402 and status not in range(500, 600)
    ):
        return KnownError(AttemptOutcome.QUOTA, resets_at=reset_time(message, now))
    if status == 402 or (_BILLING.search(message) and status not in range(500, 600)):
        return KnownError(AttemptOutcome.SURROUNDINGS, PAY)
    if status in (401, 403):
        return KnownError(AttemptOutcome.SURROUNDINGS, LOG_IN)
    if 500 <= status < 600:
        return KnownError(AttemptOutcome.OVERLOADED)
    if status in (408, 409, 425):
        return KnownError(AttemptOutcome.TRANSIENT)
    return _by_words(message, status)


def _by_words(message: str, status: int) -> KnownError | None:
    if _REFUSED.search(message):
        return KnownError(AttemptOutcome.REFUSED)
    if _AUTH.search(message):
        return KnownError(AttemptOutcome.SURROUNDINGS, LOG_IN)
    if _USAGE.search(message) or status == 404:
        return KnownError(AttemptOutcome.SURROUNDINGS, SETTINGS)
    if status in (400, 413, 422):
        return KnownError(AttemptOutcome.INVALID, SETTINGS)
    if _OVERLOADED.search(message):
        return KnownError(AttemptOutcome.OVERLOADED)
    if _TRANSIENT.search(message):
        return KnownError(AttemptOutcome.TRANSIENT)
    return None


def _status_in(message: str) -> int:
    found = _STATUS.search(message)
    return int(found[1] or found[2] or found[3]) if found else 0


def signal_of(exit: Exit) -> int:
    """The signal that ended it, also where a shell or the tool itself reports that as a code."""
    return exit.signal or (exit.code - 128 if 128 < exit.code < 160 else 0)


def unexplained(exit: Exit) -> KnownError:
    """Classify an exit that no known output of the tool explains."""
    if signal_of(exit):
        return KnownError(AttemptOutcome.CRASHED)
    if exit.code in (126, 127):
        return KnownError(
            AttemptOutcome.SURROUNDINGS, "The role's command cannot be run: check its settings."
        )
    return KnownError(AttemptOutcome.TRANSIENT)
