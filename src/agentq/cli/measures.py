"""How measurements are shown: to people as fields and tables, to programs as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.cli.overview import money
from agentq.cli.screen import Styled, note, say, show_fields, show_table
from agentq.core.counting import counted
from agentq.core.durations import format_duration
from agentq.core.phases import COORDINATION_SHARE_MAX

if TYPE_CHECKING:
    from agentq.contracts.service_values import Overhead, PhaseTotal, Quality, RoleQuality

#: Ids of a path that are shown.
_PATH_SHOWN = 6


def show_overhead(found: Overhead) -> None:
    show_fields(_overhead_fields(found), indent="")
    say()
    show_table(
        ("phase", ">time", ">share", ">usd", ">tokens"),
        [_phase_row(each, found.lives_ms) for each in found.phases if _is_there(each)],
        "no time has passed",
    )
    _note_cut(found.cut)


def _note_cut(cut: bool) -> None:
    if cut:
        note("there are more tasks than are measured at once: these are the newest of them")


def _is_there(total: PhaseTotal) -> bool:
    return bool(total.span_ms or total.cost.usd or total.cost.tokens)


def _phase_row(total: PhaseTotal, lives_ms: int) -> tuple[str, ...]:
    share = f"{total.span_ms / lives_ms:.1%}" if lives_ms else ""
    usd = money(total.cost) if total.cost.usd else ""
    name = total.phase.replace("_", " ")
    return name, _span(total.span_ms), share, usd, str(total.cost.tokens or "")


def _overhead_fields(found: Overhead) -> list[tuple[str, str | Styled]]:
    still = f", {found.running} still running" if found.running else ""
    path = " → ".join(found.path[:_PATH_SHOWN]) + (" → …" if len(found.path) > _PATH_SHOWN else "")
    gain = "none: one after the other would have been as quick"
    if found.gain_ms > 0:
        gain = _span(found.gain_ms)
    return [
        ("tasks", f"{found.tasks} ({counted(found.attempts, 'attempt')}{still})"),
        ("work", _span(found.work_ms)),
        ("wall", _span(found.wall_ms)),
        ("critical path", f"{_span(found.critical_path_ms)}  {path}".rstrip()),
        ("overhead", _overhead_cell(found)),
        ("parallel gain", gain),
        ("bottleneck", found.bottleneck.text if found.bottleneck else ""),
    ]


def _overhead_cell(found: Overhead) -> Styled:
    text = _span(found.overhead_ms)
    if found.share is not None:
        text += f"  {found.share:.1%} of the gain"
    if found.flagged:
        allowed = f"{COORDINATION_SHARE_MAX:.0%}"
        much = f"more than {allowed}" if found.share is not None else "all that could be gained"
        text += f": too much, {much}"
    return Styled(text, "yellow" if found.flagged else "")


def _span(milliseconds: int) -> str:
    if abs(milliseconds) < 600_000:
        return f"{milliseconds / 1000:.3f} s"
    return format_duration(milliseconds // 1000)


def overhead_json(found: Overhead) -> dict[str, object]:
    bottleneck = found.bottleneck
    return {
        "tasks": found.tasks,
        "attempts": found.attempts,
        "running": found.running,
        "work_seconds": found.work_ms / 1000,
        "wall_seconds": found.wall_ms / 1000,
        "critical_path_seconds": found.critical_path_ms / 1000,
        "critical_path": list(found.path),
        "overhead_seconds": found.overhead_ms / 1000,
        "parallel_gain_seconds": found.gain_ms / 1000,
        "overhead_share": None if found.share is None else round(found.share, 4),
        "flagged": found.flagged,
        "bottleneck": None
        if bottleneck is None
        else {
            "phase": str(bottleneck.phase),
            "role": bottleneck.role,
            "seconds": bottleneck.span_ms / 1000,
            "text": bottleneck.text,
        },
        "phases": {str(each.phase): _phase_json(each, found.lives_ms) for each in found.phases},
        "cut": found.cut,
    }


def _phase_json(total: PhaseTotal, lives_ms: int) -> dict[str, object]:
    return {
        "seconds": total.span_ms / 1000,
        "share": round(total.span_ms / lives_ms, 4) if lives_ms else None,
        "usd": total.cost.usd,
        "tokens": total.cost.tokens,
    }


def show_quality(found: Quality) -> None:
    show_table(
        (
            "role", ">tasks", ">accepted", ">changes", ">rejected", ">rounds", ">mean", ">median",
            ">lowest", "newest scores",
        ),
        [_quality_row(each) for each in found.roles],
        "no verdicts",
    )  # fmt: skip
    _note_cut(found.cut)


def _quality_row(each: RoleQuality) -> tuple[str, ...]:
    numbers = (each.mean_rounds, each.mean_score, each.median_score, each.min_score)
    counts = (each.tasks, each.accepted, each.changes, each.rejected)
    return (
        each.role,
        *(str(count or "") for count in counts),
        *("" if number is None else f"{number:g}" for number in numbers),
        " ".join(str(score) for score in each.newest_scores),
    )


def quality_json(found: Quality) -> dict[str, object]:
    return {
        "roles": {
            each.role: {
                "tasks": each.tasks,
                "verdicts": each.verdicts,
                "accepted": each.accepted,
                "changes": each.changes,
                "rejected": each.rejected,
                "mean_rounds": each.mean_rounds,
                "mean_score": each.mean_score,
                "median_score": each.median_score,
                "min_score": each.min_score,
                "newest_scores": list(each.newest_scores),
            }
            for each in found.roles
        },
        "cut": found.cut,
    }
