"""What loops need: time, leader leases, effects on their way out, messages that come in."""

from __future__ import annotations

import json

import pytest

from agentq.contracts.inbound_messages import InboundMessage, Incoming, IntakeStatus, opened
from agentq.contracts.service import Service
from agentq.contracts.service_values import Capacity, PublishedResults
from agentq.core.access import SYSTEM
from agentq.core.errors import Invalid
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.rates import Rate
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
    def test_one_holder_at_a_time(self, beside: Service) -> None:
        ours = beside.hold_leader_leases(SYSTEM, ["due", "relay"], "us", 60_000)
        assert {name: lease.holder for name, lease in ours.items()} == {"due": "us", "relay": "us"}
        theirs = beside.hold_leader_leases(SYSTEM, ["due"], "them", 60_000)
        assert (theirs["due"].holder, theirs["due"].number) == ("us", 1)
        assert beside.give_up_leader_leases(SYSTEM, ["due", "relay"], "them") == []
        assert beside.give_up_leader_leases(SYSTEM, ["due"], "us") == ["due"]
        theirs = beside.hold_leader_leases(SYSTEM, ["due"], "them", 60_000)
        assert (theirs["due"].holder, theirs["due"].number) == ("them", 2)


class TestOutbox:
    def test_effects_stay_until_they_are_settled(self, beside: Service) -> None:
        beside.open_lanes(SYSTEM, ["reply", "delivery"])
        claimed(beside, reply_to="results.ann")
        beside.put_artifacts(WORKER, "task-1", 1, [("risks.md", b"none")])
        beside.complete(WORKER, "task-1", 1, "done")
        (effect,) = beside.outbox_batch(SYSTEM, "reply", 10, evidence=True)
        assert (effect.kind, effect.task.state) == ("Reply", State.COMPLETE)
        assert effect.data["reply_to"] == "results.ann"
        assert [info.name for info in effect.artifacts] == ["risks.md"]
        assert [each.id for each in beside.outbox_batch(SYSTEM, "reply", 10)] == [effect.id]
        beside.settle_outbox(SYSTEM, [], [effect])  # it comes again, later
        assert beside.outbox_batch(SYSTEM, "reply", 10) == []
        beside.settle_outbox(SYSTEM, [effect])
        assert beside.stats(ANN).outbox.get("reply", 0) == 0
        beside.settle_outbox(SYSTEM, [])

    def test_each_carrier_has_a_lane_of_its_own(self, beside: Service) -> None:
        assert beside.carry_lanes(SYSTEM, "notify", ["ops", "lead"])
        submit(beside, requires_approval=True)
        (effect,) = beside.outbox_batch(SYSTEM, "notify:ops", 10)
        assert [each.id for each in beside.outbox_batch(SYSTEM, "notify:lead", 10)] == [effect.id]
        # It may be held until a moment,
        beside.settle_outbox(SYSTEM, [], [effect], beside.now() + 3_600_000)
        assert beside.outbox_batch(SYSTEM, "notify:ops", 10) == []
        assert beside.stats(ANN).outbox == {"notify:lead": 1, "notify:ops": 1}
        # and one who has gone leaves nothing.
        assert beside.carry_lanes(SYSTEM, "notify", ["lead"])
        assert not beside.carry_lanes(SYSTEM, "notify", ["lead"])
        assert beside.stats(ANN).outbox == {"notify:lead": 1}
        assert beside.lanes(SYSTEM) >= {"notify:lead"}

    def test_a_circuit_of_a_role_is_told_without_a_task(self, beside: Service) -> None:
        beside.carry_lanes(SYSTEM, "notify", ["ops"])
        beside.open_role_circuit(SYSTEM, "worker", "no program")
        beside.open_circuit(SYSTEM, "acme", beside.now() + 60_000, "quota")
        role, provider = beside.outbox_batch(SYSTEM, "notify:ops", 10)
        assert (role.task.id, role.task.to, provider.task.to) == ("", "worker", "")
        beside.settle_outbox(SYSTEM, [role, provider])
        assert beside.outbox_batch(SYSTEM, "notify:ops", 10) == []

    def test_results_are_published_by_whoever_comes_first(self, beside: Service) -> None:
        claimed(beside)
        beside.complete(WORKER, "task-1", 1, "", b"the result")
        assert beside.publish_results(SYSTEM) == PublishedResults(0, 0, (), more=False)


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
        assert service.capacity(SYSTEM, "builder") == Capacity(-1, NO_USAGE)
        service.claim_task(ANN, "task-3", "host:1")
        keys = service.key_limits(SYSTEM, ["db", "gpu"])
        assert {name: (key.holders, key.free) for name, key in keys.items()} == {
            "db": (("task-3",), 0),
            "gpu": ((), 1),
        }
        assert service.key_limits(SYSTEM) == {}, "none of them has limits of its own"

    def test_several_places_and_a_rate(self, service: Service) -> None:
        limits = KeyLimits(2, Rate(1, 3600, burst=3))
        service.set_key_limits(ANN, "lab/gpu 1", limits)
        service.set_limits(ANN, "builder", RoleLimits(rate=Rate(1, 3600, burst=2)))
        for number in range(3):
            submit(service, f"task-{number}", resources=("lab/gpu 1",))
        assert service.capacity(SYSTEM, "builder").free == 2
        assert len(service.claim(WORKER, "builder", 5, "host:1")) == 2
        (key,) = service.key_limits(ANN).values()
        assert (key.limits, key.holders, key.free) == (limits, ("task-0", "task-1"), 0)
        capacity = service.capacity(SYSTEM, "builder")
        assert capacity.free == 0 and capacity.next_at > service.now()
        assert service.next_wake(SYSTEM) > 0
        held_back = service.overview(ANN).roles[0].held_back
        assert held_back.startswith("rate limit 1/1h, at most 2 at once of role builder: next at")

    def test_what_a_resource_cannot_have_is_refused(self, service: Service) -> None:
        for limits in (KeyLimits(0), KeyLimits(1, Rate(5)), KeyLimits(1, Rate(1, 1, -1))):
            with pytest.raises(Invalid):
                service.set_key_limits(ANN, "gpu", limits)
        assert service.key_limits(ANN) == {}

    def test_who_set_the_limits_of_a_resource_stands_in_the_audit_log(
        self, service: Service
    ) -> None:
        for _ in range(2):
            service.set_key_limits(ANN, "gpu", KeyLimits(2))
        (entry,) = service.audit(ANN).entries
        said = (entry.who, entry.action, entry.subject, entry.detail)
        assert said == ("ann", "set_limits", "key gpu", "max_held 2, rate any")

    def test_the_day_has_a_budget(self, service: Service) -> None:
        service.set_limits(ANN, "builder", RoleLimits(daily=Usage(usd=1)))
        assert service.capacity(SYSTEM, "builder").free == -1
        claimed(service)
        service.spend(WORKER, "task-1", 1, Usage(usd=3))
        capacity = service.capacity(SYSTEM, "builder")
        assert (capacity.free, capacity.today.usd) == (0, 3)


