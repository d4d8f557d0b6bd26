"""`agentq status` without a task: the installation on one screen, once or as it changes."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.lines import cut, table_lines, terminal_width
from agentq.cli.screen import (
    Cell,
    Styled,
    ago,
    emit_json,
    is_terminal,
    iso_time,
    one_line,
    paint,
    say,
)
from agentq.cli.status import catch_up
from agentq.core.digests import usage_to_dict
from agentq.core.durations import format_duration

if TYPE_CHECKING:
    from agentq.cli.session import Session
    from agentq.client.reader import QueueReader
    from agentq.contracts.overview_values import Overview, RoleOverview, RunningTask
    from agentq.core.task import Usage

#: How many of what waits for a person in one way are shown, and how many tasks that run; `--json`
#: has more of them.
_EACH_MAX, _RUNNING_MAX = 4, 12
_KINDS = {
    "approval": ("approval", "approvals"),
    "review": ("review", "reviews"),
    "question": ("question", "questions"),
    "dead_letter": ("dead letter", "dead letters"),
}
#: What shows the rest of a kind.
_REST = {
    "approval": "agentq approvals",
    "review": "agentq approvals",
    "question": "agentq list --state blocked",
    "dead_letter": "agentq dlq",
}
#: A worker asks at least this often; whoever has not for longer is not there.
_LISTENS_MS = 120_000


def show_overview(session: Session, *, watch: bool) -> None:
    """Answer `agentq status`."""
    queue = session.reader()
    if watch:
        _watch(session, queue)
    elif session.json:
        emit_json(overview_json(_look(queue)))
    else:
        for line in overview_lines(_look(queue)):
            say(line)


def _watch(session: Session, queue: QueueReader) -> None:
    """Show the screen again after each event; as JSON, one object per line."""
    if session.json:
        with suppress(KeyboardInterrupt), closing(queue.looks(None)) as looks:
            for _ in looks:
                emit_json(overview_json(_look(queue)), one_per_line=True)
        return
    if not is_terminal():
        raise click.UsageError(
            "--watch draws on a terminal, and this is none. --json --watch writes a line after each"
            " event instead."
        )
    from agentq.cli.live import redraw_on_events

    redraw_on_events(queue, lambda: overview_lines(_look(queue)))


def _look(queue: QueueReader) -> Overview:
    catch_up(queue)
    return queue.overview()


# -- JSON ------------------------------------------------------------------------------------------


def overview_json(found: Overview) -> dict[str, Any]:
    """The one JSON shape of an overview."""
    from agentq.cli.limits import circuit_json

    return {
        "at": iso_time(found.at),
        "roles": [_role_json(role) for role in found.roles],
        "running": [running_json(task) for task in found.running],
        "running_count": found.running_count,
        "decisions": [
            {
                "kind": str(each.kind),
                "task_id": each.task_id,
                "role": each.role,
                "title": each.title,
                "since": iso_time(each.since),
                "reason": each.reason,
                "command": each.command,
            }
            for each in found.decisions
        ],
        "decision_counts": found.decision_counts,
        "circuits": [circuit_json(each) for each in found.circuits],
        "loops": found.loops,
        "counted_to": found.counted_to,
        "proved": {
            "position": found.proved_position,
            "at": iso_time(found.proved_at),
            "seal": found.seal,
        },
    }


def _role_json(role: RoleOverview) -> dict[str, Any]:
    from agentq.cli.limits import limits_json

    return {
        "name": role.name,
        "states": {
            "pending": role.pending,
            "ready": role.ready,
            "in_progress": role.running,
            "review": role.review,
            "blocked": role.blocked,
        },
        "limits": limits_json(role.limits),
        "spent_today": usage_to_dict(role.today),
        "provider": role.provider,
        "asked_at": iso_time(role.asked_at),
        "workers": role.workers,
        "slots": role.slots,
        "held_back": role.held_back,
    }


def running_json(task: RunningTask) -> dict[str, Any]:
    """The one JSON shape of an attempt under way."""
    return {
        "task_id": task.task_id,
        "role": task.role,
        "title": task.title,
        "epoch": task.epoch,
        "holder": task.holder,
        "started_at": iso_time(task.started_at),
        "changed_at": iso_time(task.changed_at),
        "lease_ends_at": iso_time(task.lease_ends_at),
        "percent": task.percent if task.percent >= 0 else None,
        "note": task.note,
        "step": task.step,
        "words": task.words,
        "cost": usage_to_dict(task.cost),
    }


# -- the screen ------------------------------------------------------------------------------------


def overview_lines(found: Overview) -> list[str]:
    """The screen, line by line."""
    width = max(terminal_width() - 2, 0)
    lines: list[str] = []
    for title, body in (
        ("Roles", table_lines(*roles_table(found), width)),
        ("Running", _running(found, width)),
        ("Waiting for you", _waiting(found, width)),
        ("Circuits", _circuits(found, width)),
        ("Spent today (UTC)", table_lines(*_spent(found), width)),
    ):
        if body:
            lines += ["", paint(title, "bold"), *(f"  {line}" for line in body)]
    if found.seal:
        proved = f"proved at position {found.proved_position}, seal {found.seal[:16]}…"
        lines += ["", paint(f"{proved}, {ago(found.proved_at, found.at)}", "dim")]
    if not found.roles:
        lines = ["", "Nothing was submitted here yet. `agentq submit` does that."]
    return lines[1:]


def _number(count: int, found: Overview) -> str:
    """A count; the highest stands for more."""
    if not count:
        return ""
    return f"{count}+" if count >= found.counted_to else str(count)


def roles_table(found: Overview) -> tuple[tuple[str, ...], list[list[Cell]]]:
    heads = (
        "role",
        ">ready",
        ">running",
        ">pending",
        ">review",
        ">blocked",
        "workers",
        "held back",
    )
    rows: list[list[Cell]] = []
    for role in found.roles:
        most = role.limits.max_running
        running = f"{role.running} of {most}" if most else _number(role.running, found)
        rows.append(
            [
                role.name,
                _number(role.ready, found),
                running,
                _number(role.pending, found),
                _number(role.review, found),
                _number(role.blocked, found),
                _listening(role, found.at),
                Styled(_held_back(role, found), "yellow"),
            ]
        )
    return heads, rows


def _held_back(role: RoleOverview, found: Overview) -> str:
    """Why nothing of a role is given out; what a circuit says stands below."""
    if any(each.role == role.name for each in found.circuits):
        return "needs a person"
    if role.provider and any(each.provider == role.provider for each in found.circuits):
        return f"{role.provider} does not serve"
    return role.held_back


def _listening(role: RoleOverview, now: int) -> Cell:
    """Who claims for a role: workers that report, or somebody who asked lately."""
    if role.workers:
        slots = f"{min(role.running, role.slots)}/{role.slots} slots busy"
        return f"{role.workers} ({slots})" if role.workers > 1 else slots
    if role.asked_at and now - role.asked_at < _LISTENS_MS:
        return f"asked {ago(role.asked_at, now)}"
    return Styled("none", "yellow" if role.ready else "")


def _running(found: Overview, width: int) -> list[str]:
    heads = ("task", ">attempt", "role", ">time", ">%", "last words")
    shown = found.running[:_RUNNING_MAX]
    lines = table_lines(heads, [running_row(task, found.at) for task in shown], width)
    more = found.running_count - len(shown)
    if more > 0:
        lines.append(f"… {more} more: `agentq workers`, `agentq list --state in_progress`")
    return lines


def running_row(task: RunningTask, now: int) -> list[Cell]:
    """The cells of an attempt under way."""
    return [
        task.task_id,
        str(task.epoch),
        task.role,
        elapsed(task, now),
        str(task.percent) if task.percent >= 0 else "",
        last_words(task),
    ]


def elapsed(task: RunningTask, now: int) -> str:
    """How long an attempt runs; where nobody says, since when nothing has changed."""
    if task.started_at:
        return format_duration(max(now - task.started_at, 0) // 1000)
    return f"≥{format_duration(max(now - task.changed_at, 0) // 1000)}"


def last_words(task: RunningTask) -> str:
    """What an attempt was heard to say last, or does, or is about."""
    doing = "" if task.step in ("", "stream") else f"({task.step}) "
    return doing + (task.words or task.note or task.title)


def kinds_waiting(found: Overview) -> str:
    """How many wait for a person, in each way."""
    words = []
    for kind, (one, many) in _KINDS.items():
        count = found.decision_counts.get(kind, 0)
        if count:
            words.append(f"{_number(count, found)} {one if count == 1 else many}")
    return ", ".join(words)


def _waiting(found: Overview, width: int) -> list[str]:
    lines: list[str] = []
    for kind, (one, many) in _KINDS.items():
        listed = [each for each in found.decisions if str(each.kind) == kind]
        for each in listed[:_EACH_MAX]:
            about = " · ".join(one_line(text) for text in (each.title, each.reason) if text)
            head = f"{one}  {each.task_id}  {each.role}  {ago(each.since, found.at)}  {about}"
            lines.append(cut(head, width))
            lines.append(f"  {paint('→', 'cyan')} {one_line(each.command)}")
        more = found.decision_counts.get(kind, 0) - len(listed[:_EACH_MAX])
        if more > 0:
            at_least = "at least " if found.decision_counts[kind] >= found.counted_to else ""
            lines.append(f"… {at_least}{more} more {many}: `{_REST[kind]}`")
    return lines


def _circuits(found: Overview, width: int) -> list[str]:
    from agentq.cli.limits import circuit_ends, circuit_owner

    lines = []
    for each in found.circuits:
        ends = circuit_ends(each, found.at)
        state = ends.text if isinstance(ends, Styled) else ends
        lines.append(cut(f"{circuit_owner(each)}  {state}  {one_line(each.reason)}", width))
        whose = f"--role {each.role}" if each.role else each.provider
        lines.append(f"  {paint('→', 'cyan')} agentq circuits close {whose}")
    return lines


def _spent(found: Overview) -> tuple[tuple[str, ...], list[list[Cell]]]:
    rows: list[list[Cell]] = []
    for role in found.roles:
        spent, daily = role.today, role.limits.daily
        plain = usage_to_dict(spent)
        if not plain and not usage_to_dict(daily):
            continue
        left = [
            f"{max(allowed - plain.get(unit, 0), 0):g} of {allowed:g} {unit} left"
            for unit, allowed in usage_to_dict(daily).items()
        ]
        usd = money(spent) if spent.usd else ""
        worked = format_duration(round(spent.seconds)) if spent.seconds else ""
        rows.append([role.name, usd, str(spent.tokens or ""), worked, ", ".join(left)])
    return ("role", ">usd", ">tokens", ">time", "budget"), rows


def money(spent: Usage) -> str:
    """Money to the cent, marked where it is estimated, wholly or in part."""
    return f"{'~' if spent.estimated_usd else ''}{spent.usd:.2f}"
