"""`agentq submit --bulk`: many tasks from JSON lines, checked as a whole before any is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from agentq.cli.options import unreadable
from agentq.cli.screen import answer, progress_bar
from agentq.cli.session import Session
from agentq.core.counting import counted
from agentq.core.errors import AgentqError, Conflict, Invalid, Refused

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.client.task_input.specs import Draft
    from agentq.core.task import Spec

BATCH = 1_000
#: A line is an envelope; with a context inside it may be larger, but not by any amount.
LINE_BYTES_MAX = 16 * 1024 * 1024


class Line(NamedTuple):
    """A checked task and where it stands in the file."""

    number: int
    draft: Draft


def submit_bulk(session: Session, file: str) -> None:
    from agentq.cli.submit import parent_attempt

    queue = session.client()
    under = parent_attempt(session, queue)
    base = None if file == "-" else Path(file).parent
    defaults = {} if under is None else {"from": under[1].to}
    lines = [
        _checked(number, data, base, defaults, queue.has_broker) for number, data in _read(file)
    ]
    ordered = _parents_first(lines)
    _refuse_unknown_dependencies(queue, ordered)
    fence = None if under is None else (under[1].id, under[0])
    ids = _send(queue, ordered, fence)
    plain = {"submitted": len(lines), "ids": [ids[line.draft.spec.id] for line in lines]}
    answer(session, plain, f"{counted(len(lines), 'task')} submitted")


def _read(file: str) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers."""
    from agentq.client.task_input.task_file import refuse_special

    try:
        if file != "-":
            refuse_special(file)
        with click.open_file(file, "rb") as stream:
            for number, data in enumerate(stream, 1):
                if len(data) > LINE_BYTES_MAX:
                    raise _on_line(number, Invalid(f"It has more than {LINE_BYTES_MAX} bytes."))
                if data.strip():
                    yield number, data
    except OSError as error:
        raise unreadable(file, error, "submitted") from error


def _checked(
    number: int, data: bytes, base: Path | None, defaults: dict[str, Any], has_broker: bool
) -> Line:
    import msgspec

    from agentq.client.task_input.specs import check_reply_to, draft
    from agentq.protocol.spec_validation import check_spec

    try:
        fields = msgspec.json.decode(data)
        if not isinstance(fields, dict):
            shown = data.decode("utf-8", "replace").strip()[:60]
            raise Invalid(
                f"A task is a JSON object, got {shown}.",
                'One on each line, as in {"to": "worker", "instructions": "…"}.',
            )
        drafted = draft({**defaults, **fields}, base)
        check_spec(drafted.spec)
        if has_broker:
            check_reply_to(drafted.spec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _on_line(number, Invalid(f"It is not JSON: {error}.")) from error
    except AgentqError as error:
        raise _on_line(number, error) from error
    return Line(number, drafted)


def _on_line(number: int, error: AgentqError) -> AgentqError:
    cause = error.cause if "Nothing was" in error.cause else f"{error.cause} Nothing was submitted."
    return type(error)(f"Line {number}: {cause}", error.remedy, code=error.code)


def _parents_first(lines: list[Line]) -> list[Line]:
    """In an order in which every batch finds its dependencies accepted; a cycle is refused."""
    from agentq.core.graph import parents_first

    by_id: dict[str, Line] = {}
    for line in lines:
        first = by_id.setdefault(line.draft.spec.id, line)
        if first.draft != line.draft:
            raise _on_line(
                line.number,
                Conflict(
                    f"The id {line.draft.spec.id} stands on line {first.number} already, with"
                    " another body.",
                    "Give each task an id of its own.",
                ),
            )
    ordered: list[Spec] = parents_first([line.draft.spec for line in by_id.values()])
    return [by_id[spec.id] for spec in ordered]


def _refuse_unknown_dependencies(queue: Client, lines: list[Line]) -> None:
    known = {line.draft.spec.id for line in lines}
    for line in lines:
        for each in line.draft.spec.after:
            if each not in known and not _is_there(queue, each):
                raise _on_line(
                    line.number,
                    Invalid(
                        f"It comes after {each!r}, and no such task exists here or in the file.",
                        "Submit that first, or check the id with `agentq list`.",
                        code="unknown_dependency",
                    ),
                )
            known.add(each)


def _is_there(queue: Client, task_id: str) -> bool:
    try:
        return task_id in queue.queries.tasks_by_id(queue.who, [task_id])
    except Refused:
        return True  # it exists, and this process may not read it


def _send(queue: Client, lines: list[Line], under: tuple[str, int] | None) -> dict[str, str]:
    """Submit batch by batch; the id each task has now, by the id it was sent with."""
    ids: dict[str, str] = {}
    with progress_bar("submitting", len(lines)) as show_progress:
        for start in range(0, len(lines), BATCH):
            drafts = [line.draft for line in lines[start : start + BATCH]]
            try:
                tasks = queue.submit_drafts(drafts, under)
            except AgentqError as error:
                raise _after(len(ids), len(lines), error) from error
            ids |= {each.spec.id: task.id for each, task in zip(drafts, tasks, strict=True)}
            show_progress(len(ids))
    return ids


def _after(done: int, total: int, error: AgentqError) -> AgentqError:
    if not done:
        return error
    return type(error)(
        f"{done} of {total} tasks were submitted, then one batch was refused: {error.cause}",
        f"{error.remedy} Then run it again: tasks with an id or an idempotency key are not"
        " submitted twice.".strip(),
        code=error.code,
    )
