"""Agents that cause each other's tasks: refused beyond the caps, paused, and people are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core import access
from agentq.core.access import SYSTEM
from agentq.core.causation import LoopCaps
from agentq.core.errors import NotFound, Refused
from agentq.core.task import Spec
from agentq.core.triggers import Comment
from agentq.core.values import replace
from agentq.testing import MemoryQueue

DAY = 24 * 3600


class Agents:
    """Agents that submit tasks from their attempts."""

    def __init__(self, caps: LoopCaps) -> None:
        self.queue = MemoryQueue()
        installation = self.queue._client.installation
        installation.settings = replace(installation.settings, loops=caps)
        self.service = self.queue._client.service
        self._count = 0

    def begin(self, task_id: str, role: str = "a") -> access.Principal:
        claim = self.queue.claim(role)
        assert claim is not None and claim.id == task_id
        return access.attempt(task_id, claim.epoch, role)

    def submit(self, who: access.Principal, count: int = 1, to: str = "a") -> str:
        specs = []
        for _ in range(count):
            self._count += 1
            specs.append(Spec(f"child-{self._count}", to, instructions="go"))
        return self.service.submit(who, specs)[-1].id

    def end(self, who: access.Principal) -> None:
        self.service.complete(who, who.task_id, who.epoch, "done", leave_children=True)

    def first(self) -> access.Principal:
        return self.begin(self.queue.submit(to="a", instructions="go").id)


@pytest.fixture
def agents() -> Iterator[Agents]:
    made = Agents(LoopCaps(depth=5, fan_out=4, per_hour=6))
    yield made
    made.queue.close()


def refused(agents: Agents, who: access.Principal, count: int = 1) -> str:
    with pytest.raises(Refused) as caught:
        agents.submit(who, count)
    assert caught.value.code == "loop" and "[loops]" in caught.value.remedy
    return str(caught.value)


def test_a_chain_of_tasks_ends_and_its_role_is_paused(agents: Agents) -> None:
    who = agents.first()
    for _ in range(4):
        child = agents.submit(who)
        agents.end(who)
        who = agents.begin(child)
    words = refused(agents, who)
    assert "number 6 in a chain of causes" in words and "the role a is paused" in words
    assert agents.service.limits(SYSTEM)["a"].paused
    said = agents.service.history(SYSTEM, who.task_id)[-1].event.trigger
    assert isinstance(said, Comment) and "round in circles" in said.text
    assert agents.queue.claim("a") is None
    entries = agents.service.audit(SYSTEM).entries
    assert any(each.subject == "a" and "paused" in each.detail for each in entries)


def test_people_are_told_where_somebody_carries_it(agents: Agents) -> None:
    agents.service.open_lanes(SYSTEM, ["notify"])
    who = agents.first()
    refused(agents, who, 5)
    (effect,) = agents.service.outbox_batch(SYSTEM, "notify", 10)
    assert effect.data["kind"] == "loop" and "paused" in effect.data["text"]


def test_one_task_brings_forth_so_many(agents: Agents) -> None:
    who = agents.first()
    agents.submit(who, 4)
    assert "has 4 children" in refused(agents, who)


def test_a_role_submits_so_fast(agents: Agents) -> None:
    who = agents.first()
    agents.submit(who, 4)
    agents.end(who)
    other = agents.begin("child-1")
    agents.submit(other, 2)
    assert "submitted 6 tasks within an hour" in refused(agents, other)
    agents.end(other)
    agents.queue.advance(3600 + 600)  # it is counted in spans of ten minutes
    agents.queue._client.set_limits("a", replace(agents.service.limits(SYSTEM)["a"], paused=False))
    agents.submit(agents.begin("child-2"))


def test_a_chain_that_takes_days_is_none(agents: Agents) -> None:
    who = agents.first()
    for _ in range(12):
        child = agents.submit(who)
        agents.end(who)
        agents.queue.advance(DAY)
        who = agents.begin(child)


def test_a_wake_goes_on_with_the_chain_of_what_it_is_for(agents: Agents) -> None:
    who = agents.first()
    for _ in range(3):
        child = agents.submit(who)
        agents.end(who)
        who = agents.begin(child)
    wake = Spec("wake-1", "a", instructions="go", type="wake", labels={"caused_by": who.task_id})
    agents.service.submit(SYSTEM, [wake])
    again = agents.begin("wake-1")
    assert "chain of causes" in refused(agents, again)


def test_a_circle_of_causes_is_followed_once(agents: Agents) -> None:
    for name, cause in (("w1", "w2"), ("w2", "w1")):
        spec = Spec(name, "a", instructions="go", labels={"caused_by": cause})
        agents.service.submit(SYSTEM, [spec])
    agents.submit(agents.begin("w1"))


def test_people_and_their_programs_have_no_caps(agents: Agents) -> None:
    agents.queue.submit_many([{"to": "a", "instructions": str(n)} for n in range(20)])
    claim = agents.queue.claim("a")
    assert claim is not None
    for number in range(8):
        claim.submit(to="a", instructions=str(number))


def test_without_caps_nothing_is_counted() -> None:
    agents = Agents(LoopCaps(0, 0, 0))
    agents.submit(agents.first(), 50)
    agents.queue.close()


def test_a_task_that_is_gone_has_no_attempt_that_could_submit(agents: Agents) -> None:
    with pytest.raises(NotFound):
        agents.submit(access.attempt("nobody", 1, "a"))


def test_a_role_submits_so_fast_through_all_processes_together(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with Queue.create(url) as one, Queue(url) as two:
        for queue in (one, two):
            installation = queue._client.installation
            caps = LoopCaps(depth=5, fan_out=100, per_hour=6)
            installation.settings = replace(installation.settings, loops=caps)
        one.submit("a", "go", id="task-1")
        assert one.claim("a") is not None
        who = access.attempt("task-1", 1, "a")
        specs = [Spec(f"child-{number}", "a", instructions="go") for number in range(9)]
        one._client.service.submit(who, specs[:5])
        with pytest.raises(Refused, match="within an hour"):
            two._client.service.submit(who, specs[5:])
