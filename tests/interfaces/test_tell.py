"""`agentq tell` and `Queue.tell`: a message to an agent, and who reads it when."""

from __future__ import annotations

import asyncio

import pytest

from agentq import AsyncQueue, Queue
from agentq.core.errors import Refused
from tests.interfaces.conftest import Submit, run_here

pytestmark = pytest.mark.both_ways


def test_the_command_says_who_will_read_it(queue: Queue, submit: Submit) -> None:
    task = submit()
    assert "the next attempt will read it" in run_here("tell", task, "be quick").ok().out
    with queue.claim_task(task) as claim:
        assert [each.text for each in claim.task.details.messages] == ["be quick"]
        out = run_here("tell", task, "and kind").ok().out
        assert "attempt 1 takes no messages so far, the next one will read it" in out
        # Who asks for messages takes them, and each of them once.
        assert [each.text for each in claim.messages()] == ["and kind"]
        assert claim.messages() == []
        out = run_here("tell", task, "and short").ok().out
        assert "attempt 1 gets it while it runs" in out
        answer = run_here("tell", task, "and done", "--json").ok().json()
        assert answer["delivery"] == "live"
        assert [each["epoch"] for each in answer["messages"]] == [1, 1, None, None]
        assert [each.text for each in claim.messages()] == ["and short", "and done"]
        claim.complete("all of it")
    run_here("tell", task, "more").refused(4, "Nobody will work on")
    shown = run_here("status", task).ok().out
    assert "(given to attempt 1): and done" in shown
    assert "be quick" in run_here("events", "--task", task).ok().out


def test_bad_messages_change_nothing(submit: Submit) -> None:
    task = submit()
    run_here("tell", task).refused(2, "TEXT")
    run_here("tell", task, " ").refused(2)
    run_here("tell", task, "x" * 4001).refused(2, "may have 4000 characters")
    run_here("tell", "nowhere", "hello").refused(3)
    assert run_here("status", task, "--json").ok().json()["messages"] == []
    assert (
        run_here("tell", task, "-", "--json", stdin="from a pipe\n").ok().json()["delivery"]
        == "next_attempt"
    )


def test_programs_tell_and_listen(queue: Queue, submit: Submit) -> None:
    task = submit()

    async def talk() -> list[str]:
        async with AsyncQueue() as other:
            told = await other.tell(task, "ann", "first")
            assert told.details.messages[0].text == "first"
            async with await other.claim_task(task) as claim:
                assert await claim.messages() == []  # it has the first
                queue.tell(task, "ann", "second")
                heard = [each.text for each in await claim.messages()]
                await claim.complete("done")
                return heard

    assert asyncio.run(talk()) == ["second"]
    with pytest.raises(Refused):
        queue.tell(task, "ann", "third")


def test_a_report_in_review_may_be_told_about(queue: Queue, submit: Submit) -> None:
    """Whoever works on it next, if changes are asked for, reads it."""
    task = submit("--review")
    with queue.claim_task(task) as claim:
        claim.complete("a draft")
    out = run_here("tell", task, "mind the title").ok().out
    assert "an attempt will read it if changes are asked for" in out
    queue.reject(task, "ann", "see the message", changes=True)
    with queue.claim_task(task) as claim:
        assert [each.text for each in claim.task.details.messages] == ["mind the title"]
        claim.release()
