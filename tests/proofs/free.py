"""What nobody can tell to be a lie, with the reason. One place: whoever adds a column adds a rule
to `agentq verify`, or a sentence here."""

from __future__ import annotations

from collections.abc import Callable

from tests.proofs.lies import ADDED, DELETED, Lie

#: So many events the told ledger has at least.
LOG_MIN = 20

_BUCKET = "how full the bucket of a rate was when somebody last took from it"
_SEEN = "when somebody last asked; nothing is decided by it"

#: By column, `table.*`, or by what happened to a row. None of these is ever found.
FREE: dict[str, str] = {
    "head.key_floor": "which keys of tasks were used: none of them is decided by",
    "roles.level": _BUCKET,
    "roles.level_at": _BUCKET,
    "roles.next_at": _BUCKET,
    "roles.seen_at": _SEEN,
    "roles.provider": _SEEN,
    f"roles.{ADDED}": "a role is there as soon as somebody names it, and without tasks it is empty",
    "resources.level": _BUCKET,
    "resources.level_at": _BUCKET,
    "resources.next_at": _BUCKET,
    "audit.*": "a log of its own, beside the ledger's; rows of it go when they are old",
    "schedules.*": "what a schedule asks for is in its file; how it stands is worked out again",
    "hook_deliveries.*": "what others have sent; tasks that came of it have logs of their own",
    "webhook_targets.*": "how far others were told of the log; they may be told again",
    "terms.*": "who runs a loop or works just now: renewed all the time, and over within minutes",
    "samples.*": "statistics of tasks that may be gone; nothing is decided by them",
    "outbox.due_at": "when a delivery is tried again: its carrier decides, and writes no event",
    "outbox.tries": "how often a delivery was tried: its carrier counts, and writes no event",
    "outbox.sequence": "in which order effects leave; each of them is the same at any place",
    f"outbox.{DELETED}": "an effect that has left is deleted, and nothing says that it has",
}


def _is_submits(lie: Lie) -> bool:
    return "submits" in (lie.row["kind"], (lie.new or lie.row)["kind"])


def _is_below(lie: Lie) -> bool:
    """The log of the told ledger is longer than this."""
    return lie.new is not None and lie.new["floor"] <= LOG_MIN


def _is_custody(lie: Lie) -> bool:
    """The end of a lease, within what heartbeats may have made of it."""
    assert lie.new is not None
    year_ms = 366 * 24 * 3600 * 1000
    return bool(lie.row["holder"]) and 0 < lie.new["wake_at"] - lie.row["wake_at"] < year_ms


#: By column: when it cannot be told, and why.
SOMETIMES: dict[str, tuple[Callable[[Lie], bool], str]] = {
    "tasks.wake_at": (_is_custody, "heartbeats move the end of a lease without an event"),
    "head.floor": (_is_below, "it counts only where all later events were deleted"),
    "dedup.expires_at": (
        lambda lie: lie.new is not None and lie.new["expires_at"] - lie.row["expires_at"] < 2**32,
        "when a name was noted is not in the log; but no name is kept longer than names are",
    ),
    f"dedup.{DELETED}": (
        lambda lie: lie.row["name"].startswith("id:"),
        "while a task is there its id is taken whether it is noted or not",
    ),
    f"dedup.{ADDED}": (
        lambda lie: lie.row["name"].startswith("key:"),
        "the same body may have been sent under any number of keys, and is the same task",
    ),
    "dedup.state": (
        lambda lie: True,
        "while a task is there its own state counts; when it is deleted this is written",
    ),
    **{
        f"spending.{what}": (
            _is_submits,
            "how many tasks attempts have submitted, counted for an hour: no log says by whom",
        )
        for what in ("name", "day", "turns", DELETED, ADDED)
    },
}  # fmt: skip


def is_free(lie: Lie) -> bool:
    return is_always_free(lie) or SOMETIMES.get(lie.column, (_never, ""))[0](lie)


def is_always_free(lie: Lie) -> bool:
    return lie.column in FREE or f"{lie.table.name}.*" in FREE


def _never(lie: Lie) -> bool:
    return False
