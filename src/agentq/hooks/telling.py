"""Telling one target what happened: every event it wants, in order, until it has taken it.

The log is followed from a position that is stored per target, so nothing is lost whatever is
killed, and an event may be sent twice under the same id, never under another. A target that does
not take an event is tried again, later and later; after that it is disabled and shown, and goes on
from there once somebody enables it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from agentq.contracts.hook_values import HookDelivery, HookState, WebhookTarget
from agentq.core.access import SYSTEM
from agentq.core.errors import AgentqError, Refused
from agentq.core.values import replace
from agentq.hooks.posting import PostAnswer, post
from agentq.hooks.signatures import standard_signature
from agentq.settings.addresses import remember_secrets
from agentq.settings.references import resolve

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.core.task import Task
    from agentq.core.triggers import LogEntry
    from agentq.settings.webhooks import WebhookSettings

log = logging.getLogger("agentq.daemon.webhooks")

#: Failures in a row after which a target is told no more: with the pauses below about two days.
FAILURES_MAX = 24
_PAUSE_MS, _PAUSE_MS_MAX = 5_000, 3 * 3600 * 1000
_PAGE = 200
#: Events that nobody wanted are passed in memory; so many are not passed again after a restart.
_PASSED_MAX = 5_000
#: What happens to a task without changing how it stands; sent only to who names it.
_QUIET = frozenset({
    "artifact_added", "applied", "children_submitted", "child_ended", "commented", "messages_taken",
    "progress", "reminded", "signalled", "spent", "told",
})  # fmt: skip

Send = Callable[["WebhookSettings", Mapping[str, str], bytes], PostAnswer]


def send(target: WebhookSettings, headers: Mapping[str, str], body: bytes) -> PostAnswer:
    """Post to a target as its settings say."""
    return post(target.url, headers, body, allow_private=target.allow_private)


class _Told(NamedTuple):
    """What became of one event."""

    error: str = ""
    gone: bool = False


class Teller:
    """Tells one target. `seconds` is the clock that deliveries are dated by, `chance` spreads the
    pauses, and `stopping` says that a target is to be told no more: the process is about to end, or
    the settings of the target are others by now."""

    def __init__(
        self,
        service: Service,
        seconds: Callable[[], float],
        chance: Callable[[], float],
        stopping: Callable[[WebhookSettings], bool] = lambda _: False,
        sending: Send = send,
    ) -> None:
        self._service = service
        self._seconds = seconds
        self._chance = chance
        self._stopping = stopping
        self._sending = sending
        self._passed = 0
        self._ledger_id = ""

    def tell(self, target: WebhookSettings, standing: WebhookTarget) -> WebhookTarget:
        """Send what has happened since; how the target stands now."""
        self._ledger_id = self._ledger_id or self._service.ledger_id(SYSTEM)
        self._passed = max(self._passed, standing.position)
        while not self._stopping(target):
            entries = self._service.events_after(SYSTEM, self._passed, _PAGE)
            if not entries:
                break
            for entry, task in self._wanted(target, entries):
                standing = self._deliver(target, standing, entry, task)
                if standing.failures or self._stopping(target):
                    self._passed = standing.position
                    return standing
                self._passed = entry.position
            self._passed = entries[-1].position
        if self._passed - standing.position > _PASSED_MAX:
            standing = replace(standing, position=self._passed)
            self._service.save_webhook(SYSTEM, standing)
        return standing

    def _wanted(
        self, target: WebhookSettings, entries: Sequence[LogEntry]
    ) -> Iterator[tuple[LogEntry, Task | None]]:
        chosen = [each for each in entries if _is_wanted(target, each)]
        ids = list({each.task_id for each in chosen})
        tasks = self._service.tasks_by_id(SYSTEM, ids) if ids else {}
        for each in chosen:
            task = tasks.get(each.task_id)
            if not target.roles or (task is not None and task.to in target.roles):
                yield each, task

    def _deliver(
        self, target: WebhookSettings, standing: WebhookTarget, entry: LogEntry, task: Task | None
    ) -> WebhookTarget:
        """Try one event once, and write down what became of it."""
        message_id = f"evt_{self._ledger_id}_{entry.position}"
        body = payload(entry, task)
        told = self._try(target, message_id, body)
        now = self._service.now()
        tries = standing.failures + 1
        sent = HookDelivery(
            0, target.name, message_id, now, HookState.FAILED if told.error else HookState.DONE,
            tries, told.error, (entry.task_id,), {"type": f"task.{entry.event.kind}"}, body,
        )  # fmt: skip
        if told.error:
            standing = self._failed(replace(standing, position=entry.position - 1), told, now)
        else:
            standing = replace(
                standing, position=entry.position, failures=0, due_at=0, error="",
                sent=standing.sent + 1, last_at=now,
            )  # fmt: skip
        self._service.save_webhook(SYSTEM, standing, sent)
        return standing

    def _try(self, target: WebhookSettings, message_id: str, body: bytes) -> _Told:
        try:
            where = f"secret of [webhooks.{target.name}]"
            secret = resolve(target.secret, where, target.folder).value
            remember_secrets(secret)
            moment = int(self._seconds())
            headers = {
                "Content-Type": "application/json",
                "User-Agent": "agentq",
                "webhook-id": message_id,
                "webhook-timestamp": str(moment),
                "webhook-signature": standard_signature(secret, message_id, moment, body),
            }
            answer = self._sending(target, headers, body)
        except AgentqError as error:
            return _Told(
                f"{error.cause} {error.remedy if isinstance(error, Refused) else ''}".strip()
            )
        if answer.is_good:
            return _Told()
        said = f": {answer.text[:200]}" if answer.text else ""
        return _Told(f"The target answered {answer.status}{said}", answer.status == 410)

    def _failed(self, standing: WebhookTarget, told: _Told, now: int) -> WebhookTarget:
        failures = standing.failures + 1
        pause = min(_PAUSE_MS * 2 ** min(failures - 1, 20), _PAUSE_MS_MAX)
        due_at = now + int(pause * (0.75 + self._chance() / 2))
        disabled = told.gone or failures >= FAILURES_MAX
        if disabled:
            log.error("webhook %s: disabled after %d failures: %s. `agentq webhooks enable %s` goes"
                      " on.", standing.name, failures, told.error, standing.name)  # fmt: skip
        elif failures == 1:
            log.warning("webhook %s: tried again: %s", standing.name, told.error)
        return replace(
            standing, failures=failures, due_at=due_at, error=told.error,
            disabled_at=now if disabled else 0,
        )  # fmt: skip


def _is_wanted(target: WebhookSettings, entry: LogEntry) -> bool:
    event = entry.event
    if target.events:
        if event.kind not in target.events:
            return False
    elif event.kind in _QUIET:
        return False
    return not target.states or str(event.state) in target.states


def payload(entry: LogEntry, task: Task | None) -> bytes:
    """What is sent: what happened, and to which task. The same at every try, unless the task was
    edited or pruned meanwhile."""
    event = entry.event
    data: dict[str, object] = {
        "task_id": entry.task_id,
        "event": event.kind,
        "state": str(event.state),
        "version": event.version,
        "epoch": event.epoch,
        "position": entry.position,
    }
    if task is not None:
        data |= {
            "role": task.to,
            "title": task.spec.title,
            "from": task.spec.sender,
            "labels": dict(task.spec.labels),
            "parent": task.spec.parent or None,
        }
    at = datetime.fromtimestamp(event.at / 1000, UTC).isoformat(timespec="milliseconds")
    plain = {"type": f"task.{event.kind}", "timestamp": at.replace("+00:00", "Z"), "data": data}
    return json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace")
