"""Notify: what people should know is brought to them, by the plugins that `[notify]` names.

Each target has its own lane of the outbox, thread, process and back-off: one that hangs delays
nobody else, and what it could not take waits for it in the ledger. A notice is settled once the
plugin has said that it is sent, so it may come twice and is never lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentq.contracts.doorbell import lane_topic
from agentq.core.access import SYSTEM
from agentq.core.effects import Notify
from agentq.daemon.carriers import Carriers, PluginPlace, PluginTable, log_failure
from agentq.daemon.loop import Loop, log
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
#: In case the doorbell did not ring, and for what was held until a moment.
_POLL_SECONDS = 5.0
_TITLE_CHARS = 200


class NotifyLoop(Loop):
    """Carries out the lanes `notify:NAME`."""

    name = "notify"
    term = "notify"
    spacing = 0.05

    def __init__(self, service: Service, place: PluginPlace) -> None:
        super().__init__()
        self._service = service
        self._file = PluginTable(DOMAIN, place.source, read_notify)
        #: Another one, as the leader asks from its own thread.
        self._seen_by_leader = PluginTable(DOMAIN, place.source, read_notify)
        self._carriers = Carriers(DOMAIN, place, self.alarm.ring)
        self._known: NotifySettings | None = None
        self._rates: dict[str, MessageRate] = {}
        #: When the first of what each target shall get later is due.
        self._held_until: dict[str, int] = {}

    def wants_term(self) -> bool:
        """Only a process whose settings have [notify] shall run it."""
        return self._seen_by_leader.look().stated

    def run_once(self) -> float:
        settings = self._file.look()
        if settings is not self._known:
            self._follow(settings)
        pause = _POLL_SECONDS
        for target in settings.targets:
            carrier = self._carriers.get(target.name)
            if carrier is not None:
                pause = min(pause, self._carry(target, carrier))
        self._carriers.write_health()
        return pause

    def close(self) -> None:
        self._carriers.close()

    def _follow(self, settings: NotifySettings) -> None:
        """Use settings that are new: lanes, carriers, rates."""
        for target in self._known.targets if self._known is not None else ():
            carrier = self._carriers.get(target.name)
            if carrier is not None:  # what it has sent by now need not be sent again
                self._settle(target, carrier)
        names = [each.name for each in settings.targets]
        if settings.stated:
            self._service.carry_lanes(SYSTEM, DOMAIN, names)
        for problem in settings.problems:
            log.error("notify: %s", problem)
        self._carriers.follow(each.settings for each in settings.targets)
        now = self._service.now()
        self._rates = {
            each.name: _rate(self._rates.get(each.name), each, now) for each in settings.targets
        }
        self.topics = frozenset(lane_topic(f"{DOMAIN}:{name}") for name in names)
        self._known = settings

    def _carry(self, target: NotifyTarget, carrier: Carrier[Any]) -> float:
        """Settle what a target's plugin has done, and give it more; when to look again."""
        busy = carrier.is_busy  # before its results are taken: they are there before it is not
        self._settle(target, carrier)
        if busy or carrier.pause():
            return min(carrier.pause() or _POLL_SECONDS, _POLL_SECONDS)
        now = self._service.now()
        batch = self._service.outbox_batch(SYSTEM, f"{DOMAIN}:{target.name}", BATCH)
        ready, done, held = _sorted(target, batch, now)
        self._service.settle_outbox(SYSTEM, done)
        for until, effects in held.items():
            self._hold(target, effects, until)
        self._offer(target, carrier, ready, now)
        if len(batch) == BATCH and not ready:
            return 0.0
        return self._pause(target, now)

    def _hold(self, target: NotifyTarget, effects: Sequence[OutboundEffect], until: int) -> None:
        """Let these come again at that moment."""
        self._service.settle_outbox(SYSTEM, [], effects, until)
        known = self._held_until.get(target.name)
        self._held_until[target.name] = until if known is None else min(known, until)

    def _pause(self, target: NotifyTarget, now: int) -> float:
        """How many seconds nothing is due, as far as this process knows."""
        until = self._held_until.get(target.name)
        if until is None:
            return _POLL_SECONDS
        if until <= now:
            del self._held_until[target.name]
        return min(max((until - now) / 1000, 0.0), _POLL_SECONDS)

    def _settle(self, target: NotifyTarget, carrier: Carrier[Any]) -> None:
        for result in carrier.collect():
            effects: Sequence[OutboundEffect] = result.token
            if result.error and not result.final:
                log_failure("notify", target.name, carrier, result.error)
                self._service.settle_outbox(SYSTEM, [], effects)
                self.tally.add("not taken", len(effects))
                continue
            if result.error:
                log.error("notify: %s refused a notice for good: %s", target.name, result.error)
            self._service.settle_outbox(SYSTEM, effects)
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
