"""`agentq stats`: how much there is, of what, for whom."""

from __future__ import annotations

from agentq.cli.options import command
from agentq.cli.screen import emit_json, say, show_table
from agentq.cli.session import Session, pass_session
from agentq.cli.status import catch_up


@command()
@pass_session
def stats(session: Session) -> None:
    """Count tasks by role and state."""
    from agentq.core.durations import format_duration
    from agentq.core.states import State

    queue = session.reading()
    catch_up(queue)
    found = queue.stats()
    names = [str(state) for state in State]
    totals = {name: sum(row.get(name, 0) for row in found.by_role.values()) for name in names}
    if session.json:
        emit_json(
            {
                "roles": {
                    role: {
                        "states": counts,
                        "oldest_ready_seconds": _seconds(found.oldest_ready_ms.get(role)),
                    }
                    for role, counts in found.by_role.items()
                },
                "totals": totals,
                "outbox": found.outbox,
                "last_position": found.last_position,
            }
        )
        return
    used = [name for name in names if totals[name]]
    show_table(
        ("role", *(f">{name}" for name in used), ">oldest ready"),
        [
            (
                role,
                *(str(counts.get(name, "")) for name in used),
                format_duration(found.oldest_ready_ms[role] // 1000)
                if role in found.oldest_ready_ms
                else "",
            )
            for role, counts in sorted(found.by_role.items())
        ],
        "no tasks",
    )
    waiting = {lane: count for lane, count in found.outbox.items() if count}
    if waiting:
        say("waiting to leave: " + ", ".join(f"{count} {lane}" for lane, count in waiting.items()))


def _seconds(age_ms: int | None) -> float | None:
    return None if age_ms is None else age_ms / 1000
