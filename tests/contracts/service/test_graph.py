"""Tasks that wait for each other: children, yields, signals, structured results, reviewers."""

from __future__ import annotations

import pytest

from agentq.contracts.service import Service
from agentq.contracts.service_values import Completion, NextAttempt
from agentq.core import access
from agentq.core.errors import Conflict, Invalid, NotFound, Refused, Stale
from agentq.core.limits import RoleLimits
from agentq.core.scopes import principal_of_scopes
from agentq.core.states import State
from agentq.core.task import Gates, Spec, Task
from agentq.core.values import replace
from tests.contracts.service.people import (
    ANN,
    COORDINATOR,
    LEASE_MS,
    WORKER,
    attempt_at,
    claimed,
    spec,
    submit,
)

REVIEW = "task-1.review-1"
ACCEPT = '{"verdict": "accept", "score": 90, "notes": "well done"}'


def with_children(service: Service, *names: str) -> Task:
    """A task that is held and has open children."""
    own = claimed(service)
    service.submit(attempt_at(own), [spec(name, "helper") for name in names])
    return service.task(ANN, own.id)


def next_attempt(ready: Task) -> NextAttempt:
    return NextAttempt(ready.id, ready.epoch + 1, ready.to, "host:1", ready.version)


def done(service: Service, task_id: str) -> Task:
    task = service.claim_task(ANN, task_id, "host:2", LEASE_MS)
    return service.complete(ANN, task_id, task.epoch, "done", leave_children=True)


