"""Keeps what an installation creates out of the git repository that it stands in.

A ledger, its keys and the files of tasks are no part of a project, and `git add -A` would publish
them. Nothing is removed or reordered in a .gitignore; git itself is not run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TITLE = b"# agentq: its ledger, keys and files"
#: git has signs of its own in patterns.
_SIGNS = frozenset("\\*?[! #")


class Ignored(NamedTuple):
    """What was done to keep files out of a repository, and what could not be done."""

    written: list[str]
    failed: str = ""


def repository_of(folder: Path) -> Path | None:
    """The top folder of the repository that this folder is in; None if it is in none."""
    for place in (folder, *folder.parents):
        if os.path.lexists(place / ".git"):
            return place
    return None


def ignore(folder: Path, paths: Iterable[Path]) -> Ignored:
    """Add these paths to the .gitignore of this folder, as far as they are in its repository.

    A path outside of the folder goes to the .gitignore at the top of the repository.
    """
    folder = folder.resolve()
    top = repository_of(folder)
    if top is None:
        return Ignored([])
    wanted: dict[Path, list[bytes]] = {}
    for path in dict.fromkeys(path.absolute() for path in paths):
        base = folder if path.is_relative_to(folder) else top
        if path.is_relative_to(base) and path != base and not _is_ignored(top, path):
            wanted.setdefault(base / ".gitignore", []).append(_pattern(path, base))
    written: list[str] = []
    for file, lines in wanted.items():
        try:
            _append(file, lines)
        except OSError as error:
            names = ", ".join(map(os.fsdecode, lines))
            return Ignored(
                written,
                f"{file} cannot be written ({(error.strerror or str(error)).lower()}): add {names}"
                " to it yourself, or `git add -A` takes keys and files of tasks along",
            )
        written += [f"{os.path.relpath(file, folder)} has {os.fsdecode(line)}" for line in lines]
    return Ignored(written)


def _pattern(path: Path, base: Path) -> bytes:
    """The line for this path alone, and for what SQLite and agentq keep beside a file that is
    there already."""
    plain = path.relative_to(base).as_posix()
    quoted = "".join(f"\\{sign}" if sign in _SIGNS else sign for sign in plain)
    ending = "/" if path.is_dir() else "*" if path.exists() else ""
    return os.fsencode(f"/{quoted}{ending}")


def _is_ignored(top: Path, path: Path) -> bool:
    """Whether a line says so already, in any of the files that git reads for this path."""
    lines = _lines(top / ".git" / "info" / "exclude")
    folder = path.parent
    while folder.is_relative_to(top):
        own = _lines(folder / ".gitignore")
        pattern = _pattern(path, folder)
        if {pattern, pattern.rstrip(b"/"), pattern.rstrip(b"*")} & own:
            return True
        lines |= own
        folder = folder.parent
    name = os.fsencode(path.name)
    if {name, name + b"/", b"**/" + name, b"**/" + name + b"/"} & lines:
        return True
    above = path.parent
    return above != top and above.is_relative_to(top) and _is_ignored(top, above)


def _lines(file: Path) -> set[bytes]:
    try:
        return {line.rstrip() for line in file.read_bytes().splitlines()}
    except OSError:
        return set()


def _append(file: Path, lines: list[bytes]) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(file, flags, 0o666), "rb+") as out:  # noqa: PTH123 - a descriptor
        before = out.read()
        end = b"\r\n" if b"\r\n" in before else b"\n"
        gap = end if before and not before.endswith(b"\n") else b""
        title = [] if _TITLE in before else [_TITLE]
        out.write(gap + b"".join(line + end for line in [*title, *lines]))
