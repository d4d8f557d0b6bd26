"""What the page of numbers draws: for each moment and role, and for all roles together, a point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentq.contracts.number_values import DEFAULT_PERIOD, sample_to_dict
from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.core.samples import Sample, total_of


def number_points(service: Service, who: Principal, query: Mapping[str, str]) -> dict[str, Any]:
    """Points by moment and role; those of no role are of all together, and so is the first sum."""
    found = service.numbers(who, query.get("period", DEFAULT_PERIOD))
    moments: dict[int, list[Sample]] = {}
    for each in found.samples:
        moments.setdefault(each.at, []).append(each.sample)
    together = [{"at": at, "role": "", **sample_to_dict(total_of(moments[at]))} for at in moments]
    by_role = found.by_role()
    return {
        "period": found.period,
        "span_ms": found.span_ms,
        "since": found.since,
        "until": found.until,
        "behind": found.behind,
        "points": [
            *together,
            *(
                {"at": each.at, "role": each.role, **sample_to_dict(each.sample)}
                for each in found.samples
            ),
        ],
        "sums": [
            {"role": "", **sample_to_dict(total_of(by_role.values()))},
            *({"role": role, **sample_to_dict(sample)} for role, sample in by_role.items()),
        ],
    }
