"""Pushes the branch of an attempt that ended well; a push that failed is part of its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.core.limits import SUMMARY_CHARS_MAX, shorten
from agentq.repository.remotes import PUSH_FAILED

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt


def push_branch(attempt: Attempt) -> str:
    """Push the branch, if the role names a remote; what went wrong is shown, and returned."""
    problem = attempt.push().removeprefix("Not pushed: ")
    if not problem:
        return ""
    attempt.shared.warn(attempt.task.id, "push failed", problem)
    return f"{PUSH_FAILED}: {problem}"


def with_push(summary: str, problem: str) -> str:
    """The summary of a report, with a push that failed at its end."""
    if not problem:
        return summary
    room = max(0, SUMMARY_CHARS_MAX - len(problem) - 2)
    return f"{shorten(summary, room)}\n\n{problem}" if summary else problem
