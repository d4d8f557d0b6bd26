"""What people see before they approve or reject, and the question that follows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.approvals import step_json
from agentq.cli.screen import (
    Cell,
    Styled,
    ago,
    clean,
    emit_json,
    iso_time,
    note,
    one_line,
    paint,
    paint_state,
    say,
    show_fields,
    size_words,
)
from agentq.core.digests import usage_to_dict
from agentq.core.policy_steps import policy_words, upcoming_steps

if TYPE_CHECKING:
    from agentq.cli.session import Session
    from agentq.client.evidence import Evidence
    from agentq.client.reader import QueueReader

#: How much of the instructions and of a diff is shown; `agentq status` and `diff` show the rest.
_TEXT_LINES_MAX, _DIFF_LINES_MAX, _FILES_MAX, _REMARKS_MAX = 20, 20, 20, 5
_LINE_CHARS_MAX = 200


def show_all(session: Session, queue: QueueReader, refs: tuple[str, ...]) -> None:
    """Show what a decision about these would be about, and decide nothing."""
    from agentq.client.evidence import evidence_of

    found = [evidence_of(queue, ref, Path.cwd()) for ref in refs]
    if session.json:
        plain = [evidence_json(queue, each) for each in found]
        emit_json(plain[0] if len(plain) == 1 else {"evidence": plain})
        return
    for number, each in enumerate(found):
        if number:
            say()
        show_evidence(queue, each)


def ask(queue: QueueReader, refs: tuple[str, ...], verb: str) -> list[Evidence]:
    """Show each of these to whoever sits at the terminal and ask about it; those agreed to."""
    from agentq.client.evidence import evidence_of

    agreed = []
    for ref in dict.fromkeys(refs):
        found = evidence_of(queue, ref, Path.cwd())
        if not found.is_awaited:
            agreed.append(found)  # nothing to look at: the ledger says why it is refused
            continue
        show_evidence(queue, found)
        if click.confirm(f"{verb} {clean(found.task.id)}?", default=False, err=True):
            agreed.append(found)
        else:
            note("nothing was decided")
    return agreed


# -- the screen ------------------------------------------------------------------------------------


def show_evidence(queue: QueueReader, found: Evidence) -> None:
    """Print what a decision is about, for people."""
    task, now = found.task, queue.now()
    say(f"{paint(task.id, 'bold')}  {paint_state(str(task.state))}")
    if task.spec.title:
        say(f"  {one_line(task.spec.title, _LINE_CHARS_MAX)}")
    show_fields(_fields(found, now))
    _block("instructions", found.text, _TEXT_LINES_MAX)
    _block("changes", found.diff_stat, _DIFF_LINES_MAX)


def _fields(found: Evidence, now: int) -> list[tuple[str, Cell | None]]:
    task = found.task
    spec, details = task.spec, task.details
    return [
        ("decides", _decides(found)),
        ("risk", Styled("irreversible: it must not be done twice", "red"))
        if spec.irreversible
        else ("risk", None),
        ("to", spec.to),
        ("from", _asked_by(found)),
        ("inputs", one_line(_plain(spec.inputs), 400) if spec.inputs else None),
        ("after", ", ".join(spec.after)),
        ("submitted", ago(task.submitted_at, now)),
        ("attempt", str(task.epoch) if task.epoch else None),
        ("summary", task.summary if found.is_report else None),
        *(("gate", _gate(each.name, each.is_passed, each.words)) for each in found.gates),
        *(("file", f"{each.name}  {size_words(each.size)}") for each in found.files[:_FILES_MAX]),
        ("files", _more(len(found.files) - _FILES_MAX)),
        ("cost", _cost(found)),
        *(
            ("note", f"{each.by} ({each.kind}): {one_line(each.text, 400)}")
            for each in details.notes[-_REMARKS_MAX:]
        ),
        *(
            ("comment", f"{each.by} ({ago(each.at, now)}): {one_line(each.text, 400)}")
            for each in found.comments[-_REMARKS_MAX:]
        ),
        *(
            ("told", f"{each.by}: {one_line(each.text, 400)}")
            for each in details.messages[-_REMARKS_MAX:]
        ),
        ("policy", policy_words(task, now)),
        ("digest", found.digest),
        ("version", str(task.version)),
    ]


def _decides(found: Evidence) -> str:
    if not found.is_awaited:
        return f"nothing: it is {found.task.state}"
    if found.is_report:
        return "whether its report is accepted"
    held = f" ({found.task.reason})" if found.task.reason else ""
    return f"whether it may start{held}"


def _asked_by(found: Evidence) -> str:
    task = found.task
    by = [task.spec.sender]
    if task.spec.parent:
        by.append(f"submitted by {task.spec.parent}")
    if task.editors:
        by.append(f"edited by {', '.join(task.editors)}")
    return ", ".join(by)


def _gate(name: str, is_passed: bool, words: str) -> str:
    return f"{'✓' if is_passed else '·'} {name}" + (f"  {one_line(words, 400)}" if words else "")


def _more(count: int) -> str:
    return f"… {count} more: `agentq artifacts ls`" if count > 0 else ""


def _cost(found: Evidence) -> str:
    return ", ".join(
        f"{amount:g} {unit}" for unit, amount in usage_to_dict(found.task.details.spent).items()
    )


def _plain(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _block(name: str, text: str, most: int) -> None:
    lines = clean(text).strip("\n").splitlines()
    if not lines:
        return
    say(f"  {paint(name, 'bright_black')}")
    for line in lines[:most]:
        shown = line if len(line) <= _LINE_CHARS_MAX else f"{line[: _LINE_CHARS_MAX - 1]}…"
        say(f"    {shown}")
    if len(lines) > most:
        say(f"    … {len(lines) - most} more lines")


# -- JSON ------------------------------------------------------------------------------------------


def evidence_json(queue: QueueReader, found: Evidence) -> dict[str, Any]:
    """The one JSON shape of evidence."""
    return {
        "task_id": found.task.id,
        "decides": ("report" if found.is_report else "start") if found.is_awaited else None,
        "digest": found.digest,
        "version": found.task.version,
        "irreversible": found.task.spec.irreversible,
        "text": found.text,
        "gates": [
            {"gate": each.name, "passed": each.is_passed, "words": each.words or None}
            for each in found.gates
        ],
        "artifacts": [
            {"name": each.name, "size": each.size, "sha256": each.sha256} for each in found.files
        ],
        "diff_stat": found.diff_stat or None,
        "comments": [
            {"at": iso_time(each.at), "by": each.by, "text": each.text} for each in found.comments
        ],
        "next": [step_json(each) for each in upcoming_steps(found.task)],
        "task": queue.as_json(found.task),
    }
