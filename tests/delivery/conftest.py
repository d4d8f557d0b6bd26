"""A virtual host of the broker for each test, and users who may do their part."""

from __future__ import annotations

from tests.delivery.users import users
from tests.servers.rabbitmq import rabbitmq_url

__all__ = ["rabbitmq_url", "users"]
