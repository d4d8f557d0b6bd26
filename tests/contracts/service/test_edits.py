"""What is asked for, changed while it waits, or asked for again."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.contracts.service import Service
from agentq.core import access
from agentq.core.errors import Conflict, Invalid, NotFound, Refused
from agentq.core.states import State
from agentq.core.task import Priority, Spec
from agentq.core.values import replace
from tests.contracts.service.people import (
    ANN,
    BOB,
    COORDINATOR,
    WORKER,
    attempt_at,
    claimed,
    failed,
    spec,
    submit,
)


class TestEdits:
    def test_the_queue_follows(self, service: Service) -> None:
        for name in ("task-1", "task-2", "task-3"):
            submit(service, name)
        assert service.edit(ANN, "task-3", priority=Priority.URGENT).spec.priority == "urgent"
        assert service.edit(ANN, "task-1", to="tester").to == "tester"
        taken = service.claim(WORKER, "builder", 5, "host:1")
        assert [task.id for task in taken] == ["task-3", "task-2"]
        tester = access.worker("host:2", "tester")
        assert [task.id for task in service.claim(tester, "tester", 5, "host:2")] == ["task-1"]
        assert service.task(ANN, "task-1").spec == spec("task-1", "tester")

    def test_a_hint_to_the_old_role_does_no_harm(self, service: Service) -> None:
        submit(service, "task-1")
        service.edit(ANN, "task-1", to="tester")
        assert service.claim(WORKER, "builder", 1, "host:1", ids=["task-1"]) == []
        assert service.task(ANN, "task-1").state is State.READY

    def test_a_long_text_is_the_context_and_the_first_one_stays(self, service: Service) -> None:
        first = replace(spec("task-1"), instructions="First")
        service.submit(ANN, [first], {"task-1": b"# First\n\nAll of it."})
        service.claim(WORKER, "builder", 1, "host:1")
        service.fail(WORKER, "task-1", 1, "no luck")
        edited = service.edit(ANN, "task-1", instructions="Second", context=b"# Second\n")
        assert service.context(ANN, "task-1") == "# Second\n"
        assert edited.spec.instructions == "Second"
        short = service.edit(ANN, "task-1", instructions="Third")
        assert (service.context(ANN, "task-1"), short.spec.context_sha256) == ("Third", "")

    def test_an_approval_is_taken_back(self, service: Service) -> None:
        submit(service, "task-1", requires_approval=True)
        service.approve(ANN, "task-1")
        edited = service.edit(BOB, "task-1", instructions="something else")
        assert (edited.state, edited.details.approved_by) == (State.PENDING, "")
        assert service.claim(WORKER, "builder", 1, "host:1") == []
        assert service.approve(ANN, "task-1").state is State.READY

    def test_a_key_stands_for_what_was_submitted(self, service: Service) -> None:
        submitted = submit(service, "task-1", idempotency_key="K")
        service.edit(ANN, "task-1", instructions="something else")
        again = submit(service, "task-9", idempotency_key="K", instructions="Do task-1.")
        assert (again.id, again.spec.instructions) == ("task-1", "something else")
        assert service.submit(COORDINATOR, [submitted.spec])[0].id == "task-1"
        for names in ({"task_id": "task-9", "idempotency_key": "K"}, {"task_id": "task-1"}):
            with pytest.raises(Conflict):
                submit(service, **names, instructions="something else")

    def test_what_says_the_same_changes_nothing(self, service: Service) -> None:
        service.submit(ANN, [replace(spec("task-0"), instructions="See")], {"task-0": b"all"})
        assert service.edit(ANN, "task-0", instructions="See", context=b"all").version == 1
        submit(service, "task-1")
        service.edit(ANN, "task-1", instructions="See", context=b"all of it")
        same = service.edit(ANN, "task-1", instructions="See", context=b"all of it")
        assert same.version == 2
        assert service.context(ANN, "task-1") == "all of it"

    def test_what_no_submission_may_say(self, service: Service) -> None:
        submit(service, "task-1")
        wrong: list[tuple[dict[str, Any], str]] = [
            ({}, "none of them was given"),
            ({"title": " "}, "got blanks"),
            ({"to": "no way"}, "A role is"),
            ({"title": "two\nlines"}, "one line"),
            ({"context": b"alone"}, "comes with instructions"),
            ({"instructions": "x" * 20_000}, "16384 characters"),
            ({"instructions": "at https://ann:correct-horse-9@files.example"}, "secret"),
        ]
        for fields, says in wrong:
            with pytest.raises(Invalid, match=says):
                service.edit(ANN, "task-1", **fields)
        assert service.task(ANN, "task-1").version == 1

    def test_what_has_begun_is_not_edited(self, service: Service) -> None:
        task = claimed(service, "task-1")
        failed(service, "task-2")
        for ref in ("task-1", "task-2"):
            with pytest.raises(Refused, match="Edit applies to"):
                service.edit(ANN, ref, instructions="x", context=b"all of x")
        with pytest.raises(NotFound):
            service.edit(ANN, "nowhere", instructions="x")
        with pytest.raises(Refused):
            service.edit(attempt_at(task), "task-1", instructions="x")


class TestReruns:
    def test_the_same_again_as_a_new_task(self, service: Service) -> None:
        submitted = replace(
            spec("task-1"), labels={"team": "web"}, idempotency_key="K", requires_approval=True,
            next=(Spec("task-1.1", "tester", instructions="Test it."), spec("then")),
        )  # fmt: skip
        service.submit(ANN, [submitted], {"task-1": b"the text", "task-1.1": b"how to test"})
        service.cancel(ANN, "task-1")
        task = service.rerun(ANN, "task-1", "task-2")
        assert (task.state, task.spec.idempotency_key) == (State.PENDING, "")
        assert task.spec.labels == {"team": "web", "rerun_of": "task-1"}
        assert service.context(ANN, "task-2") == "the text"
        assert [child.id for child in task.spec.next] == ["task-2.1", "then"]
        assert service.task(ANN, "task-1").state is State.CANCELLED
        service.approve(BOB, "task-2")
        (held,) = service.claim(WORKER, "builder", 1, "host:1")
        service.complete(WORKER, held.id, held.epoch, "done")
        assert service.context(ANN, "task-2.1") == "how to test"
        # It is known by its id: whoever asks again, as the answer was lost, is given the same.
        assert service.rerun(ANN, "task-1", "task-2").state is State.COMPLETE

    def test_other_words(self, service: Service) -> None:
        failed(service, "task-1")
        words: dict[str, Any] = {"to": "tester", "title": "T", "priority": Priority.LOW}
        task = service.rerun(ANN, "task-1", "task-2", **words, instructions="Other", context=b"all")
        shown = (task.to, task.spec.title, task.spec.priority, task.spec.instructions)
        assert shown == ("tester", "T", "low", "Other")
        assert service.context(ANN, "task-2") == "all"
        with pytest.raises(Invalid, match="comes with instructions"):
            service.rerun(ANN, "task-1", "task-3", context=b"alone")

    def test_what_is_gone_is_not_waited_for(self, service: Service) -> None:
        submit(service, "task-0")
        submit(service, "task-1", after=("task-0",), parent="task-0")
        service.cancel(ANN, "task-1")
        assert service.rerun(ANN, "task-1", "task-2").spec.after == ("task-0",)
        for ref in ("task-2", "task-0"):
            service.cancel(ANN, ref)
        service.rerun(ANN, "task-0", "task-3")
        assert service.task(ANN, "task-3").state is State.READY

    def test_what_is_not_over_is_not_run_again(self, service: Service) -> None:
        task = claimed(service, "task-1")
        with pytest.raises(Refused, match="what is not over is not run again"):
            service.rerun(ANN, "task-1", "task-2")
        with pytest.raises(NotFound):
            service.rerun(ANN, "nowhere", "task-2")
        with pytest.raises(Refused, match="may not submit"):
            service.rerun(attempt_at(task), "task-1", "task-2")


def test_a_coordinator_changes_what_it_asked_for_itself(beside: Service) -> None:
    submit(beside, "task-1")
    assert beside.edit(COORDINATOR, "task-1", priority=Priority.HIGH).version == 2
    with pytest.raises(Refused, match="coordinator has submitted it"):
        beside.edit(access.coordinator("ci"), "task-1", priority=Priority.LOW)
    # Not into a role that its token does not name, nor out of one.
    bound = replace(COORDINATOR, roles=frozenset({"builder"}), proof="stated")
    with pytest.raises(Refused, match="for builder, and for no other role"):
        beside.edit(bound, "task-1", to="deployer")
    noted = [(row.action, row.outcome) for row in beside.audit(ANN, task="task-1").entries]
    assert noted == [("edit", "refused"), ("edit", "done")]
