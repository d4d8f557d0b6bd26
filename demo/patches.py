"""Unified diffs of one file, made and applied, so that the demonstration needs no other tool."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


def make_patch(name: str, before: str, after: str) -> str:
    """The difference between two versions of a file, in the form that `patch -p1` reads."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(lines)


def apply_patch(folder: Path, patch: str) -> list[str]:
    """Apply a patch below a folder; the names of the files it changed. Context must match."""
    touched: list[str] = []
    old: list[str] = []
    new: list[str] = []
    position = 0
    for line in patch.splitlines(keepends=True):
        hunk = _HUNK.match(line)
        if line.startswith("+++ "):
            _finish(folder, touched, old, new, position)
            name = line.removeprefix("+++ b/").strip()
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise ValueError(f"the patch leaves the folder: {name}")
            touched.append(name)
            old, new, position = (folder / name).read_text().splitlines(keepends=True), [], 0
        elif hunk:
            start = int(hunk[1]) - 1
            new += old[position:start]
            position = start
        elif line[0] in " -" and not line.startswith("--- "):
            if old[position] != line[1:]:
                raise ValueError(f"line {position + 1} is {old[position]!r}, not {line[1:]!r}")
            new += [line[1:]] if line[0] == " " else []
            position += 1
        elif line[0] == "+":
            new.append(line[1:])
    _finish(folder, touched, old, new, position)
    return touched


def _finish(folder: Path, touched: list[str], old: list[str], new: list[str], at: int) -> None:
    if touched:
        (folder / touched[-1]).write_text("".join(new + old[at:]))
