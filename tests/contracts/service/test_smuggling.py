"""Ways to do by a detour what the access table refuses: each is refused, and changes nothing."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable

import pytest

from agentq.contracts.artifacts import Stored
from agentq.contracts.service import Service
from agentq.contracts.service_values import Completion
from agentq.core import access
from agentq.core.access import Action
from agentq.core.errors import Invalid, Refused
from agentq.core.states import State
from agentq.core.triggers import Ruling
from tests.contracts.service.people import (
    ANN,
    COORDINATOR,
    WORKER,
    attempt_at,
    claimed,
    reported,
    spec,
    submit,
)


def test_a_child_does_not_come_after_what_its_attempt_may_not_read(service: Service) -> None:
    """Whoever works on the child would read it, and the parent reads its child."""
    agent = attempt_at(claimed(service, "own"))
    submit(service, "stranger")
    within = spec("first", next=(spec("second", after=("stranger",)),))
    for specs in ([spec("child", after=("stranger",))], [spec("a"), within]):
        with pytest.raises(Refused) as caught:
            service.submit(agent, specs)
        assert caught.value.code == "not_permitted"
    assert set(service.ids(ANN, "")) == {"own", "stranger"}
    # Its own tree, its inputs and what comes with it are its own affair.
    service.submit(agent, [spec("a"), spec("b", after=("a", "own"))])
    service.submit(agent, [spec("c", after=("a", "b"))])
    granted = dataclasses.replace(agent, grants=frozenset({Action.READ}))
    service.submit(granted, [spec("d", after=("stranger",))])


def test_what_an_attempt_submits_bears_the_name_of_its_role(service: Service) -> None:
    agent = attempt_at(claimed(service, "own"))
    forged = spec("child", sender="ann", next=(spec("later", sender="bob"),))
    (child,) = service.submit(agent, [forged])
    assert (child.spec.sender, child.spec.next[0].sender) == ("builder", "builder")
    assert service.submit(agent, [forged])[0].version == child.version, "the same again"


def test_no_other_name_by_submitting_below_an_attempt(four_eyes: Service) -> None:
    """Or somebody with a token would approve their own task as that of another."""
    held = claimed(four_eyes, "own")
    ann = access.person("ann", "token")
    forged = spec("child", sender="bob", irreversible=True)
    four_eyes.submit(ann, [forged], under=("own", held.epoch))
    assert four_eyes.task(ANN, "child").spec.sender == "ann"
    with pytest.raises(Refused) as caught:
        four_eyes.approve(ann, "child")
    assert caught.value.code == "self_approval"


def test_the_beginning_of_an_id_tells_an_attempt_nothing_more(service: Service) -> None:
    agent = attempt_at(claimed(service, "own"))
    for name in ("merger-with-acme", "merger-with-bolt", "layoffs-in-may"):
        submit(service, name)
    calls: tuple[Callable[[str], object], ...] = (
        lambda ref: service.task(agent, ref),
        lambda ref: service.approve(agent, ref),
        lambda ref: service.reject(agent, ref),
        lambda ref: service.verdict(agent, ref, Ruling.ACCEPT),
        lambda ref: service.cancel(agent, ref),
        lambda ref: service.comment(agent, ref, "hello"),
    )
    for call in calls:
        for ref in ("merger", "lay"):
            with pytest.raises((Refused, Invalid)) as caught:
                call(ref)
            told = f"{caught.value.cause} {caught.value.remedy}"
            assert "acme" not in told and "bolt" not in told and "offs" not in told
    with pytest.raises(Invalid, match="merger-with-acme, merger-with-bolt"):
        service.task(ANN, "merger")
    assert service.task(agent, "ow").id == "own"


def test_a_result_that_is_stored_already_is_one_of_its_own(service: Service) -> None:
    """Else a report would be accepted whose result nobody can publish, or a stranger's."""
    other = claimed(service, "other")
    kept = service.put_artifacts(WORKER, "other", other.epoch, [("result.md", b"theirs")])[0]
    own = claimed(service, "own")
    agent = attempt_at(own)
    wrong = hashlib.sha256(b"nobody's").hexdigest()
    names = ("result.md", "../other/1/result.md")
    for said in (kept, *(Stored(name, 8, wrong, "text/plain") for name in names)):
        with pytest.raises(Invalid, match="has stored no"):
            service.complete(agent, "own", own.epoch, "done", said)
    assert service.task(ANN, "own").state is State.IN_PROGRESS
    mine = service.put_artifacts(agent, "own", own.epoch, [("result.md", b"mine")])[0]
    assert service.complete(agent, "own", own.epoch, "done", mine).state is State.COMPLETE


def test_named_claims_take_nothing_of_another_role(service: Service) -> None:
    submit(service, "theirs", "deployer")
    assert service.claim(WORKER, "builder", 5, "me", ids=["theirs"]) == []
    outcomes, taken = service.complete_and_claim(WORKER, [], "builder", 5, "me", ids=["theirs"])
    assert (outcomes, taken) == ([], [])
    assert service.task(ANN, "theirs").state is State.READY


def test_a_worker_is_granted_nothing_by_asking_for_its_agent() -> None:
    """It comments on what it holds, so its agent does not comment on everything."""
    worker = access.worker("host:1", "builder")
    agent = access.on_behalf(worker, "own", 1, "builder", access.GRANTABLE)
    assert agent.grants == {Action.READ}


def test_reports_in_batches_do_not_pass_a_check_either(service: Service) -> None:
    service.submit(COORDINATOR, [spec("own")])
    service.claim(WORKER, "builder", 1, "me", gated=True)
    done = [Completion("own", 1, "trust me")]
    for who in (WORKER, ANN, access.attempt("own", 1, "builder")):
        (outcome,) = service.complete_many(who, done)
        assert isinstance(outcome, Refused) and outcome.code == "gated"
    outcomes, _ = service.complete_and_claim(WORKER, done, "builder", 1, "me")
    assert isinstance(outcomes[0], Refused)
    assert service.task(ANN, "own").state is State.IN_PROGRESS


def test_a_report_is_judged_by_nobody_of_its_tree(service: Service) -> None:
    reported(service, "own", review=True)
    agent = access.attempt("own", 1, "builder", access.GRANTABLE)
    with pytest.raises(Refused, match="may not judge"):
        service.approve(agent, "own")
    with pytest.raises(Refused, match="may not judge"):
        service.verdict(agent, "own", Ruling.ACCEPT)
