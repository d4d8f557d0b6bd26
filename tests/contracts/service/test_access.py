"""Who asks is part of every call: what an attempt may not, however it asks, and what it may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentq.contracts.overview_values import WorkerReport
from agentq.contracts.schedule_values import ScheduleChange, ScheduleFiring
from agentq.contracts.service import Service
from agentq.contracts.service_values import AttemptLease, Completion, Wanted
from agentq.core import access
from agentq.core.access import Action, Principal
from agentq.core.errors import Refused, Stale
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Task, Usage
from agentq.core.triggers import Ruling
from tests.contracts.service.people import (
    ANN,
    COORDINATOR,
    WORKER,
    attempt_at,
    blocked,
    claimed,
    failed,
    reported,
    spec,
    submit,
)

Call = Callable[[Service, Principal, str], Any]

#: Everything an attempt may never do, be it about its own task, a child or a stranger's.
NEVER: dict[str, Call] = {
    "approve": lambda s, who, ref: s.approve(who, ref),
    "reject": lambda s, who, ref: s.reject(who, ref),
    "verdict": lambda s, who, ref: s.verdict(who, ref, Ruling.ACCEPT),
    "answer": lambda s, who, ref: s.answer(who, ref, "yes"),
    "answer with money": lambda s, who, ref: s.answer(who, ref, extra_budget=Usage(usd=1)),
    "requeue": lambda s, who, ref: s.requeue(who, ref),
    "mark as applied": lambda s, who, ref: s.mark_applied(who, ref, "0" * 40),
    "claim a task": lambda s, who, ref: s.claim_task(who, ref, "me"),
    "claim a role": lambda s, who, ref: s.claim(who, "builder", 1, "me"),
    "claim what is named": lambda s, who, ref: s.claim(who, "builder", 1, "me", ids=[ref]),
    "complete and claim": lambda s, who, ref: s.complete_and_claim(who, [], "builder", 1, "me"),
    "raise a budget": lambda s, who, ref: s.raise_tree_budget(who, ref, Usage(usd=1)),
    "set limits": lambda s, who, ref: s.set_limits(who, "builder", RoleLimits(max_running=9)),
    "open a circuit": lambda s, who, ref: s.open_circuit(who, "p", s.now() + 60_000),
    "close a circuit": lambda s, who, ref: s.close_circuit(who, "p"),
    "reset a circuit": lambda s, who, ref: s.reset_circuit(who, "p"),
    "open its role's circuit": lambda s, who, ref: s.open_role_circuit(who, "builder", "no"),
    "close its role's circuit": lambda s, who, ref: s.close_role_circuit(who, "builder"),
    "interrupt": lambda s, who, ref: s.interrupt(who, ref, who.epoch, "no"),
    "interrupt for a provider": lambda s, who, ref: s.interrupt(who, ref, who.epoch, "no", "p"),
    "prune": lambda s, who, ref: s.prune(who, s.now()),
    "list": lambda s, who, ref: s.list_tasks(who, Wanted()),
    "list ids": lambda s, who, ref: s.ids(who, "task"),
    "stats": lambda s, who, ref: s.stats(who),
    "overview": lambda s, who, ref: s.overview(who),
    "workers": lambda s, who, ref: s.workers(who),
    "approvals": lambda s, who, ref: s.approvals(who),
    "report a worker": lambda s, who, ref: s.report_worker(who, "me", WorkerReport("builder"), 9),
    "costs": lambda s, who, ref: s.costs(who, "role"),
    "recent overhead": lambda s, who, ref: s.recent_overhead(who),
    "numbers": lambda s, who, ref: s.numbers(who),
    "quality": lambda s, who, ref: s.quality(who),
    "limits": lambda s, who, ref: s.limits(who),
    "circuits": lambda s, who, ref: s.circuits(who),
    "schedules": lambda s, who, ref: s.schedules(who),
    "pause a schedule": lambda s, who, ref: s.change_schedule(who, "x", ScheduleChange.PAUSE),
    "waking schedules": lambda s, who, ref: s.waking_schedules(who),
    "declare schedules": lambda s, who, ref: s.declare_schedules(who, ()),
    "fire a schedule": lambda s, who, ref: s.fire_schedule(who, ScheduleFiring("x", 1)),
    "all events": lambda s, who, ref: s.events_after(who, 0),
    "who asks": lambda s, who, ref: s.identity(who),
    "the ledger's name": lambda s, who, ref: s.ledger_id(who),
    "the last event": lambda s, who, ref: s.last_position(who),
    "verify": lambda s, who, ref: s.verify(who),
    "roles": lambda s, who, ref: s.roles(who),
    "ready counts": lambda s, who, ref: s.ready_counts(who),
    "ready tasks": lambda s, who, ref: s.most_urgent_ready(who, "builder", 1, s.now()),
    "capacity": lambda s, who, ref: s.capacity(who, "builder"),
    "resources": lambda s, who, ref: s.key_limits(who, ["db"]),
    "lanes": lambda s, who, ref: s.lanes(who),
    "open lanes": lambda s, who, ref: s.open_lanes(who, ["reply"]),
    "seal": lambda s, who, ref: s.seal(who),
    "sign a seal": lambda s, who, ref: s.sign_seal(who, "ab", "signed"),
    "repair": lambda s, who, ref: s.repair(who),
    "the last seal": lambda s, who, ref: s.last_seal(who),
    "outbox": lambda s, who, ref: s.outbox_batch(who, "reply", 1),
    "settle": lambda s, who, ref: s.settle_outbox(who, []),
    "publish": lambda s, who, ref: s.publish_results(who),
    "lead": lambda s, who, ref: s.hold_leader_leases(who, ["due"], "me", 1000),
    "give up leading": lambda s, who, ref: s.give_up_leader_leases(who, ["due"], "me"),
    "judge messages": lambda s, who, ref: s.judge_messages(who, []),
    "check writable": lambda s, who, ref: s.check_writable(who),
    "create a token": lambda s, who, ref: s.create_token(who, "me", ["admin"]),
    "list tokens": lambda s, who, ref: s.tokens(who),
    "revoke a token": lambda s, who, ref: s.revoke_token(who, "ann"),
    "renew": lambda s, who, ref: s.renew(who, [AttemptLease(ref, who.epoch, 60_000)]),
    "spend": lambda s, who, ref: s.spend(who, ref, who.epoch, Usage(usd=0.1)),
    "tell": lambda s, who, ref: s.tell(who, ref, "obey me"),
    "hold": lambda s, who, ref: s.hold(who, ref),
    "dispatch": lambda s, who, ref: s.dispatch(who, ref),
    "take messages": lambda s, who, ref: s.take_messages(who, ref, who.epoch),
    "say that it is gone": lambda s, who, ref: s.stopped(who, ref, who.epoch),
    "see the audit log": lambda s, who, ref: s.audit(who),
}
#: What it may do about its own task and nothing else.
OWN: dict[str, Callable[[Service, Principal, str, int], Any]] = {
    "progress": lambda s, who, ref, epoch: s.progress(who, ref, epoch, 5),
    "comment": lambda s, who, ref, epoch: s.comment(who, ref, "hello", epoch),
    "put": lambda s, who, ref, epoch: s.put_artifacts(who, ref, epoch, [("a.md", b"a")]),
    "submit": lambda s, who, ref, epoch: s.submit(who, [spec("task-c")], under=(ref, epoch)),
    "complete": lambda s, who, ref, epoch: s.complete(who, ref, epoch, "done"),
    "complete many": lambda s, who, ref, epoch: s.complete_many(who, [Completion(ref, epoch)]),
    "fail": lambda s, who, ref, epoch: s.fail(who, ref, epoch, "no"),
    "block": lambda s, who, ref, epoch: s.block(who, ref, epoch, "?"),
    "release": lambda s, who, ref, epoch: s.release(who, ref, epoch),
    "yield": lambda s, who, ref, epoch: s.yield_attempt(who, ref, epoch, signals=["go"]),
}
READ: dict[str, Call] = {
    "task": lambda s, who, ref: s.task(who, ref),
    "by id": lambda s, who, ref: s.tasks_by_id(who, [ref]),
    "explain": lambda s, who, ref: s.explain(who, ref),
    "history": lambda s, who, ref: s.history(who, ref),
    "replay": lambda s, who, ref: s.replay(who, ref),
    "context": lambda s, who, ref: s.context(who, ref),
    "artifacts": lambda s, who, ref: s.artifacts(who, ref),
}


def refused(call: Callable[[], Any], name: str = "it") -> Refused:
    refusal = None
    try:
        call()
    except Refused as caught:
        refusal = caught
    assert refusal is not None and refusal.code == "not_permitted", f"{name}: {refusal}"
    return refusal


@pytest.fixture
def family(service: Service) -> dict[str, Task]:
    """A tree of five tasks and a stranger, with the agent at work in the middle of it."""
    service.submit(COORDINATOR, [spec("input"), spec("stranger"), spec("root")])
    service.submit(COORDINATOR, [spec("sibling", parent="root")])
    service.submit(COORDINATOR, [spec("own", parent="root", after=("input",))])
    done = service.claim_task(ANN, "input", "host:2")
    service.complete(WORKER, "input", done.epoch, "read me")
    own = service.claim_task(ANN, "own", "host:1", 60_000)
    service.submit(attempt_at(own), [spec("child")])
    service.submit(COORDINATOR, [spec("grandchild", parent="child")])
    names = ["root", "sibling", "input", "own", "child", "grandchild", "stranger"]
    return service.tasks_by_id(ANN, names)


# All in one ledger: each refusal leaves it as it was, and a ledger costs more than what is asked.


def test_what_an_attempt_may_never_do(service: Service) -> None:
    own = claimed(service)
    agent = attempt_at(own)
    service.submit(agent, [spec("task-child", irreversible=True)])
    submit(service, "task-other")
    there = (own.id, "task-child", "task-other")
    for name, call in NEVER.items():
        for ref in there:
            before = service.task(ANN, ref)
            refused(lambda call=call, ref=ref: call(service, agent, ref), name)  # type: ignore[misc]
            assert service.task(ANN, ref) == before, name


def test_it_speaks_for_itself(service: Service) -> None:
    for number, call in enumerate(OWN.values()):
        own = claimed(service, f"task-{number}")
        call(service, attempt_at(own), own.id, own.epoch)


def test_it_speaks_for_nobody_else(service: Service) -> None:
    """Not for another task, and not for another attempt at its own."""
    own, other = claimed(service), claimed(service, "task-other")
    agent, before = attempt_at(own), service.task(ANN, other.id)
    for name, call in OWN.items():
        refused(lambda call=call: call(service, agent, other.id, other.epoch), name)  # type: ignore[misc]
        refused(lambda call=call: call(service, agent, own.id, own.epoch + 1), name)  # type: ignore[misc]
        assert service.task(ANN, other.id) == before, name
        assert service.task(ANN, own.id) == own, name


def test_it_reads_its_own_tree_and_its_inputs(service: Service, family: dict[str, Task]) -> None:
    agent = attempt_at(family["own"])
    for name, call in READ.items():
        for ref in ("own", "root", "sibling", "input", "child", "grandchild"):
            call(service, agent, ref)
        refused(lambda call=call: call(service, agent, "stranger"), name)  # type: ignore[misc]


def test_it_may_read_more_if_that_is_granted(service: Service, family: dict[str, Task]) -> None:
    reader = attempt_at(family["own"], Action.READ)
    assert service.task(reader, "stranger").id == "stranger"
    assert service.list_tasks(reader, Wanted()).tasks


def test_it_cancels_its_own_descendants_only(service: Service, family: dict[str, Task]) -> None:
    agent = attempt_at(family["own"])
    for ref in ("own", "root", "sibling", "stranger"):
        assert ref in refused(lambda ref=ref: service.cancel(agent, ref)).cause  # type: ignore[misc]
    assert service.cancel(agent, "grandchild").state is State.CANCELLED
    assert service.cancel(agent, "child").state is State.CANCELLED


def test_its_children_are_its_own(service: Service) -> None:
    own = claimed(service)
    submit(service, "task-other")
    agent = attempt_at(own)
    child, told = service.submit(agent, [spec("c1"), spec("c2", parent=own.id)])
    assert child.spec.parent == told.spec.parent == own.id
    refused(lambda: service.submit(agent, [spec("c3", parent="task-other")]))
    # And once it is fenced out it submits nothing.
    service.release(WORKER, own.id, own.epoch)
    with pytest.raises(Refused, match=r"does not hold|no longer|at attempt"):
        service.submit(agent, [spec("c4")])
    assert not service.tasks_by_id(ANN, ["c3", "c4"])


def test_once_fenced_out_it_decides_nothing(service: Service) -> None:
    """Neither about its descendants, nor about what it was granted; reading it may."""
    own = claimed(service)
    agent = attempt_at(own, *access.GRANTABLE)
    service.submit(agent, [spec("child")])
    blocked(service, "task-b")
    failed(service, "task-f")
    submit(service, "task-i", irreversible=True, sender="ann")
    service.release(WORKER, own.id, own.epoch)
    calls: list[Callable[[], Any]] = [
        lambda: service.cancel(agent, "child"),
        lambda: service.signal(agent, "child", "go"),
        lambda: service.answer(agent, "task-b", "yes"),
        lambda: service.requeue(agent, "task-f"),
        lambda: service.approve(agent, "task-i"),
        lambda: service.reject(agent, "task-i"),
        lambda: service.comment(agent, "task-b", "late"),
        lambda: service.comment(agent, own.id, "late"),
    ]
    for call in calls:
        with pytest.raises(Stale):
            call()
    assert service.task(agent, "child").state is State.READY
    assert [each.event.kind for each in service.history(ANN, own.id)] == [
        "submitted", "claimed", "children_submitted", "released",
    ]  # fmt: skip


# -- grants ----------------------------------------------------------------------------------------


def test_a_granted_role_decides_about_others(service: Service) -> None:
    agent = attempt_at(claimed(service), Action.ANSWER, Action.CANCEL, Action.REQUEUE)
    blocked(service, "task-b")
    assert service.answer(agent, "task-b", "main").state is State.READY
    assert service.cancel(agent, "task-b").state is State.CANCELLED
    failed(service, "task-f")
    assert service.requeue(agent, "task-f").state is State.READY
    said = [entry.event.trigger for entry in service.history(ANN, "task-b")]
    assert [getattr(each, "how", None) for each in said][-2:] == ["attempt task-1/1"] * 2
    assert [getattr(each, "by", None) for each in said][-2:] == ["builder"] * 2


def test_but_never_about_its_own_tree(service: Service) -> None:
    """Whatever it is granted: what it submitted, what that submitted, and what its parent did."""
    root = claimed(service, "root")
    service.submit(attempt_at(root), [spec("own"), spec("sibling", irreversible=True)])
    own = service.claim_task(ANN, "own", "host:1", 60_000)
    agent = attempt_at(own, *access.GRANTABLE)
    service.submit(agent, [spec("child", irreversible=True)])
    for ref in ("child", "sibling"):
        refusal = refused(lambda ref=ref: service.approve(agent, ref))  # type: ignore[misc]
        assert "their own attempt" in refusal.cause
    submit(service, "stranger", irreversible=True)
    assert service.approve(agent, "stranger").state is State.READY


def test_a_grant_to_answer_gives_no_money(service: Service) -> None:
    agent = attempt_at(claimed(service), Action.ANSWER)
    blocked(service, "task-b")
    refused(lambda: service.answer(agent, "task-b", extra_budget=Usage(usd=1)))
    assert service.answer(agent, "task-b").state is State.READY


def test_a_grant_to_approve_accepts_no_report(service: Service) -> None:
    agent = attempt_at(claimed(service), Action.APPROVE, Action.REJECT)
    reported(service, "task-r", review=True)
    refused(lambda: service.approve(agent, "task-r"))
    refused(lambda: service.reject(agent, "task-r", changes=True))


def test_a_tree_that_cannot_be_told_is_ones_own(service: Service) -> None:
    """Its ancestors were pruned: nobody knows any more whose tree it is of."""
    submit(service, "gone")
    service.submit(COORDINATOR, [spec("between", parent="gone")])
    service.submit(COORDINATOR, [spec("orphan", parent="between", irreversible=True)])
    for ref in ("gone", "between"):
        service.cancel(ANN, ref)
    assert service.prune(ANN, service.now()) == 1  # what a live task names stays
    agent = attempt_at(claimed(service), *access.GRANTABLE)
    refused(lambda: service.approve(agent, "orphan"))
    assert service.task(agent, "orphan").id == "orphan"
    refused(lambda: service.task(attempt_at(service.task(ANN, "task-1")), "orphan"))


# -- the other principals --------------------------------------------------------------------------


def test_a_worker_claims_for_its_role(service: Service) -> None:
    submit(service, "task-1", "builder")
    submit(service, "task-2", "reviewer")
    refused(lambda: service.claim(WORKER, "reviewer", 1, "host:1"))
    refused(lambda: service.claim_task(WORKER, "task-2", "host:1"))
    assert [task.id for task in service.claim(WORKER, "builder", 5, "host:1")] == ["task-1"]
    any_role = access.worker("host:2")
    assert [task.id for task in service.claim(any_role, "reviewer", 5, "host:2")] == ["task-2"]


def test_a_worker_decides_nothing(service: Service) -> None:
    blocked(service)
    refused(lambda: service.answer(WORKER, "task-1", "yes"))
    refused(lambda: service.cancel(WORKER, "task-1"))
    refused(lambda: service.prune(WORKER, service.now()))
    assert service.open_circuit(WORKER, "p", service.now() + 60_000).opened_by == "host:1"
    refused(lambda: service.close_circuit(WORKER, "p"))


def test_a_coordinator_looks_after_what_it_submitted(service: Service) -> None:
    reported(service, "task-r", review=True)
    assert service.approve(COORDINATOR, "task-r").state is State.COMPLETE
    blocked(service, "task-b")
    assert service.answer(COORDINATOR, "task-b").state is State.READY
    refused(lambda: service.claim_task(COORDINATOR, "task-b", "me"))
    refused(lambda: service.set_limits(COORDINATOR, "builder", RoleLimits(1)))
    submit(service, "task-i", irreversible=True, sender="ann")
    refused(lambda: service.approve(COORDINATOR, "task-i"))
    assert service.reject(COORDINATOR, "task-i", "not today").state is State.FAILED


def test_the_log_says_how_anybody_knows(service: Service) -> None:
    for who, how in (
        (ANN, "stated"),
        (access.person("ann", "token"), "token"),
        (COORDINATOR, "coordinator"),
        (access.SYSTEM, "system"),
    ):
        submit(service, f"task-{how}")
        service.cancel(who, f"task-{how}", "no need")
        last = service.history(ANN, f"task-{how}")[-1]
        assert service.event_data(last) == {"by": who.name, "reason": "no need", "how": how}


# -- four eyes -------------------------------------------------------------------------------------


def test_a_person_may_approve_what_they_submitted_and_the_log_says_so(service: Service) -> None:
    submit(service, irreversible=True, sender="ann")
    assert service.approve(ANN, "task-1").state is State.READY
    last = service.history(ANN, "task-1")[-1]
    assert service.event_data(last) == {"by": "ann", "how": "stated", "own": True}
    submit(service, "task-2", irreversible=True, sender="bob")
    service.approve(ANN, "task-2")
    assert "own" not in service.event_data(service.history(ANN, "task-2")[-1])


def test_with_four_eyes_nobody_does(four_eyes: Service) -> None:
    submit(four_eyes, irreversible=True, sender="ann")
    with pytest.raises(Refused) as caught:
        four_eyes.approve(ANN, "task-1")
    assert caught.value.code == "self_approval"
    assert four_eyes.approve(access.person("bob"), "task-1").state is State.READY


def test_the_name_of_whoever_submitted_from_an_attempt_is_nobodys(service: Service) -> None:
    own = claimed(service)
    service.submit(attempt_at(own), [spec("child", irreversible=True, sender="builder")])
    with pytest.raises(Refused) as caught:
        service.approve(access.person("builder"), "child")
    assert caught.value.code == "self_approval"


def test_other_principals_never_approve_what_bears_their_name(service: Service) -> None:
    submit(service, irreversible=True, sender="agentq")
    with pytest.raises(Refused) as caught:
        service.approve(access.SYSTEM, "task-1")
    assert caught.value.code == "self_approval"


@pytest.mark.parametrize("name", ["coordinator", "builder"])
def test_the_name_of_a_role_or_a_coordinator_is_nobodys_own(service: Service, name: str) -> None:
    submit(service, irreversible=True, sender=name)
    with pytest.raises(Refused) as caught:
        service.approve(access.person(name), "task-1")
    assert caught.value.code == "self_approval"


# -- runs: whoever started one has asked for all that it submits -----------------------------------


def started_run(service: Service) -> Task:
    """A run of Ann's whose own attempt has submitted a step, and that a step of its own."""
    run = claimed(service, "run-1", "coordinator", type="run", sender="ann")
    step = spec("run-1.build", sender="coordinator")
    service.submit(attempt_at(run), [step], under=(run.id, run.epoch))
    built = service.claim_task(ANN, step.id, "host:1", 60_000)
    deploy = spec("run-1.deploy", irreversible=True, sender="builder")
    service.submit(attempt_at(built), [deploy], under=(built.id, built.epoch))
    return built


