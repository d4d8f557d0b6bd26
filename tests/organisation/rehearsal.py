"""A rehearsal: the organisation of the template at work for many days of a virtual clock.

The real ledger, schedules and wakes; agents are played by chance. Each task costs money, some fail,
some ask, managers answer what their wakes name, a person answers once a day what has climbed so
far. Then there is a stretch in which nobody asks for anything.

`python -m tests.organisation.rehearsal --days 30 --seed 7` prints what came of it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from agentq.cli.init_template import EVERYBODY, profile_texts
from agentq.client.claim import Claim
from agentq.core import access
from agentq.core.access import SYSTEM, Action
from agentq.core.errors import Refused
from agentq.core.states import State
from agentq.core.task import Spec, Task, Usage
from agentq.organisation.inbox import InboxKind, inbox_of
from agentq.organisation.wake_events import waits_for_events, wake_now
from agentq.organisation.wake_schedules import AgentWakes
from agentq.settings.first_file import ProposedRole, RoleLine
from agentq.settings.profiles import Profile, profiles
from agentq.testing import MemoryQueue

HOUR_MS = 3600 * 1000
COST = Usage(usd=0.05, tokens=2_000)
#: Nobody asks for anything in these parts of the time.
QUIET = (0.4, 0.75)
_PERSON = "ann"


@dataclass
class Outcome:
    """What a rehearsal came to."""

    days: int
    seed: int
    submitted: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    wakes: int = 0
    skipped: int = 0
    asked: int = 0
    answered_by: Counter[str] = field(default_factory=Counter)
    #: Attempts that were started in the quiet time, from a day after its begin on.
    idle_attempts: int = 0
    #: The most tasks that one agent was given on one day.
    busiest_day: int = 0
    open_questions: int = 0
    oldest_question_hours: float = 0.0
    spent_usd: float = 0.0
    problems: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)


class Rehearsal:
    """One organisation, hour by hour."""

    def __init__(self, folder: Path, days: int, seed: int) -> None:
        self.random = Random(seed)
        self.outcome = Outcome(days, seed)
        self.folder = folder
        write_profiles(folder)
        self.known = profiles(folder)
        self.queue = MemoryQueue()
        self.service = self.queue._client.service
        self.wakes = AgentWakes(folder, lambda: self.queue.clock() / 1000)
        self.started = self.queue.clock()
        self._by_day: Counter[tuple[str, int]] = Counter()

    def run(self) -> Outcome:
        hours = self.outcome.days * 24
        for hour in range(hours):
            share = hour / hours
            quiet = QUIET[0] <= share < QUIET[1]
            # The last days are for what is still under way.
            if not quiet and share < 0.9 and hour % 24 in range(8, 18):
                self._ask_for_something(hour)
            self._fire_wakes()
            self._work(idle=quiet and hour > QUIET[0] * hours + 24)
            if hour % 24 == 9:
                self._person_answers()
            self.queue.advance(3600)
        return self._summed_up()

    # -- people ------------------------------------------------------------------------------------

    def _ask_for_something(self, hour: int) -> None:
        if self.random.random() < 0.5:
            to = self.random.choice(sorted(self.known))
            spec = Spec(f"ask-{hour}", to, instructions=f"Do number {hour}.", sender=_PERSON)
            self.service.submit(SYSTEM, [spec])
            self.outcome.submitted += 1

    def _person_answers(self) -> None:
        """Once a day somebody looks at what has climbed to people, and decides."""
        now = self.service.now()
        for item in inbox_of(self.service, SYSTEM, _PERSON, self.known, now):
            if item.kind is InboxKind.BLOCKED:
                self.service.answer(access.person(_PERSON), item.task_id, "Go on.")
                self.outcome.answered_by["person"] += 1
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

    def _work(self, *, idle: bool) -> None:
        """Everybody who has something to do does it; nobody else is started."""
        for _ in range(5):  # what one submits, another does in the same hour
            ready = [
                role
                for role, counts in self.service.stats(SYSTEM).by_role.items()
                if counts.get(str(State.READY)) and role in self.known
            ]
            if not ready:
                return
            for role in sorted(ready):
                while claim := self.queue.claim(role):
                    self._do(self.known[role], claim)
                    self.outcome.idle_attempts += idle

    def _do(self, profile: Profile, claim: Claim) -> None:
        task = claim.task
        day = (self.service.now() - self.started) // (24 * HOUR_MS)
        self._by_day[profile.name, day] += 1
        self.outcome.attempts[profile.name] += 1
        is_wake = task.spec.type == "wake"
        self.outcome.wakes += is_wake
        if is_wake:
            self._answer_reports(profile, task)
        chance = self.random.random()
        if not is_wake and chance < 0.08:
            claim.spend(usd=COST.usd, tokens=COST.tokens)
            claim.block(f"Which way, asks {profile.name}?")
            self.outcome.asked += 1
        elif not is_wake and chance < 0.13:
            claim.fail("the tool gave up", cost=COST)
        else:
            if chance > 0.8:
                self._hand_on(profile, task)
            claim.complete("done", cost=COST, leave_children=True)

    def _answer_reports(self, profile: Profile, task: Task) -> None:
        """A manager answers two of three questions that the wake names."""
        who = access.attempt(task.id, task.epoch, task.to, (Action.ANSWER,))
        for kind, name, _ in task.spec.inputs.get("items", ()):
            if kind == "blocked" and self.random.random() < 0.66:
                try:
                    self.service.answer(who, name, "The usual way.")
                except Refused:
                    continue  # answered meanwhile, or of its own tree: somebody else's
                self.outcome.answered_by[profile.name] += 1

    def _hand_on(self, profile: Profile, task: Task) -> None:
        below = sorted(each.name for each in self.known.values() if each.manager == profile.name)
        if not below:
            return
        to = self.random.choice(below)
        spec = Spec(f"{task.id}-{task.epoch}-{to}"[:100], to, instructions="A part of it.")
        who = access.attempt(task.id, task.epoch, task.to)
        try:
            self.service.submit(who, [spec])
        except Refused:
            return  # a cap on chains of agents

    # -- the end -----------------------------------------------------------------------------------

    def _summed_up(self) -> Outcome:
        outcome = self.outcome
        outcome.busiest_day = max(self._by_day.values(), default=0)
        outcome.skipped = sum(each.skipped for each in self.service.schedules(SYSTEM))
        now = self.service.now()
        for task in self.queue.tasks():
            outcome.states[str(task.state)] += 1
            outcome.spent_usd += task.details.spent.usd
            if task.state is State.BLOCKED:
                outcome.open_questions += 1
                age = (now - task.updated_at) / HOUR_MS
                outcome.oldest_question_hours = max(outcome.oldest_question_hours, age)
        outcome.problems = [str(p) for _, found in self.queue.admin.verify() for p in found]
        self.queue.close()
        return outcome


def write_profiles(folder: Path) -> None:
    """The 33 agents of the template, each run by a program that is never started here."""
    role = ProposedRole("any", "", (RoleLine("command", ("true",), ""),))
    roles = dict.fromkeys(("coordinator", "implementation-worker", "review-worker"), role)
    for name, text in profile_texts(EVERYBODY, roles):
        (folder / f"{name}.md").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = Rehearsal(Path(folder), options.days, options.seed).run()
    for name, value in vars(outcome).items():
        print(f"{name}: {dict(value) if isinstance(value, Counter) else value}")


if __name__ == "__main__":
    main()
