"""Git: complete work of roles that want it becomes a pull request, which is followed to its end.

What is offered waits in the lane until its pull request is merged or closed, so that is known
without another record: it comes up again and again, and each time somebody looks how it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.core.access import SYSTEM
from agentq.core.effects import OfferWork
from agentq.core.errors import AgentqError, Invalid, NotFound, Refused
from agentq.daemon.carriers import PluginPlace, log_failure
from agentq.daemon.loop import log
from agentq.daemon.plugin_loop import PATIENCE_SECONDS, POLL_SECONDS, PluginLoop
from agentq.plugins.carrier import Carrier, PluginCall, PluginResult
from agentq.settings.git import GitSettings, read_git

if TYPE_CHECKING:
    from agentq.client.pull_requests import PullRequests
    from agentq.contracts.service import Service
    from agentq.contracts.service_values import OutboundEffect
    from agentq.plugins.hooks import PullRequest

DOMAIN = OfferWork.lane
BATCH = 20
#: What another try cannot mend.
_FINAL = (Invalid, NotFound, Refused)


class GitLoop(PluginLoop[GitSettings, GitSettings]):
    """Carries out the lane `git:NAME`."""

    name = "git"
    term = "git"

    def __init__(
        self, service: Service, place: PluginPlace, pulls: PullRequests,
        patience: float = PATIENCE_SECONDS,
    ) -> None:  # fmt: skip
        super().__init__(service, place, DOMAIN, read_git, patience)
        self._pulls = pulls

    def rows(self, settings: GitSettings) -> dict[str, GitSettings]:
        return {each.name: settings for each in settings.plugins}

    def carry(self, settings: GitSettings, carrier: Carrier[Any]) -> float:
        assert settings.settings is not None
        busy = carrier.is_busy  # before its results are taken: they are there before it is not
        for result in carrier.collect():
            self._use(settings, carrier, result)
        if busy or carrier.pause():
            return min(carrier.pause() or POLL_SECONDS, POLL_SECONDS)
        lane = f"{DOMAIN}:{settings.settings.name}"
        calls = []
        batch = self.service.outbox_batch(SYSTEM, lane, BATCH)
        asked = set[str]()
        for effect in batch:
            if effect.task.id in asked:  # a person has opened it meanwhile: one look is enough
                self.service.settle_outbox(SYSTEM, [effect])
                continue
            asked.add(effect.task.id)
            call = self._call(settings, effect)
            if call is not None:
                calls.append(call)
        carrier.offer(calls)
        return 0.0 if len(batch) == BATCH and not calls else min(settings.every, POLL_SECONDS)

    def _call(self, settings: GitSettings, effect: OutboundEffect) -> PluginCall[Any] | None:
        """What to ask about one task; None if it is settled for now."""
        task = effect.task
        number = self._pulls.number(task.id)
        if number:
            return PluginCall(effect, "look", {"number": number})
        try:
            if not self._pulls.is_wanted(task):
                self.service.settle_outbox(SYSTEM, [effect])
                return None
            return PluginCall(effect, "open", {"change": self._pulls.push(task.id, settings)})
        except _FINAL as error:
            self._give_up(effect, f"No pull request was opened: {error.cause}")
        except AgentqError as error:
            log.warning("git: %s is tried again: %s", task.id, error)
            self.service.settle_outbox(SYSTEM, [], [effect])
        return None

    def _use(self, settings: GitSettings, carrier: Carrier[Any], result: PluginResult[Any]) -> None:
        effect: OutboundEffect = result.token
        if result.error and result.final:
            self._give_up(effect, f"No pull request was opened: {result.error}")
        elif result.error:
            log_failure("git", carrier.process.name, carrier, result.error)
            self.retry(carrier, [effect])
        else:
            self._tell(settings, effect, result.value)

    def _tell(self, settings: GitSettings, effect: OutboundEffect, pull: PullRequest) -> None:
        """Say on the task how its pull request stands, and look again later unless it is over."""
        try:
            task = self.service.task(SYSTEM, effect.task.id)
            if self._pulls.tell(task, pull, settings.base):
                self.tally.add("told")
        except _FINAL as error:
            self._give_up(effect, f"Its pull request is not followed: {error.cause}")
            return
        if pull["state"] == "open":
            later = self.service.now() + settings.every * 1000
            self.service.settle_outbox(SYSTEM, [], [effect], later)
        else:
            self.service.settle_outbox(SYSTEM, [effect])

    def _give_up(self, effect: OutboundEffect, text: str) -> None:
        """Say on the task why nothing more comes, and forget it."""
        log.error("git: %s: %s", effect.task.id, text)
        self.service.comment(SYSTEM, effect.task.id, text)
        self.service.settle_outbox(SYSTEM, [effect])
