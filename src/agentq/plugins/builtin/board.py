"""A board in a Markdown file: headings are columns, list items are cards.

    ## Todo
    - Mend the login page
      It shows the wrong name after a rename.

    ## Done

People edit the file as they like. agentq writes only when a card moves, and then changes nothing
but that card: it goes to the end of its new column, with a line that says why. A card is known by
a mark at the end of its first line, and before it has one by its title; so an editor that saves an
older text over the mark does no harm.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentq.core.errors import Invalid, Unavailable
from agentq.plugins.hooks import Card, hookimpl

_HEADING = re.compile(r"#{1,6}[ \t]+(.*?)[ \t#]*$")
_ITEM = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)])[ \t]+(\[[ xX]\][ \t]+)?(.*)$")
_MARK = re.compile(r"[ \t]*<!-- agentq ([0-9a-f]{12}) -->[ \t]*$")
_NOTE = "  agentq: "
_FENCE = re.compile(r"[ \t]*(```+|~~~+)")
_BYTES_MAX = 4 << 20
#: How often a file that is being edited is read again.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class CardLines:
    """A card in the file: where its lines are, from the first to before the last."""

    id: str
    column: str
    title: str
    begin: int
    end: int


class MarkdownBoard:
    """The file, read anew at each call."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def cards(self, column: str) -> list[Card]:
        lines = _read(self._path).decode("utf-8").splitlines(keepends=True)
        return [
            Card(id=each.id, title=each.title, text=_text(lines, each), column=each.column)
            for each in parse_cards(lines)
            if each.column.casefold() == column.casefold()
        ]

    def move(self, card: str, column: str, note: str) -> None:
        path = self._path.resolve()
        for _ in range(_TRIES):
            before = _read(path)
            lines = before.decode("utf-8").splitlines(keepends=True)
            found = next((each for each in parse_cards(lines) if each.id == card), None)
            if found is None:
                return  # somebody took it off the board
            after = "".join(moved(lines, found, column, note)).encode("utf-8")
            if after == before or _replace(path, before, after):
                return
        raise Unavailable(f"{path} is being changed all the time.")


def parse_cards(lines: Sequence[str]) -> list[CardLines]:
    """All cards of a file: top-level list items below a heading, with the lines that belong to
    them. What stands in a fenced block is text."""
    found: list[CardLines] = []
    column, fence = "", ""
    seen: dict[str, int] = {}
    for number, line in enumerate(lines):
        if mark := _FENCE.match(line):
            fence = ("" if mark[1].startswith(fence) else fence) if fence else mark[1][:3]
        if fence or mark:
            continue
        if heading := _HEADING.match(line.rstrip("\r\n")):
            column = heading[1]
        elif column and (item := _ITEM.match(line.rstrip("\r\n"))):
            title = _MARK.sub("", item[2]).strip()
            if title:
                known = _MARK.search(item[2])
                found.append(
                    CardLines(known[1] if known else _id_of(title, seen), column, title, number,
                              _end(lines, number))
                )  # fmt: skip
    return found


def _id_of(title: str, seen: dict[str, int]) -> str:
    """A name for a card without a mark: its title, and which of several it is."""
    seen[title] = number = seen.get(title, 0) + 1
    said = title if number == 1 else f"{title}\n{number}"
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def _end(lines: Sequence[str], begin: int) -> int:
    """Where a card ends: before the first line that is neither indented nor between such lines."""
    end = begin + 1
    for number in range(begin + 1, len(lines)):
        line = lines[number]
        if line.strip() and not line.startswith((" ", "\t")):
            break
        if line.strip():
            end = number + 1
    return end


def _text(lines: Sequence[str], card: CardLines) -> str:
    body = [line for line in lines[card.begin + 1 : card.end] if not line.startswith(_NOTE)]
    return textwrap.dedent("".join(body)).strip()


def moved(lines: Sequence[str], card: CardLines, column: str, note: str) -> list[str]:
    """The lines of the file with this card at the end of a column; all others as they were."""
    newline = "\r\n" if lines[card.begin].endswith("\r\n") else "\n"
    first, *rest = lines[card.begin : card.end]
    first = _MARK.sub("", first.rstrip("\r\n"))
    block = [f"{first} <!-- agentq {card.id} -->{newline}"]
    block += [f"{line.rstrip(chr(10)).rstrip(chr(13))}{newline}" for line in rest
              if not line.startswith(_NOTE)]  # fmt: skip
    if said := " ".join(note.split()):
        block.append(f"{_NOTE}{said}{newline}")
    if card.column.casefold() == column.casefold():
        return [*lines[: card.begin], *block, *lines[card.end :]]
    left = [*lines[: card.begin], *lines[card.end :]]
    at = _end_of_column(left, column)
    if at < 0:
        gap = [newline] if left and left[-1].strip() else []
        ended = [*left[:-1], _ended(left[-1], newline)] if left else []
        return [*ended, *gap, f"## {column}{newline}", newline, *block]
    before = left[:at]
    if before:
        before[-1] = _ended(before[-1], newline)
        if _HEADING.match(before[-1].rstrip("\r\n")):
            before.append(newline)
    return [*before, *block, *left[at:]]


def _ended(line: str, newline: str) -> str:
    return line if line.endswith("\n") else line + newline


def _end_of_column(lines: Sequence[str], column: str) -> int:
    """The place after the last line with something in it of a column; -1 if there is none."""
    at, inside, fence = -1, False, False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            fence = not fence
        heading = None if fence else _HEADING.match(line.rstrip("\r\n"))
        if heading is not None and at >= 0:
            inside = False
        if heading is not None and at < 0 and heading[1].casefold() == column.casefold():
            inside = True
        if inside and line.strip():
            at = number + 1
    return at


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
        data.decode("utf-8")
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise Unavailable(f"{path} is no text in UTF-8: {error}.") from error
    if len(data) > _BYTES_MAX:
        raise Unavailable(f"{path} is larger than {_BYTES_MAX >> 20} MiB.")
    return data


def _replace(path: Path, before: bytes, after: bytes) -> bool:
    """Write the file anew, unless somebody else has changed it since it was read."""
    part = path.with_name(f".{path.name}.agentq")
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        with part.open("wb") as file:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        part.chmod(mode)
        if path.read_bytes() != before:
            part.unlink()
            return False
        part.rename(path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror or error}.") from error
    return True


@hookimpl
def kanban(options: Mapping[str, Any]) -> MarkdownBoard:
    path = options.get("path")
    if not isinstance(path, str) or not path:
        raise Invalid("A board in a file needs a path.", 'As in path = "BOARD.md".')
    return MarkdownBoard(path)
