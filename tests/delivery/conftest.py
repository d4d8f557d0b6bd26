"""A virtual host of the broker for each test, and users who may do their part."""

from __future__ import annotations

from tests.delivery.users import users

__all__ = ["users"]
