"""The picture at the top of the README: its first commands, run on a terminal and drawn as SVG.

Commands say more on a terminal than through a pipe, in colours, and that is what the picture shows.
It is drawn from the first console block of the README, so that it cannot show another path than the
page. What differs from run to run is masked as in `consoles.py` before two pictures are compared,
and `make docs` draws it again when its words have changed.
"""

from __future__ import annotations

import errno
import os
import pty
import re
import shlex
import signal
import subprocess
import tempfile
import termios
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import unescape
from itertools import groupby
from pathlib import Path
from threading import Timer
from xml.sax.saxutils import escape, quoteattr

from docs import consoles

PICTURE = consoles.ROOT / "docs" / "terminal.svg"
COLUMNS = 100
_TIMEOUT_SECONDS = 120
_PROMPT, _PLAIN = "\x1b[1;32m$\x1b[0m \x1b[1m", "\x1b[0m"
_SPACE = "\N{NO-BREAK SPACE}"
_LINE, _TAG = re.compile(r"<text [^>]*>(.*)</text>"), re.compile(r"<[^>]+>")
#: Pixels: a cell of the terminal, and the space around them all.
_WIDTH, _HEIGHT, _MARGIN = 8.4, 19, 18
_COLOURS = {
    "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff",
    "36": "#76e3ea", "90": "#8b949e", "91": "#ff7b72", "92": "#7ee787", "93": "#e3b341",
    "94": "#79c0ff", "95": "#d2a8ff", "96": "#76e3ea",
}  # fmt: skip
_SEQUENCE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|\x1b[=>]")

#: One character, and the codes of its colour and weight.
Cell = tuple[str, frozenset[str]]


@dataclass
class Screen:
    """What a terminal shows: as much of one as commands that print lines make use of."""

    rows: list[list[Cell]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    style: frozenset[str] = frozenset()

    def show(self, text: str) -> None:
        """Take in what was printed."""
        at = 0
        for found in _SEQUENCE.finditer(text):
            self._put(text[at : found.start()])
            self._obey(found[1] or "", found[2] or "")
            at = found.end()
        self._put(text[at:])

    def _put(self, text: str) -> None:
        for character in text:
            if character == "\n":
                self._next_row()
            elif character == "\r":
                self.column = 0
            elif character >= " ":
                if self.column == COLUMNS:
                    self._next_row()
                    self.column = 0
                line = self.rows[self.row]
                line.extend([(" ", frozenset())] * (self.column + 1 - len(line)))
                line[self.column] = (character, self.style)
                self.column += 1

    def _next_row(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])

    def _obey(self, numbers: str, command: str) -> None:
        count = int(numbers) if numbers.isdigit() else 0
        if command == "m":
            for code in numbers.split(";"):
                self.style = frozenset() if code in ("", "0") else self.style | {code}
        elif command == "A":
            self.row = max(self.row - max(count, 1), 0)
        elif command == "K":
            del self.rows[self.row][0 if count == 2 else self.column :]

    def lines(self) -> list[list[Cell]]:
        """The lines, without blank ones at the end."""
        kept = list(self.rows)
        while kept and not "".join(character for character, _ in kept[-1]).strip():
            kept.pop()
        return kept


def story() -> list[str]:
    """The commands of the first console block of the README."""
    blocks = consoles.blocks((consoles.ROOT / "README.md").read_text("utf-8"))
    first = next(block for block in blocks if block.info == "console")
    return [command.text for command in consoles.commands(first)]


def play(commands: Sequence[str]) -> list[list[Cell]]:
    """Run the commands one after the other in an empty folder, on a terminal; what it shows.

    Those of agentq are shown; others make the place for them, and are done.
    """
    script = []
    for text in commands:
        if text.startswith("agentq "):
            script.append(f"printf '%s\\n' {shlex.quote(_PROMPT + text + _PLAIN)}")
        script.append(text)
    with tempfile.TemporaryDirectory(prefix="agentq-picture-") as folder:
        printed = consoles.as_shown(_on_a_terminal("\n".join(script), Path(folder)), folder)
    screen = Screen()
    screen.show(printed)
    return screen.lines()


def _on_a_terminal(script: str, folder: Path) -> str:
    """Everything that a shell with this script prints to its terminal."""
    environment = consoles.shell_environment(folder) | {"TERM": "xterm-256color"}
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (60, COLUMNS))
    shell = subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=environment, start_new_session=True,
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    late = Timer(_TIMEOUT_SECONDS, lambda: os.killpg(shell.pid, signal.SIGKILL))
    late.start()
    printed = b""
    try:
        while piece := os.read(ours, 65536):
            printed += piece
    except OSError as ended:
        # The last process that had the terminal has ended.
        if ended.errno != errno.EIO:
            raise
    finally:
        late.cancel()
        os.close(ours)
        shell.wait()
    if shell.returncode:
        raise RuntimeError(f"The story ended with {shell.returncode}:\n{printed.decode()}")
    return printed.decode("utf-8", "replace")


# -- drawing ---------------------------------------------------------------------------------------


def drawn(lines: Sequence[Sequence[Cell]]) -> str:
    """The picture."""
    width = int(COLUMNS * _WIDTH + 2 * _MARGIN)
    height = len(lines) * _HEIGHT + 2 * _MARGIN
    title = "From a repository to a merged change: the commands below, on a terminal."
    body = "\n".join(_text(line, number) for number, line in enumerate(lines))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">
<title>{title}</title>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" \
font-size="14" fill="#e6edf3">
{body}
</g>
</svg>
"""


def _text(line: Sequence[Cell], number: int) -> str:
    y = _MARGIN + (number + 0.75) * _HEIGHT
    return f'<text y="{y:g}">{"".join(_spans(line))}</text>'


def _spans(line: Sequence[Cell]) -> Iterator[str]:
    column = 0
    for style, cells in groupby(line, key=lambda cell: cell[1]):
        words = "".join(character for character, _ in cells)
        # The width is said, so that columns stand below each other in any font.
        place = {"x": f"{_MARGIN + column * _WIDTH:g}", "textLength": f"{len(words) * _WIDTH:g}"}
        fields = place | _attributes(style)
        said = " ".join(f"{name}={quoteattr(value)}" for name, value in fields.items())
        # Ordinary spaces would be drawn as one, or not at all.
        yield f"<tspan {said}>{escape(words.replace(' ', _SPACE))}</tspan>"
        column += len(words)


def _attributes(style: frozenset[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for code in sorted(style & _COLOURS.keys()):
        found["fill"] = _COLOURS[code]
    if "1" in style:
        found["font-weight"] = "bold"
    if "2" in style:
        found["opacity"] = "0.7"
    return found


# -- comparing -------------------------------------------------------------------------------------


def words_of(picture: str) -> list[str]:
    """The lines that a picture shows, masked."""
    return [consoles.mask(unescape(_TAG.sub("", line))) for line in _LINE.findall(picture)]


def reads_alike(one: str, other: str) -> bool:
    """Whether two pictures say the same, wherever their lines are broken: a time that is longer by
    a digit breaks them elsewhere."""
    return " ".join(words_of(one)).split() == " ".join(words_of(other)).split()


def refresh() -> bool:
    """Draw the picture again if it shows other words than the commands give today; whether so."""
    new = drawn(play(story()))
    if PICTURE.exists() and reads_alike(PICTURE.read_text("utf-8"), new):
        return False
    PICTURE.write_text(new, "utf-8")
    return True
