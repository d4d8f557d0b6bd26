"""Many tasks at once: requeue, cancel, approve and wait take ids and filters, with a preview."""

from __future__ import annotations

import pytest

from agentq import Queue
from agentq.core.states import State
from tests.interfaces.conftest import Submit, run_here

pytestmark = [pytest.mark.both_ways, pytest.mark.long]


def failed(queue: Queue, submit: Submit, kind: str, to: str = "worker", *words: str) -> str:
    task_id = submit("--max-attempts", "1", *words, to=to)
    claim = queue.claim_task(task_id)
    claim.fail("it did not work", kind)
    return task_id


def states(queue: Queue, *ids: str) -> list[State]:
    return [queue.task(each).state for each in ids]


def test_requeue_shows_what_it_would_do_and_then_does_it(queue: Queue, submit: Submit) -> None:
    bad = [failed(queue, submit, "invalid") for _ in range(3)]
    other = failed(queue, submit, "transient")
    elsewhere = failed(queue, submit, "invalid", "elsewhere")
    words = ("requeue", "--role", "worker", "--kind", "invalid", "--since", "1h")
    shown = run_here(*words).ok()
    assert all(each in shown.out for each in bad) and other not in shown.out
    assert "nothing was changed: --yes would requeue 3 tasks" in shown.err
    plain = run_here(*words, "--json").ok().json()
    assert plain == {"would": "requeue", "count": 3, "ids": bad, "done": False}
    assert set(states(queue, *bad, other, elsewhere)) == {State.FAILED}
    run_here(*words, "--yes").ok()
    assert set(states(queue, *bad)) == {State.READY}
    assert states(queue, other, elsewhere) == [State.FAILED, State.FAILED]
    # And the rest of them.
    done = run_here("requeue", "--all", "--yes", "--json").ok().json()
    assert {task["task_id"] for task in done["tasks"]} == {other, elsewhere}
    assert "no task is meant" in run_here("requeue", "--all", "--yes").ok().err


def test_what_is_older_is_not_meant(queue: Queue, submit: Submit) -> None:
    failed(queue, submit, "invalid")
    assert (
        run_here("requeue", "--since", "1s", "--role", "nobody", "--json").ok().json()["ids"] == []
    )
    labelled = failed(queue, submit, "invalid", "worker", "--label", "run=7")
    found = run_here("requeue", "--label", "run=7", "--json").ok().json()["ids"]
    assert found == [labelled]
    run_here("requeue", "--label", "run").refused(2, "key=value")


def test_cancel_takes_ids_and_filters(queue: Queue, submit: Submit) -> None:
    one, two, three = submit(), submit(), submit(to="elsewhere")
    run_here("cancel", "--role", "worker").ok()
    assert set(states(queue, one, two, three)) == {State.READY}, "only shown"
    run_here("cancel", one, two, "--reason", "not needed").ok()
    assert states(queue, one, two, three) == [State.CANCELLED, State.CANCELLED, State.READY]
    run_here("cancel", "--all", "--yes").ok()
    assert states(queue, three) == [State.CANCELLED]


def test_one_that_is_refused_refuses_only_itself(queue: Queue, submit: Submit) -> None:
    dead, ready = failed(queue, submit, "invalid"), submit()
    refused = run_here("requeue", ready, dead)
    refused.refused(4, dead, ready, "1 task changed, 1 refused")
    assert states(queue, dead, ready) == [State.READY, State.READY]
    done = failed(queue, submit, "invalid")
    plain = run_here("requeue", ready, done, "--json")
    assert plain.status == 4
    answer = plain.json()
    assert [task["task_id"] for task in answer["tasks"]] == [done]
    assert [each["task_id"] for each in answer["refused"]] == [ready]


def test_approve_leaves_irreversible_ones_to_be_named(queue: Queue, submit: Submit) -> None:
    waits = [submit("--requires-approval"), submit("--requires-approval")]
    grave = submit("--irreversible")
    submit()
    found = run_here("approve", "--all", "--by", "bob", "--json").ok().json()["ids"]
    assert found == waits
    run_here("approve", "--all", "--by", "bob", "--yes").ok()
    assert states(queue, *waits, grave) == [State.READY, State.READY, State.PENDING]
    run_here("approve", grave, "--by", "bob").ok()
    assert states(queue, grave) == [State.READY]


def test_wait_for_many(queue: Queue, submit: Submit) -> None:
    ids = [submit(), submit()]
    run_here("wait", *ids, "--timeout", "0s").refused(6)
    queue.claim_task(ids[0]).complete("done")
    queue.claim_task(ids[1]).fail("no", "invalid")
    shown = run_here("wait", *ids).ok().out
    assert "complete" in shown and "failed" in shown
    run_here("wait", *ids, "--check").refused(4, ids[1])
    assert len(run_here("wait", *ids, "--json").ok().json()["tasks"]) == 2
    last = submit()
    run_here("wait", "--role", "worker", "--timeout", "0s").refused(6, last)
    run_here("cancel", last).ok()
    assert run_here("wait", "--role", "worker", "--json").ok().json() == {"tasks": []}


@pytest.mark.parametrize("command", ["requeue", "cancel", "approve"])
def test_it_must_say_which(home: object, command: str) -> None:
    run_here(command).refused(2, "Which tasks?")
    run_here(command, "task-1", "--all").refused(2, "not both")