class TestChildren:
    def test_a_parent_yields_and_goes_on_when_they_are_over(self, service: Service) -> None:
        own = with_children(service, "a", "b")
        assert own.details.children == ("a", "b")
        left = service.yield_attempt(attempt_at(own), own.id, 1, "all", "then merge")
        assert (left.state, left.holder, left.details.yielded) == (State.PENDING, "", "all")
        done(service, "a")
        assert service.task(ANN, own.id).state is State.PENDING
        done(service, "b")
        again = service.claim(WORKER, "builder", 1, "host:1", LEASE_MS)[0]
        assert (again.id, again.epoch) == (own.id, 2)
        assert [note.text for note in again.details.notes] == ["then merge"]
        assert dict(again.details.ended_children) == {"a": "complete", "b": "complete"}
        # A word of the attempt that left comes too late.
        with pytest.raises(Stale):
            service.complete(attempt_at(own), own.id, 1, "done")

    def test_any_of_them_is_enough(self, service: Service) -> None:
        own = with_children(service, "a", "b")
        service.yield_attempt(WORKER, own.id, 1, wait="any")
        done(service, "b")
        assert service.task(ANN, own.id).state is State.READY

    def test_an_attempt_leaves_in_the_transaction_that_brings_its_children(
        self, service: Service
    ) -> None:
        own = claimed(service)
        service.submit(attempt_at(own), [spec("a", "helper")], leave="all")
        left = service.task(ANN, own.id)
        assert (left.state, left.holder, left.details.children) == (State.PENDING, "", ("a",))
        # What the lost answer of the first one would have said: the attempt is over.
        with pytest.raises(Stale):
            service.submit(attempt_at(own), [spec("a", "helper")], leave="all")
        done(service, "a")
        assert service.task(ANN, own.id).state is State.READY

    def test_an_attempt_begins_and_leaves_in_the_transaction_that_brings_its_children(
        self, service: Service
    ) -> None:
        ready = submit(service)
        begin = next_attempt(ready)
        service.submit(WORKER, [spec("a", "helper")], leave="all", begin=begin)
        left = service.task(ANN, ready.id)
        assert (left.state, left.epoch, left.details.children) == (State.PENDING, 1, ("a",))
        kinds = [entry.event.kind for entry in service.history(ANN, ready.id)]
        assert kinds == ["submitted", "claimed", "children_submitted", "yielded"]
        # What the lost answer of the first one would have said: nobody can claim it now.
        with pytest.raises(Refused, match="cannot be claimed now") as caught:
            service.submit(WORKER, [spec("a", "helper")], leave="all", begin=begin)
        assert caught.value.code == "not_ready"
        done(service, "a")
        # It may also wait for what it has submitted before.
        submitted = service.claim(WORKER, "builder", 1, "host:1", LEASE_MS)[0]
        service.submit(attempt_at(submitted), [spec("b", "helper"), spec("c", "helper")])
        service.yield_attempt(WORKER, ready.id, 2, wait="any")
        done(service, "b")
        assert service.submit(
            WORKER, [], leave="any", begin=next_attempt(service.task(ANN, ready.id))
        ) == []  # fmt: skip
        assert service.task(ANN, ready.id).details.yielded == "any"

    def test_an_attempt_that_cannot_begin_submits_nothing(self, service: Service) -> None:
        ready = submit(service)
        begin = next_attempt(ready)
        service.comment(ANN, ready.id, "one more thing")
        refused: list[tuple[access.Principal, NextAttempt, str, type[Exception]]] = [
            (WORKER, begin, "all", Conflict),  # it has changed since
            (ANN, replace(begin, version=2, role="helper"), "all", Refused),
            (WORKER, replace(begin, version=2, epoch=2), "all", Stale),
            (WORKER, replace(begin, version=2, holder=""), "all", Invalid),
            (ANN, replace(begin, version=2, role="no role"), "all", Invalid),
            (WORKER, replace(begin, version=2), "", Invalid),  # nobody would renew its lease
            (COORDINATOR, replace(begin, version=2), "all", Refused),
            (attempt_at(ready), replace(begin, version=2), "all", Refused),
        ]
        for who, each, leave, error in refused:
            with pytest.raises(error):
                service.submit(who, [spec("a", "helper")], leave=leave, begin=each)
        assert not service.tasks_by_id(ANN, ["a"])
        assert service.task(ANN, ready.id).state is State.READY
        service.set_limits(ANN, "builder", RoleLimits(paused=True))
        with pytest.raises(Refused, match="no room"):
            service.submit(
                WORKER, [spec("a", "helper")], leave="all", begin=replace(begin, version=2)
            )

    def test_one_that_cannot_leave_submits_nothing_either(self, service: Service) -> None:
        own = claimed(service)
        agent = attempt_at(own)
        with pytest.raises(Refused) as caught:
            service.submit(agent, [spec("a", after=(own.id,))], leave="all")
        assert caught.value.code == "cycle"
        with pytest.raises(Invalid):
            service.submit(agent, [spec("a", "helper")], leave="some")
        with pytest.raises(Invalid, match="Only an attempt"):
            service.submit(ANN, [spec("a", "helper")], leave="all")
        assert not service.tasks_by_id(ANN, ["a"])
        assert service.task(ANN, own.id).holder == "host:1"

    def test_what_cannot_be_waited_for(self, service: Service) -> None:
        own = claimed(service)
        agent = attempt_at(own)
        with pytest.raises(Refused) as caught:
            service.yield_attempt(agent, own.id, 1)
        assert caught.value.code == "nothing_to_wait_for"
        with pytest.raises(Invalid):
            service.yield_attempt(agent, own.id, 1, "some", signals=["go"])
        with pytest.raises(Invalid, match="signal's name"):
            service.yield_attempt(agent, own.id, 1, signals=["not a name"])
        service.submit(agent, [spec("a", after=(own.id,))])
        with pytest.raises(Refused) as caught:
            service.yield_attempt(agent, own.id, 1)
        assert caught.value.code == "cycle"
        assert service.task(ANN, own.id).holder == "host:1"

    def test_a_report_over_open_children_says_so_or_is_refused(self, service: Service) -> None:
        own = with_children(service, "a")
        for result in (None, b"# Result\n"):
            with pytest.raises(Refused) as caught:
                service.complete(WORKER, own.id, 1, "done", result)
            assert caught.value.code == "open_children"
        (outcome,) = service.complete_many(WORKER, [Completion(own.id, 1, "done")])
        assert isinstance(outcome, Refused)
        left = service.complete(WORKER, own.id, 1, "done", leave_children=True)
        assert left.state is State.COMPLETE
        assert service.task(ANN, "a").state is State.READY

    def test_a_tree_is_cancelled_at_once(self, service: Service) -> None:
        own = with_children(service, "a", "b")
        running = service.claim_task(ANN, "a", "host:2", LEASE_MS)
        service.submit(attempt_at(running), [spec("deep", "helper")])
        assert service.cancel(ANN, own.id, "no need", tree=True).state is State.CANCELLED
        found = service.tasks_by_id(ANN, ["a", "b", "deep"]).values()
        assert {task.state for task in found} == {State.CANCELLED}

    def test_without_the_tree_children_go_on(self, service: Service) -> None:
        own = with_children(service, "a")
        service.cancel(ANN, own.id)
        assert service.task(ANN, "a").state is State.READY

    def test_an_attempt_cancels_below_itself(self, service: Service) -> None:
        own = with_children(service, "a")
        running = service.claim_task(ANN, "a", "host:2", LEASE_MS)
        service.submit(attempt_at(running), [spec("deep", "helper")])
        service.cancel(attempt_at(own), "a", tree=True)
        assert service.task(ANN, "deep").state is State.CANCELLED
        with pytest.raises(Refused):
            service.cancel(attempt_at(own), own.id, tree=True)

    def test_whoever_is_bound_to_a_role_cancels_nothing_of_another(self, beside: Service) -> None:
        own = with_children(beside, "a")
        bound = principal_of_scopes("planner", ["submit:builder"])
        with pytest.raises(Refused, match="builder"):
            beside.cancel(bound, own.id, tree=True)
        assert beside.task(ANN, own.id).state is State.IN_PROGRESS
        both = principal_of_scopes("planner", ["submit:builder", "submit:helper"])
        assert beside.cancel(both, own.id, tree=True).state is State.CANCELLED
        assert beside.task(ANN, "a").state is State.CANCELLED


