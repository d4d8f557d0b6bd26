"""Looking: one task, many, the log, and the proof that all of it adds up."""

from __future__ import annotations

import pytest

from agentq.contracts.service import Service
from agentq.contracts.service_values import KnownAs, Wanted
from agentq.core import access
from agentq.core.errors import Invalid, NotFound
from agentq.core.states import State
from tests.contracts.service.people import ANN, claimed, failed, reported, submit


def test_one_task_by_its_id_or_the_beginning_of_it(service: Service) -> None:
    submit(service, "task-abc")
    submit(service, "task-abd")
    for ref in ("task-abc", "abc"):
        assert service.task(ANN, ref).id == "task-abc"
    with pytest.raises(Invalid) as caught:
        service.task(ANN, "task-ab")
    assert caught.value.code == "ambiguous"
    with pytest.raises(NotFound):
        service.task(ANN, "task-x")
    assert service.ids(ANN, "task-ab") == ["task-abc", "task-abd"]
    assert set(service.tasks_by_id(ANN, ["task-abd", "nowhere"])) == {"task-abd"}


def test_pages_of_tasks(service: Service) -> None:
    for number in range(5):
        submit(service, f"task-{number}", "builder" if number % 2 else "reviewer")
    page = service.list_tasks(ANN, Wanted(limit=3))
    assert [task.id for task in page.tasks] == ["task-4", "task-3", "task-2"]
    rest = service.list_tasks(ANN, Wanted(limit=3, cursor=page.cursor))
    assert [task.id for task in rest.tasks] == ["task-1", "task-0"]
    assert rest.cursor == 0
    assert len(service.list_tasks(ANN, Wanted(role="builder")).tasks) == 2
    assert service.list_tasks(ANN, Wanted(states=(State.FAILED,))).tasks == ()


def test_tasks_on_which_somebody_is_mentioned(service: Service) -> None:
    for number in range(3):
        submit(service, f"task-{number}")
    service.comment(ANN, "task-2", "@Bob and @cid, please look")
    service.comment(ANN, "task-0", "@bob too")
    for limit, ids in ((50, ["task-0", "task-2"]), (1, ["task-0"])):
        page = service.list_tasks(ANN, Wanted(mentioning="bob", limit=limit))
        assert [task.id for task in page.tasks] == ids
    # They have answered: nothing waits for them there.
    service.comment(access.person("bob"), "task-0", "done")
    page = service.list_tasks(ANN, Wanted(mentioning="Bob"))
    assert [task.id for task in page.tasks] == ["task-2"]
    assert service.list_tasks(ANN, Wanted(mentioning="eve")).tasks == ()
    with pytest.raises(Invalid, match="cause of a comment"):
        service.comment(ANN, "task-1", "hello", cause="two\nlines")


def test_why_it_does_not_run(service: Service) -> None:
    submit(service, requires_approval=True)
    found = service.explain(ANN, "task-1")
    assert found.task.id == "task-1"
    assert "pending" in found.headline
    assert any("approval" in cause for cause, _ in found.causes)


def test_counts(service: Service) -> None:
    submit(service, "task-1")
    reported(service, "task-2")
    stats = service.stats(ANN)
    assert stats.by_role == {"builder": {"ready": 1, "complete": 1}}
    assert stats.last_position == service.last_position(ANN)
    assert service.ready_counts(ANN) == {"builder": 1}


def test_the_log_in_the_order_of_commits(service: Service) -> None:
    claimed(service, "task-1")
    submit(service, "task-2")
    entries = service.events_after(ANN, 0)
    assert [(entry.task_id, entry.event.kind) for entry in entries] == [
        ("task-1", "submitted"), ("task-1", "claimed"), ("task-2", "submitted"),
    ]  # fmt: skip
    assert service.events_after(ANN, entries[1].position) == entries[2:]
    assert service.last_position(ANN) == entries[-1].position
    assert service.history(ANN, "task-1") == entries[:2]
    assert service.event_data(entries[1])["holder"] == "host:1"


def test_the_ledger_has_one_name(service: Service) -> None:
    assert service.ledger_id(ANN) == service.ledger_id(access.worker("w", "builder")) != ""


def test_everybody_is_told_whom_they_are_taken_for(service: Service) -> None:
    assert service.identity(ANN) == KnownAs("person", "ann")
    assert service.identity(access.worker("w", "builder")) == KnownAs("worker", "w", "builder")


def test_a_life_decided_anew(service: Service) -> None:
    failed(service)
    replayed = service.replay(ANN, "task-1")
    assert replayed.problems == ()
    assert [left.state for _, left in replayed.steps] == [
        State.READY, State.IN_PROGRESS, State.FAILED,
    ]  # fmt: skip
    assert replayed.task == service.task(ANN, "task-1")


def test_everything_is_proved(service: Service) -> None:
    for number in range(3):
        reported(service, f"task-{number}")
    looked_at = [seen for seen, problems in service.verify(ANN) if not problems]
    assert looked_at[-1] == 3
