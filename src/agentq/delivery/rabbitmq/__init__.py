"""RabbitMQ: hints, stop messages, results and reports between machines."""

from agentq.delivery.rabbitmq.consumer import RabbitConsumer, RabbitMessage
from agentq.delivery.rabbitmq.dead_letters import dead_messages, purge, requeue
from agentq.delivery.rabbitmq.diagnostics import BrokerFacts, facts
from agentq.delivery.rabbitmq.inbox import RabbitInbox
from agentq.delivery.rabbitmq.mailbox import RabbitMailbox
from agentq.delivery.rabbitmq.publisher import RabbitPublisher
from agentq.delivery.rabbitmq.topology import declare, user_commands

__all__ = [
    "BrokerFacts",
    "RabbitConsumer",
    "RabbitInbox",
    "RabbitMailbox",
    "RabbitMessage",
    "RabbitPublisher",
    "dead_messages",
    "declare",
    "facts",
    "purge",
    "requeue",
    "user_commands",
]
