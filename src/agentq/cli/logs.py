"""`agentq logs`: what an agent says, as it says it, or what is left of it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.options import Whole, command, task_argument
from agentq.cli.screen import clean, emit_json, note, paint
from agentq.cli.session import Session, pass_session

if TYPE_CHECKING:
    from agentq.agents.conversation import ConversationEntry
    from agentq.client.conversations import ConversationPart

#: What terminals obey: CSI, OSC, the other strings, and the short ones. A string that is not ended
#: ends with its line, so that none can swallow the log. `screen.clean` shows what is left over.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c|(?=\n)|\Z)"
    r"|\x1b[ -/]*[0-~]"
)

#: How each kind of entry begins on its first line, on the next ones, and its colour.
_LOOKS = {
    "text": ("", "", ""),
    "thinking": ("~ ", "~ ", "bright_black"),
    "tool": ("> ", "  ", "cyan"),
    "result": ("    ", "    ", "bright_black"),
    "status": (". ", "  ", "bright_black"),
    "error": ("error: ", "  ", "red"),
    "denied": ("not allowed: ", "  ", "yellow"),
    "cost": ("spent: ", "  ", "bright_black"),
    "output": ("", "", ""),
}
#: Kinds that stand together without a gap.
_DOINGS = ("tool", "result", "denied", "status")


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
@click.option("--raw", is_flag=True, help="The lines as the agent's tool printed them.")
@click.option("--ansi", is_flag=True, help="Leave colours and other escape sequences as they are.")
@pass_session
def logs(
    session: Session, ref: str | None, epoch: int | None, follow: bool, raw: bool, ansi: bool
) -> None:
    """Show the output of a task's agent.

    Live while an attempt runs, else the artifact `output.log` that it left. With --follow also the
    attempts that come after it.

    What Claude Code, Codex, Gemini CLI, opencode, ACP agents and warm agents print as JSON is shown
    as a conversation: what the agent says, its tool calls with the first lines of what they gave,
    what it was not allowed, errors and costs. --raw shows the lines themselves.

    With --json one object, or with --follow one for each line of the log, with the lines as they
    are and the conversation as `entries`.
    """
    from agentq.client.conversations import follow_conversation, read_conversation

    queue = session.reader()
    task_id = queue.task(session.task_id(ref)).id
    parts = (follow_conversation if follow else read_conversation)(queue, task_id, epoch or 0)
    if not session.json:
        _show(parts, raw, ansi)
    elif follow:
        for part in parts:
            _emit_lines(task_id, part, ansi)
    else:
        got = list(parts)
        text = "".join(_text(part.data, ansi) for part in got)
        entries = [_plain(entry, ansi) for part in got for entry in part.entries]
        whole = {"task_id": task_id, "epoch": got[0].epoch, "text": text, "entries": entries}
        emit_json(whole)


def _show(parts: Iterable[ConversationPart], raw: bool, ansi: bool) -> None:
    shown, before = 0, ""
    for part in parts:
        if shown and part.epoch != shown:
            note(f"attempt {part.epoch}:")
            before = ""
        shown = part.epoch
        if raw or part.is_plain:
            click.echo(part.data if ansi else _text(part.data, ansi), nl=False)
            continue
        for entry in part.entries:
            for line in _lines(entry, before, ansi):
                click.echo(line)
            before = entry.kind


def _lines(entry: ConversationEntry, before: str, ansi: bool) -> Iterator[str]:
    """An entry as it is shown after one of the kind `before`: texts stand apart from doings."""
    first, next_ones, style = _LOOKS[entry.kind]
    if before and (before in _DOINGS) != (entry.kind in _DOINGS) and entry.kind != "output":
        yield ""
    text = entry.text if ansi else _cleaned(entry.text)
    for number, line in enumerate(text.split("\n")):
        yield paint(f"{next_ones if number else first}{line}", style)


def _emit_lines(task_id: str, part: ConversationPart, ansi: bool) -> None:
    """One object for each line; the last of an attempt may be none, and say something still."""
    lines = part.data.removesuffix(b"\n").split(b"\n")
    for line in lines:
        entries = [_plain(entry, ansi) for entry in part.entries]
        plain = {"task_id": task_id, "epoch": part.epoch, "line": _text(line, ansi)}
        emit_json({**plain, "entries": entries}, one_per_line=True)


def _plain(entry: ConversationEntry, ansi: bool) -> dict[str, Any]:
    return {"kind": str(entry.kind), "text": entry.text if ansi else _cleaned(entry.text)}


def _text(data: bytes, ansi: bool) -> str:
    text = codecs.decode(data, "utf-8", "replace")
    return text if ansi else _cleaned(text)


def _cleaned(text: str) -> str:
    """The text without what a terminal would obey."""
    # A bar that redraws itself becomes a line for each of its states.
    return clean(_ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))
