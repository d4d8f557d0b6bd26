"""What `agentq doctor` asks of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentq.cli.doctor_checks import Check
from agentq.core.errors import AgentqError

if TYPE_CHECKING:
    from agentq.wiring import Parts


def broker_checks(parts: Parts) -> Iterator[Check]:
    """Whether it takes messages and has its queues; nothing without a broker."""
    if not parts.settings.broker:
        return
    try:
        roles = sorted(row.name for row in parts.store.read(lambda reader: reader.roles()))
        facts = parts.broker_facts(roles)
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
        yield Check("queues", "ok", f"{len(facts.queues)} there, {depth} messages wait")
    # AMQP does not tell the broker's own limit on late acknowledgements; nothing here needs it.
    yield Check(
        "ack timeout", "ok", "messages are acked once the claim has committed: consumer_timeout"
        " concerns only foreign workers who ack later",
    )  # fmt: skip
