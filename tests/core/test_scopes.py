"""Scopes of tokens: every scope against every action, written down a second time and compared."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from agentq.core import access
from agentq.core.access import (
    ALL,
    ROLE_BOUND,
    TABLE,
    Action,
    Principal,
    PrincipalKind,
    Relation,
    allowed,
    is_of_role,
    refusal,
)
from agentq.core.errors import Invalid
from agentq.core.scopes import SCOPES, principal_of_scopes

CUSTODY = "renew progress put_artifact spend comment complete fail block release yield stop receive"
GOING = "signal hold dispatch"
#: scope -> (kind, actions). Written by hand from what was promised, not derived from the table.
EXPECTED: dict[str, tuple[str, str]] = {
    "read": ("person", "read tick"),
    "submit": (
        "coordinator",
        f"read submit tick comment reject verdict answer cancel requeue apply edit tell {GOING}",
    ),
    "work": ("worker", f"read submit tick claim attest record open_circuit check_role {CUSTODY}"),
    "approve": (
        "person",
        f"read tick comment approve reject verdict answer cancel requeue apply tell {GOING}",
    ),
    "admin": ("person", " ".join(Action)),
}
ONLY_ROLE = frozenset({Relation.ROLE})


def test_the_expectation_names_every_scope() -> None:
    assert set(EXPECTED) == set(SCOPES)


@pytest.mark.parametrize(("scope", "action"), list(product(SCOPES, Action)))
def test_every_cell(scope: str, action: Action) -> None:
    """One that is allowed is allowed as far as the table goes, and no further."""
    kind, actions = EXPECTED[scope]
    who = principal_of_scopes("ann", [scope])
    assert (who.kind, who.name, who.proof) == (kind, "ann", "token")
    may = TABLE.get((who.kind, action), frozenset()) if action in actions.split() else frozenset()
    assert allowed(who, action) == may
    assert (action in SCOPES[scope].actions) is bool(may)


@pytest.mark.parametrize(("scopes", "action"), list(product(combinations(SCOPES, 2), Action)))
def test_what_two_scopes_allow_is_what_each_allows(scopes: tuple[str, str], action: Action) -> None:
    if "work" in scopes and set(scopes) != {"work", "read"}:
        with pytest.raises(Invalid, match="does not go together"):
            principal_of_scopes("ann", scopes)
        return
    both = principal_of_scopes("ann", scopes)
    each = [allowed(principal_of_scopes("ann", [scope]), action) for scope in scopes]
    assert allowed(both, action) == each[0] | each[1]


def test_who_may_submit_and_approve_is_a_person() -> None:
    assert principal_of_scopes("ann", ["submit", "approve"]).kind is PrincipalKind.PERSON
    assert principal_of_scopes("ann", ["submit", "read"]).kind is PrincipalKind.COORDINATOR
    assert principal_of_scopes("ann", ["read", "work:builder"]) == Principal(
        PrincipalKind.WORKER, "ann", "builder", proof="token"
    )


def test_an_administrator_is_not_restricted() -> None:
    for scopes in (["admin"], ["admin", "submit:builder", "read"]):
        assert principal_of_scopes("ann", scopes) == access.person("ann", "token")


# -- roles -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", Action)
def test_a_coordinator_of_a_role_is_bound_to_it(action: Action) -> None:
    """It reads everything; whatever it changes is of that role."""
    who = principal_of_scopes("ci", ["submit:builder"])
    plain = allowed(principal_of_scopes("ci", ["submit"]), action)
    if action in ("read", "tick"):
        assert allowed(who, action) == plain == ALL
    else:
        assert allowed(who, action) == plain & ONLY_ROLE
    assert is_of_role(who, "builder")
    assert not is_of_role(who, "deployer")


@pytest.mark.parametrize("action", Action)
def test_a_person_who_may_submit_for_a_role_decides_about_all(action: Action) -> None:
    who = principal_of_scopes("ann", ["submit:builder", "approve"])
    plain = allowed(principal_of_scopes("ann", ["submit", "approve"]), action)
    assert allowed(who, action) == (ONLY_ROLE if action in ("submit", "edit") else plain)


def test_several_roles_add_up() -> None:
    who = principal_of_scopes("ci", ["submit:builder", "submit:tester", "submit:builder"])
    assert who.roles == {"builder", "tester"}
    assert is_of_role(who, "builder")
    assert is_of_role(who, "tester")
    assert principal_of_scopes("ci", ["submit:builder", "submit"]).roles == frozenset()


def test_only_some_kinds_are_bound_to_roles() -> None:
    """However another came by roles, they change nothing for it."""
    assert set(ROLE_BOUND) == {PrincipalKind.PERSON, PrincipalKind.COORDINATOR}
    worker = Principal(PrincipalKind.WORKER, "host:1", "builder", roles=frozenset({"tester"}))
    assert allowed(worker, Action.RENEW) == {Relation.OWN}


def test_a_worker_works_for_one_role_or_any() -> None:
    assert is_of_role(principal_of_scopes("w", ["work"]), "anything")
    builder = principal_of_scopes("w", ["work:builder", "work:builder"])
    assert is_of_role(builder, "builder")
    assert not is_of_role(builder, "tester")
    for scopes in (["work:builder", "work:tester"], ["work", "work:tester"]):
        with pytest.raises(Invalid, match="one role or for any"):
            principal_of_scopes("w", scopes)


# -- what makes no sense ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "cause"),
    [
        ("fly", "no scope 'fly'"),
        ("", "no scope ''"),
        ("Read", "no scope 'Read'"),
        (" read", "no scope ' read'"),
        ("read:builder", "takes no role"),
        ("approve:", "takes no role"),
        ("admin:x", "takes no role"),
        ("submit:", "no good role"),
        ("work: builder", "no good role"),
        ("work:two words", "no good role"),
        ("submit::x", "no good role"),
    ],
)
def test_a_scope_that_means_nothing_is_refused(scope: str, cause: str) -> None:
    with pytest.raises(Invalid, match=cause) as caught:
        principal_of_scopes("ann", ["read", scope])
    assert "read, submit[:role], work[:role], approve, admin" in caught.value.remedy


def test_no_scope_is_no_token() -> None:
    with pytest.raises(Invalid, match="needs a scope"):
        principal_of_scopes("ann", [])


# -- refusals --------------------------------------------------------------------------------------


def test_a_refusal_says_what_the_token_is_for() -> None:
    reader = refusal(principal_of_scopes("ann", ["read"]), Action.CANCEL, "task-1")
    assert reader.cause == (
        "Person ann may not cancel task-1: its token allows no more than read, tick."
        " Nothing was changed."
    )
    bound = refusal(principal_of_scopes("ci", ["submit:builder"]), Action.SUBMIT, "deployer")
    assert bound.cause == (
        "Coordinator ci may not submit tasks for deployer: its token is for builder, and for no"
        " other role. Nothing was changed."
    )
    assert "agentq token create" in reader.remedy
    assert "agentq token create" in bound.remedy
    never = refusal(principal_of_scopes("ci", ["submit:builder"]), Action.PRUNE)
    assert "a coordinator submits" in never.cause
    assert never.remedy == "A person can."
