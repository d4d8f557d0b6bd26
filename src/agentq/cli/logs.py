"""`agentq logs`: what an agent says, as it says it, or what is left of it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from agentq.cli.options import Whole, command, task_argument
from agentq.cli.screen import clean, emit_json, note
from agentq.cli.session import Session, pass_session

if TYPE_CHECKING:
    from agentq.client.logs import LogPart

#: What terminals obey: CSI, OSC, the other strings, and the short ones. A string that is not ended
#: ends with its line, so that none can swallow the log. `screen.clean` shows what is left over.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c|(?=\n)|\Z)"
    r"|\x1b[ -/]*[0-~]"
)
#: A longer line is shown in pieces rather than kept in memory.
_HELD_MAX = 1 << 20


@command()
@task_argument
@click.option(
    "--attempt",
    "epoch",
    type=Whole(1),
    metavar="N",
    help="Of this attempt.  [default: the newest that said something]",
)
@click.option("--follow", "-f", is_flag=True, help="Go on with new output, until the task is over.")
@click.option("--ansi", is_flag=True, help="Leave colours and other escape sequences as they are.")
@pass_session
def logs(session: Session, ref: str | None, epoch: int | None, follow: bool, ansi: bool) -> None:
    """Show the output of a task's agent.

    Live while an attempt runs, else the artifact `output.log` that it left. With --follow also the
    attempts that come after it. With --json one object, or with --follow one line per line of the
    log.
    """
    from agentq.client.logs import follow_log, read_log

    queue = session.reader()
    task_id = queue.task(session.task_id(ref)).id
    parts = (follow_log if follow else read_log)(queue, task_id, epoch or 0)
    if not session.json:
        _show(parts, ansi)
    elif follow:
        for number, block in _blocks(parts):
            for line in block.removesuffix(b"\n").split(b"\n"):
                plain = {"task_id": task_id, "epoch": number, "line": _text(line, ansi)}
                emit_json(plain, one_per_line=True)
    else:
        blocks = list(_blocks(parts))
        text = "".join(_text(block, ansi) for _, block in blocks)
        emit_json({"task_id": task_id, "epoch": blocks[0][0], "text": text})


def _show(parts: Iterable[LogPart], ansi: bool) -> None:
    shown = 0
    for epoch, block in _blocks(parts):
        if shown and epoch != shown:
            note(f"attempt {epoch}:")
        shown = epoch
        click.echo(block if ansi else _text(block, ansi), nl=False)


def _blocks(parts: Iterable[LogPart]) -> Iterator[tuple[int, bytes]]:
    """Whole lines, as many as there are: an escape sequence or a letter must not be cut in two."""
    epoch, held = 0, b""
    for part in parts:
        if held and part.epoch != epoch:
            yield epoch, held
            held = b""
        epoch, held = part.epoch, held + part.data
        end = held.rfind(b"\n") + 1 or (len(held) if len(held) > _HELD_MAX else 0)
        if end:
            yield epoch, held[:end]
            held = held[end:]
    if held:
        yield epoch, held


def _text(data: bytes, ansi: bool) -> str:
    text = codecs.decode(data, "utf-8", "replace")
    if ansi:
        return text
    # A bar that redraws itself becomes a line for each of its states.
    return clean(_ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))
