"""How a handler ends an attempt without completing it: it raises `Retry`, `Block`, `Leave`
or `Fail`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.core.triggers import FailureKind

if TYPE_CHECKING:
    from agentq.client.durations import Duration


class Retry(Exception):
    """Try the task again: after a backoff, which uses one of its attempts.

    With a `delay` the task is given back instead and comes again after that time, as often as it
    takes: for something that is not there yet, such as a file or a rate limit's next window.
    """

    def __init__(self, reason: str, *, delay: Duration | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay = delay


class Block(Exception):
    """Stop and ask somebody up the chain; the task waits for `Queue.answer`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Leave(Exception):
    """Leave until `all` of the children that the attempt submitted are over, or `any`, and until
    these signals have come. The handler is called again then, and finds the note; no attempt is
    used."""

    def __init__(self, note: str = "", *, wait: str = "all", signals: Sequence[str] = ()) -> None:
        super().__init__(note)
        self.note = note
        self.wait = wait
        self.signals = tuple(signals)


class Fail(Exception):
    """Give the task up: trying again would change nothing, unless the kind says otherwise."""

    def __init__(self, reason: str, kind: FailureKind | str = FailureKind.INVALID) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = FailureKind(kind)
