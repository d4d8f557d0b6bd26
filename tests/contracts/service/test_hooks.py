"""Webhooks by every way to reach a ledger: taken once, settled with their tasks, and looked at."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentq.contracts.hook_values import (
    HookDelivery,
    HookState,
    IncomingDelivery,
    Intake,
    WebhookTarget,
)
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM, attempt
from agentq.core.errors import Conflict, Invalid, NotFound, Refused
from agentq.core.task import Spec, Task
from tests.contracts.service.conftest import Ways
from tests.contracts.service.people import ANN, COORDINATOR, WORKER, claimed


def incoming(delivery_id: str, hook: str = "github", backlog: int = 3) -> IncomingDelivery:
    return IncomingDelivery(hook, delivery_id, {"x-event": "push"}, b"\0\xff body", backlog, 60_000)


def take(service: Service, *ids: str, backlog: int = 3) -> list[Intake]:
    return service.take_deliveries(SYSTEM, [incoming(each, backlog=backlog) for each in ids])


def waiting(service: Service) -> dict[str, HookDelivery]:
    return {each.id: each for each in service.waiting_deliveries(SYSTEM, 100)}


def states(service: Service) -> dict[str, str]:
    return {each.id: each.state for each in service.hook_deliveries(ANN)}


def test_a_delivery_is_taken_once(beside: Service) -> None:
    assert take(beside, "d-1", "d-2", "d-1") == [Intake.STORED, Intake.STORED, Intake.DUPLICATE]
    assert take(beside, "d-2") == [Intake.DUPLICATE]
    # Of another hook it is another delivery.
    assert beside.take_deliveries(SYSTEM, [incoming("d-1", "billing")]) == [Intake.STORED]
    found = waiting(beside)["d-2"]
    assert (found.hook, found.body, found.headers) == (
        "github",
        b"\0\xff body",
        {"x-event": "push"},
    )
    assert (found.state, found.attempts, found.error, found.tasks) == ("received", 0, "", ())
    assert [each.id for each in beside.waiting_deliveries(SYSTEM, 2)] == ["d-1", "d-2"]


def test_of_many_who_bring_the_same_deliveries_one_stores_each(beside: Service) -> None:
    ids = [f"d-{number}" for number in range(20)]
    with ThreadPoolExecutor(4) as threads:
        taken = list(threads.map(lambda _: take(beside, *ids, backlog=1000), range(4)))
    assert [[each[place] for each in taken].count(Intake.STORED) for place in range(20)] == [1] * 20
    assert {intake for each in taken for intake in each} == {Intake.STORED, Intake.DUPLICATE}
    assert sorted(waiting(beside)) == sorted(ids)


def test_more_than_the_backlog_are_not_taken(beside: Service) -> None:
    taken = take(beside, "d-1", "d-2", "d-3", backlog=2)
    assert taken == [Intake.STORED, Intake.STORED, Intake.BACKLOG]
    assert take(beside, "d-3", backlog=2) == [Intake.BACKLOG]
    beside.settle_delivery(SYSTEM, waiting(beside)["d-1"])
    # It was not remembered either: it may come again.
    assert take(beside, "d-3", "d-1", backlog=2) == [Intake.STORED, Intake.DUPLICATE]


def test_pruning_does_not_open_the_door_again(beside: Service) -> None:
    take(beside, "d-1")
    beside.settle_delivery(SYSTEM, waiting(beside)["d-1"])
    beside.prune(SYSTEM, beside.now() + 1)
    assert take(beside, "d-1") == [Intake.DUPLICATE]
    assert states(beside) == {"d-1": "ignored"}


def test_tasks_and_the_state_of_their_delivery_are_written_together(beside: Service) -> None:
    take(beside, "d-1", "d-2", "d-3")
    found = waiting(beside)
    spec = Spec("task-1", "w", title="do", idempotency_key="k")
    contexts = {"task-1": b"the long text"}
    (task,) = beside.settle_delivery(SYSTEM, found["d-1"], [spec], contexts, ["task-1"])
    assert beside.context(ANN, task.id) == "the long text"
    beside.settle_delivery(SYSTEM, found["d-2"], error="no such field")
    beside.settle_delivery(SYSTEM, found["d-3"])
    assert states(beside) == {"d-1": "done", "d-2": "failed", "d-3": "ignored"}
    done, *_ = beside.hook_deliveries(ANN, "github", "d-1", bodies=True)
    assert (done.tasks, done.attempts, done.body) == (("task-1",), 1, b"\0\xff body")
    (failed,) = beside.hook_deliveries(ANN, state="failed")
    assert (failed.id, failed.error, failed.body) == ("d-2", "no such field", b"")


def test_a_refused_submission_changes_nothing_of_the_delivery(beside: Service) -> None:
    take(beside, "d-1")
    beside.submit(ANN, [Spec("task-1", "w", title="another")])
    delivery = waiting(beside)["d-1"]
    spec = Spec("task-1", "w", title="do")
    with pytest.raises(Conflict):
        beside.settle_delivery(SYSTEM, delivery, [spec], {"task-1": b"text"})
    assert states(beside) == {"d-1": "received"}
    with pytest.raises(Refused, match="reviews"):
        beside.settle_delivery(SYSTEM, delivery, [Spec("x", "w", title="do", reviews="task-1")])


def test_the_rules_that_failed_are_told_beside_the_tasks_that_came(beside: Service) -> None:
    take(beside, "d-1")
    spec = Spec("task-1", "w", title="do")
    beside.settle_delivery(SYSTEM, waiting(beside)["d-1"], [spec], error="rule 2: no")
    (found,) = beside.hook_deliveries(ANN)
    assert (found.state, found.tasks, found.error) == ("failed", ("task-1",), "rule 2: no")


def test_a_replay_waits_again_and_keeps_what_came(beside: Service) -> None:
    take(beside, "d-1")
    delivery = waiting(beside)["d-1"]
    beside.settle_delivery(SYSTEM, delivery, [Spec("task-1", "w", title="do")])
    again = beside.replay_delivery(ANN, "github", "d-1")
    assert (again.state, again.tasks) == (HookState.RECEIVED, ("task-1",))
    delivery = waiting(beside)["d-1"]
    beside.settle_delivery(SYSTEM, delivery, [Spec("task-2", "w", title="do other")])
    (found,) = beside.hook_deliveries(ANN)
    assert (found.state, found.attempts, found.tasks) == ("done", 2, ("task-1", "task-2"))
    (noted, *_) = beside.audit(ANN).entries
    assert noted.detail == "replayed d-1 of hook github"


def test_who_was_overtaken_decides_nothing_any_more(beside: Service) -> None:
    take(beside, "d-1")
    stale = waiting(beside)["d-1"]
    beside.settle_delivery(SYSTEM, stale, error="the file is broken")
    late, contexts = Spec("task-1", "w", title="do"), {"task-1": b"the long text"}
    assert beside.settle_delivery(SYSTEM, stale, [late], contexts) == []
    beside.settle_delivery(SYSTEM, stale)
    assert states(beside) == {"d-1": "failed"}
    # Not even when it waits again: that is for those who read the rules of now.
    beside.replay_delivery(ANN, "github", "d-1")
    assert beside.settle_delivery(SYSTEM, stale, [late], contexts) == []
    assert states(beside) == {"d-1": "received"} and beside.tasks_by_id(ANN, ["task-1"]) == {}
    (task,) = beside.settle_delivery(SYSTEM, waiting(beside)["d-1"], [late], contexts)
    assert task.id == "task-1" and states(beside) == {"d-1": "done"}


def test_of_many_who_decide_at_once_one_does(beside: Service) -> None:
    """Each by other rules, as if the file were edited meanwhile."""
    take(beside, "d-1")
    delivery = waiting(beside)["d-1"]

    def decide(number: int) -> list[Task]:
        spec = Spec(f"task-{number}", "w", title="do", idempotency_key=str(number))
        return beside.settle_delivery(SYSTEM, delivery, [spec], generated=[spec.id])

    with ThreadPoolExecutor(4) as threads:
        came = [task.id for tasks in threads.map(decide, range(8)) for task in tasks]
    (found,) = beside.hook_deliveries(ANN)
    assert (found.state, found.attempts, list(found.tasks)) == ("done", 1, came)
    assert len(came) == 1
    assert list(beside.tasks_by_id(ANN, [f"task-{number}" for number in range(8)])) == came


def test_counts_by_hook(beside: Service) -> None:
    take(beside, "d-1", "d-2")
    beside.take_deliveries(SYSTEM, [incoming("d-1", "billing")])
    beside.settle_delivery(SYSTEM, waiting(beside)["d-2"])
    billing, github = beside.hook_counts(ANN)
    assert (billing.hook, dict(billing.counts)) == ("billing", {"received": 1})
    assert (github.hook, dict(github.counts)) == ("github", {"received": 1, "ignored": 1})
    assert 0 < github.last_at <= billing.last_at
    assert beside.hook_counts(ANN, out=True) == []


def test_targets_and_what_they_were_sent(beside: Service) -> None:
    target = WebhookTarget("ops", 7, failures=2, due_at=9, disabled_at=8, error="no")
    sent = HookDelivery(0, "ops", "evt_8", 10, HookState.FAILED, 2, "no", ("task-1",), {}, b"{}")
    beside.save_webhook(SYSTEM, WebhookTarget("else", 1))
    beside.save_webhook(SYSTEM, target, sent)
    assert beside.webhook_targets(ANN) == [WebhookTarget("else", 1), target]
    (found,) = beside.hook_deliveries(ANN, "ops", out=True, bodies=True)
    assert (found.id, found.state, found.tasks, found.body) == (
        "evt_8", "failed", ("task-1",), b"{}",
    )  # fmt: skip
    assert beside.hook_deliveries(ANN) == []


def test_deliveries_and_targets_of_a_ledger_elsewhere(ways: Ways) -> None:
    take(ways.beside, "d-1", "d-2")
    ways.beside.settle_delivery(SYSTEM, waiting(ways.beside)["d-1"], error="no")
    first, second = ways.service.hook_deliveries(ANN, "github", limit=2, bodies=True)
    assert (first.id, second.id, second.state) == ("d-2", "d-1", HookState.FAILED)
    assert first == waiting(ways.beside)["d-2"]
    assert ways.service.hook_counts(ANN) == ways.beside.hook_counts(ANN)
    assert ways.service.replay_delivery(ANN, "github", "d-1").state is HookState.RECEIVED
    ways.beside.save_webhook(SYSTEM, WebhookTarget("ops", 7, 2, 9, 8, 5, 6, "no"))
    assert ways.service.webhook_targets(ANN) == ways.beside.webhook_targets(ANN)
    assert ways.service.enable_webhook(ANN, "ops").disabled_at == 0


def test_enabling_a_target_by_every_way(service: Service) -> None:
    with pytest.raises(NotFound, match="no webhook 'ops'"):
        service.enable_webhook(ANN, "ops")


@pytest.mark.parametrize(("skip", "position"), [(False, 7), (True, 8)])
def test_a_target_is_enabled_again(beside: Service, skip: bool, position: int) -> None:
    beside.save_webhook(SYSTEM, WebhookTarget("ops", 7, failures=2, due_at=9, disabled_at=8))
    enabled = beside.enable_webhook(ANN, "ops", skip=skip)
    assert enabled == WebhookTarget("ops", position)
    assert beside.webhook_targets(ANN) == [enabled]


def test_an_empty_ledger_by_every_way(service: Service) -> None:
    assert service.hook_deliveries(ANN, "github", state="done", bodies=True) == []
    assert service.hook_counts(ANN) == []
    assert service.webhook_targets(ANN) == []
    with pytest.raises(NotFound, match="There is no delivery 'd-1' of the hook 'github'"):
        service.replay_delivery(ANN, "github", "d-1")
    with pytest.raises(Invalid, match="no state 'lost'"):
        service.hook_deliveries(ANN, state="lost")
    with pytest.raises(Invalid, match="1 to 1000"):
        service.hook_deliveries(ANN, limit=0)


LOOKS: dict[str, Callable[[Service, object], object]] = {
    "deliveries": lambda s, who: s.hook_deliveries(who),  # type: ignore[arg-type]
    "counts": lambda s, who: s.hook_counts(who),  # type: ignore[arg-type]
    "targets": lambda s, who: s.webhook_targets(who),  # type: ignore[arg-type]
}
CHANGES: dict[str, Callable[[Service, object], object]] = {
    "replay": lambda s, who: s.replay_delivery(who, "github", "d-1"),  # type: ignore[arg-type]
    "enable": lambda s, who: s.enable_webhook(who, "ops"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("look", LOOKS)
def test_an_attempt_sees_no_deliveries(beside: Service, look: str) -> None:
    task = claimed(beside, "task-1")
    with pytest.raises(Refused, match="may not read"):
        LOOKS[look](beside, attempt(task.id, task.epoch))
    LOOKS[look](beside, COORDINATOR)


@pytest.mark.parametrize("who", [COORDINATOR, WORKER], ids=["coordinator", "worker"])
@pytest.mark.parametrize("change", CHANGES)
def test_only_people_replay_and_enable(beside: Service, change: str, who: object) -> None:
    with pytest.raises(Refused, match="may not run the loops"):
        CHANGES[change](beside, who)


def test_only_the_server_takes_deliveries_in(beside: Service) -> None:
    for call in (
        lambda: beside.take_deliveries(COORDINATOR, []),
        lambda: beside.waiting_deliveries(COORDINATOR, 1),
        lambda: beside.settle_delivery(COORDINATOR, HookDelivery(1, "h", "d", 1, HookState.DONE)),
        lambda: beside.save_webhook(COORDINATOR, WebhookTarget("ops", 1)),
    ):
        with pytest.raises(Refused, match="may not run the loops"):
            call()