class TestSignals:
    def test_a_task_waits_for_its_signals(self, service: Service) -> None:
        assert submit(service, wait_for=("deployed", "seen")).state is State.PENDING
        service.signal(COORDINATOR, "task-1", "seen")
        task = service.signal(ANN, "task-1", "deployed", '{ "to": "prod" }')
        assert task.state is State.READY
        assert [
            (each.by, each.name, each.data, each.is_taken) for each in task.details.signals
        ] == [
            ("coordinator", "seen", "", True),
            ("ann", "deployed", '{"to":"prod"}', True),
        ]
        assert "signal" in {row.action for row in service.audit(ANN, limit=10).entries}

    def test_an_attempt_leaves_until_one_comes(self, service: Service) -> None:
        own = claimed(service)
        left = service.yield_attempt(attempt_at(own), own.id, 1, signals=["deployed"])
        assert (left.state, left.details.awaited_signals) == (State.PENDING, ("deployed",))
        assert service.signal(ANN, own.id, "deployed").state is State.READY

    def test_who_may_send_them(self, service: Service) -> None:
        own = with_children(service, "a")
        submit(service, "other")
        agent = attempt_at(own)
        assert service.signal(agent, "a", "go").details.signals[0].by == "builder"
        for ref in (own.id, "other"):
            with pytest.raises(Refused) as caught:
                service.signal(agent, ref, "go")
            assert caught.value.code == "not_permitted"
        with pytest.raises(Refused):
            service.signal(WORKER, "a", "go")
        granted = attempt_at(own, access.Action.SIGNAL)
        assert service.signal(granted, "other", "go").details.signals

    @pytest.mark.parametrize("data", ["5", "{", '"text"', '{"n": NaN}', "[" * 20_000, "[" * 100])
    def test_data_that_is_none(self, service: Service, data: str) -> None:
        submit(service)
        with pytest.raises(Invalid):
            service.signal(ANN, "task-1", "go", data)
        assert service.task(ANN, "task-1").details.signals == ()

    def test_what_cannot_be_signalled(self, service: Service) -> None:
        submit(service)
        with pytest.raises(Invalid, match="signal's name"):
            service.signal(ANN, "task-1", "two words")
        with pytest.raises(NotFound):
            service.signal(ANN, "nowhere", "go")
        service.cancel(ANN, "task-1")
        with pytest.raises(Refused):
            service.signal(ANN, "task-1", "go")


