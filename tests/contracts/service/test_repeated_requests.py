"""A request that comes again under its key, to a server that knows nothing of the first.

The second server is another installation over the same ledger, as after a kill between the commit
and the answer: everything that it answers comes from there. What must come of it is what comes of a
case like it that is asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.routes import ROUTES
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM, Principal, RequestKey, attempt
from agentq.core.errors import AgentqError, Conflict, NotFound, Refused, Stale
from agentq.core.states import State
from agentq.core.task import Usage
from agentq.core.values import replace
from tests.contracts.service.conftest import open_way
from tests.contracts.service.people import ANN, BOB, LEASE_MS, claimed, submit
from tests.contracts.service.repeated import (
    CASES,
    NATURAL,
    REMEMBERED,
    Arguments,
    Case,
    plain_answer,
    seen,
)

Open = Callable[[], Service]


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])]
)
def open_service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Each call opens the same ledger anew."""
    opened = [open_way(request, str(request.param), tmp_path)]

    def open_again() -> Service:
        opened.append(open_way(request, str(request.param), tmp_path))
        return opened[-1].service

    yield open_again
    assert [found for _, found in opened[0].service.verify(SYSTEM) if found] == []
    for each in opened:
        each.close()


def under(key: str, who: Principal = ANN, digest: str = "what is asked") -> Principal:
    return replace(who, request=RequestKey(key, digest))


def asked(service: Service, case: Case, who: Principal, arguments: Arguments) -> object:
    """The answer, or the error that came instead."""
    method: Callable[..., Any] = getattr(service, case.call)
    try:
        return method(who, **arguments)
    except AgentqError as error:
        return error


def test_every_write_of_the_route_table_is_among_the_cases() -> None:
    writes = {route.call for route in ROUTES if route.method != "GET"}
    assert {case.call for case in CASES} == writes
    assert set(NATURAL) < writes


@pytest.mark.long
def test_no_write_acts_twice(open_service: Open) -> None:
    first, second = open_service(), open_service()
    for number, case in enumerate(CASES):
        once, twice = f"once-{number}", f"twice-{number}"
        alone = plain_answer(asked(first, case, under(once), case.prepare(first, once)), once)
        arguments = case.prepare(first, twice)
        answers = [asked(each, case, under(twice), arguments) for each in (first, second, second)]
        shown = [plain_answer(each, twice) for each in answers]
        assert seen(first, twice) == seen(first, once), case.name
        assert shown[0] == alone, case.name
        if case.why == REMEMBERED:
            assert shown[1:] == [alone, alone], case.name
        else:
            assert not any(isinstance(each, AgentqError) for each in answers), case.name


@pytest.mark.long
def test_without_its_key_it_would_act_twice(open_service: Open) -> None:
    """So that the cases show something: nothing else keeps these from it."""
    service, differ = open_service(), []
    for number, case in enumerate(CASES):
        if case.why != REMEMBERED:
            continue
        once, twice = f"once-{number}", f"twice-{number}"
        alone = plain_answer(asked(service, case, ANN, case.prepare(service, once)), once)
        arguments = case.prepare(service, twice)
        asked(service, case, ANN, arguments)
        answer = plain_answer(asked(service, case, ANN, arguments), twice)
        if answer != alone or seen(service, twice) != seen(service, once):
            differ.append(case.name)
    same = {case.name for case in CASES if case.why == REMEMBERED} - set(differ)
    # A report that was accepted is known by its words, as long as nothing else happens to the task.
    reports = {"complete_many", *(case.name for case in CASES if case.call == "complete")}
    # What is as asked for already stays so; a key tells it from somebody else's change in between.
    settled = {
        "stopped", "edit", "edit with a context", "hold", "dispatch", "mark_applied",
        "take_messages",
    }  # fmt: skip
    # The same words of the same author say nothing new.
    said = {"comment", "comment of a holder"}
    assert same == reports | settled | said


class TestKeys:
    def test_one_belongs_to_what_was_asked(self, open_service: Open) -> None:
        service = open_service()
        submit(service, "task-1")
        service.comment(under("a"), "task-1", "hello")
        for key in ("what else is asked", ""):
            with pytest.raises(Conflict) as refused:
                service.comment(under("a", digest=key), "task-1", "something else")
            assert refused.value.code == "key_reused"
        assert service.task(ANN, "task-1").version == 2

    def test_one_belongs_to_who_asks(self, open_service: Open) -> None:
        service = open_service()
        task = claimed(service)
        for who in (ANN, BOB, attempt(task.id, task.epoch, task.to)):
            service.comment(under("a", who), "task-1", "hello")
        by = [entry.event.kind for entry in service.history(ANN, "task-1")]
        assert by.count("commented") == 3

    def test_another_request_has_another_key(self, open_service: Open) -> None:
        service = open_service()
        submit(service, "task-1")
        for key in ("a", "b" * 500, "\u00e9 \\ '"):
            service.comment(under(key), "task-1", f"hello {key[:1]}")
        assert service.task(ANN, "task-1").version == 4

    def test_two_that_come_at_once_act_once(self, open_service: Open) -> None:
        """By two servers, as when the first is not quite dead: one waits for the other."""
        services = [open_service() for _ in range(4)]
        for number in range(5):
            task = claimed(services[0], f"task-{number}")
            with ThreadPoolExecutor(4) as threads:
                said = [
                    threads.submit(each.spend, under(task.id), task.id, 1, Usage(usd=1))
                    for each in services
                ]
                answers = [each.result() for each in said]
            assert {each.version for each in answers} == {3}
            assert services[0].task(ANN, task.id).details.spent.usd == 1


