"""Notify: what people should know is brought to them, by the plugins that `[notify]` names.

A notice is settled once the plugin has said that it is sent: it may come twice, and is never lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentq.core.access import SYSTEM
from agentq.core.effects import Notify
from agentq.daemon.carriers import PluginPlace, log_failure
from agentq.daemon.loop import log
from agentq.daemon.plugin_loop import PATIENCE_SECONDS, POLL_SECONDS, PluginLoop
from agentq.plugins.carrier import Carrier, PluginCall
from agentq.plugins.hooks import Notice
from agentq.plugins.routing import MessageRate
from agentq.protocol.envelope import iso
from agentq.settings.notify import NotifySettings, NotifyTarget, read_notify

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.contracts.service_values import OutboundEffect

DOMAIN = Notify.lane
BATCH = 200
_TITLE_CHARS = 200


class NotifyLoop(PluginLoop[NotifySettings, NotifyTarget]):
    """Carries out the lanes `notify:NAME`."""

    name = "notify"
    term = "notify"

    def __init__(
        self, service: Service, place: PluginPlace, patience: float = PATIENCE_SECONDS
    ) -> None:
        super().__init__(service, place, DOMAIN, read_notify, patience)
        self._rates: dict[str, MessageRate] = {}
        #: When the first of what each target shall get later is due.
        self._held_until: dict[str, int] = {}

    def rows(self, settings: NotifySettings) -> dict[str, NotifyTarget]:
        return {each.name: each for each in settings.targets}

    def changed(self, settings: NotifySettings) -> None:
        for target in self.known.targets if self.known is not None else ():
            carrier = self.carriers.get(target.name)
            if carrier is not None:  # what it has sent by now need not be sent again
                self._settle(target, carrier)
        now = self.service.now()
        self._rates = {
            each.name: _rate(self._rates.get(each.name), each, now) for each in settings.targets
        }

    def carry(self, target: NotifyTarget, carrier: Carrier[Any]) -> float:
        """Settle what a target's plugin has done, and give it more; when to look again."""
        busy = carrier.is_busy  # before its results are taken: they are there before it is not
        self._settle(target, carrier)
        if busy or carrier.pause():
            return min(carrier.pause() or POLL_SECONDS, POLL_SECONDS)
        now = self.service.now()
        batch = self.service.outbox_batch(SYSTEM, f"{DOMAIN}:{target.name}", BATCH)
        ready, done, held = _sorted(target, batch, now)
        self.service.settle_outbox(SYSTEM, done)
        for until, effects in held.items():
            self._hold(target, effects, until)
        self._offer(target, carrier, ready, now)
        if len(batch) == BATCH and not ready:
            return 0.0
        return self._pause(target, now)

    def _hold(self, target: NotifyTarget, effects: Sequence[OutboundEffect], until: int) -> None:
        """Let these come again at that moment."""
        self.service.settle_outbox(SYSTEM, [], effects, until)
        known = self._held_until.get(target.name)
        self._held_until[target.name] = until if known is None else min(known, until)

    def _pause(self, target: NotifyTarget, now: int) -> float:
        """How many seconds nothing is due, as far as this process knows."""
        until = self._held_until.get(target.name)
        if until is None:
            return POLL_SECONDS
        if until <= now:
            del self._held_until[target.name]
        return min(max((until - now) / 1000, 0.0), POLL_SECONDS)

    def _settle(self, target: NotifyTarget, carrier: Carrier[Any]) -> None:
        for result in carrier.collect():
            effects: Sequence[OutboundEffect] = result.token
            if result.error and not result.final:
                log_failure("notify", target.name, carrier, result.error)
                self.retry(carrier, effects)
                self.tally.add("not taken", len(effects))
                continue
            if result.error:
                log.error("notify: %s refused a notice for good: %s", target.name, result.error)
            self.service.settle_outbox(SYSTEM, effects)
            self.tally.add("refused" if result.error else "sent", len(effects))

    def _offer(
        self, target: NotifyTarget, carrier: Carrier[Any], ready: Sequence[Paired], now: int
    ) -> None:
        """Give the plugin what is ready, in as many messages as it may get."""
        if not ready:
            return
        wanted = 1 if target.rules.grouped(len(ready)) else len(ready)
        rate = self._rates[target.name]
        allowed = rate.take(wanted, now)
        if not allowed:
            effects = [effect for effect, _ in ready]
            self._hold(target, effects, max(rate.next_at(), now + 1000))
            return
        # All that one message too few would hold back goes with the last one.
        parts = [*([each] for each in ready[: allowed - 1]), ready[allowed - 1 :]]
        carrier.offer([
            PluginCall(
                tuple(effect for effect, _ in part), "send",
                {"notices": [notice for _, notice in part]},
            )
            for part in parts
        ])  # fmt: skip


#: An effect, and what people are told of it.
Paired = tuple["OutboundEffect", Notice]


def _rate(known: MessageRate | None, target: NotifyTarget, now: int) -> MessageRate:
    rate = target.rules.rate
    return known if known is not None and known.rate == rate else MessageRate(rate, now)


def _sorted(
    target: NotifyTarget, batch: Sequence[OutboundEffect], now: int
) -> tuple[list[Paired], list[OutboundEffect], dict[int, list[OutboundEffect]]]:
    """What a target is told now, what it does not want, and what it is told at later moments."""
    ready, unwanted = [], []
    held: dict[int, list[OutboundEffect]] = defaultdict(list)
    for effect in batch:
        notice = notice_of(effect, target)
        if not target.rules.wants(notice):
            unwanted.append(effect)
        elif until := target.rules.held_until(notice, now, was_held=effect.tries > 0):
            held[until].append(effect)
        else:
            ready.append((effect, notice))
    return ready, unwanted, held


def notice_of(effect: OutboundEffect, target: NotifyTarget) -> Notice:
    """What people are told of an effect."""
    task, kind = effect.task, str(effect.data.get("kind", ""))
    text = str(effect.data.get("text", ""))
    title = task.spec.title or task.spec.instructions.strip().partition("\n")[0]
    return Notice(
        id=f"{DOMAIN}-{effect.id}",
        kind=kind,
        severity=target.rules.severity_of(kind),
        task=task.id,
        role=task.to,
        title=title[:_TITLE_CHARS],
        text="" if text == title else text,
        at=iso(task.updated_at) or "",
    )
