"""What is in whose inbox, and how a question that nobody answers climbs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.core.access import SYSTEM
from agentq.core.task import Spec
from agentq.organisation.inbox import CLIMB_MS, InboxItem, inbox_of
from agentq.settings.profiles import profiles
from agentq.testing import MemoryQueue


class Office:
    """A ceo, a vp below, an engineer below that one, and a queue."""

    def __init__(self, queue: MemoryQueue, folder: Path) -> None:
        self.queue = queue
        self.folder = folder
        self.hire("ceo")
        self.hire("vp", "ceo")
        self.hire("engineer", "vp")

    def hire(self, name: str, manager: str = "") -> None:
        who = f"manager: {manager}\n" if manager else ""
        (self.folder / f"{name}.md").write_text(f"---\ntool: claude\n{who}---\n")

    def submit(self, task_id: str, to: str, *, sender: str, max_attempts: int = 3) -> None:
        spec = Spec(task_id, to, instructions="x", sender=sender, max_attempts=max_attempts)
        self.queue.submit_many([spec])

    def inbox(self, name: str) -> list[InboxItem]:
        service = self.queue._client.service
        return inbox_of(service, SYSTEM, name, profiles(self.folder), service.now())

    def kinds(self, name: str) -> list[tuple[str, str]]:
        return [(str(each.kind), each.task_id) for each in self.inbox(name)]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with MemoryQueue() as queue:
        yield Office(queue, tmp_path)


def test_a_question_is_one_for_the_manager_and_climbs_to_a_person(office: Office) -> None:
    queue = office.queue
    office.submit("t", "engineer", sender="ceo")
    claim = queue.claim("engineer")
    assert claim is not None
    claim.block("which branch?")
    assert office.kinds("vp") == [("blocked", "t")]
    # Who asked for the work is asked at once.
    assert office.kinds("ceo") == [("blocked", "t")]
    assert office.kinds("ann") == []
    office.submit("u", "engineer", sender="hook")
    other = queue.claim("engineer")
    assert other is not None
    other.block("and now?")
    assert ("blocked", "u") not in office.kinds("ceo")
    queue.advance(CLIMB_MS // 1000)
    assert ("blocked", "u") in office.kinds("ceo") and office.kinds("ann") == []
    queue.advance(CLIMB_MS // 1000)
    assert office.kinds("ann") == [("blocked", "t"), ("blocked", "u")]
    item = office.inbox("ann")[0]
    assert (item.text, item.role, item.by) == ("which branch?", "engineer", "engineer")


def test_a_new_manager_is_asked_at_once(office: Office) -> None:
    office.submit("t", "engineer", sender="hook")
    claim = office.queue.claim("engineer")
    assert claim is not None
    claim.block("which branch?")
    office.hire("lead", "ceo")
    office.hire("engineer", "lead")
    assert (office.kinds("lead"), office.kinds("vp")) == ([("blocked", "t")], [])


def test_what_people_find(office: Office) -> None:
    queue = office.queue
    queue.submit(to="shell", id="free", instructions="no agent has that role")
    claim = queue.claim("shell")
    assert claim is not None
    claim.block("help")
    queue.submit(to="shell", id="asks", instructions="x", requires_approval=True)
    office.submit("lost", "shell", sender="ann", max_attempts=1)
    last = queue.claim("shell")
    assert last is not None
    last.fail("broken")
    queue.submit(to="ann", id="mine", instructions="call them")
    queue.comment("mine", "bob", "@Ann and @vp, please")
    assert office.kinds("ann") == [
        ("approval", "asks"), ("blocked", "free"), ("mention", "mine"), ("failed", "lost"),
        ("task", "mine"),
    ]  # fmt: skip
    assert office.kinds("vp") == [("mention", "mine")]
    queue.advance(8 * 24 * 3600)
    assert ("failed", "lost") not in office.kinds("ann")


def test_a_manager_learns_of_failures_and_agents_see_their_tasks(office: Office) -> None:
    queue = office.queue
    queue.submit(to="engineer", id="t", instructions="x", max_attempts=1)
    claim = queue.claim("engineer")
    assert claim is not None
    claim.fail("broken")
    queue.submit(to="engineer", id="next", instructions="x")
    assert office.kinds("vp") == [("failed", "t")]
    assert office.kinds("engineer") == [("task", "next")]
    assert office.kinds("ceo") == []
