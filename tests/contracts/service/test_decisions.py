"""What somebody decides from outside: about a task, about a role, about what is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from agentq.contracts.service import Service
from agentq.core import access
from agentq.core.agent_messages import is_told_live
from agentq.core.errors import Conflict, Invalid, NotFound, Refused, Stale
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Priority, Task, Usage
from agentq.core.triggers import Resolution, Ruling
from tests.contracts.service.people import (
    ANN,
    WORKER,
    blocked,
    claimed,
    failed,
    reported,
    submit,
)


class TestTasks:
    def test_approving_and_rejecting_a_start(self, service: Service) -> None:
        submit(service, "task-1", requires_approval=True)
        assert service.approve(ANN, "task-1").details.approved_by == "ann"
        submit(service, "task-2", requires_approval=True)
        assert service.reject(ANN, "task-2", "too early").state is State.FAILED
        submit(service, "task-3", requires_approval=True)
        with pytest.raises(Refused):
            service.approve(ANN, "task-3", "0" * 64)  # another payload than it has
        with pytest.raises(Refused, match="no report"):
            service.reject(ANN, "task-3", changes=True)

    def test_judging_a_report(self, service: Service) -> None:
        for name in ("good", "wrong", "almost", "fine"):
            reported(service, name, review=True)
        assert service.approve(ANN, "good").state is State.COMPLETE
        assert service.reject(ANN, "wrong", "no").state is State.FAILED
        assert service.reject(ANN, "almost", "tests", changes=True).state is State.READY
        assert service.verdict(ANN, "fine", Ruling.ACCEPT).state is State.COMPLETE

    def test_answering(self, service: Service) -> None:
        for name in ("again", "done", "over"):
            blocked(service, name)
        assert service.answer(ANN, "again", "main").state is State.READY
        done = service.answer(ANN, "done", "did it myself", Resolution.DONE)
        assert done.state is State.COMPLETE
        assert service.answer(ANN, "over", "", Resolution.GIVE_UP).state is State.FAILED

    def test_answering_with_money(self, service: Service) -> None:
        claimed(service, budget=Usage(usd=1))
        assert service.spend(WORKER, "task-1", 1, Usage(usd=2)).state is State.BLOCKED
        with pytest.raises(Refused):
            service.answer(ANN, "task-1")
        answered = service.answer(ANN, "task-1", extra_budget=Usage(usd=2))
        assert answered.state is State.READY

    def test_cancelling_requeuing_commenting(self, service: Service) -> None:
        submit(service, "task-1")
        assert service.cancel(ANN, "task-1", "no need").reason == "cancelled by ann: no need"
        failed(service, "task-2")
        assert service.requeue(ANN, "task-2", "try once more").state is State.READY
        service.comment(ANN, "task-2", "look at the log first")
        assert service.history(ANN, "task-2")[-1].event.kind == "commented"
        with pytest.raises(NotFound):
            service.comment(ANN, "nowhere", "hello")

    def test_marking_as_applied(self, service: Service) -> None:
        """It is noted of a complete task, once for each commit and branch."""
        reported(service, "task-1")
        marked = service.mark_applied(ANN, "task-1", "c0ffee", "main")
        details = marked.details
        assert marked.state is State.COMPLETE and details.applied_at == marked.updated_at
        assert (details.applied_by, details.applied_commit, details.applied_branch) == (
            "ann", "c0ffee", "main"
        )  # fmt: skip
        assert service.mark_applied(ANN, "task-1", "c0ffee", "main") == marked
        assert service.mark_applied(ANN, "task-1", "c0ffee", "release").version > marked.version
        assert "applied as c0ffee on release" in str(service.explain(ANN, "task-1"))
        submit(service, "task-2")
        with pytest.raises(Refused, match="task-2"):
            service.mark_applied(ANN, "task-2", "c0ffee")
        with pytest.raises(Invalid, match="The commit must be one line"):
            service.mark_applied(ANN, "task-1", " ")


class TestMessages:
    """What people tell an agent: while it runs, once; else in the next attempt."""

    def test_told_before_and_while_it_runs(self, service: Service) -> None:
        submit(service, "task-1")
        told = service.tell(ANN, "task-1", "keep it short; password: hunter2hunter2")
        assert told.state is State.READY and not is_told_live(told)
        task = service.claim_task(WORKER, "task-1", "host:1")
        first = task.details.messages[0]
        assert (first.by, first.epoch) == ("ann", 1) and first.text.startswith("keep it short")
        assert service.take_messages(WORKER, "task-1", 1).details.listening == 1
        assert is_told_live(service.tell(ANN, "task-1", "and in English"))
        taken = service.take_messages(WORKER, "task-1", 1)
        assert [each.epoch for each in taken.details.messages] == [1, 1]
        assert service.take_messages(WORKER, "task-1", 1).version == taken.version
        kinds = [entry.event.kind for entry in service.history(ANN, "task-1")]
        assert kinds == ["submitted", "told", "claimed", "messages_taken", "told", "messages_taken"]
        assert [entry.action for entry in service.audit(ANN).entries][:2] == ["tell", "tell"]

    def test_refusals(self, service: Service) -> None:
        reported(service, "task-1")
        with pytest.raises(Refused, match="Nobody will work on task-1"):
            service.tell(ANN, "task-1", "more")
        with pytest.raises(Stale):
            service.take_messages(WORKER, "task-1", 1)
        with pytest.raises(Invalid, match="needs some text"):
            service.tell(ANN, "task-1", " ")
        with pytest.raises(NotFound):
            service.tell(ANN, "nowhere", "hello")


class TestVersions:
    """With `if_version` nothing is decided about what has changed since."""

    def test_every_decision_about_a_task(self, service: Service) -> None:
        submit(service, "start", requires_approval=True)
        submit(service, "never", requires_approval=True)
        submit(service, "live")
        reported(service, "report", review=True)
        reported(service, "wrong", review=True)
        blocked(service, "stuck")
        failed(service, "dead")
        reported(service, "done")
        submit(service, "other")
        claimed(service, "tree", tree_budget=Usage(usd=1))
        decisions: list[tuple[str, Callable[..., Task]]] = [
            ("start", partial(service.approve, ANN, "start")),
            ("never", partial(service.reject, ANN, "never")),
            ("report", partial(service.approve, ANN, "report")),
            ("wrong", partial(service.verdict, ANN, "wrong", Ruling.REJECT)),
            ("stuck", partial(service.answer, ANN, "stuck", "main")),
            ("live", partial(service.cancel, ANN, "live")),
            ("dead", partial(service.requeue, ANN, "dead")),
            ("done", partial(service.mark_applied, ANN, "done", "0" * 40)),
            ("other", partial(service.edit, ANN, "other", priority=Priority.HIGH)),
            ("tree", partial(service.raise_tree_budget, ANN, "tree", Usage(usd=1))),
        ]
        for task_id, decide in decisions:
            seen = service.task(ANN, task_id).version
            service.comment(ANN, task_id, "somebody was here")
            with pytest.raises(Conflict, match="has changed") as refused:
                decide(if_version=seen)
            assert refused.value.code == "version_changed"
            assert service.task(ANN, task_id).version == seen + 1, "nothing was changed"
            assert decide(if_version=seen + 1).version > seen + 1


class TestRoles:
    def test_limits(self, service: Service) -> None:
        limits = RoleLimits(max_running=1)
        service.set_limits(ANN, "builder", limits)
        assert service.limits(ANN)["builder"] == limits
        for name in ("task-1", "task-2"):
            submit(service, name)
        assert len(service.claim(WORKER, "builder", 5, "host:1")) == 1
        assert service.capacity(ANN, "builder").free == 0
        assert [(role.name, role.is_limited) for role in service.roles(ANN)] == [("builder", True)]
        with pytest.raises(Invalid):
            service.set_limits(ANN, "builder", RoleLimits(max_running=-1))

    def test_circuits(self, service: Service) -> None:
        submit(service)
        until = service.now() + 60_000
        circuit = service.open_circuit(ANN, "acme", until, "quota")
        assert (circuit.provider, circuit.open_until, circuit.opened_by) == ("acme", until, "ann")
        assert service.circuits(ANN) == [circuit]
        assert service.claim(WORKER, "builder", 1, "host:1", provider="acme") == []
        assert service.close_circuit(ANN, "acme")
        assert not service.close_circuit(ANN, "acme")
        assert service.circuits(ANN) == []
        assert len(service.claim(WORKER, "builder", 1, "host:1", provider="acme")) == 1

    def test_a_role_that_cannot_work(self, service: Service) -> None:
        submit(service)
        held = claimed(service, "task-2")
        assert service.interrupt(WORKER, held.id, held.epoch, "claude is missing").id == held.id
        (circuit,) = service.circuits(ANN)
        assert (circuit.role, circuit.provider, circuit.open_until) == ("builder", "", 0)
        assert (circuit.reason, circuit.opened_by) == ("claude is missing", "host:1")
        assert service.claim(WORKER, "builder", 5, "host:1") == []
        assert service.capacity(ANN, "builder").free == 0
        assert not service.open_role_circuit(WORKER, "builder", "claude is missing"), "no news"
        assert service.close_role_circuit(WORKER, "builder")
        assert not service.close_role_circuit(WORKER, "builder")
        assert {task.id for task in service.claim(WORKER, "builder", 5, "host:1")} == {
            "task-1", "task-2",
        }  # fmt: skip
        assert service.task(ANN, held.id).details.interruptions == 1
        opened, closed = service.audit(ANN, task="builder").entries[::-1]
        assert (opened.action, closed.action) == ("open_circuit", "close_circuit")
        with pytest.raises(Refused, match="may not say whether other can work"):
            service.open_role_circuit(access.worker("host:1", "builder"), "other", "no")

    def test_a_provider_that_fails(self, service: Service) -> None:
        submit(service)
        held = claimed(service, "task-2")
        task = service.interrupt(WORKER, held.id, held.epoch, "529 overloaded", "acme")
        assert (task.state, task.details.interruptions) == (State.PENDING, 1)
        (circuit,) = service.circuits(ANN)
        assert (circuit.provider, circuit.failures, circuit.probing) == ("acme", 1, False)
        assert circuit.open_until > service.now()
        assert service.claim(WORKER, "builder", 5, "host:1", provider="acme") == []
        assert not service.reset_circuit(WORKER, "acme"), "no probe was served yet"
        assert service.close_circuit(ANN, "acme")
        assert len(service.claim(WORKER, "builder", 5, "host:1", provider="acme")) == 1

    def test_the_budget_of_a_tree(self, service: Service) -> None:
        claimed(service, tree_budget=Usage(usd=1))
        assert service.spend(WORKER, "task-1", 1, Usage(usd=2)).state is State.BLOCKED
        service.raise_tree_budget(ANN, "task-1", Usage(usd=5))
        assert service.answer(ANN, "task-1").state is State.READY
        assert service.costs(ANN, "role")["builder"].usd == 2


class TestKeeping:
    def test_pruning(self, service: Service) -> None:
        reported(service, "task-1")
        submit(service, "task-2")
        assert service.prune(ANN, service.now() - 60_000) == 0
        assert service.prune(ANN, service.now()) == 1
        assert sorted(service.ids(ANN, "task-")) == ["task-2"]

    def test_lanes(self, service: Service) -> None:
        assert "reply" not in service.lanes(ANN)
        service.open_lanes(ANN, ["reply", "delivery"])
        assert {"reply", "delivery"} <= service.lanes(ANN)
        with pytest.raises(Invalid):
            service.open_lanes(ANN, ["nowhere"])
