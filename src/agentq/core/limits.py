"""Limits of sizes, counts and budgets, and the pure checks that enforce them."""

from __future__ import annotations

import msgspec

from agentq.core.rates import NO_RATE, Rate
from agentq.core.task import NO_USAGE, Task, Usage

ENVELOPE_BYTES_MAX = 64 * 1024
#: Longer instructions move to the context file by themselves.
INSTRUCTIONS_BYTES_MAX = 16 * 1024
CONTEXT_BYTES_MAX = 8 * 1024 * 1024
SUMMARY_CHARS_MAX = 4_000
NOTE_CHARS_MAX = 16_000
PROGRESS_CHARS_MAX = 500
NAME_CHARS_MAX = 200
BATCH_MAX = 10_000
NOTES_KEPT = 20
#: Messages of people to the agent of a task.
MESSAGES_KEPT = 20
REFUSED_REPORTS_KEPT = 10
#: How often an attempt that has ended may still say what it cost.
LATE_COSTS_MAX = 10
#: Open children of one task, and how many of those that ended it remembers.
CHILDREN_MAX = 1000
#: Signals that a task keeps for whoever may wait for them.
SIGNALS_KEPT = 50
#: A structured result, the data of a signal, and the inputs of a task, as JSON.
DATA_CHARS_MAX = 32 * 1024
#: How often a reviewer may ask for changes before a person is asked, unless the gates say so.
ROUNDS_MAX = 3
#: How many tasks one `each` may make.
FAN_OUT_MAX = 1000
CRASHES_MAX = 3
REMINDER_MS = 24 * 3600 * 1000
WARN_SHARE = 0.8
DAY_MS = 24 * 3600 * 1000
#: A circuit that is open for longer than this is a slip, or somebody's idea of a joke.
CIRCUIT_MS_MAX = 366 * DAY_MS
#: Of what an attempt left in its tree so much is kept, unless its role says otherwise.
SNAPSHOT_BYTES = 256 * 1024 * 1024
UNITS = ("usd", "tokens", "turns", "seconds")


class RoleLimits(msgspec.Struct, frozen=True):
    """What one role may have at once, spend on a day (in UTC), and how often its tasks may start.
    0 means no limit."""

    max_running: int = 0
    max_review: int = 0
    paused: bool = False
    daily: Usage = NO_USAGE
    rate: Rate = NO_RATE

    def room(self, running: int, in_review: int) -> tuple[int, str]:
        """How many more may be claimed (-1: any number), and what holds the next one back."""
        if self.paused:
            return 0, "the role is paused"
        if self.max_review and in_review >= self.max_review:
            return 0, f"{in_review} of its tasks wait for review and the limit is {self.max_review}"
        if not self.max_running:
            return -1, ""
        free = max(self.max_running - running, 0)
        if free:
            return free, ""
        return 0, f"{running} of its tasks are running and the limit is {self.max_running}"

    def used_up(self, today: Usage) -> str:
        """Why nothing more is started today, in words; empty if there is budget left."""
        gone = overspent(self.daily, NO_USAGE, today)
        return f"its budget of this day (UTC) is used up: {gone}" if gone else ""

    def too_small_for(self, task: Task, today: Usage) -> str:
        """Why the task does not fit into what is left of the day, in words; empty if it does.

        Only a task with a budget of its own says how much it may take.
        """
        for unit in UNITS:
            allowed, asked = getattr(self.daily, unit), getattr(task.spec.budget, unit)
            if not allowed or not asked:
                continue
            asked += getattr(task.details.extra_budget, unit) - getattr(task.details.spent, unit)
            left = allowed - getattr(today, unit)
            if round(asked - left, 9) > 0:
                return (
                    f"it may spend {asked:g} {unit}, and {left:g} of the {allowed:g} {unit} of this"
                    " day (UTC) are left"
                )
        return ""


NO_LIMITS = RoleLimits()


class KeyLimits(msgspec.Struct, frozen=True):
    """How many tasks may hold a resource at once, and how often one may start that needs it."""

    max_held: int = 1
    rate: Rate = NO_RATE


ONE_AT_ONCE = KeyLimits()


def overspent(budget: Usage, extra: Usage, spent: Usage, share: float = 1.0) -> str:
    """Which part of the budget is used up to `share` of it, in words; empty if none is."""
    for unit in UNITS:
        allowed = getattr(budget, unit)
        if not allowed:
            continue
        allowed += getattr(extra, unit)
        used = getattr(spent, unit)
        if used >= allowed * share:
            return f"{used:g} of {allowed:g} {unit} are spent"
    return ""


def shorten(text: str, limit: int) -> str:
    """Keep the head and the tail of an overlong text: errors tell their cause at either end."""
    if len(text) <= limit:
        return text
    half = (limit - 40) // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
