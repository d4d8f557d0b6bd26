"""Outcomes from a broker: each is handed out once, and acknowledged when the caller is done.

A coordinator may think for hours about one of them, or die in the middle of it. So the broker keeps
it until the caller asks for the next. Meanwhile the broker may take it back: it bounds how long
anybody holds a message (`consumer_timeout`), it restarts, or the line breaks. Then it gives the
same out again, to us as a rule; what this caller was done with is remembered, and acknowledged
without a word when it comes again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentq.core.errors import Conflict, Invalid, NotFound, Refused, Unavailable
from agentq.protocol.messages import OUTCOMES, read_json

if TYPE_CHECKING:
    from agentq.contracts.delivery import Mailbox, ReceivedMessage
    from agentq.core.errors import AgentqError

#: How long one look takes at most; less until the broker has answered, so that a refusal is told.
_POLL_SECONDS, _TRY_SECONDS = 5.0, 0.5
#: How long a broker may take to answer, and then to hand over what is there already.
_ANSWER_SECONDS, _SETTLE_SECONDS = 2.0, 0.5
#: How long to wait for what it took back, when that is all that is left to do.
_AGAIN_SECONDS = 10.0
_REMEMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How a task ended, or that it is blocked."""

    task_id: str
    #: `completed`, `failed`, `blocked`, `cancelled` or `expired`.
    status: str
    summary: str
    #: Everything the envelope says; `agentq schema outcome` describes it.
    envelope: Mapping[str, Any]
    #: Its place in the log, to go on after it; 0 if it came by a broker, which remembers that.
    position: int = 0


def received(
    box: Mailbox,
    name: str,
    wait: float | None,
    limit: int | None,
    warn: Callable[[str], None],
) -> Generator[TaskOutcome]:
    """Outcomes from a queue. One that is not finished with when the caller stops comes again."""
    try:
        yield from _Receiving(box, name, wait, limit, warn).outcomes()
    finally:
        box.close()


def read_outcome(body: bytes) -> TaskOutcome:
    """The outcome in these bytes, or `Invalid`."""
    plain = read_json(body)
    texts = [plain.get(word) for word in ("task_id", "status", "summary")]
    if plain.get("v") != 1 or plain.get("status") not in OUTCOMES:
        raise Invalid("This is no outcome of version 1.", "`agentq schema outcome` says more.")
    task_id, status, summary = (text if isinstance(text, str) else "" for text in texts)
    if not task_id:
        raise Invalid("An outcome needs task_id, and this one has none.", "Drop it.")
    return TaskOutcome(task_id, status, summary, plain)


class _Receiving:
    """The state of one caller that receives outcomes from the broker."""

    def __init__(
        self,
        box: Mailbox,
        name: str,
        wait: float | None,
        limit: int | None,
        warn: Callable[[str], None],
    ) -> None:
        self._box = box
        self._name = name
        self._wait = wait
        self._limit = limit
        self._warn = warn
        self._given = 0
        #: What the caller was done with, the oldest first.
        self._done: dict[bytes, None] = {}
        #: Whether the last of these may come again.
        self._unsettled = False
        self._reached = False
        self._warned_of: type[AgentqError] | None = None

    def outcomes(self) -> Generator[TaskOutcome]:
        while self._given != self._limit or self._unsettled:
            message = self._next()
            if message is None:
                return
            key = _key(message)
            if key in self._done:
                self._settle(message)
                continue
            if self._given == self._limit:
                return  # what is unsettled has gone to somebody else
            try:
                outcome = read_outcome(message.body)
            except Invalid as error:
                self._box.put_aside(message, str(error))
                self._look_around()
                continue
            with self._box.away():
                yield outcome
            self._given += 1
            self._remember(key)
            self._settle(message)

    def _settle(self, message: ReceivedMessage) -> None:
        self._unsettled = not self._box.settle(message.tag)

    def _remember(self, key: bytes) -> None:
        self._done[key] = None
        if len(self._done) > _REMEMBERED_MAX:
            del self._done[next(iter(self._done))]

    # -- waiting -----------------------------------------------------------------------------------

    def _next(self) -> ReceivedMessage | None:
        """The next message; None if none comes within the caller's patience."""
        began = time.monotonic()
        while True:
            pause = _POLL_SECONDS if self._reached else _TRY_SECONDS
            patience = self._patience()
            if patience is not None:
                left = began + patience - time.monotonic()
                if left <= 0:
                    self._check_reached()
                    return None
                pause = min(pause, left)
            message = self._box.take(pause)
            self._look_around()
            if message is not None:
                return message

    def _patience(self) -> float | None:
        if self._given == self._limit:
            return _AGAIN_SECONDS
        if self._wait is None:
            return None
        if self._unsettled:
            least = _AGAIN_SECONDS
        elif isinstance(self._box.problem, NotFound):
            least = 0.0  # the broker has answered: there is nothing
        else:
            least = _SETTLE_SECONDS if self._given else _ANSWER_SECONDS
        return max(self._wait, least)

    def _check_reached(self) -> None:
        """Nothing came: because there is nothing, or because nobody was there to ask?"""
        problem = self._box.problem
        if problem is None or isinstance(problem, NotFound):
            return
        if isinstance(problem, Refused):
            raise problem
        if self._given == self._limit:
            self._warn(f"The last outcome could not be acknowledged, and comes again: {problem}")
            return
        raise Unavailable(
            f"The broker cannot be asked for results: {problem}", "They wait there; try again."
        )

    # -- telling -----------------------------------------------------------------------------------

    def _look_around(self) -> None:
        """Say once what is wrong, so that nobody waits in silence.

        What somebody must mend first is raised. But who was let in once is let in again, as a rule:
        a broker that starts may refuse for a moment.
        """
        for what in self._box.unread():
            self._warn(f"{what} `agentq dlq` shows it.")
        problem = self._box.problem
        if problem is None:
            if self._warned_of not in (None, NotFound):
                self._warn("The broker answers again.")
            self._reached, self._warned_of = True, None
            return
        if isinstance(problem, Conflict) or (isinstance(problem, Refused) and not self._reached):
            raise problem
        if type(problem) is not self._warned_of and self._is_warned(problem):
            self._warned_of = type(problem)
            self._warn(self._words(problem))

    def _is_warned(self, problem: AgentqError) -> bool:
        """Whoever does not wait long hears it as an error soon."""
        waits_long = self._wait is None or self._wait > _POLL_SECONDS
        return isinstance(problem, NotFound) or waits_long

    def _words(self, problem: AgentqError) -> str:
        if isinstance(problem, NotFound):
            return (
                f"Nothing was sent to {self._name} yet: the broker has no such queue, and this user"
                " may not prepare it."
            )
        return f"Waiting for the broker: {problem}"


def _key(message: ReceivedMessage) -> bytes:
    """The same words under the same id are the same outcome."""
    text = message.id.encode(errors="replace") + b"\0" + message.body
    return hashlib.sha256(text).digest()
