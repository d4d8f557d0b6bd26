"""Wakes: a query first; a task only where there is something to do, and one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.schedule_values import ScheduleChange, ScheduleState
from agentq.contracts.service_values import Wanted
from agentq.core import access
from agentq.core.access import SYSTEM
from agentq.core.task import Task, Usage
from agentq.daemon.loops.schedules import SchedulesLoop
from agentq.daemon.loops.wakes import WakesLoop
from agentq.organisation.wake_schedules import AgentWakes
from agentq.organisation.waking import NO_WORK, WAKE_TYPE, wake_of, wake_standings
from agentq.testing import MemoryQueue

HOUR = 3_600_000


class Organisation:
    """A folder of profiles, a ledger whose clock the test moves, and the loops that wake."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "agents"
        self.folder.mkdir()
        self.queue = MemoryQueue()
        self.service = self.queue._client.service
        self.wakes = AgentWakes(self.folder, monotonic=lambda: 1e9)
        self.timed = SchedulesLoop(self.service, [self.wakes])
        self.by_events = WakesLoop(self.service, self.folder)

    def hire(self, name: str, *lines: str) -> None:
        text = "\n".join(("---", 'command: ["true"]', *lines, "---", f"You are {name}."))
        (self.folder / f"{name}.md").write_text(text + "\n")

    def turn(self, hours: float = 0) -> None:
        """Let time pass, then the loops do what is due."""
        if hours:
            self.queue.advance(hours * 3600)
        self.wakes._compare_at = 0.0
        self.timed._look_at = 0.0
        self.by_events._files_at = self.by_events._later_at = 0.0
        while self.timed.run_once() == 0.0:
            self.timed._look_at = 0.0
        self.by_events.run_once()

    def row(self, name: str) -> ScheduleState:
        return next(e for e in self.service.schedules(SYSTEM) if e.name == f"agent:{name}")

    def wakes_of(self, name: str) -> list[Task]:
        return list(self.service.list_tasks(SYSTEM, Wanted(role=name, type=WAKE_TYPE)).tasks)

    def blocked(self, role: str, question: str = "Which one?", **fields: Any) -> str:
        task = self.queue.submit(to=role, instructions="work", **fields)
        claim = self.queue.claim(role)
        assert claim is not None and claim.task.id == task.id
        claim.block(question)
        return task.id

    def end_wake(self, name: str, usd: float = 0.0) -> str:
        claim = self.queue.claim(name)
        assert claim is not None and claim.task.spec.type == WAKE_TYPE
        claim.complete("done", cost=Usage(usd=usd))
        return claim.id


@pytest.fixture
def firm(tmp_path: Path) -> Iterator[Organisation]:
    made = Organisation(tmp_path)
    yield made
    made.queue.close()


