"""How numbers of work over time are shown: to people as a table, to programs as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.cli.overview import money
from agentq.cli.screen import note, say, show_table
from agentq.contracts.number_values import sample_to_dict
from agentq.core.durations import format_duration

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.number_values import Numbers
    from agentq.core.samples import Sample

_WORDS = {"1h": "the last hour", "24h": "the last 24 hours", "30d": "the last 30 days (UTC)"}


def heartbeat_ages(queue: QueueReader) -> dict[str, int]:
    """How long ago, in milliseconds, the most silent worker of each role was heard of."""
    now, ages = queue.now(), dict[str, int]()
    for worker in queue.workers():
        if worker.reports and not worker.is_ending:
            ages[worker.role] = max(ages.get(worker.role, 0), now - worker.seen_at)
    return ages


def show_numbers(found: Numbers, heard: dict[str, int]) -> None:
    by_role = found.by_role()
    if not by_role and not heard:
        return
    say()
    say(f"in {_WORDS.get(found.period, 'all its time')}:")
    show_table(
        (
            "role", ">started", ">done", ">retried", ">failed", ">rate", ">waits p50", ">p95",
            ">runs p50", ">p95", ">usd", ">heartbeat",
        ),
        [
            _row(role, by_role.get(role), heard.get(role))
            for role in sorted({*by_role, *heard})
        ],
        "nothing happened",
    )  # fmt: skip
    if found.behind:
        note("older events are still being counted: these numbers will grow")


def _row(role: str, sample: Sample | None, heard_ms: int | None) -> tuple[str, ...]:
    beat = "" if heard_ms is None else f"{short(heard_ms)} ago"
    if sample is None:
        return (role, *[""] * 10, beat)
    rate = sample.failure_rate
    counts = (sample.started, sample.completed, sample.retried, sample.failed)
    lengths = [
        short(each.quantile_ms(share))
        for each in (sample.waiting, sample.processing)
        for share in (0.5, 0.95)
    ]
    return (
        role,
        *(str(count or "") for count in counts),
        "" if rate is None else f"{rate:.0%}",
        *lengths,
        money(sample.cost) if sample.cost.usd else "",
        beat,
    )


def short(length_ms: int | None) -> str:
    """A length of time, as short as it may be said; nothing if nobody knows it."""
    if length_ms is None:
        return ""
    if length_ms < 60_000:
        return f"{length_ms / 1000:.1f}s"
    return format_duration(length_ms // 1000)


def numbers_json(found: Numbers, heard: dict[str, int]) -> dict[str, object]:
    """The one JSON shape of numbers, by role."""
    by_role = found.by_role()
    plain = {role: sample_to_dict(each) for role, each in by_role.items()}
    beats = {role: age_ms / 1000 for role, age_ms in sorted(heard.items())}
    return {"roles": plain, "heartbeat_age_seconds": beats, "behind": found.behind}
