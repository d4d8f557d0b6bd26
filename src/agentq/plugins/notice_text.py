"""Notices as people read them: a subject, and a text of one or many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agentq.plugins.hooks import Notice

#: A digest tells of so many in full, and counts the rest.
TOLD_MAX = 50
_TEXT_CHARS = 1000
_WORDS = {
    "approval_wanted": "approval wanted",
    "review_wanted": "review wanted",
    "reminder": "still waits",
    "escalated": "escalated",
    "blocked": "blocked",
    "dead_letter": "dead letter",
    "budget_low": "budget runs low",
    "budget_used_up": "budget used up",
    "circuit_open": "circuit open",
    "run_ended": "run ended",
    "run_failed": "run failed",
    "loop": "agents went in circles",
    "test": "test",
}


def words_of(kind: str) -> str:
    """A kind of notice in ordinary words."""
    return _WORDS.get(kind, kind.replace("_", " "))


def subject_of(notices: Sequence[Notice]) -> str:
    """One line for one notice, or for many."""
    if len(notices) == 1:
        notice = notices[0]
        about = notice["title"] or notice["task"] or notice["role"]
        return f"agentq: {words_of(notice['kind'])}: {about}".rstrip(": ")
    counts = Counter(words_of(each["kind"]) for each in notices)
    parts = ", ".join(f"{count} × {word}" for word, count in counts.most_common())
    return f"agentq: {parts}"


def body_of(notices: Sequence[Notice]) -> str:
    """Plain text: what happened, to which task, and how to look at it."""
    told = "\n\n".join(_paragraph(each) for each in notices[:TOLD_MAX])
    left = len(notices) - TOLD_MAX
    return f"{told}\n\n… and {left} more: `agentq list`" if left > 0 else told


def _paragraph(notice: Notice) -> str:
    role = f"({notice['role']})" if notice["role"] else ""
    about = " ".join(each for each in (notice["task"], notice["title"], role) if each)
    lines = [f"{words_of(notice['kind'])}: {about}".rstrip(": ")]
    if text := notice["text"].strip():
        lines.append(text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}…")
    if notice["task"]:
        lines.append(f"agentq status {notice['task']}")
    return "\n".join(lines)