class TestAnswers:
    def test_the_task_is_shown_as_it_was(self, open_service: Open) -> None:
        service = open_service()
        task = claimed(service)
        first = service.fail(under("a"), task.id, task.epoch, "no luck")
        service.comment(BOB, task.id, "that was to be expected")
        service.cancel(BOB, task.id)
        assert service.fail(under("a"), task.id, task.epoch, "no luck") == first
        assert first.state is State.PENDING

    def test_a_report_counts_also_when_it_was_judged_since(self, open_service: Open) -> None:
        service = open_service()
        task = claimed(service, review=True)
        first = service.complete(under("a"), task.id, task.epoch, "well")
        service.reject(BOB, task.id, "tests", changes=True)
        assert service.complete(under("a"), task.id, task.epoch, "well") == first
        assert service.task(ANN, task.id).details.refused_reports == 0

    def test_what_was_refused_is_refused_again_and_written_once(self, open_service: Open) -> None:
        service = open_service()
        task = claimed(service)
        service.release(ANN, task.id, task.epoch)
        errors = []
        for _ in range(2):
            with pytest.raises(Stale) as refused:
                service.complete(under("a"), task.id, task.epoch, "too late")
            errors.append((type(refused.value), str(refused.value), refused.value.code))
        assert errors[0] == errors[1]
        assert service.task(ANN, task.id).details.refused_reports == 1

    def test_nobody_is_told_to_hold_what_is_lost(self, open_service: Open) -> None:
        service = open_service()
        submit(service, "task-1")
        submit(service, "task-2")
        (task,) = service.claim(under("a"), "builder", 1, "host:1", LEASE_MS)
        one = service.claim_task(under("b"), "task-2", "host:1", LEASE_MS)
        assert service.claim(under("a"), "builder", 1, "host:1", LEASE_MS) == [task]
        assert service.claim_task(under("b"), "task-2", "host:1", LEASE_MS) == one
        service.release(ANN, task.id, task.epoch)
        service.release(ANN, one.id, one.epoch)
        service.claim_task(BOB, one.id, "host:2", LEASE_MS)
        assert service.claim(under("a"), "builder", 1, "host:1", LEASE_MS) == []
        with pytest.raises(Stale, match="over by now"):
            service.claim_task(under("b"), "task-2", "host:1", LEASE_MS)

    def test_a_task_that_is_gone(self, open_service: Open) -> None:
        service = open_service()
        submit(service, "task-1")
        submit(service, "task-10")
        service.cancel(under("a"), "task-1", "no need")
        service.prune(ANN, service.now() + 1)
        with pytest.raises(NotFound, match="pruned since"):
            service.cancel(under("a"), "task-1", "no need")

    @pytest.mark.parametrize(
        "name", ["complete_and_claim", "complete_many", "stopped", "reject for changes"]
    )
    def test_of_every_shape(self, open_service: Open, name: str) -> None:
        service, case = open_service(), next(case for case in CASES if case.name == name)
        arguments = case.prepare(service, "task-1")
        first = asked(service, case, under("a"), arguments)
        assert not isinstance(first, AgentqError)
        assert asked(service, case, under("a"), arguments) == first

    def test_what_was_never_done_is_refused(self, open_service: Open) -> None:
        service = open_service()
        submit(service, "task-1")
        for _ in range(2):
            with pytest.raises(Refused):
                service.reject(under("a"), "task-1", changes=True)

    def test_nothing_came_of_it(self, open_service: Open) -> None:
        """What changed nothing may be asked again, and may change something then."""
        service = open_service()
        assert service.claim(under("a"), "builder", 1, "host:1", LEASE_MS) == []
        submit(service, "task-1")
        assert len(service.claim(under("a"), "builder", 1, "host:1", LEASE_MS)) == 1
        assert len(service.claim(under("a"), "builder", 1, "host:1", LEASE_MS)) == 1

    def test_a_refusal_that_is_none_is_not_in_the_audit_log(self, open_service: Open) -> None:
        service = open_service()
        submit(service, "task-1", requires_approval=True)
        for _ in range(3):
            service.approve(under("a"), "task-1")
        entries = service.audit(ANN, task="task-1").entries
        assert [(each.action, each.outcome) for each in entries] == [("approve", "done")]


class TestTokens:
    def test_a_lost_secret_opens_nothing(self, open_service: Open) -> None:
        service = open_service()
        secrets = [service.create_token(under("a"), "bob", ["read"])[1] for _ in range(3)]
        assert len(set(secrets)) == 3
        found = [service.principal_of_token(each) for each in secrets]
        assert [each is None for each in found] == [True, True, False]
        noted = [each.detail for each in service.audit(ANN).entries]
        assert [each.split(";")[0].split(" ")[0] for each in noted] == [
            "revoked", "made", "revoked", "made", "made",
        ]  # fmt: skip

    def test_one_that_was_revoked_meanwhile_stays_as_it_was(self, open_service: Open) -> None:
        service = open_service()
        first, _ = service.create_token(under("a"), "bob", ["read"])
        service.revoke_token(BOB, first.id)
        service.create_token(under("a"), "bob", ["read"])
        revoked = [each.revoked_by for each in service.tokens(ANN)]
        assert revoked == ["bob", ""]
