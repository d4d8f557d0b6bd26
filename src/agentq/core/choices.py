"""Words to choose from: why an attempt failed, how a report is ruled on, how a block is resolved.

Apart from the triggers that carry them: a client that only names one need not import all of those.
"""

from __future__ import annotations

from enum import StrEnum


class FailureKind(StrEnum):
    """Why an attempt did not succeed; each kind has its own answer (see `transition`)."""

    TRANSIENT = "transient"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    CRASHED = "crashed"
    BAD_OUTPUT = "bad_output"
    REFUSED = "refused"
    INVALID = "invalid"
    BUDGET = "budget"


class Ruling(StrEnum):
    """How a reviewer rules on a report."""

    ACCEPT = "accept"
    CHANGES = "changes"
    REJECT = "reject"


class Resolution(StrEnum):
    """What a person decides about a blocked task."""

    RETRY = "retry"
    DONE = "done"
    GIVE_UP = "give_up"
