"""Who may do what: every cell of the access table, written down a second time and compared."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from agentq.core import access
from agentq.core.access import (
    ALL,
    GRANTABLE,
    SYSTEM,
    TABLE,
    Action,
    Principal,
    PrincipalKind,
    Relation,
    allowed,
    check,
    parse_grants,
)
from agentq.core.errors import Invalid, Refused
from agentq.core.values import replace
from tests.core.building import submitted

ANY = "own descendant tree input unknown role none"
#: action -> (attempt, worker, coordinator): the relations in which each may; people and the system
#: always may, but that people write no worker's records. Written by hand from what was promised,
#: not derived from the table.
EXPECTED: dict[str, tuple[str, str, str]] = {
    "read": ("own descendant tree input", ANY, ANY),
    "submit": ("own", "own", ANY),
    "tick": (ANY, ANY, ANY),
    "claim": ("", "role", ""),
    "renew": ("", "own", ""),
    "progress": ("own", "own", ""),
    "put_artifact": ("own", "own", ""),
    "spend": ("", "own", ""),
    "comment": ("own", "own", ANY),
    "complete": ("own", "own", ""),
    "attest": ("", "own", ""),
    "record": ("", "own", ""),
    "fail": ("own", "own", ""),
    "block": ("own", "own", ""),
    "release": ("own", "own", ""),
    "yield": ("own", "own", ""),
    "stop": ("", "own", ""),
    "approve": ("", "", ""),
    "reject": ("", "", ANY),
    "verdict": ("", "", ANY),
    "answer": ("", "", ANY),
    "cancel": ("descendant", "", ANY),
    "requeue": ("", "", ANY),
    "apply": ("", "", ANY),
    "edit": ("", "", ANY),
    "hold": ("", "", ANY),
    "dispatch": ("", "", ANY),
    "tell": ("", "", ANY),
    "signal": ("descendant", "", ANY),
    "receive": ("", "own", ""),
    "raise_budget": ("", "", ""),
    "set_limits": ("", "", ""),
    "open_circuit": ("", ANY, ""),
    "close_circuit": ("", "", ""),
    "check_role": ("", "role", ""),
    "prune": ("", "", ""),
    "move": ("", "", ""),
    "operate": ("", "", ""),
    "schedule": ("", "", ""),
    "manage_tokens": ("", "", ""),
    "audit": ("", "", ""),
}
WHO: dict[PrincipalKind, Principal] = {
    PrincipalKind.PERSON: access.person("ann"),
    PrincipalKind.ATTEMPT: access.attempt("task-1", 2, "builder"),
    PrincipalKind.WORKER: access.worker("host:1", "builder"),
    PrincipalKind.COORDINATOR: access.coordinator(),
    PrincipalKind.SYSTEM: SYSTEM,
}
COLUMNS = (PrincipalKind.ATTEMPT, PrincipalKind.WORKER, PrincipalKind.COORDINATOR)


def expected(kind: PrincipalKind, action: Action) -> frozenset[Relation]:
    if kind not in COLUMNS:
        is_record = (kind, action) == (PrincipalKind.PERSON, Action.RECORD)
        return frozenset() if is_record else ALL
    return frozenset(map(Relation, EXPECTED[action][COLUMNS.index(kind)].split()))


def test_the_expectation_names_every_action() -> None:
    assert set(EXPECTED) == set(Action)


@pytest.mark.parametrize(("kind", "action"), list(product(PrincipalKind, Action)))
def test_every_cell(kind: PrincipalKind, action: Action) -> None:
    who, may = WHO[kind], expected(kind, action)
    assert allowed(who, action) == may
    for relation in Relation:
        if relation in may:
            check(who, action, relation, "task-9")
            continue
        with pytest.raises(Refused) as caught:
            check(who, action, relation, "task-9")
        error = caught.value
        assert error.code == "not_permitted"
        assert error.exit_status == 4
        assert error.cause.endswith("Nothing was changed.")
        assert error.remedy


def test_the_table_has_no_empty_cells_and_no_unknown_ones() -> None:
    assert all(relations for relations in TABLE.values())
    assert set(TABLE) <= set(product(PrincipalKind, Action))


# -- grants ----------------------------------------------------------------------------------------

DECISIONS = ("approve", "reject", "verdict", "answer", "cancel", "requeue", "apply")
OWN_TREE = (Relation.OWN, Relation.DESCENDANT, Relation.TREE, Relation.UNKNOWN)


@pytest.mark.parametrize("action", GRANTABLE)
def test_a_grant_adds_to_what_an_attempt_may(action: Action) -> None:
    plain, granted = WHO[PrincipalKind.ATTEMPT], access.attempt("task-1", 2, "builder", [action])
    assert allowed(granted, action) == allowed(plain, action) | GRANTABLE[action]
    assert all(allowed(granted, each) == allowed(plain, each) for each in Action if each != action)
    check(granted, action, Relation.NONE, "task-9")


@pytest.mark.parametrize(("action", "relation"), list(product(DECISIONS, OWN_TREE)))
def test_no_grant_reaches_ones_own_tree(action: str, relation: Relation) -> None:
    """But for cancelling descendants, which every attempt may."""
    granted = access.attempt("task-1", 2, "builder", Action)
    if (action, relation) == ("cancel", Relation.DESCENDANT):
        check(granted, Action(action), relation, "task-9")
        return
    with pytest.raises(Refused) as caught:
        check(granted, Action(action), relation, "task-9")
    if Action(action) in GRANTABLE:
        assert "their own attempt" in caught.value.cause


def test_what_is_never_granted() -> None:
    """Even a principal that carries such a grant, however it came by it, gains nothing."""
    for kind in (access.attempt("task-1", 2, "builder", Action), access.coordinator("c", Action)):
        for action in set(Action) - set(GRANTABLE):
            assert allowed(kind, action) == TABLE.get((kind.kind, action), frozenset())


def test_grants_are_read_from_words() -> None:
    assert parse_grants(["cancel", "answer"], "[roles.x]") == {Action.CANCEL, Action.ANSWER}
    assert parse_grants([], "[roles.x]") == frozenset()


@pytest.mark.parametrize("word", ["fly", "", 5, None, "Cancel"])
def test_an_unknown_word_grants_nothing(word: object) -> None:
    with pytest.raises(Invalid, match="unknown word") as caught:
        parse_grants([word], "[roles.x] in agentq.toml")
    assert "[roles.x] in agentq.toml" in caught.value.cause
    assert "cancel" in caught.value.remedy


@pytest.mark.parametrize("action", sorted(set(Action) - set(GRANTABLE)))
def test_some_words_are_refused_as_grants(action: Action) -> None:
    with pytest.raises(Invalid, match="never granted"):
        parse_grants([str(action)], "[roles.x]")


def test_a_refused_attempt_is_told_what_can_be_granted() -> None:
    who = WHO[PrincipalKind.ATTEMPT]
    assert 'may = ["cancel"] under [roles.builder]' in access.refusal(
        who, Action.CANCEL, "task-9"
    ).remedy  # fmt: skip
    assert "may =" not in access.refusal(who, Action.PRUNE).remedy
    nameless = access.attempt("task-1", 2)
    assert "may =" not in access.refusal(nameless, Action.CANCEL).remedy


# -- principals ------------------------------------------------------------------------------------


def test_the_log_tells_a_token_from_a_stated_name() -> None:
    assert access.person("ann").how == "stated"
    assert access.person("ann", "token").how == "token"
    assert access.attempt("task-1", 2, "builder").how == "attempt task-1/2"
    assert access.worker("host:1").how == "worker"
    assert access.coordinator().how == "coordinator"
    assert SYSTEM.how == "system"


def test_only_a_person_without_a_token_chooses_a_name() -> None:
    assert access.person("ann").called("bob") == access.person("bob")
    shown = access.person("ann", "token")
    assert shown.called("bob") is shown
    for kind in (*COLUMNS, PrincipalKind.SYSTEM):
        assert WHO[kind].called("bob") is WHO[kind]


def test_an_attempt_is_named_by_its_role() -> None:
    assert access.attempt("task-1", 2, "builder").name == "builder"
    assert access.attempt("task-1", 2).name == "task-1"


# -- one's own -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fields", "four_eyes", "may"),
    [
        ("ann", {"sender": "ann"}, False, True),
        ("ann", {"sender": "ann"}, True, False),
        ("bob", {"sender": "ann"}, False, False),
        ("ann", {"sender": "ann", "parent": "task-0"}, False, False),
        ("coordinator", {"sender": "coordinator"}, False, False),
        ("builder", {"sender": "builder"}, False, False),
    ],
)
def test_when_a_person_may_approve_what_they_submitted(
    name: str, fields: dict[str, Any], four_eyes: bool, may: bool
) -> None:
    task = submitted(requires_approval=True, **fields)
    assert access.approves_own(name, task, {"builder"}, four_eyes=four_eyes) is may


def test_whoever_is_refused_is_named_as_what_they_are() -> None:
    attempt = access.refusal(access.attempt("task-1", 2, "builder"), Action.APPROVE, "task-2")
    assert attempt.cause.startswith("Attempt 2 of task-1 ")
    coordinator = access.refusal(access.coordinator("planner"), Action.APPROVE, "task-2")
    assert coordinator.cause.startswith("Coordinator planner ")


def test_a_coordinator_may_be_granted_more() -> None:
    granted = next(iter(GRANTABLE))
    plain, trusted = access.coordinator("c"), access.coordinator("c", [granted])
    assert (plain.grants, trusted.grants) == (frozenset(), frozenset({granted}))
    assert GRANTABLE[granted] <= allowed(trusted, granted)


def test_whoever_asks_for_an_attempt_is_that_attempt_and_no_more() -> None:
    grants = [Action.CANCEL, Action.READ]
    worker = access.on_behalf(access.worker("w1", "builder"), "task-1", 2, "builder", grants)
    # A worker may not cancel, so neither may its agent, whatever it says its role was granted.
    assert worker == access.attempt("task-1", 2, "builder", [Action.READ])
    person = access.on_behalf(access.person("ann"), "task-1", 2, "builder", grants)
    assert person == access.attempt("task-1", 2, "builder", grants)
    other = access.attempt("task-9", 1, "builder")
    assert access.on_behalf(other, "task-1", 2, "builder", grants) is other
    for who in (access.worker("w1", "tester"), access.coordinator("c")):
        with pytest.raises(Refused) as said:
            access.on_behalf(who, "task-1", 2, "builder")
        assert said.value.code == "not_permitted"


def test_a_key_that_stands_for_another_request_is_named_by_its_code() -> None:
    assert access.key_reused().code == "key_reused"


def test_a_run_of_ones_own_is_named_by_its_code() -> None:
    assert access.own_run_refusal("ann", "task-1", "run-1").code == "self_approval"


def test_the_same_principal_with_another_token_is_the_same() -> None:
    assert replace(access.person("ann"), token_id="t1") == access.person("ann")


def test_an_agent_is_told_who_renews_and_only_then() -> None:
    agent = access.attempt("task-1", 1, "builder")
    for action in (Action.RENEW, Action.APPROVE):
        with pytest.raises(Refused) as said:
            check(agent, action, Relation.OWN)
        assert ("its worker does" in said.value.cause) is (action is Action.RENEW)
