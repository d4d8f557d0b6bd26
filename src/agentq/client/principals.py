"""Who this process is, by its environment: a person, or an attempt that a worker has started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentq.core import access
from agentq.core.errors import Refused
from agentq.settings import MEMORY, actor_from_environment, attempt_from_environment, sqlite_path

if TYPE_CHECKING:
    from agentq.core.access import Principal
    from agentq.settings import AttemptEnvironment, Settings


def principal_of(settings: Settings) -> Principal:
    """The attempt that this process works for, if a worker gave it a token; else a person, by the
    name of `AGENTQ_ACTOR` or of the user.

    An attempt is one in the ledger of its worker: in another ledger its process is anybody.
    """
    if settings.url.startswith("http"):
        return access.person(actor_from_environment())  # the server knows by the token
    attempt = attempt_from_environment()
    if attempt is None or not attempt.token or not _is_in(attempt, settings):
        return access.person(actor_from_environment())
    from agentq.client.tokens import is_good

    grants = access.parse_grants(attempt.may, "AGENTQ_MAY")
    if not is_good(settings.home, attempt.task_id, attempt.epoch, attempt.token, grants):
        raise Refused(
            f"This process works on attempt {attempt.epoch} of {attempt.task_id}, and its"
            " AGENTQ_TOKEN is not the one of that attempt. Nothing was changed.",
            "Leave the variables as the worker has set them, or run it outside the attempt.",
            code="bad_token",
        )
    return access.attempt(attempt.task_id, attempt.epoch, attempt.role, grants)


def _is_in(attempt: AttemptEnvironment, settings: Settings) -> bool:
    if not attempt.url:
        return True
    if not settings.url.startswith("sqlite:") or not attempt.url.startswith("sqlite:"):
        return settings.url == attempt.url
    here, there = settings.sqlite_path, sqlite_path(attempt.url)
    return MEMORY not in (here, there) and os.path.realpath(here) == os.path.realpath(there)
