"""What the page of numbers draws: for each moment and role, and for all roles together, a point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentq.contracts.number_values import DEFAULT_PERIOD
from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.core.samples import Latencies, Sample, total_of


def number_points(service: Service, who: Principal, query: Mapping[str, str]) -> dict[str, Any]:
    """Points by moment and role; those of no role are of all together, and so is the first sum."""
    found = service.numbers(who, query.get("period", DEFAULT_PERIOD))
    moments: dict[int, list[Sample]] = {}
    for each in found.samples:
        moments.setdefault(each.at, []).append(each.sample)
    together = [{"at": at, "role": "", **_point(total_of(moments[at]))} for at in moments]
    by_role = found.by_role()
    return {
        "period": found.period,
        "span_ms": found.span_ms,
        "since": found.since,
        "until": found.until,
        "behind": found.behind,
        "points": [
            *together,
            *({"at": each.at, "role": each.role, **_point(each.sample)} for each in found.samples),
        ],
        "sums": [
            {"role": "", **_point(total_of(by_role.values()))},
            *({"role": role, **_point(sample)} for role, sample in by_role.items()),
        ],
    }


def _point(sample: Sample) -> dict[str, Any]:
    return {
        "submitted": sample.submitted,
        "started": sample.started,
        "completed": sample.completed,
        "dead": sample.dead,
        "cancelled": sample.cancelled,
        "failed": sample.failed,
        "crashed": sample.crashed,
        "retried": sample.retried,
        "failure_rate": sample.failure_rate,
        "failures": sample.failures,
        **_lengths("waiting", sample.waiting),
        **_lengths("processing", sample.processing),
        "usd": sample.cost.usd,
        "estimated_usd": sample.cost.estimated_usd,
        "tokens": sample.cost.tokens,
    }


def _lengths(name: str, found: Latencies) -> dict[str, int | None]:
    return {f"{name}_p50_ms": found.quantile_ms(0.5), f"{name}_p95_ms": found.quantile_ms(0.95)}
