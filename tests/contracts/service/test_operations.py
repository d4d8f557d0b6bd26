"""What loops need: time, leader leases, effects on their way out, messages that come in."""

from __future__ import annotations

import json

from agentq.contracts.inbound_messages import InboundMessage, Incoming, IntakeStatus, opened
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import NO_USAGE, Usage
from tests.contracts.service.people import ANN, WORKER, claimed, submit


def inbound_message(number: int, **fields: object) -> InboundMessage:
    plain = {"task_id": "task-1", "from": "js-1", **fields}
    inbound = opened(Incoming(f"m-{number}", json.dumps(plain).encode(), "answers", "builder"))
    assert isinstance(inbound, InboundMessage)
    return inbound


class TestTime:
    def test_due_timers_are_applied(self, service: Service) -> None:
        submit(service)
        assert service.next_wake(SYSTEM) == 0
        service.claim_task(ANN, "task-1", "host:1", 1)  # a lease of a millisecond
        assert service.next_wake(SYSTEM) > 0
        while service.now() <= service.next_wake(SYSTEM):
            pass
        assert service.tick(SYSTEM) == 1
        assert service.task(ANN, "task-1").state is State.READY
        service.check_writable(SYSTEM)


class TestLeaderLeases:
    def test_one_holder_at_a_time(self, service: Service) -> None:
        ours = service.hold_leader_leases(SYSTEM, ["due", "relay"], "us", 60_000)
        assert {name: lease.holder for name, lease in ours.items()} == {"due": "us", "relay": "us"}
        theirs = service.hold_leader_leases(SYSTEM, ["due"], "them", 60_000)
        assert (theirs["due"].holder, theirs["due"].number) == ("us", 1)
        assert service.give_up_leader_leases(SYSTEM, ["due", "relay"], "them") == []
        assert service.give_up_leader_leases(SYSTEM, ["due"], "us") == ["due"]
        theirs = service.hold_leader_leases(SYSTEM, ["due"], "them", 60_000)
        assert (theirs["due"].holder, theirs["due"].number) == ("them", 2)


class TestOutbox:
    def test_effects_stay_until_they_are_settled(self, service: Service) -> None:
        service.open_lanes(SYSTEM, ["reply", "delivery"])
        claimed(service, reply_to="results.ann")
        service.put_artifacts(WORKER, "task-1", 1, [("risks.md", b"none")])
        service.complete(WORKER, "task-1", 1, "done")
        (effect,) = service.outbox_batch(SYSTEM, "reply", 10, evidence=True)
        assert (effect.kind, effect.task.state) == ("Reply", State.COMPLETE)
        assert effect.data["reply_to"] == "results.ann"
        assert [info.name for info in effect.artifacts] == ["risks.md"]
        assert [each.id for each in service.outbox_batch(SYSTEM, "reply", 10)] == [effect.id]
        service.settle_outbox(SYSTEM, [], [effect])  # it comes again, later
        assert service.outbox_batch(SYSTEM, "reply", 10) == []
        service.settle_outbox(SYSTEM, [effect])
        assert service.stats(ANN).outbox.get("reply", 0) == 0
        service.settle_outbox(SYSTEM, [])

    def test_results_are_published_by_whoever_comes_first(self, service: Service) -> None:
        claimed(service)
        service.complete(WORKER, "task-1", 1, "", b"the result")
        assert service.publish_results(SYSTEM) == (0, 0, (), False)


class TestRoles:
    def test_what_is_ready_and_could_start(self, service: Service) -> None:
        for number in range(4):
            submit(service, f"task-{number}", resources=("db",) if number == 3 else ())
        later = service.now() + 60_000
        urgent = service.most_urgent_ready(SYSTEM, "builder", 2, later)
        assert [task.id for task in urgent] == ["task-0", "task-1"]
        said_before = {(task.id, task.version) for task in urgent}
        others = service.most_urgent_ready(SYSTEM, "builder", 9, later, said_before)
        assert [task.id for task in others] == ["task-2", "task-3"]
        assert service.most_urgent_ready(SYSTEM, "builder", 9, 0) == []
        assert service.capacity(SYSTEM, "builder") == (-1, NO_USAGE)
        service.claim_task(ANN, "task-3", "host:1")
        assert service.resource_holders(SYSTEM, ["db", "gpu"]) == {"db": "task-3"}
        assert service.resource_holders(SYSTEM, []) == {}

    def test_the_day_has_a_budget(self, service: Service) -> None:
        service.set_limits(ANN, "builder", RoleLimits(daily=Usage(usd=1)))
        assert service.capacity(SYSTEM, "builder").free == -1
        claimed(service)
        service.spend(WORKER, "task-1", 1, Usage(usd=3))
        capacity = service.capacity(SYSTEM, "builder")
        assert (capacity.free, capacity.today.usd) == (0, 3)


class TestMessages:
    def test_an_attempt_by_messages_alone(self, service: Service) -> None:
        submit(service)
        started, again = service.judge_messages(
            SYSTEM, [inbound_message(1, status="started"), inbound_message(1, status="started")]
        )
        assert (started.outcome, again.outcome) == (IntakeStatus.ACCEPTED, IntakeStatus.DUPLICATE)
        inbound = inbound_message(2, status="completed", epoch=1, summary="done", result="# Result")
        (waiting,) = service.judge_messages(SYSTEM, [inbound])
        assert waiting.outcome is IntakeStatus.WAITING
        assert waiting.lease is not None
        assert service.renew(SYSTEM, [waiting.lease]) == {"task-1"}
        service.store_message_files(SYSTEM, inbound, waiting.lease.epoch)
        (done,) = service.judge_messages(SYSTEM, [inbound])
        assert done.outcome is IntakeStatus.ACCEPTED
        assert service.task(ANN, "task-1").state is State.COMPLETE
        assert service.publish_results(SYSTEM).published == 1

    def test_files_of_a_refused_message_are_removed(self, service: Service) -> None:
        submit(service)
        inbound = inbound_message(2, status="completed", epoch=1, result="# Result")
        service.judge_messages(SYSTEM, [inbound_message(1, status="started")])
        service.store_message_files(SYSTEM, inbound, 1)
        service.cancel(ANN, "task-1")
        (verdict,) = service.judge_messages(SYSTEM, [inbound])
        assert verdict.outcome is IntakeStatus.REFUSED
        service.discard_message_files(SYSTEM, inbound)
        assert service.artifacts(ANN, "task-1") == []
