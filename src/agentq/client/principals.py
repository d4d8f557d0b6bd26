"""Who this process is: a person, or an attempt that a worker has started."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agentq.core import access
from agentq.core.errors import Refused
from agentq.settings import actor_from_environment, attempt_from_environment
from agentq.settings.addresses import is_server

if TYPE_CHECKING:
    from agentq.core.access import Principal
    from agentq.settings import Settings


def principal_of(settings: Settings, ledger_id: Callable[[], str]) -> Principal:
    """A person, by the name of `AGENTQ_ACTOR` or of the user; behind the API of an attempt that
    attempt.

    Behind an address the token decides, and what this says only words refusals. A ledger that is
    opened here is not for agents of its own workers: whatever their variables say, they ask their
    worker. `ledger_id` gives the name of the ledger itself; it is asked for where that matters.
    """
    if is_server(settings.url):
        attempt = attempt_from_environment()
        if attempt is not None and attempt.token and attempt.token == settings.token:
            return access.attempt(attempt.task_id, attempt.epoch, attempt.role)
        return access.person(actor_from_environment())
    from agentq.client.ancestry import is_inside_attempt

    if is_inside_attempt(settings, ledger_id):
        raise Refused(
            "This process was started by an agent, and an agent may not open the ledger of its"
            " own worker. Nothing was changed.",
            "Leave AGENTQ_URL and AGENTQ_TOKEN as the worker has set them, or run it outside the"
            " attempt.",
            code="not_permitted",
        )
    return access.person(actor_from_environment())
