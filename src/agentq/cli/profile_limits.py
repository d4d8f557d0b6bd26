"""The limits of agents, from their profiles into the ledger."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError
from agentq.core.limits import NO_LIMITS
from agentq.core.values import replace

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.core.access import Principal
    from agentq.settings.profiles import Profile

log = logging.getLogger("agentq.worker")


class ProfileLimits:
    """Lets the ledger hold what profiles say: how many tasks at once, how much on a day."""

    def __init__(self, queue: Client, who: Principal) -> None:
        """`who` may change limits; a worker itself may not."""
        self._queue = queue
        self._who = who

    def apply(self, profiles: Iterable[Profile]) -> None:
        """Set the limits of these agents' roles where they differ; pausing is an act, and stays."""
        service = self._queue.service
        try:
            known = service.limits(self._who)
            for profile in profiles:
                for role in profile.roles:
                    held = known.get(role, NO_LIMITS)
                    wanted = replace(profile.settings.limits, paused=held.paused)
                    if wanted != held:
                        service.set_limits(self._who, role, wanted)
        except AgentqError as error:
            log.warning("the limits of agents could not be set: %s", error)
