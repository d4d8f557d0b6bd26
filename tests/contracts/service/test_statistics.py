"""Where time and money went, and how work was judged, by every way to reach a ledger."""

from __future__ import annotations

import pytest

from agentq.contracts.service import Service
from agentq.contracts.service_values import Overhead, RoleQuality
from agentq.core.access import SYSTEM
from agentq.core.errors import Invalid, Refused
from agentq.core.task import Usage
from agentq.core.triggers import Ruling
from tests.contracts.service.people import (
    ANN,
    BOB,
    COORDINATOR,
    WORKER,
    attempt_at,
    claimed,
    reported,
    spec,
    submit,
)


def lives_ms(service: Service, *task_ids: str) -> int:
    """How long tasks that are over lived, by their logs."""
    histories = [service.history(ANN, each) for each in task_ids]
    return sum(history[-1].event.at - history[0].event.at for history in histories)


def money(found: Overhead) -> dict[str, float]:
    return {str(each.phase): each.cost.usd for each in found.phases if each.cost.usd}


def test_a_run_with_its_steps(service: Service) -> None:
    run = claimed(service, "run-1", "lead", type="run")
    steps = [spec("step-1", parent="run-1"), spec("step-2", parent="run-1", after=("step-1",))]
    service.submit(COORDINATOR, steps)
    submit(service, "other")
    for number, task_id in enumerate(("step-1", "step-2"), start=1):
        service.claim_task(ANN, task_id, "host:1")
        service.complete(WORKER, task_id, 1, "done", cost=Usage(usd=number))
    service.complete(WORKER, "run-1", run.epoch, "done", cost=Usage(usd=0.5))

    found = service.overhead(ANN, ["run-1"], below=True)
    assert (found.tasks, found.attempts, found.running, found.cut) == (3, 3, 0, False)
    assert found.path == ("run-1", "step-1", "step-2")
    assert found.lives_ms == lives_ms(service, "run-1", "step-1", "step-2")
    assert money(found) == {"working": 3.0, "supervising": 0.5}
    assert service.overhead(ANN, ["run-1"]).tasks == 1
    assert service.overhead(ANN, ["nobody"]).tasks == 0
    # All that is there, and all of one role.
    assert service.recent_overhead(ANN).tasks == 4
    assert service.recent_overhead(ANN, service.now() + 60_000).tasks == 0
    assert money(service.recent_overhead(ANN, role="lead")) == {"supervising": 0.5}
    assert service.recent_overhead(ANN, 0, "nobody").tasks == 0


def test_an_attempt_measures_its_own_tree_and_no_other(service: Service) -> None:
    reported(service, "input")
    submit(service, "of-input", parent="input")
    own = claimed(service, "own", after=("input",))
    agent = attempt_at(own)
    service.submit(agent, [spec("child")], under=("own", 1))
    assert service.overhead(agent, ["own"], below=True).tasks == 2
    assert service.overhead(agent, ["input"]).tasks == 1
    for ask in (
        lambda: service.overhead(agent, ["input"], below=True),
        lambda: service.overhead(agent, ["of-input"]),
        lambda: service.recent_overhead(agent),
        lambda: service.quality(agent),
        lambda: service.numbers(agent),
    ):
        with pytest.raises(Refused):
            ask()


def test_how_reviewers_judged(service: Service) -> None:
    for task_id in ("task-1", "task-2"):
        reported(service, task_id, review=True)
    service.verdict(BOB, "task-1", Ruling.CHANGES, "more tests")
    service.claim_task(ANN, "task-1", "host:1")
    service.complete(WORKER, "task-1", 2, "done")
    service.verdict(BOB, "task-1", Ruling.ACCEPT)
    service.verdict(BOB, "task-2", Ruling.REJECT)
    found = service.quality(ANN)
    assert found.roles == (RoleQuality("builder", 2, 3, 1, 1, 1, mean_rounds=2.0),)
    assert service.quality(ANN, role="builder") == found
    assert service.quality(ANN, role="writer").roles == ()
    assert service.quality(ANN, service.now() + 60_000).roles == ()


def test_how_work_went_over_time(service: Service) -> None:
    assert service.numbers(ANN).samples == ()
    reported(service, "task-1")
    claimed(service, "task-2", "writer")
    service.fail(WORKER, "task-2", 1, "no", cost=Usage(usd=2))
    found = service.numbers(ANN, "1h")
    assert (found.span_ms, found.behind) == (60_000, False)
    assert found.position == service.last_position(ANN)
    roles = found.by_role()
    assert (roles["builder"].completed, roles["builder"].waiting.count) == (1, 1)
    assert (roles["writer"].failures, roles["writer"].cost.usd) == ({"transient": 1}, 2)
    assert service.numbers(ANN, "total").by_role() == roles
    assert service.numbers(ANN, "30d", "writer").by_role() == {"writer": roles["writer"]}
    with pytest.raises(Invalid, match="no numbers for"):
        service.numbers(ANN, "2h")


def test_the_log_is_counted_beside_the_ledger(beside: Service) -> None:
    reported(beside, "task-1")
    before = beside.numbers(ANN, "total").samples
    assert not beside.count_numbers(SYSTEM)
    assert beside.numbers(ANN, "total").samples == before
    with pytest.raises(Refused):
        beside.count_numbers(WORKER)
