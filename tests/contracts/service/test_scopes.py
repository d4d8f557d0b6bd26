"""What each scope of a token allows: every verb (see `test_tokens`), and which roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentq.contracts.overview_values import WorkerReport
from agentq.contracts.schedule_values import ScheduleChange
from agentq.contracts.service import Service
from agentq.contracts.service_values import AttemptLease, Completion, Wanted
from agentq.core.access import Principal
from agentq.core.errors import AgentqError, Refused
from agentq.core.limits import RoleLimits
from agentq.core.scopes import principal_of_scopes
from agentq.core.states import State
from agentq.core.task import Usage
from agentq.core.triggers import Ruling
from tests.contracts.service.people import ANN, COORDINATOR, claimed, failed, spec, submit

Call = Callable[[Service, Principal], Any]

#: Verbs by what they ask for. `held` is a task in progress, `waits` one that waits to be claimed.
READ: dict[str, Call] = {
    "task": lambda s, who: s.task(who, "held"),
    "tasks by id": lambda s, who: s.tasks_by_id(who, ["held"]),
    "list": lambda s, who: s.list_tasks(who, Wanted()),
    "ids": lambda s, who: s.ids(who, "h"),
    "explain": lambda s, who: s.explain(who, "held"),
    "stats": lambda s, who: s.stats(who),
    "overview": lambda s, who: s.overview(who),
    "workers": lambda s, who: s.workers(who),
    "approvals": lambda s, who: s.approvals(who),
    "costs": lambda s, who: s.costs(who, "role"),
    "limits": lambda s, who: s.limits(who),
    "circuits": lambda s, who: s.circuits(who),
    "schedules": lambda s, who: s.schedules(who),
    "history": lambda s, who: s.history(who, "held"),
    "events": lambda s, who: s.events_after(who, 0),
    "ledger": lambda s, who: s.ledger_id(who),
    "last position": lambda s, who: s.last_position(who),
    "last seal": lambda s, who: s.last_seal(who),
    "replay": lambda s, who: s.replay(who, "held"),
    "verify": lambda s, who: list(s.verify(who)),
    "overhead": lambda s, who: s.overhead(who, ["held"]),
    "overhead below": lambda s, who: s.overhead(who, ["held"], below=True),
    "recent overhead": lambda s, who: s.recent_overhead(who),
    "numbers": lambda s, who: s.numbers(who),
    "quality": lambda s, who: s.quality(who),
    "context": lambda s, who: s.context(who, "held"),
    "artifacts": lambda s, who: s.artifacts(who, "held"),
    "open artifact": lambda s, who: s.open_artifact(who, "held", "a.md"),
    "open result": lambda s, who: s.open_result(who, "held"),
    "files": lambda s, who: s.task_files(who),
    "files to remove": lambda s, who: s.files_to_remove(who),
    "lanes": lambda s, who: s.lanes(who),
    "roles": lambda s, who: s.roles(who),
    "ready": lambda s, who: s.ready_counts(who),
    "capacity": lambda s, who: s.capacity(who, "builder"),
    "urgent": lambda s, who: s.most_urgent_ready(who, "builder", 1, s.now()),
    "resources": lambda s, who: s.key_limits(who, ["db"]),
    "next wake": lambda s, who: s.next_wake(who),
    "tick": lambda s, who: s.tick(who),
}
SUBMIT: dict[str, Call] = {
    "submit": lambda s, who: s.submit(who, [spec("fresh")]),
}
DECIDE: dict[str, Call] = {
    "comment": lambda s, who: s.comment(who, "waits", "hello"),
    "tell": lambda s, who: s.tell(who, "waits", "hello"),
    "reject": lambda s, who: s.reject(who, "waits"),
    "verdict": lambda s, who: s.verdict(who, "waits", Ruling.ACCEPT),
    "answer": lambda s, who: s.answer(who, "waits", "yes"),
    "requeue": lambda s, who: s.requeue(who, "waits"),
    "mark as applied": lambda s, who: s.mark_applied(who, "waits", "0" * 40),
    "cancel": lambda s, who: s.cancel(who, "waits"),
}
APPROVE: dict[str, Call] = {
    "approve": lambda s, who: s.approve(who, "waits"),
}
WORK: dict[str, Call] = {
    "claim": lambda s, who: s.claim(who, "builder", 1, "me"),
    "report a worker": lambda s, who: s.report_worker(who, "me", WorkerReport("builder"), 9000),
    "claim named": lambda s, who: s.claim(who, "builder", 1, "me", ids=["waits"]),
    "claim task": lambda s, who: s.claim_task(who, "waits", "me"),
    "complete and claim": lambda s, who: s.complete_and_claim(who, [], "builder", 1, "me"),
    "renew": lambda s, who: s.renew(who, [AttemptLease("held", 1, 60_000)]),
    "progress": lambda s, who: s.progress(who, "held", 1, 5),
    "spend": lambda s, who: s.spend(who, "held", 1, Usage(usd=0.1)),
    "take messages": lambda s, who: s.take_messages(who, "held", 1),
    "comment of the holder": lambda s, who: s.comment(who, "held", "hello", 1),
    "put": lambda s, who: s.put_artifacts(who, "held", 1, [("a.md", b"a")]),
    "stopped": lambda s, who: s.stopped(who, "held", 1),
    "submit below": lambda s, who: s.submit(who, [spec("child")], under=("held", 1)),
    "block": lambda s, who: s.block(who, "held", 1, "?"),
    "fail": lambda s, who: s.fail(who, "held", 1, "no"),
    "complete": lambda s, who: s.complete(who, "held", 1, "done"),
    "complete many": lambda s, who: s.complete_many(who, [Completion("held", 1)]),
    "release": lambda s, who: s.release(who, "held", 1),
    "interrupt": lambda s, who: s.interrupt(who, "held", 1, "no program"),
    "open a circuit": lambda s, who: s.open_circuit(who, "p", s.now() + 60_000),
    "reset a circuit": lambda s, who: s.reset_circuit(who, "p"),
    "open a role's circuit": lambda s, who: s.open_role_circuit(who, "builder", "no program"),
    "close a role's circuit": lambda s, who: s.close_role_circuit(who, "builder"),
}
ADMIN: dict[str, Call] = {
    "answer with money": lambda s, who: s.answer(who, "waits", extra_budget=Usage(usd=1)),
    "raise a budget": lambda s, who: s.raise_tree_budget(who, "held", Usage(usd=1)),
    "set limits": lambda s, who: s.set_limits(who, "builder", RoleLimits(max_running=9)),
    "close a circuit": lambda s, who: s.close_circuit(who, "p"),
    "pause a schedule": lambda s, who: s.change_schedule(who, "nightly", ScheduleChange.PAUSE),
    "prune": lambda s, who: s.prune(who, 1),
    "open lanes": lambda s, who: s.open_lanes(who, ["reply"]),
    "seal": lambda s, who: s.seal(who),
    "sign a seal": lambda s, who: s.sign_seal(who, "ab", "signed"),
    "repair": lambda s, who: s.repair(who),
    "check writable": lambda s, who: s.check_writable(who),
    "create a token": lambda s, who: s.create_token(who, "eve", ["admin"]),
    "list tokens": lambda s, who: s.tokens(who),
    "revoke a token": lambda s, who: s.revoke_token(who, "nobody"),
    "audit": lambda s, who: s.audit(who),
}
ALL = {**READ, **SUBMIT, **DECIDE, **APPROVE, **WORK, **ADMIN}
#: What a coordinator may say about an attempt it does not hold: naming its epoch, it is fenced.
NAMING_AN_EPOCH = ("comment of the holder", "submit below")

EXPECTED: dict[str, set[str]] = {
    "read": {*READ},
    "submit": {*READ, *SUBMIT, *DECIDE, *NAMING_AN_EPOCH},
    "work": {*READ, *WORK},
    "work:builder": {*READ, *WORK},
    "approve": {*READ, *DECIDE, *APPROVE, "comment of the holder"},
    "admin": {*ALL},
    "submit:builder": {*READ, *SUBMIT, *DECIDE},
    "submit approve": {*READ, *SUBMIT, *DECIDE, *APPROVE, *NAMING_AN_EPOCH},
}


def passes(call: Callable[[], Any]) -> bool:
    """Whether the access table lets it pass, whatever the task makes of it."""
    try:
        call()
    except Refused as error:
        return error.code != "not_permitted"
    except AgentqError:
        return True
    return True


def check_scopes(beside: Service, service: Service, who: Principal, expected: set[str]) -> None:
    """Ask for everything, first what shall be refused."""
    claimed(beside, "held")
    submit(beside, "waits", requires_approval=True)
    before = beside.tasks_by_id(ANN, ["held", "waits"])
    refused = [name for name, call in ALL.items() if name not in expected]
    assert [name for name in refused if passes(lambda: ALL[name](service, who))] == []  # noqa: B023
    assert beside.tasks_by_id(ANN, ["held", "waits"]) == before  # nothing of it was done
    allowed = [name for name in ALL if name in expected]
    assert [name for name in allowed if not passes(lambda: ALL[name](service, who))] == []  # noqa: B023


# -- roles -----------------------------------------------------------------------------------------


def refused(call: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    assert caught.value.code == "not_permitted"
    return caught.value


def test_a_scope_with_a_role_asks_no_other_role_for_work(service: Service) -> None:
    """Not in a batch, not below a task of its own, not by what comes next, to any depth."""
    who = principal_of_scopes("ci", ["submit:builder"])
    last = spec("task-3", "deployer")
    middle = spec("task-2", next=(last,))
    for specs in (
        [spec("task-1", "deployer")],
        [spec("task-1"), spec("task-2", "deployer")],
        [spec("task-1", next=(middle,))],
        [spec("task-1", next=(spec("task-2", "deployer"),))],
    ):
        error = refused(lambda specs=specs: service.submit(who, specs))  # type: ignore[misc]
        assert "for deployer: its token is for builder" in error.cause
    assert service.ids(ANN, "task") == []
    service.submit(who, [spec("task-1", next=(spec("task-2"),))])
    refused(lambda: service.submit(who, [spec("child", "deployer", parent="task-1")]))
    service.submit(who, [spec("child", parent="task-1")])
    held = service.claim_task(ANN, "task-1", "host:1")
    refused(lambda: service.submit(who, [spec("other")], under=("task-1", held.epoch)))


def test_nor_by_deciding(service: Service) -> None:
    who = principal_of_scopes("ci", ["submit:builder", "submit:tester"])
    for role in ("deployer", "builder", "tester"):
        failed(service, f"failed-{role}", to=role)
    refused(lambda: service.requeue(who, "failed-deployer"))
    refused(lambda: service.comment(who, "failed-deployer", "hello"))
    assert service.requeue(who, "failed-builder").state is State.READY
    assert service.cancel(who, "failed-builder").state is State.CANCELLED
    assert service.requeue(who, "failed-tester").state is State.READY
    assert service.task(who, "failed-deployer").state is State.FAILED


def test_a_worker_with_a_role_speaks_for_no_task_of_another(service: Service) -> None:
    who = principal_of_scopes("host", ["work:builder"])
    own, other = claimed(service, "own"), claimed(service, "other", "deployer")
    both = [AttemptLease("own", own.epoch, 60_000), AttemptLease("other", other.epoch, 60_000)]
    for call in (
        lambda: service.progress(who, "other", other.epoch, 5),
        lambda: service.complete(who, "other", other.epoch, "done"),
        lambda: service.complete_many(who, [Completion("own", 1), Completion("other", 1)]),
        lambda: service.renew(who, both),
        lambda: service.submit(who, [spec("child")], under=("other", other.epoch)),
        lambda: service.claim(who, "deployer", 1, "me"),
    ):
        refused(call)
    assert service.tasks_by_id(ANN, ["own", "other"]) == {"own": own, "other": other}
    assert service.renew(who, both[:1]) == {"own"}
    assert service.complete(who, "own", own.epoch, "done").state is State.COMPLETE


def test_a_worker_for_any_role_takes_what_it_is_told(service: Service) -> None:
    who = principal_of_scopes("host", ["work"])
    service.submit(COORDINATOR, [spec("task-1", "deployer")])
    held = service.claim_task(who, "task-1", "me")
    assert service.complete(who, "task-1", held.epoch).state is State.COMPLETE
