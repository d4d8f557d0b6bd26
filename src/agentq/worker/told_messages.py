"""Passes on what people tell an agent while it works.

The ledger marks a message as taken before it is sent, so an agent gets none twice. One that is
taken and then not read, because the agent is just done or dies, is in the prompt of the next
attempt, as all are.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError, Stale

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt
    from agentq.worker.worker_context import WorkerContext

log = logging.getLogger("agentq.worker")

#: How often a worker looks without having been woken: a ring may be lost, and a broker has none.
LOOK_SECONDS = 5.0


class ToldMessages:
    """The messages to the agent of one attempt. Any thread may ask for them."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        #: Whether the agent has said that it takes messages.
        self.is_listening = False

    def begin(self) -> None:
        """The agent takes messages: let the ledger know, and give it what has come meanwhile."""
        self.is_listening = True
        self.pass_on()

    def pass_on(self) -> None:
        """Take what is new, and have it sent."""
        attempt, stream = self._attempt, self._attempt.stream
        if stream is None or stream.is_done or attempt.claim.lost:
            return
        with self._lock:
            try:
                told = attempt.claim.messages()
            except Stale:
                return  # whoever renews the lease finds out, and ends the attempt
            except AgentqError as error:
                log.warning("%s: messages were not taken yet: %s", attempt.task.id, error)
                return
            for each in told:
                stream.tell(each)


class MessageRounds:
    """Looks whether somebody has told something to the agents of a worker."""

    def __init__(self) -> None:
        self._look_at = 0.0

    @staticmethod
    def pause(running: Sequence[Attempt]) -> float:
        """Seconds until the next look is due, where no ring may come."""
        listens = any(each.observer.told.is_listening for each in running)
        return LOOK_SECONDS if listens else math.inf

    def look(self, shared: WorkerContext, running: Sequence[Attempt], *, rung: bool) -> None:
        """Pass on what is new, if it was rung for or not looked for in a while."""
        listening = [each for each in running if each.observer.told.is_listening]
        now = time.monotonic()
        if not listening or not (rung or now >= self._look_at):
            return
        self._look_at = now + LOOK_SECONDS
        try:
            ids = [each.task.id for each in listening]
            tasks = shared.service.tasks_by_id(shared.who, ids)
        except AgentqError as error:
            log.warning("it could not be seen whether there are messages: %s", error)
            return
        for attempt in listening:
            task = tasks.get(attempt.task.id)
            if task is not None and any(not each.epoch for each in task.details.messages):
                attempt.observer.told.pass_on()
