"""Tokens: made once and shown once, good until they end, and managed by people alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from agentq.contracts.service import Service
from agentq.core.access import GRANTABLE, SYSTEM, Action, Principal, allowed
from agentq.core.errors import AgentqError, Conflict, Invalid, NotFound, Refused
from agentq.core.scopes import principal_of_scopes
from agentq.core.states import State
from agentq.core.values import replace
from tests.contracts.service.conftest import Ways
from tests.contracts.service.people import (
    ANN,
    BOB,
    COORDINATOR,
    WORKER,
    attempt_at,
    claimed,
    spec,
    submit,
)
from tests.contracts.service.test_scopes import EXPECTED, check_scopes
from tests.eventually import eventually

LONG_POSTGRES = pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])
DAY_MS = 86_400_000


def refused(call: Callable[[], Any], code: str = "not_permitted") -> AgentqError:
    with pytest.raises(AgentqError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def make(service: Service, name: str, *scopes: str, lifetime_ms: int = 0) -> str:
    return service.create_token(SYSTEM, name, scopes, lifetime_ms)[1]


# -- a token's life --------------------------------------------------------------------------------


def test_it_is_shown_once_and_says_who_asks(ways: Ways) -> None:
    info, secret = ways.service.create_token(ANN, "ci@host", ["submit:builder", "read"])
    assert re.fullmatch(r"agq_[A-Za-z0-9_-]{43}", secret)
    assert (info.name, info.created_by) == ("ci@host", "ann")
    assert info.scopes == ("read", "submit:builder")
    assert (info.expires_at, info.revoked_at, info.revoked_by) == (0, 0, "")
    assert 0 < info.created_at <= ways.service.now()
    assert ways.service.tokens(ANN) == [info]
    shown = repr(ways.service.tokens(ANN))
    assert secret not in shown
    assert hashlib.sha256(secret.encode()).hexdigest() not in shown
    who = principal_of_scopes("ci@host", ["submit:builder", "read"])
    assert ways.beside.principal_of_token(secret) == who
    assert who.proof == "token"


def test_no_two_are_alike(ways: Ways) -> None:
    made = [ways.service.create_token(ANN, "ann", ["read"]) for _ in range(20)]
    assert len({secret for _, secret in made}) == 20
    assert [info.id for info in ways.service.tokens(ANN)] != []
    assert {info.id for info in ways.service.tokens(ANN)} == {info.id for info, _ in made}


UNKNOWN = ["", "agq_", "agq_" + "A" * 43, "ann", "é\ud800", "x" * 100_000, "%", "tok-1"]


def test_an_unknown_one_is_nobodys(ways: Ways) -> None:
    info, secret = ways.service.create_token(ANN, "ann", ["admin"])
    digest = hashlib.sha256(secret.encode()).hexdigest()
    close = [info.id, digest, secret + "x", secret[:-1], secret.upper(), f" {secret}", secret[4:]]
    for shown in (*UNKNOWN, *close):
        assert ways.beside.principal_of_token(shown) is None
    refused(lambda: ways.by_token(secret[:-1]).tokens(ANN), "bad_token")


def test_it_expires_by_the_ledgers_clock(ways: Ways) -> None:
    long, later = ways.service.create_token(ANN, "ann", ["read"], 90 * DAY_MS)
    assert long.expires_at == long.created_at + 90 * DAY_MS
    assert ways.beside.principal_of_token(later) is not None
    short, soon = ways.service.create_token(ANN, "ann", ["read"], 1)
    eventually(lambda: ways.service.now() > short.expires_at, what="a millisecond to pass")
    assert ways.beside.principal_of_token(soon) is None
    assert not short.is_good(short.expires_at)
    assert short.is_good(short.expires_at - 1)
    refused(lambda: ways.by_token(soon).task(ANN, "task-1"), "bad_token")


def test_a_revoked_one_is_nobodys_from_then_on(ways: Ways) -> None:
    info, secret = ways.service.create_token(ANN, "ci", ["admin"])
    client = ways.by_token(secret)
    assert client.tokens(ANN) == [info]
    revoked = ways.service.revoke_token(BOB, info.id)
    assert (revoked.revoked_by, revoked.revoked_at >= info.created_at) == ("bob", True)
    assert ways.beside.principal_of_token(secret) is None
    refused(lambda: client.tokens(ANN), "bad_token")
    # Again changes nothing: the first who did it stands.
    assert ways.service.revoke_token(ANN, info.id) == revoked
    assert ways.service.tokens(ANN) == [revoked]


def test_one_is_named_by_its_id_a_beginning_or_its_name(ways: Ways) -> None:
    service = ways.service
    infos = [service.create_token(ANN, name, ["read"])[0] for name in ("ann", "ci", "ci", "eve")]
    assert service.revoke_token(ANN, infos[0].id[:-1]).id == infos[0].id
    assert service.revoke_token(ANN, "eve").id == infos[3].id
    several = refused(lambda: service.revoke_token(ANN, "ci"), "conflict")
    assert isinstance(several, Conflict)
    assert infos[1].id in several.cause and infos[2].id in several.cause
    refused(lambda: service.revoke_token(ANN, "tok-"), "conflict")
    service.revoke_token(ANN, infos[1].id)
    assert service.revoke_token(ANN, "ci").id == infos[2].id, "the only one that is good"
    refused(lambda: service.revoke_token(ANN, "ci"), "conflict")
    assert service.revoke_token(ANN, "eve").revoked_by == "ann", "one that is revoked is found too"
    for nothing in ("bob", "tok-xyz", "t ok", "é"):
        with pytest.raises(NotFound, match="no token"):
            service.revoke_token(ANN, nothing)
    with pytest.raises(NotFound):
        ways.beside.revoke_token(ANN, "")


NONSENSE: list[tuple[str, list[str], int]] = [
    ("", ["read"], 0),
    ("two words", ["read"], 0),
    ("a\nb", ["read"], 0),
    ("x" * 129, ["read"], 0),
    ("ann", [], 0),
    ("ann", ["fly"], 0),
    ("ann", ["work", "approve"], 0),
    ("ann", ["submit:a;b"], 0),
    ("ann", ["work:é"], 0),
    ("ann", ["read"], -1),
    ("ann", ["read"], 10**14),
]


def test_what_makes_no_sense_makes_no_token(service: Service) -> None:
    for name, scopes, lifetime_ms in NONSENSE:
        with pytest.raises(Invalid):
            service.create_token(ANN, name, scopes, lifetime_ms)
    assert service.tokens(ANN) == []


# -- who may manage them ---------------------------------------------------------------------------


def test_only_people_and_the_system_manage_them(ways: Ways) -> None:
    info, _ = ways.service.create_token(SYSTEM, "ann", ["admin"])
    others: list[Principal] = [
        COORDINATOR,
        WORKER,
        attempt_at(claimed(ways.service), *GRANTABLE),
        *(principal_of_scopes("ann", [scope]) for scope in ("read", "approve", "submit", "work")),
    ]
    for who in others:
        refused(lambda who=who: ways.service.create_token(who, "me", ["admin"]))  # type: ignore[misc]
        refused(lambda who=who: ways.service.tokens(who))  # type: ignore[misc]
        refused(lambda who=who: ways.service.revoke_token(who, info.id))  # type: ignore[misc]
    assert ways.service.tokens(ANN) == [info], "nothing came of it"
    for who in (ANN, SYSTEM, principal_of_scopes("ann", ["admin"])):
        made, _ = ways.service.create_token(who, "new", ["read"])
        assert made in ways.service.tokens(who)
        assert ways.service.revoke_token(who, made.id).revoked_by == who.name


def test_an_administrator_elsewhere_manages_them(ways: Ways) -> None:
    """Under the name of the token, whatever name is given."""
    admin = ways.by_token(make(ways.service, "ann", "admin"))
    info, secret = admin.create_token(BOB, "bob", ["approve"])
    assert info.created_by == "ann"
    bob = ways.by_token(secret)
    refused(lambda: bob.create_token(BOB, "bob", ["admin"]))
    assert admin.revoke_token(BOB, "bob").revoked_by == "ann"
    refused(lambda: bob.tokens(BOB), "bad_token")


# -- what they allow -------------------------------------------------------------------------------


@pytest.mark.parametrize("ways", ["sqlite", LONG_POSTGRES], indirect=True)
@pytest.mark.parametrize("scopes", EXPECTED)
def test_what_a_token_allows_over_http(ways: Ways, scopes: str) -> None:
    """Whoever the client says it is: the token alone says it."""
    client = ways.by_token(make(ways.service, "ann", *scopes.split()))
    check_scopes(ways.beside, client, SYSTEM, EXPECTED[scopes])


def test_the_log_says_that_a_token_spoke(ways: Ways) -> None:
    submit(ways.service)
    ways.by_token(make(ways.service, "ann", "approve")).cancel(BOB, "task-1", "no need")
    last = ways.beside.history(ANN, "task-1")[-1]
    assert ways.beside.event_data(last) == {"by": "ann", "reason": "no need", "how": "token"}


# -- four eyes -------------------------------------------------------------------------------------


def test_four_eyes_once_two_people_may_approve(ways: Ways) -> None:
    """Where settings leave it open. A person who works alone could start nothing otherwise."""
    service = ways.service
    make(service, "ann", "admin")
    make(service, "ann", "approve")  # the same person
    make(service, "eve", "read")  # could approve nothing
    make(service, "ci", "submit")
    make(service, "host", "work")
    gone = service.create_token(ANN, "gone", ["approve"])[0]
    service.revoke_token(ANN, gone.id)
    submit(service, "alone", irreversible=True, sender="ann")
    assert "somebody other" not in service.explain(ANN, "alone").headline
    assert service.approve(ANN, "alone").state is State.READY
    submit(service, "together", irreversible=True, sender="ann")
    bob = make(service, "bob", "submit", "approve")
    assert "somebody other than ann" in repr(service.explain(ANN, "together"))
    with pytest.raises(Refused) as caught:
        service.approve(ANN, "together")
    assert caught.value.code == "self_approval"
    assert ways.by_token(bob).approve(ANN, "together").state is State.READY


def test_settings_that_say_so_are_not_asked_again(service: Service) -> None:
    """The fixture's settings say `four_eyes = false`."""
    for name in ("ann", "bob"):
        assert allowed(principal_of_scopes(name, ["admin"]), Action.APPROVE)
        make(service, name, "admin")
    submit(service, "own", irreversible=True, sender="ann")
    assert service.approve(ANN, "own").state is State.READY


def test_whoever_shows_a_token_submits_in_their_own_name(four_eyes: Service) -> None:
    """Otherwise four eyes would be two: submitted under another name, approved under one's own."""
    scopes = ["submit", "approve"]
    kim, bob = (replace(principal_of_scopes(name, scopes), proof="token") for name in ("k", "b"))
    following = spec("later", sender="b")
    asked = spec("own", irreversible=True, sender="coordinator", next=(following,))
    (task,) = four_eyes.submit(kim, [asked])
    assert (task.spec.sender, task.spec.next[0].sender) == ("k", "k")
    with pytest.raises(Refused) as refused:
        four_eyes.approve(kim, "own")
    assert refused.value.code == "self_approval"
    assert four_eyes.approve(bob, "own").state is State.READY