class TestByTheClock:
    def test_nothing_to_do_means_no_task_and_a_count(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {every: 8h}")
        firm.turn()
        for _ in range(3):
            firm.turn(8)
        assert firm.wakes_of("ceo") == []
        row = firm.row("ceo")
        assert (row.fired, row.skipped, row.note) == (0, 3, NO_WORK)

    def test_what_has_come_up_is_one_task_that_lists_it(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {every: 8h}")
        firm.hire("dev", "manager: ceo")
        firm.turn()
        first = firm.blocked("dev", "May I?")
        other = firm.queue.submit(to="people", instructions="look")
        firm.queue.comment(other.id, "ann", "@ceo should know")
        firm.turn(7)
        assert firm.wakes_of("ceo") == [], "not before its time"
        firm.turn(1)
        (wake,) = firm.wakes_of("ceo")
        assert wake.spec.sender == "agentq" and wake.spec.title == "Wake: 2 things to look at"
        for words in (first, "May I?", other.id, "@ceo should know", "by ann"):
            assert words in wake.spec.instructions
        assert firm.row("ceo").fired == 1

    def test_what_was_listed_once_wakes_nobody_again(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {every: 1h}")
        firm.hire("dev", "manager: ceo")
        firm.turn()
        firm.blocked("dev")
        firm.turn(1)
        firm.end_wake("ceo")
        firm.turn(1)
        assert len(firm.wakes_of("ceo")) == 1 and firm.row("ceo").note == NO_WORK
        firm.blocked("dev", "And now?")
        firm.turn(1)
        assert len(firm.wakes_of("ceo")) == 2

    def test_not_even_if_wakes_follow_each_other_within_seconds(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {every: 2s}")
        firm.hire("dev", "manager: ceo")
        firm.turn()
        for question in ("One?", "Two?", "Three?"):
            firm.blocked("dev", question)
            firm.turn(2 / 3600)
            firm.end_wake("ceo")
        for _ in range(8):
            firm.turn(2 / 3600)
        assert len(firm.wakes_of("ceo")) == 3

    def test_while_a_wake_is_not_over_there_is_no_other_and_missed_ones_are_one(
        self, firm: Organisation
    ) -> None:
        firm.hire("ceo", "wake: {every: 1h}")
        firm.hire("dev", "manager: ceo")
        firm.turn()
        firm.blocked("dev")
        firm.turn(1)
        second = firm.blocked("dev", "Another one")
        firm.turn(1)
        (wake,) = firm.wakes_of("ceo")
        assert wake.id in firm.row("ceo").note
        firm.end_wake("ceo")
        firm.turn(40)  # nobody was there for a while
        newest, _ = firm.wakes_of("ceo")
        assert second in newest.spec.instructions, "it was not lost by being too early"

    def test_always_must_be_asked_for(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {every: 8h, mode: always}")
        firm.turn()
        firm.turn(8)
        (wake,) = firm.wakes_of("ceo")
        assert "Nothing in particular" in wake.spec.instructions

    def test_outside_working_hours_a_wake_waits(self, firm: Organisation) -> None:
        # The virtual clock begins at midnight on a Tuesday.
        firm.hire("ceo", "wake: {every: 3h}", "hours: Mon-Fri 09:00-17:00")
        firm.hire("dev", "manager: ceo")
        firm.turn()
        firm.blocked("dev")
        start = firm.service.now()
        firm.turn(3)
        assert firm.wakes_of("ceo") == [] and firm.row("ceo").skipped == 0
        assert firm.row("ceo").next_at == start + 9 * HOUR
        firm.turn(6)
        (wake,) = firm.wakes_of("ceo")
        assert wake.submitted_at == start + 9 * HOUR
        assert firm.row("ceo").next_at == start + 12 * HOUR, "then as before"

    def test_a_cron_expression_is_of_the_agents_own_zone(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {cron: '0 9 * * *', mode: always}", "zone: Asia/Tokyo")
        firm.turn()
        assert firm.row("ceo").next_at == firm.service.now() + 24 * HOUR  # 09:00 there is midnight
        firm.hire("vp", "wake: {cron: 'no'}")
        firm.turn()
        assert "vp.md, line 3" in firm.row("vp").problem

    def test_somebody_may_ask_for_a_wake_now(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {every: 8h}")
        firm.turn()
        firm.service.change_schedule(SYSTEM, "agent:ceo", ScheduleChange.RUN)
        firm.turn()
        assert len(firm.wakes_of("ceo")) == 1

    def test_rows_follow_the_files(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {every: 8h}")
        firm.turn()
        next_at = firm.row("ceo").next_at
        firm.turn(1)
        assert firm.row("ceo").next_at == next_at
        firm.hire("ceo", "wake: {every: 2h}")
        firm.turn()
        assert firm.row("ceo").next_at == firm.service.now() + 2 * HOUR
        (firm.folder / "ceo.md").unlink()
        firm.turn()
        firm.turn()
        assert firm.service.schedules(SYSTEM) == []

    def test_money_that_was_not_spent(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {every: 1h}")
        firm.hire("dev", "manager: ceo")
        firm.turn()
        known = firm.wakes.folder.profiles
        for usd in (1.0, 3.0):
            firm.blocked("dev")
            firm.turn(1)
            firm.end_wake("ceo", usd)
        assert wake_standings(firm.service, SYSTEM, known)["ceo"].not_spent_usd == 0
        for _ in range(5):
            firm.turn(1)
        found = wake_standings(firm.service, SYSTEM, known)
        assert list(found) == ["ceo"]
        ceo = found["ceo"]
        assert (ceo.done, ceo.skipped, ceo.average_usd, ceo.not_spent_usd) == (2, 5, 2.0, 10.0)
        assert ceo.next_at == firm.service.now() + HOUR and ceo.note == NO_WORK


class TestWhatCounts:
    def found(self, firm: Organisation, name: str) -> str:
        firm.wakes.folder.look()
        known = firm.wakes.folder.profiles
        decision = wake_of(firm.service, SYSTEM, known[name], known, firm.service.now())
        return decision.spec.instructions if decision.spec is not None else ""

    def attempt_of(self, firm: Organisation, role: str) -> tuple[Any, str]:
        task = firm.queue.submit(to=role, instructions="work")
        claim = firm.queue.claim(role)
        assert claim is not None
        return access.attempt(task.id, claim.epoch, role), task.id

    def test_nobody_wakes_themselves(self, firm: Organisation) -> None:
        firm.hire("ceo")
        firm.hire("dev", "manager: ceo")
        who, own = self.attempt_of(firm, "ceo")
        firm.service.comment(who, own, "@ceo remember this", who.epoch)
        firm.service.block(who, own, who.epoch, "I wonder")
        assert self.found(firm, "ceo") == ""
        firm.queue.comment(own, "ann", "@ceo go on")
        assert "@ceo go on" in self.found(firm, "ceo")

    def test_what_it_asked_for_and_is_done(self, firm: Organisation) -> None:
        firm.hire("ceo")
        firm.hire("dev", "manager: ceo")
        who, own = self.attempt_of(firm, "ceo")
        client = firm.queue._client
        fields = {"to": "dev", "instructions": "build", "from": "ceo"}
        carried, left = (client.submit_under(own, who.epoch, fields).id for _ in range(2))
        self.build(firm, carried)
        assert self.found(firm, "ceo") == "", "its own task carries it still"
        firm.service.complete(who, own, who.epoch, "asked for", leave_children=True)
        assert self.found(firm, "ceo") == ""
        firm.queue.advance(60)
        self.build(firm, left)
        text = self.found(firm, "ceo")
        assert f"Is done, as you asked for: {left}" in text and "it is built" in text
        assert carried not in text

    def build(self, firm: Organisation, task_id: str) -> None:
        claim = firm.queue.claim("dev")
        assert claim is not None and claim.id == task_id
        claim.complete("it is built")

    def test_failures_of_reports_and_approvals(self, firm: Organisation) -> None:
        firm.hire("ceo")
        firm.hire("dev", "manager: ceo")
        task = firm.queue.submit(to="dev", instructions="build", max_attempts=1)
        claim = firm.queue.claim("dev")
        assert claim is not None
        claim.fail("the machine is on fire")
        text = self.found(firm, "ceo")
        assert f"Failed: {task.id}" in text and "on fire" in text
        assert self.found(firm, "dev") == ""


class TestByEvents:
    def test_an_event_wakes_at_once_and_once(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {on: [blocked]}")
        firm.hire("dev", "manager: ceo")
        firm.turn()
        task = firm.blocked("dev")
        firm.turn()
        firm.turn()
        (wake,) = firm.wakes_of("ceo")
        assert task in wake.spec.instructions
        other = firm.queue.submit(to="people", instructions="look")
        firm.queue.comment(other.id, "ann", "@ceo")
        firm.end_wake("ceo")
        firm.turn()
        assert len(firm.wakes_of("ceo")) == 1, "mentions were not asked for"

    def test_what_comes_meanwhile_is_the_next_wake(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {on: [blocked]}")
        firm.hire("dev", "manager: ceo")
        firm.turn()
        firm.blocked("dev")
        firm.turn()
        second = firm.blocked("dev", "Another")
        firm.turn()
        assert len(firm.wakes_of("ceo")) == 1
        firm.end_wake("ceo")
        firm.turn()
        newest, _ = firm.wakes_of("ceo")
        assert second in newest.spec.instructions

    def test_outside_its_hours_it_waits_for_them(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {on: [mention]}", "hours: 09:00-17:00")
        firm.turn()
        task = firm.queue.submit(to="people", instructions="look")
        firm.queue.comment(task.id, "ann", "@ceo")
        firm.turn()
        assert firm.wakes_of("ceo") == []
        firm.turn(9)
        assert len(firm.wakes_of("ceo")) == 1

    def test_several_that_look_at_once_make_one(self, firm: Organisation) -> None:
        """By the clock and by events, in several processes, each seeing something else."""
        firm.hire("ceo", "wake: {every: 1h, on: [blocked, mention]}")
        firm.hire("dev", "manager: ceo")
        firm.turn()
        firm.blocked("dev")
        known = firm.wakes.folder.profiles
        early = wake_of(firm.service, SYSTEM, known["ceo"], known, firm.service.now()).spec
        assert early is not None
        other = firm.queue.submit(to="people", instructions="look")
        firm.queue.comment(other.id, "ann", "@ceo")
        firm.turn(1)
        (wake,) = firm.wakes_of("ceo")
        assert wake.spec.inputs["number"] == 1
        assert json.dumps(wake.spec.inputs["items"]).count(other.id) == 1
        firm.end_wake("ceo")
        late = wake_of(firm.service, SYSTEM, known["ceo"], known, firm.service.now())
        assert late.reason == NO_WORK

    def test_agents_without_events_cost_no_look(self, firm: Organisation) -> None:
        firm.hire("ceo", "wake: {every: 1h}")
        firm.turn()
        assert firm.by_events._position == -1
