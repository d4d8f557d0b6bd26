"""Kanban: cards in the first column of a board become tasks, and follow their tasks' states.

Each board has its own lane, thread, process and back-off. A card is submitted under an idempotency
key of its own, so it becomes one task however often it is seen. What moves is told by effects of
the task, at least once; a card goes where its task stands by then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentq.client.task_input.specs import draft
from agentq.core.access import SYSTEM
from agentq.core.effects import CARD_LABEL, MoveCard
from agentq.core.errors import AgentqError, Conflict, Invalid
from agentq.core.limits import shorten
from agentq.core.states import State
from agentq.daemon.carriers import PluginPlace, log_failure
from agentq.daemon.loop import log
from agentq.daemon.plugin_loop import PATIENCE_SECONDS, POLL_SECONDS, PluginLoop
from agentq.plugins.carrier import Carrier, PluginCall, PluginResult
from agentq.settings.kanban import BoardSettings, KanbanSettings, read_kanban

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.contracts.service_values import OutboundEffect
    from agentq.core.task import Task

DOMAIN = MoveCard.lane
BATCH = 100
_TITLE_CHARS, _NOTE_CHARS = 200, 300
#: Who submits what boards ask for.
_SENDER = "kanban"
_BLOCKED = State.BLOCKED


class KanbanLoop(PluginLoop[KanbanSettings, BoardSettings]):
    """Carries out the lanes `kanban:NAME`, and looks at the boards."""

    name = "kanban"
    term = "kanban"

    def __init__(
        self, service: Service, place: PluginPlace, patience: float = PATIENCE_SECONDS
    ) -> None:
        super().__init__(service, place, DOMAIN, read_kanban, patience)
        #: When each board was last looked at, and the cards of it that were submitted.
        self._looked: dict[str, float] = {}
        self._submitted: dict[str, set[str]] = {}
        #: Calls that move cards which cannot be tasks out of the way.
        self._refused: dict[str, list[PluginCall[Any]]] = {}

    def rows(self, settings: KanbanSettings) -> dict[str, BoardSettings]:
        return {each.name: each for each in settings.boards}

    def changed(self, settings: KanbanSettings) -> None:
        self._looked = {}

    def carry(self, board: BoardSettings, carrier: Carrier[Any]) -> float:
        """Use what a board's plugin has answered, and ask it more; when to look again."""
        busy = carrier.is_busy  # before its results are taken: they are there before it is not
        refused = self._refused.setdefault(board.name, [])
        for each in carrier.collect():
            refused += self._use(board, carrier, each)
        if busy or carrier.pause():
            return min(carrier.pause() or POLL_SECONDS, POLL_SECONDS)
        calls = [*refused, *self._moves(board)]
        refused.clear()
        due = self._looked.get(board.name, -board.every) + board.every - time.monotonic()
        if due <= 0 or board.name not in self._looked:
            self._looked[board.name], due = time.monotonic(), float(board.every)
            calls.append(PluginCall(None, "cards", {"column": board.todo}))
        carrier.offer(calls)
        return min(due, POLL_SECONDS)

    def _use(
        self, board: BoardSettings, carrier: Carrier[Any], result: PluginResult[Any]
    ) -> list[PluginCall[Any]]:
        """Use one answer: settle what was moved, submit what is new. Return what is to be called
        in turn."""
        if result.error and not result.final:
            log_failure("kanban", board.name, carrier, result.error)
        elif result.error:
            log.error("kanban: %s refused this for good: %s", board.name, result.error)
        if result.token is None:
            return [] if result.error else self._submit(board, result.value)
        effects: Sequence[OutboundEffect] = result.token
        if result.error and not result.final:
            self.retry(carrier, effects)
        else:
            self.service.settle_outbox(SYSTEM, effects)
            self.tally.add("moved", 0 if result.error or not effects else 1)
        return []

    def _moves(self, board: BoardSettings) -> list[PluginCall[Any]]:
        """One call for each card whose task has changed; what is of other boards is settled."""
        batch = self.service.outbox_batch(SYSTEM, f"{DOMAIN}:{board.name}", BATCH)
        by_card: dict[str, list[OutboundEffect]] = {}
        others = []
        for effect in batch:
            name, _, card = str(effect.data.get("card", "")).partition(":")
            if name == board.name and board.columns.get(effect.task.state):
                by_card.setdefault(card, []).append(effect)
            else:
                others.append(effect)
        self.service.settle_outbox(SYSTEM, others)
        return [
            _move(card, board.columns[effects[-1].task.state], _note(effects[-1].task), effects)
            for card, effects in by_card.items()
        ]

    def _submit(self, board: BoardSettings, cards: Any) -> list[PluginCall[Any]]:
        """Submit cards that are new. One that cannot be a task is moved away, with the reason."""
        known = self._submitted.setdefault(board.name, set())
        calls = []
        for card in cards if isinstance(cards, list) else ():
            name, title, text = _fields(card)
            if not name or not title or name in known:
                continue
            try:
                task = self._submit_one(board, name, title, text)
                log.info("kanban: the card %r of %s is %s", title, board.name, task.id)
                self.tally.add("submitted")
            except Conflict:  # it is a task already, and its text was changed since
                pass
            except Invalid as error:
                column = board.columns[_BLOCKED]
                calls.append(_move(name, column, shorten(str(error), _NOTE_CHARS), ()))
                continue  # it is seen again unless it was moved
            except AgentqError as error:
                log.warning("kanban: the card %r is tried again: %s", title, error)
                continue
            known.add(name)
        return calls

    def _submit_one(self, board: BoardSettings, name: str, title: str, text: str) -> Task:
        made = draft({
            "to": board.to,
            "title": title,
            "instructions": f"{title}\n\n{text}".strip(),
            "from": _SENDER,
            "labels": {CARD_LABEL: f"{board.name}:{name}"},
            "idempotency_key": f"card:{board.name}:{name}",
        })  # fmt: skip
        generated = (made.spec.id,) if made.generated else ()
        (task,) = self.service.submit(SYSTEM, [made.spec], dict(made.contexts), generated)
        return task


def _fields(card: Any) -> tuple[str, str, str]:
    """The id, title and text of a card, as a stranger's plugin gave it."""
    if not isinstance(card, dict):
        return "", "", ""
    title = " ".join(str(card.get("title", "")).split())
    return str(card.get("id", "")), title[:_TITLE_CHARS], str(card.get("text", ""))


def _move(card: str, column: str, note: str, effects: Sequence[OutboundEffect]) -> PluginCall[Any]:
    return PluginCall(tuple(effects), "move", {"card": card, "column": column, "note": note})


def _note(task: Task) -> str:
    """What a card says of its task: where it stands, and why."""
    report = task.details.report
    why = task.reason or (report.summary if report is not None and task.is_terminal else "")
    words = f"{task.id} is {str(task.state).replace('_', ' ')}"
    return shorten(f"{words}: {why}" if why else words, _NOTE_CHARS)
