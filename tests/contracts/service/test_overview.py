"""The installation on one screen, and who works for it, by every way to reach a ledger."""

from __future__ import annotations

import pytest

from agentq.contracts.overview_values import BusySlot, DecisionKind, WorkerReport
from agentq.contracts.service import Service
from agentq.core import access
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import RoleLimits
from agentq.core.policy_steps import PolicyStepKind
from agentq.core.states import State
from agentq.core.task import ApprovalPolicy, Escalation, Gates, OnTimeout, Usage
from agentq.core.values import replace
from tests.contracts.service.people import (
    ANN,
    WORKER,
    blocked,
    claimed,
    failed,
    reported,
    submit,
)

REPORT = WorkerReport("builder", "host", 17, "0.1", "claude", 2)


@pytest.mark.long
def test_an_empty_ledger(service: Service) -> None:
    found = service.overview(ANN)
    assert (found.roles, found.running, found.decisions, found.circuits) == ((), (), (), ())
    assert found.decision_counts == {"approval": 0, "review": 0, "question": 0, "dead_letter": 0}
    assert service.workers(ANN) == []


@pytest.mark.long
def test_roles_are_counted_by_state_and_say_what_holds_them_back(service: Service) -> None:
    submit(service, "task-1")
    claimed(service, "task-2")
    submit(service, "task-3", after=("task-2",))
    submit(service, "task-4", "writer")
    service.set_limits(ANN, "writer", RoleLimits(paused=True))
    builder, writer = service.overview(ANN).roles
    assert (builder.pending, builder.ready, builder.running) == (1, 1, 1)
    assert builder.held_back == ""
    assert (writer.ready, writer.held_back) == (1, "the role is paused")

    service.set_limits(ANN, "writer", RoleLimits())
    service.open_role_circuit(access.worker("host:2", "writer"), "writer", "claude is missing")
    service.claim(ANN, "builder", 1, "host:9", provider="anthropic")
    service.open_circuit(ANN, "anthropic", service.now() + 60_000, "out of quota")
    found = service.overview(ANN)
    assert "out of quota" in found.roles[0].held_back
    assert "needs a person: claude is missing" in found.roles[1].held_back
    assert [(each.provider, each.role) for each in found.circuits] == [
        ("anthropic", ""),
        ("", "writer"),
    ]
    assert list(found.circuits) == service.circuits(ANN)


@pytest.mark.long
def test_what_was_spent_today_and_how_much_of_it_is_estimated(service: Service) -> None:
    task = claimed(service)
    service.set_limits(ANN, "builder", RoleLimits(daily=Usage(usd=2.0)))
    service.spend(WORKER, task.id, task.epoch, Usage(usd=1.0, tokens=10, estimated_usd=0.25))
    service.spend(WORKER, task.id, task.epoch, Usage(usd=0.5, tokens=5))
    (role,) = service.overview(ANN).roles
    assert role.today == Usage(usd=1.5, tokens=15, estimated_usd=0.25)
    assert service.costs(ANN, "role") == {"builder": role.today}
    service.spend(WORKER, task.id, task.epoch, Usage(usd=0.5))
    assert "budget of this day" in service.overview(ANN).roles[0].held_back


def test_whatever_waits_for_a_person_comes_with_the_command_that_decides_it(
    service: Service,
) -> None:
    submit(service, "task-a", irreversible=True)
    submit(service, "task-b", requires_approval=True, title="Publish")
    reported(service, "task-c", review=True)
    blocked(service, "task-d")
    task = claimed(service, "task-e", budget=Usage(usd=1.0))
    service.spend(WORKER, task.id, task.epoch, Usage(usd=2.0))
    failed(service, "task-f")
    found = service.overview(ANN)
    assert [(each.kind, each.task_id, each.command) for each in found.decisions] == [
        (DecisionKind.APPROVAL, "task-a", "agentq approve task-a"),
        (DecisionKind.APPROVAL, "task-b", "agentq approve task-b"),
        (DecisionKind.REVIEW, "task-c", "agentq approve task-c"),
        (DecisionKind.QUESTION, "task-d", "agentq answer task-d TEXT"),
        (DecisionKind.QUESTION, "task-e", "agentq answer task-e --extra-usd N"),
        (DecisionKind.DEAD_LETTER, "task-f", "agentq requeue task-f"),
    ]
    assert found.decisions[1].title == "Publish"
    assert found.decisions[3].reason == "which branch?"
    assert found.decision_counts == {"approval": 2, "review": 1, "question": 2, "dead_letter": 1}

    service.approve(ANN, "task-a")
    service.requeue(ANN, "task-f")
    found = service.overview(ANN)
    assert (found.decision_counts["approval"], found.decision_counts["dead_letter"]) == (1, 0)


@pytest.mark.long
def test_an_approved_task_that_waits_for_another_waits_for_nobody(service: Service) -> None:
    submit(service, "task-1")
    submit(service, "task-2", after=("task-1",), requires_approval=True)
    service.approve(ANN, "task-2")
    assert service.task(ANN, "task-2").state == "pending"
    assert service.overview(ANN).decisions == ()


@pytest.mark.long
def test_a_requeued_task_that_needs_an_approval_waits_for_it_again(service: Service) -> None:
    submit(service, "task-1", requires_approval=True)
    service.reject(ANN, "task-1", "not now")
    assert service.overview(ANN).decision_counts["dead_letter"] == 1
    service.requeue(ANN, "task-1")
    assert [each.kind for each in service.overview(ANN).decisions] == [DecisionKind.APPROVAL]


