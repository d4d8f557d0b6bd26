"""Programs that speak only messages: they do not start by words that an edit has made stale."""

from __future__ import annotations

from agentq.core.triggers import Edit
from agentq.protocol.messages import task_envelope
from tests.ledger.conftest import LedgerEnv
from tests.ledger.worker_messages import incoming, refusal, start


def test_a_start_by_words_that_do_not_count_any_more(env: LedgerEnv) -> None:
    # Given a task that was edited twice after its message was sent,
    key = env.submit(requires_approval=True)
    first = env.ledger.edit(key, Edit("ed", instructions="do that"))
    env.ledger.edit(key, Edit("ed", instructions="do that, and this"))
    env.approve("task-1")
    # when a program starts by an older message, or does not say by which, then it is refused:
    # the approval was for other words.
    assert task_envelope(first)["edit"] == 2
    assert refusal(env, incoming("started"))[0] == "edited"
    assert refusal(env, incoming("started", edit=2))[0] == "edited"
    assert task_envelope(env.task())["edit"] == 3
    assert start(env, edit=3) == 1


def test_who_knows_no_edits_may_start_what_needed_no_approval(env: LedgerEnv) -> None:
    key = env.submit()
    assert "edit" not in task_envelope(env.task())
    env.ledger.edit(key, Edit("ed", instructions="do that"))
    assert refusal(env, incoming("started", edit=1))[0] == "edited"
    assert start(env) == 1


def test_a_start_in_the_role_that_it_had_before(env: LedgerEnv) -> None:
    env.ledger.edit(env.submit(), Edit("ed", "tester"))
    assert "is for tester" in refusal(env, incoming("started", edit=2))[1]
    assert start(env, edit=2, role="tester") == 1
