"""A virtual host of the broker for each test."""

from __future__ import annotations

from tests.servers.rabbitmq import rabbitmq_url

__all__ = ["rabbitmq_url"]
