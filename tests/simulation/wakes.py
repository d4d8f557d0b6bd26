"""Seeded histories of an organisation: agents that block, fail, mention and ask each other, several
daemons that wake them by the clock and by events, and each promise about wakes checked all along.

The ledger, the decisions and the schedules are the real ones. A daemon may take its time between
what it saw and what it does, see an answer lost, or die and start anew.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agentq.client.claim import Claim
from agentq.contracts.service_values import Wanted
from agentq.core import access
from agentq.core.access import SYSTEM
from agentq.core.errors import AgentqError
from agentq.core.limits import DAY_MS
from agentq.core.states import TERMINAL, State
from agentq.core.task import Spec, Task
from agentq.organisation.wake_schedules import AgentWakes
from agentq.organisation.waking import WAKE_TYPE, wake_of
from agentq.settings.profiles import Profile, chain_of_command
from agentq.testing import MemoryQueue
from tests.simulation.violation import Violation

#: What must hold, in the words of a violation.
WITH_CAUSE = "nobody is woken without a cause, nor by what they did themselves"
ONE_AT_A_TIME = "an agent has one wake at a time"
ONCE = "nothing wakes an agent twice"
NOT_LOST = "what stands open has woken whom it concerns"
IN_HOURS = "nobody is woken outside their hours"
PROMISES = (WITH_CAUSE, ONE_AT_A_TIME, ONCE, NOT_LOST, IN_HOURS)

AGENTS = {
    "ceo": ("wake: {every: 2h}",),
    "vp": ("manager: ceo", "wake: {on: [blocked, mention, failed, done]}"),
    "lead": ("manager: vp", "wake: {every: 1m, on: [mention]}"),
    "day": ("manager: vp", "wake: {every: 30m}", "hours: 09:00-17:00"),
    "one": ("manager: lead",),
    "two": ("manager: lead",),
}
STEPS = 90
HOUR = 3600


@dataclass
class Daemon:
    """One of several processes that wake agents; what it has decided and not done yet."""

    wakes: AgentWakes
    decided: list[tuple[int, Callable[[], object]]] = field(default_factory=list)


class WakeWorld:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._folder = tempfile.TemporaryDirectory(prefix="agentq-wakes-")
        self.agents = Path(self._folder.name) / "agents"
        self.agents.mkdir()
        for name, lines in AGENTS.items():
            text = "\n".join(("---", 'command: ["true"]', *lines, "---", "Work."))
            (self.agents / f"{name}.md").write_text(text)
        self.queue = MemoryQueue()
        self.service = self.queue._client.service
        self.daemons = [self._daemon() for _ in range(2)]
        self.known: dict[str, Profile] = self.daemons[0].wakes.folder.profiles
        self.held: list[Claim] = []
        #: By agent: what may wake it, as (kind, task).
        self.causes: dict[str, set[tuple[str, str]]] = {name: set() for name in AGENTS}
        self.checked: set[str] = set()
        self.listed: dict[str, list[tuple[str, str, int]]] = {name: [] for name in AGENTS}
        self._number = 0

    def _daemon(self) -> Daemon:
        made = Daemon(AgentWakes(self.agents, monotonic=lambda: 0.0))
        made.wakes.sync(self.service)
        return made

    def close(self) -> None:
        self.queue.close()
        self._folder.cleanup()

    # -- what happens ------------------------------------------------------------------------------

    def run(self) -> None:
        """Play the history; raises `Violation` if a promise is broken."""
        try:
            self.play()
        finally:
            self.close()

    def play(self) -> None:
        moves = (
            [self.pass_time] * 3 + [self.ask] * 3 + [self.ask_oneself] + [self.claim] * 5
            + [self.report] * 6 + [self.mention] * 2 + [self.answer] + [self.look_by_clock] * 5
            + [self.look_at_events] * 5 + [self.do_decided] * 8 + [self.restart]
        )  # fmt: skip
        for _ in range(STEPS):
            self.chance.choice(moves)()
            self.check()
        self.settle()

    def pass_time(self) -> None:
        self.queue.advance(self.chance.choice((1, 4, 60, 900, HOUR, 5 * HOUR)))

    def ask(self) -> None:
        """A person asks for work, or an attempt does: also of its own role."""
        self._number += 1
        to = self.chance.choice([*AGENTS, "one", "two", "one", "two"])
        claim = self.chance.choice(self.held) if self.held else None
        who = SYSTEM
        if claim is not None and self.chance.random() < 0.6:
            who = access.attempt(claim.id, claim.epoch, claim.task.to)
            to = claim.task.to if self.chance.random() < 0.3 else to
        spec = Spec(f"t{self._number}", to, instructions="work", sender="ann", max_attempts=1)
        with suppress(AgentqError):
            self.service.submit(who, [spec])

    def ask_oneself(self) -> None:
        """An attempt gives its own role something to do, which then asks a question."""
        if not self.held:
            return
        claim = self.chance.choice(self.held)
        self._number += 1
        role, name = claim.task.to, f"t{self._number}"
        who = access.attempt(claim.id, claim.epoch, role)
        with suppress(AgentqError):
            self.service.submit(who, [Spec(name, role, instructions="work", max_attempts=1)])
            own = self.queue._client.claim_task(name, lease="30d")
            own.block("and now?")
            self._note(own.task, "block")

    def claim(self) -> None:
        role = self.chance.choice([*AGENTS, "one", "two"])
        claim = self.queue.claim(role, lease="30d")
        if claim is not None:
            self.held.append(claim)

    def report(self) -> None:
        if not self.held:
            return
        claim = self.held.pop(self.chance.randrange(len(self.held)))
        task, how = claim.task, self.chance.choice(("complete", "block", "block", "fail"))
        if task.spec.type == WAKE_TYPE:
            how = "complete"
        try:
            if how == "complete":
                self._complete(claim)
            elif how == "block":
                claim.block("which one?")
            else:
                claim.fail("it broke")
        except AgentqError:
            return
        self._note(task, how)

    def _complete(self, claim: Claim) -> None:
        who = access.attempt(claim.id, claim.epoch, claim.task.to)
        self.service.complete(who, claim.id, claim.epoch, "done", leave_children=True)

    def _note(self, task: Task, how: str) -> None:
        """Who may be woken by that, told independently of the code that decides it."""
        above = chain_of_command(self.known, task.to)
        kind = {"complete": "done", "block": "blocked", "fail": "failed"}[how]
        whom = {task.spec.sender}
        if how == "block":
            whom.update(above)
        elif how == "fail":
            whom.update(above[:1])
        for name in whom - {task.to}:
            if name in self.causes:
                self.causes[name].add((kind, task.id))

    def mention(self) -> None:
        tasks = self.service.list_tasks(SYSTEM, Wanted(limit=20)).tasks
        if not tasks:
            return
        task, whom = self.chance.choice(tasks), self.chance.choice(list(AGENTS))
        by = self.chance.choice(["ann", *AGENTS])
        with suppress(AgentqError):
            self.queue.comment(task.id, by, f"@{whom} {self.chance.random()}")
            if by != whom:
                self.causes[whom].add(("mention", task.id))

    def answer(self) -> None:
        blocked = self.service.list_tasks(SYSTEM, Wanted((State.BLOCKED,))).tasks
        if blocked:
            self.queue.answer(self.chance.choice(blocked).id, "ann", "go on")

    # -- daemons -----------------------------------------------------------------------------------

    def look_by_clock(self) -> None:
        """A daemon works out what is due; it carries that out at once or later."""
        daemon = self.chance.choice(self.daemons)
        now = self.service.now()
        for state in self.service.waking_schedules(SYSTEM):
            if state.wake_at > now:
                continue
            planned = daemon.wakes.firing(self.service, state, now)
            if planned is not None:
                do = partial(self.service.fire_schedule, SYSTEM, planned.firing)
                daemon.decided.append((now // DAY_MS, do))
        if self.chance.random() < 0.5:
            self.do_decided()

    def look_at_events(self) -> None:
        daemon = self.chance.choice(self.daemons)
        name = self.chance.choice([each for each in AGENTS if self.known[each].wake.on])
        profile = self.known[name]
        now = self.service.now()
        if not profile.hours.is_open(now):
            return
        found = wake_of(self.service, SYSTEM, profile, self.known, now, kinds=profile.wake.on)
        if found.spec is not None:
            do = partial(self.service.submit, SYSTEM, [found.spec])
            daemon.decided.append((now // DAY_MS, do))

    def do_decided(self) -> None:
        daemon = self.chance.choice(self.daemons)
        if not daemon.decided:
            return
        day, do = daemon.decided.pop(0)
        if day != self.service.now() // DAY_MS:
            return  # a process that stood still over midnight may make a second first wake
        with suppress(AgentqError):  # somebody else was faster
            do()
            if self.chance.random() < 0.2:
                do()  # its answer was lost

    def restart(self) -> None:
        """A daemon is killed, with all that it had decided."""
        self.daemons[self.chance.randrange(len(self.daemons))] = self._daemon()

    # -- promises ----------------------------------------------------------------------------------

    def wakes(self, name: str) -> list[Task]:
        wanted = Wanted(role=name, type=WAKE_TYPE, limit=1000)
        return list(self.service.list_tasks(SYSTEM, wanted).tasks)

    def check(self) -> None:
        for name, profile in self.known.items():
            wakes = self.wakes(name)
            if sum(each.state not in TERMINAL for each in wakes) > 1:
                raise Violation(ONE_AT_A_TIME, f"{name}: {[each.id for each in wakes]}")
            for wake in wakes:
                if wake.id not in self.checked:
                    self.checked.add(wake.id)
                    self._check_wake(name, profile, wake)

    def _check_wake(self, name: str, profile: Profile, wake: Task) -> None:
        marks = [(str(k), str(t), int(s)) for k, t, s in wake.spec.inputs["items"]]
        if not marks:
            raise Violation(WITH_CAUSE, f"{name} was woken for nothing: {wake.id}")
        for kind, task_id, _ in marks:
            if (kind, task_id) not in self.causes[name]:
                raise Violation(WITH_CAUSE, f"{name} was woken by {kind} of {task_id}")
        twice = set(marks) & set(self.listed[name])
        if twice:
            raise Violation(ONCE, f"{name} was woken twice by {twice}")
        self.listed[name] += marks
        # Decided within the hours: what is carried out a moment later may be just after them.
        if not profile.hours.is_open(int(wake.spec.inputs["looked_at"])):
            raise Violation(IN_HOURS, f"{name} was woken at {wake.spec.inputs['looked_at']}")

    def settle(self) -> None:
        """Let everybody finish and all clocks run on: what stands open must have been listed."""
        for daemon in self.daemons:
            daemon.decided.clear()
        for _ in range(4):
            for _ in range(60):
                self.claim()
                for claim in [each for each in self.held if each.task.spec.type == WAKE_TYPE]:
                    self.held.remove(claim)
                    self._complete(claim)
            self.queue.advance(12 * HOUR)
            for _ in range(3):
                self.chance.random = lambda: 0.9  # type: ignore[method-assign]
                self.look_by_clock()
                for daemon in self.daemons:
                    while daemon.decided:
                        with suppress(AgentqError):
                            daemon.decided.pop(0)[1]()
                self.check()
        for task in self.service.list_tasks(SYSTEM, Wanted((State.BLOCKED,), limit=500)).tasks:
            for name in ("ceo", "lead", "day"):
                level = chain_of_command(self.known, task.to)
                if name in level[:1] and not self._was_told(name, task.id):
                    raise Violation(NOT_LOST, f"{name} was never told of {task.id}")

    def _was_told(self, name: str, task_id: str) -> bool:
        return any(each[1] == task_id for each in self.listed[name])


def play_wakes(seed: int) -> Violation | None:
    """One history; what it broke, if anything."""
    try:
        WakeWorld(seed).run()
    except Violation as found:
        return found
    return None