class TestHolds:
    def test_a_task_waits_until_it_is_dispatched(self, service: Service) -> None:
        submit(service)
        task = service.hold(ANN, "task-1", "after the release")
        assert task.state is State.PENDING and task.details.held is not None
        assert (task.details.held.by, task.details.held.reason) == ("ann", "after the release")
        assert not service.claim(WORKER, "builder", 1, "host:1", LEASE_MS)
        again = service.hold(ANN, "task-1", "another reason")
        assert again == task
        causes = dict(service.explain(ANN, "task-1").causes)
        (why,) = [each for each in causes if "is held by ann since" in each]
        assert why.endswith("Z: after the release") and causes[why] == "`agentq dispatch task-1`"
        assert service.dispatch(ANN, "task-1", if_version=task.version).state is State.READY
        assert service.dispatch(ANN, "task-1").version == task.version + 1
        assert service.claim(WORKER, "builder", 1, "host:1", LEASE_MS)
        assert [row.action for row in service.audit(ANN, limit=2).entries] == ["dispatch", "hold"]
        assert not service.replay(ANN, "task-1").problems

    def test_a_dispatch_ends_a_delay_and_says_what_else_is_waited_for(
        self, service: Service
    ) -> None:
        submit(service, "first")
        submit(service, "task-1", delay_seconds=3600, after=("first",))
        task = service.dispatch(COORDINATOR, "task-1")
        assert (task.state, task.details.not_before) == (State.PENDING, 0)
        done(service, "first")
        assert service.task(ANN, "task-1").state is State.READY

    def test_who_may(self, service: Service) -> None:
        submit(service, "task-1")
        submit(service, "other", sender="bob")
        for call in (service.hold, service.dispatch):
            for ref in ("task-1", "other"):
                with pytest.raises(Refused) as caught:
                    call(WORKER, ref)
                assert caught.value.code == "not_permitted"
            with pytest.raises(Refused, match="bob has submitted it"):
                call(COORDINATOR, "other")
        assert service.hold(COORDINATOR, "task-1").state is State.PENDING
        assert service.dispatch(COORDINATOR, "task-1").state is State.READY
        service.hold(ANN, "task-1")
        with pytest.raises(Refused, match="ann holds task-1") as caught:
            service.dispatch(COORDINATOR, "task-1")
        assert caught.value.code == "not_permitted"
        refused = service.audit(ANN, limit=1, outcome="refused").entries[0]
        assert (refused.action, refused.who) == ("dispatch", "coordinator")

    def test_what_runs_or_is_over_is_not_held(self, service: Service) -> None:
        own = claimed(service)
        with pytest.raises(Refused) as caught:
            service.hold(ANN, own.id)
        assert "agentq cancel" in caught.value.remedy
        service.complete(WORKER, own.id, own.epoch, "done")
        for call in (service.hold, service.dispatch):
            with pytest.raises(Refused, match="is complete"):
                call(ANN, own.id)
        with pytest.raises(NotFound):
            service.hold(ANN, "nowhere")


class TestStructuredResults:
    def test_a_report_brings_data_in_one_spelling(self, service: Service) -> None:
        claimed(service)
        task = service.complete(WORKER, "task-1", 1, "done", data='{ "b": [1, 2.5],\n "a": null }')
        assert task.details.report is not None
        assert task.details.report.data == '{"a":null,"b":[1,2.5]}'
        # The same again is the same report; other data is not.
        again = service.complete(WORKER, "task-1", 1, "done", data='{"a":null,"b":[1,2.5]}')
        assert again.version == task.version
        with pytest.raises(Stale):
            service.complete(WORKER, "task-1", 1, "done", data='{"a":1}')

    def test_so_do_many(self, service: Service) -> None:
        claimed(service)
        (outcome,) = service.complete_many(WORKER, [Completion("task-1", 1, "done", '{"a": 1}')])
        assert isinstance(outcome, Task)
        assert outcome.details.report is not None
        assert outcome.details.report.data == '{"a":1}'

    def test_secrets_in_it_are_covered(self, service: Service) -> None:
        claimed(service)
        secret = "ghp_" + "a1B2c3D4e5" * 4
        task = service.complete(WORKER, "task-1", 1, data=f'{{"token": ["{secret}"]}}')
        assert task.details.report is not None
        assert secret not in task.details.report.data

    def test_what_is_no_object_or_list_is_refused(self, service: Service) -> None:
        claimed(service)
        for data in ("5", "nonsense", '"' + "x" * 40_000 + '"'):
            with pytest.raises(Invalid):
                service.complete(WORKER, "task-1", 1, "done", data=data)
        assert service.task(ANN, "task-1").state is State.IN_PROGRESS


