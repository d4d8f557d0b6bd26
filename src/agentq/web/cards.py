"""What a board shows of a task: small enough that thousands travel at once."""

from __future__ import annotations

from typing import Any

from agentq.core.states import State
from agentq.core.task import Task

_TEXT_CHARS_MAX = 200


def card_of(task: Task) -> dict[str, Any]:
    """The card of a task. What is empty is left out."""
    spec, details = task.spec, task.details
    spent = details.spent
    card = {
        "title": spec.title or _first_line(spec.instructions),
        "sender": spec.sender,
        "max": spec.max_attempts,
        "type": spec.type if spec.type != "task" else "",
        "epoch": task.epoch,
        "holder": task.holder,
        "note": _short(details.progress_note),
        "usd": round(spent.usd, 4),
        "estimated": bool(spent.estimated_usd),
        "tokens": spent.tokens,
        "labels": dict(spec.labels),
        "parent": spec.parent,
        "workflow": spec.workflow,
        "reviews": spec.reviews,
        "reason": _short(task.reason),
        "summary": _short(task.summary),
        "irreversible": spec.irreversible,
        "applied": details.applied_commit,
        "decision": decision_of(task),
        "waits": _waits(task),
        "denied": details.denied,
        "mentions": [each.name for each in details.mentions],
    }
    known = {"percent": details.progress_percent, "score": details.score}
    return {
        "id": task.id,
        "role": task.to,
        "state": task.state,
        "priority": spec.priority,
        "version": task.version,
        "since": task.submitted_at,
        "at": task.updated_at,
        **{name: value for name, value in known.items() if value >= 0},
        **{name: value for name, value in card.items() if value not in ("", 0, [], {}, ())},
    }


def decision_of(task: Task) -> str:
    """What a person is asked for: approval, review, question or dead letter; "" for nothing."""
    details = task.details
    if task.state is State.BLOCKED:
        return "question"
    if task.state is State.REVIEW:
        return "" if details.review_task else "review"
    if task.state in (State.FAILED, State.EXPIRED):
        return "dead_letter"
    if task.state is State.PENDING and task.spec.needs_approval and not details.approved_by:
        return "approval"
    return ""


def _waits(task: Task) -> dict[str, Any]:
    """What a task waits for that is not over: tasks, children, signals, a moment, a reviewer."""
    details = task.details
    found: dict[str, Any] = {
        "after": list(details.waiting_on[:5]),
        "children": list(details.children[:5]) if details.yielded else [],
        "signals": list(details.awaited_signals),
        "until": details.not_before if task.state is State.PENDING else 0,
        "held": _held(task),
        "review": details.review_task if task.state is State.REVIEW else "",
    }
    return {name: value for name, value in found.items() if value}


def _held(task: Task) -> dict[str, Any]:
    """Who keeps it from starting, and why; empty if nobody does."""
    held = task.details.held
    return {} if held is None else {"by": held.by, "at": held.at, "reason": _short(held.reason)}


def _first_line(text: str) -> str:
    return _short(text.strip().partition("\n")[0])


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS_MAX else text[: _TEXT_CHARS_MAX - 1] + "…"
