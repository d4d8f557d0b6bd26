"""What `agentq doctor` asks of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentq.cli.doctor.checks import Check
from agentq.core.access import SYSTEM
from agentq.core.counting import counted
from agentq.core.durations import format_duration
from agentq.core.errors import AgentqError
from agentq.settings.profiles import all_roles

if TYPE_CHECKING:
    from agentq.wiring import WiredInstallation

ASK = "rabbitmqctl eval 'application:get_env(rabbit, consumer_timeout).'"
#: A claim ends, one way or the other, well within this.
CLAIM_SECONDS_MAX = 60


def broker_checks(installation: WiredInstallation) -> Iterator[Check]:
    """Whether it takes messages and has its queues."""
    try:
        seen = {role.name for role in installation.service.roles(SYSTEM)}
        facts = installation.broker_facts(sorted(seen | all_roles(installation.settings).keys()))
    except AgentqError as error:
        yield Check("broker", "failed", error.cause, error.remedy)
        return
    product = f"{facts.product} {facts.version} at {facts.where}"
    if facts.takes_messages:
        yield Check("broker", "ok", f"{product}, confirms in {facts.confirm_ms:.0f} ms")
    else:
        yield Check(
            "broker", "failed", f"{product} takes no messages: it is short of memory or disk",
            "`rabbitmq-diagnostics alarms` there says which; workers find work by polling"
            " meanwhile.",
        )  # fmt: skip
    if facts.missing:
        yield Check(
            "queues", "warning", f"missing: {', '.join(facts.missing)}",
            "`agentq init --broker` declares them; without them workers find work by polling.",
        )  # fmt: skip
    else:
        depth = sum(queue.messages for queue in facts.queues)
        yield Check("queues", "ok", f"{len(facts.queues)} there, with {counted(depth, 'message')}")
    yield _ack_limit(facts.ack_limit.seconds, facts.ack_limit.why)


def _ack_limit(seconds: int | None, why: str) -> Check:
    """`consumer_timeout`: matters to whoever holds messages, so to foreign workers at most."""
    acks = "agentq's workers ack once the claim has committed"
    if why:
        return Check(
            "ack timeout", "ok", f"consumer_timeout is not known from here ({why}); {acks},"
            f" so only foreign workers who ack late depend on it. On the broker's machine: {ASK}",
        )  # fmt: skip
    if seconds is None:
        return Check("ack timeout", "ok", f"the broker sets no consumer_timeout; {acks}")
    limit = f"consumer_timeout is {format_duration(seconds)}"
    if seconds < CLAIM_SECONDS_MAX:
        return Check(
            "ack timeout", "warning", f"{limit}: a worker whose claim takes longer (a slow or"
            " restarting database) loses its channel, and its hints go to others",
            f"Give it {format_duration(CLAIM_SECONDS_MAX)} at least; 30m is RabbitMQ's default.",
        )  # fmt: skip
    return Check(
        "ack timeout", "ok", f"{limit}; {acks}, so it concerns only foreign workers who ack later"
    )
