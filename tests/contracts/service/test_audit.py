"""Who decided what, and who was refused: how that is known, from where, and who may look."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from agentq.contracts.service import Service
from agentq.contracts.service_values import AuditEntry, AuditOutcome
from agentq.core import access
from agentq.core.access import SYSTEM, Action, Principal
from agentq.core.errors import AgentqError, Invalid, Refused
from agentq.core.limits import RoleLimits
from agentq.core.scopes import principal_of_scopes
from agentq.core.task import Usage
from agentq.core.triggers import Resolution, Ruling
from agentq.remote.service import RemoteService
from tests.contracts.service.conftest import Ways
from tests.contracts.service.people import (
    ANN,
    BOB,
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
from tests.contracts.service.test_access import NEVER, OWN
from tests.contracts.service.test_scopes import ALL, EXPECTED

#: Refused by the client itself, where the ledger is behind a server: only loops ask for them.
LOCAL = {
    "outbox", "settle", "publish", "lead", "give up leading", "judge messages", "waking schedules",
    "declare schedules", "fire a schedule",
}  # fmt: skip

LONG_POSTGRES = pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])

Decide = Callable[[Service], object]


def approved(service: Service) -> object:
    submit(service, requires_approval=True)
    return service.approve(ANN, "task-1")


def rejected(service: Service) -> object:
    submit(service, requires_approval=True)
    return service.reject(ANN, "task-1", "too early")


def judged(service: Service) -> object:
    reported(service, review=True)
    return service.verdict(ANN, "task-1", Ruling.CHANGES, "tests")


def accepted(service: Service) -> object:
    reported(service, review=True)
    return service.approve(ANN, "task-1")


def answered(service: Service) -> object:
    blocked(service)
    return service.answer(ANN, "task-1", "main", Resolution.RETRY)


def paid(service: Service) -> object:
    claimed(service, budget=Usage(usd=1))
    service.spend(WORKER, "task-1", 1, Usage(usd=2))
    return service.answer(ANN, "task-1", extra_budget=Usage(usd=5))


def cancelled(service: Service) -> object:
    submit(service)
    return service.cancel(ANN, "task-1", "no need")


def requeued(service: Service) -> object:
    failed(service)
    return service.requeue(ANN, "task-1", "once more")


def applied(service: Service) -> object:
    reported(service)
    return service.mark_applied(ANN, "task-1", "0123456789abcdef", "main")


def raised(service: Service) -> object:
    claimed(service, tree_budget=Usage(usd=1))
    return service.raise_tree_budget(ANN, "task-1", Usage(usd=5))


def limited(service: Service) -> None:
    service.set_limits(ANN, "builder", RoleLimits(2, 3, True, Usage(usd=9)))


def opened(service: Service) -> object:
    return service.open_circuit(ANN, "acme", service.now() + 60_000, "quota")


def role_opened(service: Service) -> object:
    return service.open_role_circuit(ANN, "builder", "no program")


def pruned(service: Service) -> object:
    reported(service)
    return service.prune(ANN, service.now())


def lanes_opened(service: Service) -> None:
    service.open_lanes(ANN, ["reply"])


#: What somebody decides: the action, what it is about, and what the entry says of it.
DECISIONS: dict[str, tuple[Decide, Action, str, str]] = {
    "approve": (approved, Action.APPROVE, "task-1", ""),
    "reject": (rejected, Action.REJECT, "task-1", "too early"),
    "verdict": (judged, Action.VERDICT, "task-1", "changes: tests"),
    "approve a report": (accepted, Action.VERDICT, "task-1", "accept"),
    "answer": (answered, Action.ANSWER, "task-1", "retry: main"),
    "answer with money": (paid, Action.ANSWER, "task-1", "retry (and 5 usd more)"),
    "cancel": (cancelled, Action.CANCEL, "task-1", "no need"),
    "requeue": (requeued, Action.REQUEUE, "task-1", "once more"),
    "apply": (applied, Action.APPLY, "task-1", "0123456789ab on main"),
    "raise a budget": (raised, Action.RAISE_BUDGET, "task-1", "5 usd more for its tree"),
    "set limits": (
        limited, Action.SET_LIMITS, "builder", "max_running 2, max_review 3, 9 usd a day, paused",
    ),
    "open a circuit": (opened, Action.OPEN_CIRCUIT, "acme", "quota"),
    "open a role's circuit": (role_opened, Action.OPEN_CIRCUIT, "builder", "no program"),
    "prune": (pruned, Action.PRUNE, "", "1 task deleted: task-1"),
    "open lanes": (lanes_opened, Action.OPERATE, "", "opened lanes: reply"),
}  # fmt: skip


def entries(service: Service, **filters: Any) -> list[AuditEntry]:
    """All of the log, page by page, the oldest first."""
    found: list[AuditEntry] = []
    cursor = 0
    while True:
        page = service.audit(SYSTEM, cursor, 100, **filters)
        found += page.entries
        cursor = page.cursor
        if not cursor:
            return found[::-1]


def refused(call: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value


# -- decisions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["sqlite", "http to sqlite", LONG_POSTGRES], indirect=True)
@pytest.mark.parametrize("name", DECISIONS)
def test_every_decision_leaves_one_entry(service: Service, name: str) -> None:
    decide, action, subject, detail = DECISIONS[name]
    before = service.now()
    decide(service)
    (entry,) = entries(service)
    assert (entry.who, entry.kind) == ("ann", "person")
    assert (entry.action, entry.subject, entry.detail) == (action, subject, detail)
    assert (entry.outcome, entry.code, entry.times) == (AuditOutcome.DONE, "", 1)
    assert before <= entry.at <= service.now()


def test_what_changes_nothing_is_no_decision(service: Service) -> None:
    info, _ = service.create_token(ANN, "ci", ["read"])
    until = service.now() + 60_000
    again: list[Callable[[], object]] = [
        lambda: service.set_limits(ANN, "builder", RoleLimits(max_running=1)),
        lambda: service.open_circuit(ANN, "acme", until),
        lambda: service.revoke_token(ANN, info.id),
        lambda: service.open_lanes(ANN, ["reply"]),
    ]
    for each in again:
        each()
    service.close_circuit(ANN, "acme")
    known = len(entries(service))
    assert known == 6
    for each in (again[0], again[2], again[3]):
        each()
    service.close_circuit(ANN, "acme")
    service.prune(ANN, 1)
    assert len(entries(service)) == known


def test_routine_is_not_in_it(service: Service) -> None:
    task = claimed(service)
    service.progress(WORKER, task.id, task.epoch, 50)
    service.comment(ANN, task.id, "hello")
    service.put_artifacts(WORKER, task.id, task.epoch, [("a.md", b"a")])
    service.complete(WORKER, task.id, task.epoch, "done")
    service.tick(SYSTEM)
    assert entries(service) == []


def test_tokens_are_made_and_revoked_by_somebody(service: Service) -> None:
    info, secret = service.create_token(ANN, "ci", ["read", "submit:builder"])
    service.revoke_token(BOB, info.id)
    made, ended = entries(service)
    assert (made.who, made.action, made.subject) == ("ann", "manage_tokens", info.id)
    assert made.detail == "made for ci: read submit:builder"
    assert (ended.who, ended.subject, ended.detail) == ("bob", info.id, "revoked; it was for ci")
    assert secret not in repr((made, ended))


def test_what_the_system_decides_is_in_it(beside: Service) -> None:
    reported(beside, review=True)
    beside.verdict(SYSTEM, "task-1", Ruling.ACCEPT)
    beside.prune(SYSTEM, beside.now())
    assert [(each.who, each.kind, each.action) for each in entries(beside)] == [
        ("agentq", "system", "verdict"), ("agentq", "system", "prune"),
    ]  # fmt: skip


def test_what_an_attempt_decides_is_in_it(service: Service) -> None:
    own = claimed(service)
    agent = attempt_at(own, Action.ANSWER)
    service.submit(agent, [spec("child")])
    service.cancel(agent, "child")
    blocked(service, "task-b")
    service.answer(agent, "task-b", "main")
    first, second = entries(service)
    assert (first.kind, first.how, first.subject) == ("attempt", "attempt task-1/1", "child")
    assert (second.action, second.how, second.subject) == ("answer", "attempt task-1/1", "task-b")


def test_an_entry_outlives_its_task(service: Service) -> None:
    cancelled(service)
    assert service.prune(BOB, service.now()) == 1
    assert [each.action for each in entries(service, task="task-1")] == ["cancel"]
    assert [each.action for each in entries(service)] == ["cancel", "prune"]


# -- refusals --------------------------------------------------------------------------------------


def check_one_each(service: Service, calls: dict[str, Callable[[Principal], object]]) -> None:
    """Each of these, by a principal of its own, is refused and leaves one entry."""
    for number, (name, call) in enumerate(calls.items()):
        who = access.attempt("task-1", number + 2, f"role-{number}")
        error = refused(lambda call=call, who=who: call(who))  # type: ignore[misc]
        (entry,) = entries(service, by=who.name)
        assert (entry.outcome, entry.code) == ("refused", "not_permitted"), name
        assert (entry.kind, entry.how) == ("attempt", f"attempt task-1/{number + 2}"), name
        assert entry.action in set(Action), name
        assert entry.detail == error.cause[:400], name


def test_what_an_attempt_may_never_do(service: Service) -> None:
    submit(service)
    submit(service, "task-2", irreversible=True)
    local = LOCAL if isinstance(service, RemoteService) else set()
    check_one_each(
        service,
        {
            name: lambda who, call=call: call(service, who, "task-2")  # type: ignore[misc]
            for name, call in NEVER.items()
            if name not in local
        },
    )


def test_nor_for_others(service: Service) -> None:
    other = claimed(service, "task-2")
    submit(service)
    check_one_each(
        service,
        {
            name: lambda who, call=call: call(service, who, other.id, other.epoch)  # type: ignore[misc]
            for name, call in OWN.items()
        },
    )
    assert {each.subject for each in entries(service, outcome="refused")} == {"task-2"}


def test_every_refused_cell_of_the_scopes(service: Service) -> None:
    """Whoever a token makes somebody: what it does not allow is written down."""
    claimed(service, "held")
    submit(service, "waits", requires_approval=True)
    for scopes, expected in EXPECTED.items():
        for number, name in enumerate(each for each in ALL if each not in expected):
            who = principal_of_scopes(f"{scopes.replace(' ', '-')}-{number}", scopes.split())
            error = refused(lambda name=name, who=who: ALL[name](service, who))  # type: ignore[misc]
            assert error.code == "not_permitted", (scopes, name)
            (entry,) = entries(service, by=who.name)
            assert (entry.outcome, entry.kind) == ("refused", who.kind), (scopes, name)


def test_what_the_state_of_a_task_refuses(service: Service) -> None:
    reported(service)
    error = refused(lambda: service.requeue(ANN, "task-1"))
    refused(lambda: service.answer(ANN, "task-1", "yes"))
    first, second = entries(service)
    assert (first.action, first.subject, first.code) == ("requeue", "task-1", error.code)
    assert (second.action, second.outcome, second.who) == ("answer", "refused", "ann")


def test_what_four_eyes_refuse(four_eyes: Service) -> None:
    submit(four_eyes, sender="ann", irreversible=True)
    refused(lambda: four_eyes.approve(ANN, "task-1"))
    four_eyes.approve(BOB, "task-1")
    first, second = entries(four_eyes)
    assert (first.who, first.code, first.outcome) == ("ann", "self_approval", "refused")
    assert (second.who, second.outcome) == ("bob", "done")


def test_names_of_the_worker_and_children_of_others(service: Service) -> None:
    own = claimed(service)
    submit(service, "task-2")
    agent = attempt_at(own)
    verdict = [("agentq/verdict.json", b"{}")]
    refused(lambda: service.put_artifacts(agent, own.id, own.epoch, verdict))
    refused(lambda: service.submit(agent, [spec("c", parent="task-2")]))
    found = [(each.action, each.subject, each.code) for each in entries(service)]
    assert found == [("record", "task-1", "reserved_name"), ("submit", "task-1", "not_permitted")]


def test_many_alike_are_two_entries(service: Service) -> None:
    submit(service)
    for _ in range(30):
        refused(lambda: service.approve(WORKER, "task-1"))
    found = entries(service)
    assert [(each.times, each.subject) for each in found] == [(1, "task-1"), (29, "task-1")]
    assert sum(each.times for each in entries(service)) == 30, "looking again adds none"


def test_one_principal_does_not_fill_the_log(service: Service) -> None:
    for number in range(60):
        refused(lambda number=number: service.requeue(WORKER, f"task-{number}"))  # type: ignore[misc]
    found = entries(service)
    assert len(found) < 30
    assert sum(each.times for each in found) == 60


@pytest.mark.parametrize("ref", ["\x00", "\x1b[2J", "é" * 300, "' OR 1=1", "a\nb", "\udcff"])
def test_whatever_is_asked_for_is_written_down(beside: Service, ref: str) -> None:
    refused(lambda: beside.requeue(WORKER, ref))
    (entry,) = entries(beside)
    assert entry.action == "requeue" and len(entry.subject) <= 200
    assert "\x00" not in entry.subject + entry.detail
    assert entries(beside, task=ref) == [entry], "it is looked for by the same words"
    assert entries(beside, by=ref) == []


# -- how anybody knows, and from where -------------------------------------------------------------


def test_beside_the_ledger_it_is_a_user_of_the_machine(beside: Service) -> None:
    cancelled(beside)
    (entry,) = entries(beside)
    assert entry.how.startswith("local user ") and entry.how != "local user "
    assert entry.origin == f"uid {os.geteuid()} on {os.uname().nodename}"


def test_over_the_network_it_is_a_token_and_an_address(ways: Ways) -> None:
    submit(ways.service)
    info, secret = ways.service.create_token(SYSTEM, "ann", ["approve"])
    ann = ways.by_token(secret)
    refused(lambda: ann.tokens(BOB))
    ann.cancel(BOB, "task-1")
    denied, done = entries(ways.service, by="ann")
    for entry in (denied, done):
        assert (entry.how, entry.origin) == (f"token {info.id}", "127.0.0.1")
    assert (denied.action, done.action) == ("manage_tokens", "cancel")
    assert entries(ways.service, by="bob") == [], "whoever the client says it is"


def test_a_worker_speaks_for_its_agent(ways: Ways) -> None:
    info, secret = ways.service.create_token(SYSTEM, "host", ["work:builder"])
    own = claimed(ways.service)
    other = claimed(ways.service, "task-2", "deployer")
    host = ways.by_token(secret)
    refused(lambda: host.approve(attempt_at(own), own.id))
    refused(lambda: host.task(access.attempt(other.id, 1, "builder"), other.id))
    first, second = entries(ways.service, outcome="refused")
    assert first.how == f"attempt task-1/1 by token {info.id}"
    assert (first.action, first.origin) == ("approve", "127.0.0.1")
    assert (second.who, second.kind, second.how) == ("host", "worker", f"token {info.id}")
    assert second.subject == "task-2"


def test_whoever_has_no_good_token_is_counted_by_address(ways: Ways) -> None:
    stranger = ways.by_token("agq_guessed")
    for _ in range(5):
        with pytest.raises(AgentqError) as caught:
            stranger.stats(ANN)
        assert caught.value.code == "bad_token"
    found = entries(ways.service)
    assert [(each.who, each.action, each.code, each.times) for each in found] == [
        ("", "login", "bad_token", 1), ("", "login", "bad_token", 4),
    ]  # fmt: skip
    assert {each.origin for each in found} == {"127.0.0.1"}
    assert "guessed" not in repr(found)


# -- looking ---------------------------------------------------------------------------------------


def test_filters_and_pages(service: Service) -> None:
    for number in range(5):
        submit(service, f"task-{number}")
        service.cancel(ANN if number % 2 else BOB, f"task-{number}")
    refused(lambda: service.approve(COORDINATOR, "task-3"))
    page = service.audit(ANN, limit=4)
    assert [each.subject for each in page.entries] == ["task-3", "task-4", "task-3", "task-2"]
    assert page.entries[0].outcome is AuditOutcome.REFUSED
    rest = service.audit(ANN, page.cursor, 4)
    assert [each.subject for each in rest.entries] == ["task-1", "task-0"]
    assert rest.cursor == 0
    assert len(entries(service, outcome="refused")) == 1
    assert len(entries(service, outcome="done")) == 5
    assert [each.subject for each in entries(service, by="ann")] == ["task-1", "task-3"]
    assert [each.action for each in entries(service, task="task-3")] == ["cancel", "approve"]
    assert len(entries(service, task="3")) == 2, "by the beginning of its id"
    assert entries(service, task="nowhere") == []
    assert entries(service, since_ms=service.now() + 60_000) == []
    assert len(entries(service, since_ms=page.entries[-1].at)) >= 4


def test_a_task_is_found_by_what_it_was_called(service: Service) -> None:
    """Also where somebody named it by a beginning, and where others begin with its whole id."""
    cancelled(service)
    assert service.prune(BOB, service.now()) == 1
    submit(service, "task-10")
    refused(lambda: service.requeue(WORKER, "10"))
    assert [each.subject for each in entries(service, outcome="refused")] == ["task-10"]
    assert [each.action for each in entries(service, task="task-1")] == ["cancel"]
    assert [each.action for each in entries(service, task="task-10")] == ["requeue"]


def test_what_no_page_can_be(service: Service) -> None:
    wrongs: list[dict[str, Any]] = [{"outcome": "maybe"}, {"limit": 0}, {"limit": 1001}]
    for wrong in wrongs:
        with pytest.raises(Invalid):
            service.audit(ANN, **wrong)


def test_only_people_look_and_the_system(service: Service) -> None:
    own = claimed(service)
    others = [COORDINATOR, WORKER, attempt_at(own, *access.GRANTABLE)]
    others += [principal_of_scopes("ann", [scope]) for scope in ("read", "approve", "submit")]
    for who in others:
        refused(lambda who=who: service.audit(who))  # type: ignore[misc]
    for who in (ANN, SYSTEM, principal_of_scopes("kim", ["admin"])):
        assert {each.action for each in service.audit(who).entries} == {"audit"}