def test_a_worker_says_what_it_does(service: Service) -> None:
    task = claimed(service)
    busy = BusySlot(task.id, task.epoch, "run", "reading the tests", 12.0)
    report = replace(REPORT, busy=(busy,))
    service.report_worker(WORKER, "host:1", report, 60_000)
    (worker,) = service.workers(ANN)
    assert (worker.holder, worker.role, worker.machine, worker.pid) == (
        "host:1",
        "builder",
        "host",
        17,
    )
    assert (worker.agent, worker.version, worker.slots) == ("claude", "0.1", 2)
    assert not worker.is_gone
    assert worker.reports
    (running,) = worker.running
    assert (running.task_id, running.step, running.words) == (task.id, "run", "reading the tests")
    assert service.now() - running.started_at >= 12_000
    found = service.overview(ANN)
    assert found.running == worker.running
    assert found.running_count == 1
    assert (found.roles[0].workers, found.roles[0].slots) == (1, 2)

    service.report_worker(WORKER, "host:1", replace(REPORT, problem="no login"), 60_000)
    (again,) = service.workers(ANN)
    assert (again.problem, again.since) == ("no login", worker.since)
    assert again.running[0].words == ""

    service.report_worker(WORKER, "host:1", replace(REPORT, is_ending=True), 60_000)
    assert service.overview(ANN).roles[0].workers == 0, "it claims no more"
    service.report_worker(WORKER, "host:1", REPORT, 0)
    (left,) = service.workers(ANN)
    assert not left.reports, "it has ended, and its lease on the task has not"


@pytest.mark.long
def test_who_never_reports_is_known_by_what_it_holds(service: Service) -> None:
    task = claimed(service)
    (worker,) = service.workers(ANN)
    assert (worker.holder, worker.reports, worker.since) == ("host:1", False, 0)
    assert worker.running[0].task_id == task.id
    assert worker.running[0].started_at == 0
    assert service.overview(ANN).roles[0].workers == 0


@pytest.mark.long
def test_reports_are_cut_to_what_is_shown(service: Service) -> None:
    busy = tuple(BusySlot(f"task-{n}", 1, "s" * 9000, "w" * 9000) for n in range(500))
    service.report_worker(WORKER, "host:1", replace(REPORT, problem="p" * 9000, busy=busy), 9000)
    (worker,) = service.workers(ANN)
    assert len(worker.problem) < 9000


@pytest.mark.parametrize("lease_ms", [-1, 3600_001])
@pytest.mark.long
def test_a_lease_has_its_bounds(service: Service, lease_ms: int) -> None:
    with pytest.raises(Invalid, match="an hour"):
        service.report_worker(WORKER, "host:1", REPORT, lease_ms)
    assert service.workers(ANN) == []


@pytest.mark.long
def test_a_worker_speaks_for_its_own_role(service: Service) -> None:
    with pytest.raises(Refused):
        service.report_worker(WORKER, "host:1", replace(REPORT, role="writer"), 9000)
    with pytest.raises(Invalid):
        service.report_worker(ANN, "host:1", replace(REPORT, role="no such word!"), 9000)
    with pytest.raises(Invalid):
        service.report_worker(ANN, "", REPORT, 9000)


def test_loops_are_named_by_who_runs_them(beside: Service) -> None:
    beside.hold_leader_leases(access.SYSTEM, ["due"], "host:7:ab", 60_000)
    assert beside.overview(ANN).loops == {"due": "host:7:ab"}
    assert beside.workers(ANN) == []


def test_what_waits_for_decisions_of_people(service: Service) -> None:
    policy = ApprovalPolicy(3600, (Escalation(7200, "lead"),), OnTimeout.REJECT)
    submit(
        service, "task-1", requires_approval=True, approval=policy, approval_timeout_seconds=9000
    )
    reported(service, "task-2", review=True)
    submit(service, "task-3", "payer", irreversible=True)
    submit(service, "task-4")
    found = service.approvals(ANN)
    assert [each.task_id for each in found.decisions] == ["task-3", "task-1", "task-2"]
    pay, start, report = found.decisions
    assert (pay.irreversible, pay.kind, pay.state) == (True, DecisionKind.APPROVAL, State.PENDING)
    assert (start.sender, start.escalations, start.asked_of) == ("coordinator", 1, "")
    assert [(each.kind, each.to, each.outcome) for each in start.steps] == [
        (PolicyStepKind.REMIND, "", ""),
        (PolicyStepKind.ESCALATE, "lead", ""),
        (PolicyStepKind.TIMEOUT, "", "reject"),
    ]
    assert (report.kind, report.summary, report.epoch) == (DecisionKind.REVIEW, "done", 1)

    # What is listed is enough to decide about exactly that.
    assert [each.task_id for each in service.approvals(ANN, "payer").decisions] == ["task-3"]
    approved = service.approve(ANN, pay.task_id, pay.digest, if_version=pay.version)
    assert approved.state is State.READY
    assert service.approvals(ANN, asked_of="lead").decisions == ()
    assert len(service.approvals(ANN, limit=1).decisions) == 1
    assert service.approvals(ANN, limit=1).more
    with pytest.raises(Invalid):
        service.approvals(ANN, limit=0)


def test_what_a_reviewer_is_about_to_judge_is_for_nobody_else_yet(service: Service) -> None:
    reported(service, gates=Gates(reviewer="reviewer", person=True))
    assert service.approvals(ANN).decisions == ()
    (found,) = service.approvals(ANN, with_reviewers=True).decisions
    assert found.review_task == "task-1.review-1"
