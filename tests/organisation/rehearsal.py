"""A rehearsal: the organisation of the template at work for many days of a virtual clock.

The real ledger, schedules and wakes; agents are processes of `fake-agent`, run by real workers (see
`scripted_agents`). Each attempt costs money; some fail, some ask, hand on a part or tell others.
Managers answer half of what their wakes name, a person answers once a day what has climbed so far.
Then there is a stretch in which nobody asks for anything. While agents are at work the clock of the
ledger stands still, so that a month takes as long as the attempts in it.

`python -m tests.organisation.rehearsal --days 30 --seed 7 --asks 0.35` prints what came of it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from agentq.core import access
from agentq.core.access import SYSTEM
from agentq.core.states import State
from agentq.core.task import Spec
from agentq.core.triggers import Answer, ClaimTask, Comment, FailAttempt
from agentq.organisation.inbox import InboxKind, inbox_of
from agentq.organisation.wake_events import waits_for_events, wake_now
from agentq.organisation.wake_schedules import AgentWakes
from agentq.organisation.waking import WAKE_TYPE
from agentq.testing import MemoryQueue
from tests.organisation.scripted_agents import ScriptedAgents

HOUR_MS = 3600 * 1000
#: Nobody asks for anything in these parts of the time.
QUIET = (0.4, 0.75)
#: Who asks for things, and who answers what nobody else has: only what has climbed is hers.
_CUSTOMER, _PERSON = "customer", "ann"


@dataclass
class Outcome:
    """What a rehearsal came to, as the ledger has it."""

    days: int
    seed: int
    submitted: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    handed_on: int = 0
    comments: int = 0
    wakes: int = 0
    #: Wakes that were due and found nothing to do.
    skipped: int = 0
    #: Attempts that were started in the quiet time, from a day after its begin on.
    idle_attempts: int = 0
    #: The most attempts of one agent on one day, and who was stopped by a cap on loops.
    busiest_day: int = 0
    paused: list[str] = field(default_factory=list)
    asked: int = 0
    answered_by: Counter[str] = field(default_factory=Counter)
    #: Questions that are open at the end: in the inbox of a person, or in nobody's.
    escalated: int = 0
    unheard: list[str] = field(default_factory=list)
    spent_usd: float = 0.0
    states: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{name}: {_shown(value)}" for name, value in vars(self).items()]
        return "\n".join(lines)


def _shown(value: object) -> object:
    return f"{value.total()}, {dict(value)}" if isinstance(value, Counter) else value


class Rehearsal:
    """One organisation, hour by hour."""

    def __init__(self, folder: Path, days: int, seed: int, asks: float) -> None:
        """`asks` is how likely somebody asks for something in an hour of work."""
        self.asks = asks
        self.random = Random(seed)
        self.outcome = Outcome(days, seed)
        self.hours = days * 24
        self.quiet = tuple(round(self.hours * share) for share in QUIET)
        self.queue = MemoryQueue()
        self.service = self.queue._client.service
        self.agents = ScriptedAgents(folder, self.queue, seed)
        self.known = self.agents.profiles
        self.wakes = AgentWakes(folder / "agents", lambda: self.queue.clock() / 1000)
        self.started = self.queue.clock()

    def run(self) -> Outcome:
        with self.queue, self.agents.at_hand():
            for hour in range(self.hours):
                is_quiet = self.quiet[0] <= hour < self.quiet[1]
                # The last days are for what is still under way.
                if not is_quiet and hour < 0.9 * self.hours and hour % 24 in range(8, 18):
                    self._ask_for_something(hour)
                self._fire_wakes()
                self._work()
                if hour % 24 == 9:
                    self._person_answers()
                self.queue.advance(3600)
            self._sum_up()
        return self.outcome

    # -- people ------------------------------------------------------------------------------------

    def _ask_for_something(self, hour: int) -> None:
        if self.random.random() < self.asks:
            to = self.random.choice(sorted(self.known))
            spec = Spec(f"ask-{hour}", to, instructions=f"Do number {hour}.", sender=_CUSTOMER)
            self.service.submit(SYSTEM, [spec])
            self.outcome.submitted += 1

    def _person_answers(self) -> None:
        """Once a day somebody looks at what has climbed to people, and decides."""
        now = self.service.now()
        for item in inbox_of(self.service, SYSTEM, _PERSON, self.known, now):
            if item.kind is InboxKind.BLOCKED:
                self.service.answer(access.person(_PERSON), item.task_id, "Go on.")
            elif item.kind is InboxKind.APPROVAL:
                self.service.approve(access.person(_PERSON), item.task_id)

    # -- the system --------------------------------------------------------------------------------

    def _fire_wakes(self) -> None:
        """What `agentq up` does: wakes by the clock, then wakes by what has happened."""
        self.wakes.sync(self.service)
        now = self.service.now()
        for state in self.service.waking_schedules(SYSTEM, 1000):
            if state.wake_at <= now:
                planned = self.wakes.firing(self.service, state, now)
                if planned is not None:
                    self.service.fire_schedule(SYSTEM, planned.firing, planned.contexts)
        wake_now(self.service, {each.name for each in waits_for_events(self.known)}, self.known)

    # -- agents ------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Everybody who has something to do does it; nobody else is started."""
        for _ in range(5):  # what one submits, another does in the same hour
            ready = self.service.ready_counts(SYSTEM)
            if not ready:
                return
            for role, tasks in sorted(ready.items()):
                self.agents.work(role, tasks)
            self._fire_wakes()

    # -- the end -----------------------------------------------------------------------------------

    def _sum_up(self) -> None:
        """Read what has happened from the log, and from nothing that was counted on the way."""
        outcome, day_ms = self.outcome, 24 * HOUR_MS
        outcome.skipped = sum(each.skipped for each in self.service.schedules(SYSTEM))
        quiet_from = self.started + self.quiet[0] * HOUR_MS + day_ms
        quiet_until = self.started + self.quiet[1] * HOUR_MS
        by_day: Counter[tuple[str, int]] = Counter()
        for task in self.queue.tasks():
            outcome.states[str(task.state)] += 1
            outcome.spent_usd += task.details.spent.usd
            outcome.wakes += task.spec.type == WAKE_TYPE
            outcome.handed_on += bool(task.spec.parent)
            for each in self.service.history(SYSTEM, task.id):
                event = each.event
                if isinstance(event.trigger, ClaimTask):
                    outcome.attempts[task.to] += 1
                    outcome.idle_attempts += quiet_from <= event.at < quiet_until
                    by_day[task.to, (event.at - self.started) // day_ms] += 1
                elif isinstance(event.trigger, Answer):
                    outcome.answered_by[event.trigger.by] += 1
                elif isinstance(event.trigger, FailAttempt):
                    outcome.failures[event.trigger.reason] += 1
                outcome.asked += event.kind == "blocked"
                outcome.comments += isinstance(event.trigger, Comment)
        outcome.busiest_day = max(by_day.values(), default=0)
        limits = self.service.limits(SYSTEM)
        outcome.paused = [role for role, each in sorted(limits.items()) if each.paused]
        self._look_at_open_questions()
        outcome.problems = [str(p) for _, found in self.queue.admin.verify() for p in found]

    def _look_at_open_questions(self) -> None:
        """What is not answered is a person's within a day, even if nobody works any more."""
        self.queue.advance(24 * 3600)
        now = self.service.now()
        inbox = inbox_of(self.service, SYSTEM, _PERSON, self.known, now)
        mine = {each.task_id for each in inbox if each.kind is InboxKind.BLOCKED}
        blocked = {each.id for each in self.queue.tasks() if each.state is State.BLOCKED}
        self.outcome.escalated, self.outcome.unheard = len(blocked & mine), sorted(blocked - mine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--asks", type=float, default=0.35)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = Rehearsal(Path(folder), options.days, options.seed, options.asks).run()
    print(outcome)


if __name__ == "__main__":
    main()
