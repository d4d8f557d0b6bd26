"""The cards of a board: all of them once, then each as it changes, for all boards at one price.

A board asks for all cards, with the position of the log they stand for, and follows from there. The
log is read once for all who follow; of each page of it the tasks that it is about are read once.
What leaves no event (what agents say while they work) is looked at once a second while anybody
looks, and sent only if it has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentq.contracts.overview_values import Overview
from agentq.contracts.service import Service
from agentq.contracts.service_values import Wanted
from agentq.core.access import SYSTEM, Principal
from agentq.core.errors import AgentqError
from agentq.core.states import TERMINAL, State
from agentq.core.task import Task
from agentq.core.triggers import LogEntry
from agentq.core.values import replace
from agentq.server.api import encode
from agentq.server.event_feed import EventFeed, Line
from agentq.web.cards import card_of
from agentq.web.change_marks import ChangeMarks

if TYPE_CHECKING:
    from agentq.server.app import HttpApp
    from agentq.web.apply_jobs import ApplyJob

log = logging.getLogger("agentq.server")

#: A board holds so many cards: all that are not over, then the newest of those that are.
CARDS_MAX = 5_000
ENDED_MAX = 1_000
#: Of so many it is said that they have a change which nobody has applied: the newest.
CHANGES_MAX = 200
_LOOK_SECONDS = 1.0
#: So often pages hear that workers are still there.
_ASKED_MS = 15_000
_OPEN = tuple(state for state in State if state not in TERMINAL)
_ENDED = tuple(state for state in State if state in TERMINAL)


class BoardFeed:
    """Cards for any number of boards. For one event loop; `cards` may block."""

    def __init__(self, app: HttpApp, service: Service, marks: ChangeMarks) -> None:
        self._app = app
        self._service = service
        self._marks = marks
        #: What is said aside, by its name: whoever comes is sent the newest of each.
        self._asides: dict[str, bytes] = {}
        self.events = EventFeed(service, app.wakeups, app.in_thread, self._lines)
        self._boards = 0
        self._looking: asyncio.Task[None] | None = None

    def cards(self, who: Principal) -> dict[str, Any]:
        """All cards, and the position of the log that they are at least as new as."""
        position = self._service.last_position(who)
        found = self._service.list_tasks(who, Wanted(states=_OPEN, limit=CARDS_MAX))
        ended = self._service.list_tasks(who, Wanted(states=_ENDED, limit=ENDED_MAX))
        room = CARDS_MAX - len(found.tasks)
        tasks = [*found.tasks, *ended.tasks[:room]]
        return {
            "position": position,
            "now": self._service.now(),
            "cards": self._cards(tasks),
            "more": bool(found.cursor),
            "more_ended": bool(ended.cursor) or len(ended.tasks) > room,
            "counts": self._service.stats(who).by_role,
            "overview": self._service.overview(who),
        }

    def _cards(self, tasks: Sequence[Task]) -> list[dict[str, Any]]:
        """The cards of these tasks, newest first; that there is a change to apply is looked up for
        those only that somebody may still want to."""
        cards = []
        looks = CHANGES_MAX
        for task in tasks:
            card = card_of(task)
            if agent := self._marks.agent_of(task.to):
                card["agent"] = agent
            if looks and (mark := self._marks.of(task)):
                card["change"] = mark
                looks -= 1
            cards.append(card)
        return cards

    def tell_applying(self, jobs: list[ApplyJob]) -> None:
        """Let all boards know how applying changes stands. From any thread."""
        self._app.wakeups.call_soon(lambda: self._say("applying", jobs))

    def _say(self, name: str, value: object) -> None:
        data = b"event: %s\ndata: %s\n\n" % (name.encode(), encode(value))
        self._asides[name] = data
        self.events.say_aside(b"".join(self._asides.values()))

    @contextmanager
    def board(self) -> Iterator[None]:
        """While somebody looks."""
        self._boards += 1
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        try:
            yield
        finally:
            self._boards -= 1
            if not self._boards and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self.events.stop()

    def _lines(self, entries: Sequence[LogEntry]) -> list[Line]:
        """One line for a page of the log: the cards of all tasks it is about, as they are now."""
        ids = list(dict.fromkeys(entry.task_id for entry in entries))
        tasks = self._service.tasks_by_id(SYSTEM, ids)
        data = encode({
            "now": self._service.now(),
            "cards": self._cards([tasks[each] for each in ids if each in tasks]),
            "gone": [each for each in ids if each not in tasks],
        })  # fmt: skip
        position = entries[-1].position
        return [(position, b"id: %d\nevent: cards\ndata: %s\n\n" % (position, data))]

    async def _look(self) -> None:
        before: Overview | None = None
        while True:
            try:
                overview = await self._app.in_thread(self._service.overview, SYSTEM)
            except AgentqError as error:
                log.warning("the board cannot look at the installation: %s", error)
            else:
                shown = _without_moments(overview)
                if shown != before:
                    before = shown
                    self._say("overview", overview)
            await asyncio.sleep(_LOOK_SECONDS)


def _without_moments(overview: Overview) -> Overview:
    """What makes an overview news: that time passes and leases are renewed is none; that somebody
    still asks for tasks is, now and then."""
    running = tuple(replace(each, lease_ends_at=0) for each in overview.running)
    roles = tuple(replace(each, asked_at=each.asked_at // _ASKED_MS) for each in overview.roles)
    return replace(overview, at=0, running=running, roles=roles)
