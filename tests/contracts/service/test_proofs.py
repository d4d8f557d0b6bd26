"""Seals of the log, by every way to reach a ledger."""

from __future__ import annotations

import pytest

from agentq.contracts.proof_values import seal_text
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM
from agentq.core.errors import Conflict, Invalid
from agentq.core.limits import RoleLimits
from tests.contracts.service.people import ANN, submit


def findings(service: Service, seal: str = "", *, since_seal: bool = False) -> list[str]:
    verified = service.verify(ANN, seal=seal, since_seal=since_seal)
    return [problem.task_id for _, found in verified for problem in found]


def test_a_seal_proves_what_was_before_it(service: Service) -> None:
    assert service.last_seal(ANN) is None
    submit(service, "task-1")
    service.set_limits(ANN, "builder", RoleLimits(max_running=2))
    first = service.seal(ANN)
    assert first is not None and (first.tasks, first.events) == (1, 1)
    assert first == service.last_seal(ANN) == service.seal(SYSTEM, always=False)
    assert first.ledger_id == service.ledger_id(ANN) and first.digest in seal_text(first)
    submit(service, "task-2")
    second = service.seal(ANN)
    assert second is not None and second == service.last_seal(ANN)
    assert second.position == service.last_position(ANN)
    assert findings(service, first.digest) == findings(service, second.digest) == []
    assert findings(service, since_seal=True) == []
    assert findings(service, "ab" * 32) == [f"seal {'ab' * 32}"]
    assert service.overview(ANN).seal == second.digest


def test_people_sign_the_newest_seal(service: Service) -> None:
    submit(service, "task-1")
    first = service.seal(ANN)
    assert first is not None and service.last_seal(ANN, signed=True) is None
    assert service.sign_seal(ANN, first.digest, "by ann").signatures == ("by ann",)
    assert service.sign_seal(ANN, first.digest, "by ann").signatures == ("by ann",)
    signed = service.sign_seal(SYSTEM, first.digest, "by bob")
    assert signed.signatures == ("by ann", "by bob")
    newest = service.seal(ANN)  # over the same position
    assert newest is not None and newest.position == first.position
    assert service.last_seal(ANN, signed=True) == signed
    assert service.last_seal(ANN) == newest
    with pytest.raises(Conflict, match="newest seal is not"):
        service.sign_seal(ANN, first.digest, "too late")
    for number in range(20):
        service.sign_seal(ANN, newest.digest, f"by {number}")
    with pytest.raises(Conflict, match="20 people"):
        service.sign_seal(ANN, newest.digest, "one more")
    for bad in ("", "x" * 5000, "\u00e9"):
        with pytest.raises(Invalid, match="A signature has"):
            service.sign_seal(ANN, newest.digest, bad)
    assert findings(service) == []


def test_what_was_deleted_stays_sealed(service: Service) -> None:
    submit(service, "task-1")
    service.cancel(ANN, "task-1")
    seal = service.seal(ANN)
    assert seal is not None
    assert service.prune(ANN, service.now() + 1) == 1
    assert findings(service, seal.digest) == []
    assert service.seal(ANN) is not None
    assert findings(service, seal.digest) == []