class TestMessages:
    def test_an_attempt_by_messages_alone(self, beside: Service) -> None:
        submit(beside)
        started, again = beside.judge_messages(
            SYSTEM, [inbound_message(1, status="started"), inbound_message(1, status="started")]
        )
        assert (started.outcome, again.outcome) == (IntakeStatus.ACCEPTED, IntakeStatus.DUPLICATE)
        inbound = inbound_message(2, status="completed", epoch=1, summary="done", result="# Result")
        (waiting,) = beside.judge_messages(SYSTEM, [inbound])
        assert waiting.outcome is IntakeStatus.WAITING
        assert waiting.lease is not None
        assert beside.renew(SYSTEM, [waiting.lease]) == {"task-1"}
        beside.store_message_files(SYSTEM, inbound, waiting.lease.epoch)
        (done,) = beside.judge_messages(SYSTEM, [inbound])
        assert done.outcome is IntakeStatus.ACCEPTED
        assert beside.task(ANN, "task-1").state is State.COMPLETE
        assert beside.publish_results(SYSTEM).published == 1

    def test_files_of_a_refused_message_are_removed(self, beside: Service) -> None:
        submit(beside)
        inbound = inbound_message(2, status="completed", epoch=1, result="# Result")
        beside.judge_messages(SYSTEM, [inbound_message(1, status="started")])
        beside.store_message_files(SYSTEM, inbound, 1)
        beside.cancel(ANN, "task-1")
        (verdict,) = beside.judge_messages(SYSTEM, [inbound])
        assert verdict.outcome is IntakeStatus.REFUSED
        beside.discard_message_files(SYSTEM, inbound)
        assert beside.artifacts(ANN, "task-1") == []
