"""Comments: who is mentioned, who has answered, and which say nothing new."""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.comments import MENTIONS_KEPT, PULL_REQUEST_CAUSE, mentioned
from agentq.core.effects import OfferWork
from agentq.core.errors import Invalid, Refused
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.transition import transition
from agentq.core.trigger_validation import check_cause
from tests.core.building import LEASE_MS, NOW, claimed, submitted, then


def said(by: str, text: str, cause: str = "said", epoch: int = 0) -> t.Comment:
    return t.Comment(by, text, epoch, mentions=mentioned(text), cause=cause)


def names(task: Task) -> list[str]:
    return [each.name for each in task.details.mentions]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@ann please look", ("ann",)),
        ("see @vp-engineering, and @Ann. @ann again", ("vp-engineering", "ann")),
        ("(@qa.lead)", ("qa.lead",)),
        ("mail ann@example.org or git@host:x", ()),
        ("an @ alone, @-x and @@ann", ()),
        ("path/@scope/package", ()),
    ],
)
def test_who_is_mentioned(text: str, found: tuple[str, ...]) -> None:
    assert mentioned(text) == found


def test_a_mention_stays_until_that_one_has_spoken() -> None:
    task = then(submitted(), said("bob", "@ann and @cid?"), said("bob", "@ann, please"))
    assert names(task) == ["cid", "ann"]
    assert (task.details.mentions[1].by, task.details.mentions[1].text) == ("bob", "@ann, please")
    task = then(task, said("Ann", "I am on it, @bob"))
    assert names(task) == ["cid", "bob"]
    for length, is_whole in ((200, True), (201, False)):
        text = "@ann" + "x" * (length - 4)
        kept = then(submitted(), t.Comment("bob", text, mentions=("ann",))).details.mentions[0]
        assert (kept.text == text) is is_whole and len(kept.text) <= 200
    # Nobody mentions themselves.
    assert names(then(task, said("eve", "note to @eve"))) == ["cid", "bob"]
    many = " ".join(f"@n{number}" for number in range(30))
    assert len(names(then(task, said("bob", many)))) == MENTIONS_KEPT


def test_the_same_words_in_the_same_situation_are_one_comment() -> None:
    task = then(submitted(), said("bob", "ping"))
    assert transition(task, said("bob", "ping"), NOW).events == ()
    for other in (said("ann", "ping"), said("bob", "pong"), said("bob", "ping", "delivery-2")):
        assert transition(task, other, NOW).events[0].kind == "commented"
    # Once it has moved on, they may mean something else.
    task = then(task, t.ClaimTask("ann", LEASE_MS))
    assert transition(task, said("bob", "ping"), NOW).events[0].kind == "commented"


def test_the_newest_twenty_are_known_again() -> None:
    task = then(submitted(), *(said("bob", f"ping {number}") for number in range(21)))
    assert transition(task, said("bob", "ping 1"), NOW).events == ()
    assert transition(task, said("bob", "ping 0"), NOW).events[0].kind == "commented"


def test_comments_that_an_earlier_version_wrote_are_taken_as_they_are() -> None:
    task = then(submitted(), t.Comment("bob", "@ann ping"), t.Comment("bob", "@ann ping"))
    assert task.version == 3 and task.details == submitted().details


def test_a_question_of_an_agent_can_go_to_another_role() -> None:
    asked = then(claimed(), t.BlockTask(1, "which branch?"))
    task = then(asked, t.Edit("boss", to="expert"))
    assert (task.state, task.to, task.reason) == (State.READY, "expert", "")
    note = task.details.notes[-1]
    assert (note.kind, note.text) == (
        "edit",
        "It was given to expert, as worker had asked: which branch?",
    )
    for other in (t.Edit("boss", title="new"), t.Edit("boss", to="worker")):
        with pytest.raises(Refused, match="blocked"):
            transition(asked, other, NOW)


@pytest.mark.parametrize("cause", ["x" * 201, "two\nlines"])
def test_a_cause_is_a_name(cause: str) -> None:
    check_cause("delivery-1")
    with pytest.raises(Invalid, match="cause of a comment"):
        check_cause(cause)


def test_complete_work_that_became_a_pull_request_is_offered_to_whoever_follows_it() -> None:
    told = said("ann", "Pull request #1 is open", PULL_REQUEST_CAUSE)
    assert transition(submitted(), told, NOW).effects == ()
    task = then(claimed(), t.Report(1, "done"))
    assert OfferWork(1) in transition(task, told, NOW).effects
