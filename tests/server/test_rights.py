"""The server lets through what the access table allows, and nothing else: the whole matrix.

Every route is asked by everybody about every kind of task (see `rights` and `askers`). Where the
table says no, the answer is 403 (or 401 for whoever is nobody), and nothing has changed. Where the
table judges several cells alike, they share the askers here (`tried_by`); `make fuzz` tries all.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from agentq.contracts.routes import ATTEMPT_CALLS, BY_CALL
from agentq.contracts.service_values import Wanted
from agentq.core.access import SYSTEM, Action, PrincipalKind, Relation
from agentq.core.states import State
from agentq.core.task import Spec
from agentq.ledger.service_queries import QueryService
from agentq.server import streams
from tests.conftest import SEED
from tests.eventually import eventually
from tests.server.askers import SCOPES, Answered, Asker, Gate, open_gate
from tests.server.rights import (
    BUILDER,
    CASES,
    ENDING,
    Case,
    Family,
    Target,
    family,
    is_let_through,
    request_for,
    targets_of,
)
from tests.tiers import made_up

#: How many cells `make test` tries; `make test-long` tries the matrix.
SAMPLE = 500


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with open_gate(tmp_path) as made:
        yield made


class Cell(NamedTuple):
    asker: Asker
    case: Case
    target: Target

    def __str__(self) -> str:
        return f"{self.asker.name}: {self.case.name} about {self.target.id}/{self.target.epoch}"


def test_every_route_has_its_cases() -> None:
    """A route that is new must say here what of the table it stands for."""
    assert {case.call for case in CASES} == set(BY_CALL)
    judged = {action for case in CASES for action in case.actions}
    assert judged == set(Action) - {Action.MOVE}, "an installation is moved beside its ledger"


def cells_of(asker: Asker, made: Family) -> list[Cell]:
    return [Cell(asker, case, target) for case in CASES for target in targets_of(case, made)]


def shall_pass(cell: Cell, made: Family) -> bool:
    asker = cell.asker
    return asker.who is not None and is_let_through(
        asker.who, cell.case, made, cell.target, at_attempt_api=asker.at_attempt_api
    )


def ledger_as_it_is(made: Family) -> object:
    """All that a request may change. Leases are among it, which leave no event."""
    service = made.service
    return (
        service.last_position(SYSTEM), service.list_tasks(SYSTEM, Wanted(limit=1000)),
        service.tokens(SYSTEM), service.limits(SYSTEM), service.circuits(SYSTEM),
        service.lanes(SYSTEM), service.task_files(SYSTEM, limit=10_000),
    )  # fmt: skip


def check_refused(cells: Sequence[Cell], made: Family) -> None:
    """None of these is let through, and the ledger stays as it is."""
    before, position = ledger_as_it_is(made), made.service.last_position(SYSTEM)
    for cell in cells:
        found = ask(cell, made)
        status = cell.asker.status if cell.asker.who is None else 403
        if found.code == "reserved_name":
            status = 409
        assert found.status == status and found.is_refusal, f"{cell}: {found}"
        assert made.service.last_position(SYSTEM) == position, f"{cell} changed something"
    assert ledger_as_it_is(made) == before


def check_let_through(cells: Sequence[Cell], made: Family) -> set[str]:
    """Each of these is judged by what its task is, not by who asks; the cases that were done."""
    done = set()
    for cell in cells:
        # What was decided before may have changed whom it takes.
        expected = shall_pass(cell, made)
        found = ask(cell, made)
        assert found.is_refusal != expected, f"{cell}: {found}"
        assert found.status < 500 and found.code != "unknown_field", f"{cell}: {found}"
        if found.status < 300:
            done.add(cell.case.name)
    return done


def ask(cell: Cell, made: Family) -> Answered:
    return cell.asker.ask(request_for(cell.case, made, cell.target))


def test_a_sample_of_the_matrix(gate: Gate) -> None:
    made = family(gate.service, "s-")
    gate.service.create_token(SYSTEM, "spare", ["read"])
    cells = [cell for asker in gate.everybody(made) for cell in cells_of(asker, made)]
    check_both(random.Random(SEED).sample(cells, SAMPLE), made)


LEAVING_ALL_AS_IT_IS = ("tell", "signal", "take_messages", "dispatch")


#: Tokens of several scopes may what those of each may.
TOGETHER = {" ".join(scopes) for scopes in SCOPES if len(scopes) > 1}


def tried_by(number: int, askers: Sequence[Asker], made: Family) -> list[Cell]:
    """What the asker of this number tries: cells that the table judges alike are shared out."""
    asker = askers[number]
    if made_up(1) > 1:
        return cells_of(asker, made)
    # An attempt is the same whichever token carries its requests: each carries some cases.
    same = [at for at, each in enumerate(askers) if is_same(each, asker)]
    cases = [*enumerate(CASES, number)][same.index(number) :: len(same)]
    cells = [
        (place, Cell(asker, case, target))
        for turn, case in cases
        for place, target in enumerate(targets_of(case, made), turn)
    ]
    return [cell for place, cell in cells if place % shares(cell) == 0]


def is_same(one: Asker, other: Asker) -> bool:
    return (one.who, one.at_attempt_api) == (other.who, other.at_attempt_api)


def shares(cell: Cell) -> int:
    """For how many tasks, or askers, one stands."""
    asker, case = cell.asker, cell.case
    about_a_task = case.about in ("task", "holder")
    if asker.at_attempt_api:
        # What it does not answer at all, it answers about no task.
        return 8 if about_a_task and case.call not in ATTEMPT_CALLS else 1
    if asker.name == "admin" or (asker.who and asker.who.kind is PrincipalKind.ATTEMPT):
        return 1  # who may do all of it, does
    # How a task is related to some attempt is nothing to a token.
    related = about_a_task and cell.target.kin is not Relation.NONE
    return (3 if asker.name in TOGETHER else 1) * (3 if related else 1)


@pytest.mark.long
@pytest.mark.fuzz
def test_the_whole_matrix_for_whoever_is_let_in(gate: Gate) -> None:
    gate.service.create_token(SYSTEM, "spare", ["read"])
    done: set[str] = set()
    for number in range(len(welcome(gate, family(gate.service, "n-")))):
        # A family of their own, as whoever may do much leaves little as it was.
        made = family(gate.service, f"m{number}-")
        cells = tried_by(number, welcome(gate, made), made)
        check_refused([cell for cell in cells if not shall_pass(cell, made)], made)
        passing = [cell for cell in cells if shall_pass(cell, made)]
        random.Random(number).shuffle(passing)
        passing.sort(key=lambda cell: turn_of(cell, made))
        done |= check_let_through(passing, made)
    assert {case.name for case in CASES} - done == set(), "nobody ever did it"


#: What few may do, and the task that it is asked about before anything has become of that.
FRESH = {
    "claim_task": "stranger-ready",
    "complete as verified": "sibling-held",
    "interrupt": "stranger-held",
}


def turn_of(cell: Cell, made: Family) -> tuple[int, ...]:
    """What must be asked before other things, which would leave nothing to ask about."""
    case = cell.case
    is_fresh = case.name in FRESH and cell.target == made.targets[FRESH[case.name]]
    return (
        [*FRESH].index(case.name) if is_fresh else len(FRESH),
        # What changes nothing for others comes first, what ends attempts last;
        case.call not in LEAVING_ALL_AS_IT_IS,
        case.call in ENDING,
        # to answer with money before to answer, to sign a seal when there is one.
        case.label != "with money",
        case.call == "sign_seal",
    )


def welcome(gate: Gate, made: Family) -> list[Asker]:
    return [*gate.holders_of_tokens(), *gate.attempts(made)]


@pytest.mark.long
def test_the_whole_matrix_for_whoever_is_not(gate: Gate) -> None:
    """The task makes no difference to them, so three stand for all, each with a third of the cases:
    other thirds for the next who asks."""
    made = family(gate.service, "x-")
    few = [made.own, made.targets["grandchild-waits"], made.targets["foreign-held"]]
    for number, asker in enumerate(gate.strangers(made)):
        targets = itertools.cycle([*few[number % 3 :], *few[: number % 3]])
        check_refused([Cell(asker, case, next(targets)) for case in CASES], made)


#: Small wrongs in the checks of the service; the matrix must find each.
HOLES = {
    "_check": lambda self, *_, **__: None,
    "_check_attempts": lambda self, *_, **__: None,
    "_check_task": lambda self, *_, **__: None,
    "_of_other_roles": lambda self, who, ids: set(),
    "_kinship": lambda self, who, task: None,
}


@pytest.mark.long
@pytest.mark.parametrize("hole", HOLES)
def test_the_matrix_finds_a_hole(gate: Gate, hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = family(gate.service, "h-")
    monkeypatch.setattr(QueryService, hole, HOLES[hole])
    cells = [cell for asker in welcome(gate, made) for cell in cells_of(asker, made)]
    random.Random(SEED).shuffle(cells)
    with pytest.raises(AssertionError):
        check_both(cells, made)


def check_both(cells: Sequence[Cell], made: Family) -> None:
    check_refused([cell for cell in cells if not shall_pass(cell, made)], made)
    check_let_through([cell for cell in cells if shall_pass(cell, made)], made)


# -- tokens that end while their request waits -----------------------------------------------------


def test_a_stream_ends_with_its_token(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "TRUST_SECONDS", 0.0)
    info, token = gate.service.create_token(SYSTEM, "reader", ["read"])
    connection = gate.connection()
    headers = {"authorization": f"Bearer {token}", "accept": "text/event-stream"}
    connection.request("GET", "/api/v1/events?position=0", headers=headers)
    answer = connection.getresponse()
    assert answer.readline() == b"retry: 1000\n"
    gate.service.revoke_token(SYSTEM, info.id)
    family(gate.service, "secret-")
    assert b"secret-" not in answer.read(), "to its end, which has come"


def test_a_worker_that_waits_claims_nothing_once_its_token_is_revoked(gate: Gate) -> None:
    info, token = gate.service.create_token(SYSTEM, "host", ["work:builder"])
    body = json.dumps({"role": BUILDER, "count": 1, "holder": "me", "wait_seconds": 50}).encode()
    connection = gate.connection()
    headers = {"authorization": f"Bearer {token}"}
    connection.request("POST", "/api/v1/claims", body, headers)
    # It waits once it has asked for the first time, which the role remembers.
    eventually(lambda: any(each.seen_at for each in gate.service.roles(SYSTEM)))
    gate.service.revoke_token(SYSTEM, info.id)
    gate.service.submit(SYSTEM, [Spec("task-1", BUILDER, instructions="x")])
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b'{"value":[]}')
    assert gate.service.task(SYSTEM, "task-1").state is State.READY