def test_with_four_eyes_whoever_started_a_run_approves_nothing_of_it(four_eyes: Service) -> None:
    started_run(four_eyes)
    with pytest.raises(
        Refused, match=r"ann started the run run-1, which run-1\.deploy belongs"
    ) as no:
        four_eyes.approve(ANN, "run-1.deploy")
    assert no.value.code == "self_approval"
    (refused,) = four_eyes.audit(access.SYSTEM, outcome="refused").entries
    assert (refused.action, refused.subject, refused.who) == ("approve", "run-1.deploy", "ann")
    assert four_eyes.approve(access.person("bob"), "run-1.deploy").state is State.READY
    assert "own" not in four_eyes.event_data(four_eyes.history(ANN, "run-1.deploy")[-1])


def test_without_four_eyes_the_log_says_that_it_was_their_own_run(service: Service) -> None:
    started_run(service)
    assert service.approve(ANN, "run-1.deploy").state is State.READY
    assert service.event_data(service.history(ANN, "run-1.deploy")[-1])["own"] is True


def test_a_name_that_is_nobodys_started_a_run_for_nobody(service: Service) -> None:
    claimed(service, "run-1", type="run", sender="coordinator")
    child = spec("step", irreversible=True, parent="run-1", sender="builder")
    service.submit(COORDINATOR, [child])
    with pytest.raises(Refused) as no:
        service.approve(access.person("coordinator"), "step")
    assert no.value.code == "self_approval"


def test_no_attempt_of_a_run_approves_what_belongs_to_it(service: Service) -> None:
    """Not the one that submitted it, nor a step beside it, whatever their roles were granted."""
    built = started_run(service)
    run = service.task(ANN, "run-1")
    granted = [access.Action.APPROVE, access.Action.READ]
    within = [attempt_at(built, *granted), attempt_at(run, *granted)]
    service.submit(attempt_at(run), [spec("run-1.look", "reviewer")], under=(run.id, run.epoch))
    within.append(attempt_at(service.claim_task(ANN, "run-1.look", "host:1", 60_000), *granted))
    for who in within:
        with pytest.raises(Refused) as no:
            service.approve(who, "run-1.deploy")
        assert no.value.code == "not_permitted"
    # One of the same role outside of it may.
    outside = claimed(service, "task-other", "reviewer")
    assert service.approve(attempt_at(outside, *granted), "run-1.deploy").state is State.READY
