"""Webhooks: targets are told what happens to tasks, each by a thread of its own.

A target that hangs or fails delays nobody: the loop only starts threads for targets that are due
and have none, and looks again when one ends or something has happened.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agentq.contracts.doorbell import EVENTS_TOPIC, TARGETS_TOPIC
from agentq.contracts.hook_values import WebhookTarget
from agentq.core.access import SYSTEM
from agentq.core.errors import AgentqError
from agentq.daemon.loop import Loop, log
from agentq.hooks.telling import Teller

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.settings.webhooks import WebhookSettings

Targets = Callable[[], Mapping[str, "WebhookSettings"]]

#: In case the doorbell did not ring; so soon a new target is seen, too.
_POLL_SECONDS = 10.0
_END_SECONDS = 3.0


class WebhooksLoop(Loop):
    """Starts a thread for each target that is due. `targets` reads them anew at each round."""

    name = "webhooks"
    term = "webhooks"
    spacing = 0.05

    def __init__(self, service: Service, targets: Targets) -> None:
        super().__init__()
        self._service = service
        self._targets = targets
        self._tellers: dict[str, Teller] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._stopping = False
        #: Targets that a thread is telling, and those of them for which more has happened since.
        self._running: set[str] = set()
        self._again: set[str] = set()
        self._guard = threading.Lock()

    def run_once(self) -> float:
        targets = self._targets()
        # Without targets nobody is woken by what happens.
        self.topics = frozenset({EVENTS_TOPIC, TARGETS_TOPIC} if targets else ())
        if not targets:
            return _POLL_SECONDS
        standings = {each.name: each for each in self._service.webhook_targets(SYSTEM)}
        now, pause = self._service.now(), _POLL_SECONDS
        for name, target in targets.items():
            standing = standings.get(name) or self._begin(name)
            if standing.disabled_at:
                continue
            if standing.due_at > now:
                pause = min(pause, (standing.due_at - now) / 1000)
            else:
                self._start(target, standing)
        return pause

    def _begin(self, name: str) -> WebhookTarget:
        """A new target is told of what happens from now on."""
        standing = WebhookTarget(name, self._service.last_position(SYSTEM))
        self._service.save_webhook(SYSTEM, standing)
        return standing

    def _start(self, target: WebhookSettings, standing: WebhookTarget) -> None:
        with self._guard:
            if target.name in self._running:
                self._again.add(target.name)
                return
            self._running.add(target.name)
            self._again.discard(target.name)
        teller = self._tellers.get(target.name)
        if teller is None:
            teller = Teller(self._service, time.time, random.random, self._is_over)
            self._tellers[target.name] = teller
        thread = threading.Thread(
            target=self._tell, args=(teller, target, standing), daemon=True,
            name=f"agentq-webhook-{target.name}",
        )  # fmt: skip
        self._threads[target.name] = thread
        thread.start()

    def _tell(self, teller: Teller, target: WebhookSettings, standing: WebhookTarget) -> None:
        failed = False
        try:
            after = teller.tell(target, standing)
            failed = bool(after.failures)
            self.tally.add("sent", after.sent - standing.sent)
        except AgentqError as error:
            log.warning("webhooks: %s waits: %s", target.name, error)
        except Exception:  # noqa: BLE001 - its thread must not end in silence
            log.exception("webhooks: telling %s failed in a way that nobody thought of",
                          target.name)  # fmt: skip
        finally:
            with self._guard:
                self._running.discard(target.name)
                wanted = target.name in self._again or self._is_over(target)
            # It may have failed, and is to be tried again some time.
            if wanted or failed:
                self.alarm.ring()

    def _is_over(self, target: WebhookSettings) -> bool:
        """Whether a target is told no more as it was: asked before each event, as what has piled up
        may take hours."""
        return self._stopping or self._targets().get(target.name) != target

    def close(self) -> None:
        self._stopping = True
        for thread in self._threads.values():
            thread.join(_END_SECONDS)
