"""Tables as lines of text, for screens that are drawn again and again, or in one piece.

rich is not needed for them: `agentq status` starts as often as people look.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from agentq.cli.screen import Cell, Styled, is_terminal, one_line, paint

_GAP = 2
#: What is left of the last column on a narrow terminal.
_LAST_WIDTH_MIN = 12


def terminal_width() -> int:
    """Columns of the terminal; 0 if there is none, and lines may be as long as they are."""
    if not is_terminal():
        return 0
    from shutil import get_terminal_size

    return get_terminal_size().columns


def cell_width(text: str) -> int:
    """How many columns a text takes: an ideograph two, a combining mark none."""
    if text.isascii():
        return len(text)
    return sum(map(_letter_width, text))


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int) -> str:
    """The text in no more than so many columns, with an ellipsis where it is cut."""
    if width <= 0 or cell_width(text) <= width:
        return text
    taken, room = [], width - 1
    for letter in text:
        room -= _letter_width(letter)
        if room < 0:
            break
        taken.append(letter)
    return "".join(taken) + "…"


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], width: int = 0
) -> list[str]:
    """Rows under their headings, none if there are no rows; columns that are empty are left out.

    A column whose name starts with '>' stands to the right. The last one gives way when `width`
    is not enough; the others hold what somebody may want to copy.
    """
    cells = [[_plain(cell) for cell in row] for row in rows]
    used = [n for n in range(len(columns)) if any(row[n].text for row in cells)]
    if not used:
        return []
    heads = [columns[n].lstrip(">") for n in used]
    rights = [columns[n].startswith(">") for n in used]
    body = [[row[n] for n in used] for row in cells]
    widths = [
        max(cell_width(text) for text in (head, *(row[n].text for row in body)))
        for n, head in enumerate(heads)
    ]
    if width:
        before = sum(widths[:-1]) + _GAP * (len(widths) - 1)
        widths[-1] = min(widths[-1], max(width - before, _LAST_WIDTH_MIN))
    headings = [Styled(head, "bright_black") for head in heads]
    return [_line(row, widths, rights) for row in (headings, *body)]


def _plain(cell: Cell) -> Styled:
    text, style = cell if isinstance(cell, Styled) else (cell, "")
    return Styled(one_line(text), style)


def _line(row: Sequence[Styled], widths: Sequence[int], rights: Sequence[bool]) -> str:
    parts = []
    for number, (cell, width, right) in enumerate(zip(row, widths, rights, strict=True)):
        text = cut(cell.text, width)
        space = " " * (width - cell_width(text))
        last = number == len(widths) - 1
        painted = paint(text, cell.style) if text else ""
        parts.append(f"{space}{painted}" if right else painted if last else f"{painted}{space}")
    return (" " * _GAP).join(parts).rstrip()