class TestReviewers:
    def reported(self, service: Service, **gates: object) -> Task:
        claimed(service, gates=Gates(**{"reviewer": "reviewer", **gates}))  # type: ignore[arg-type]
        return service.complete(WORKER, "task-1", 1, "done", b"# Result\n")

    def test_what_a_reviewer_says_becomes_the_verdict(self, service: Service) -> None:
        task = self.reported(service, min_score=80)
        assert (task.state, task.details.review_task) == (State.REVIEW, REVIEW)
        held = service.claim(access.worker("host:3", "reviewer"), "reviewer", 1, "host:3", LEASE_MS)
        (review,) = held
        assert (review.id, review.spec.reviews, review.spec.type) == (REVIEW, "task-1", "review")
        agent = attempt_at(review)
        # Whoever reviews may read what it reviews, and decide nothing about it directly.
        assert service.task(agent, "task-1").summary == "done"
        with pytest.raises(Refused):
            service.approve(agent, "task-1")
        with pytest.raises(Refused) as caught:
            service.complete(agent, REVIEW, 1, "fine")
        assert caught.value.code == "bad_review"
        service.complete(agent, REVIEW, 1, "fine", data=ACCEPT)
        accepted = service.task(ANN, "task-1")
        assert (accepted.state, accepted.details.score) == (State.COMPLETE, 90)
        # Its result is there like any other that was accepted.
        _, file = service.open_result(ANN, "task-1")
        assert file is not None
        with file:
            assert file.read() == b"# Result\n"

    def test_changes_and_a_person_after_it(self, service: Service) -> None:
        self.reported(service, person=True)
        review = service.claim_task(ANN, REVIEW, "host:3", LEASE_MS)
        said = '{"verdict": "changes", "notes": "add tests"}'
        service.complete(attempt_at(review), REVIEW, 1, data=said)
        task = service.task(ANN, "task-1")
        assert (task.state, task.details.notes[-1].text) == (State.READY, "add tests")
        service.claim_task(ANN, "task-1", "host:1", LEASE_MS)
        service.complete(WORKER, "task-1", 2, "with tests")
        second = service.claim_task(ANN, "task-1.review-2", "host:3", LEASE_MS)
        service.complete(attempt_at(second), second.id, 1, data=ACCEPT)
        assert service.task(ANN, "task-1").state is State.REVIEW
        assert service.approve(ANN, "task-1").state is State.COMPLETE

    def test_gates_of_a_role_come_with_the_claim(self, service: Service) -> None:
        submit(service)
        gates = Gates(reviewer="reviewer", min_score=50, max_rounds=2, person=True)
        (task,) = service.claim(WORKER, "builder", 1, "host:1", LEASE_MS, gates=gates)
        assert task.details.role_gates == gates
        assert service.complete(WORKER, "task-1", 1, "done").details.review_task == REVIEW
        submit(service, "task-2")
        with pytest.raises(Invalid):
            service.claim(WORKER, "builder", 1, "host:1", gates=Gates(min_score=101))
        with pytest.raises(Invalid):
            service.claim(WORKER, "builder", 1, "host:1", gates=Gates(reviewer="two words"))
        (task,) = service.claim(WORKER, "builder", 1, "host:1", ids=["task-2"], gates=gates)
        assert task.details.role_gates == gates

    def test_nobody_makes_up_a_review(self, service: Service) -> None:
        self.reported(service)
        made_up = spec("mine", "reviewer", reviews="task-1")
        for specs in ([made_up], [Spec("first", "reviewer", next=(made_up,))]):
            with pytest.raises(Refused) as caught:
                service.submit(COORDINATOR, specs)
            assert caught.value.code == "not_permitted"

    def test_an_agent_chooses_no_command_that_checks_its_children(self, service: Service) -> None:
        own = claimed(service)
        child = spec("child", gates=Gates(verify="curl evil"))
        with pytest.raises(Refused) as caught:
            service.submit(attempt_at(own), [child])
        assert caught.value.code == "not_permitted"
        service.submit(COORDINATOR, [child])

    def test_a_token_for_a_role_asks_no_other_to_review(self, beside: Service) -> None:
        bound = principal_of_scopes("planner", ["submit:builder"])
        with pytest.raises(Refused):
            beside.submit(bound, [spec("a", gates=Gates(reviewer="reviewer"))])
        both = principal_of_scopes("planner", ["submit:builder", "submit:reviewer"])
        assert beside.submit(both, [spec("a", gates=Gates(reviewer="reviewer"))])
