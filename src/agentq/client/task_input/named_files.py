"""Files that are called by name in a folder of their own: workflows, schedules, hooks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from agentq.client.task_input.fields import check_text
from agentq.client.task_input.task_file import refuse_special
from agentq.core.counting import some_of
from agentq.core.errors import Invalid, NotFound

SUFFIX = ".md"
#: What such a file may be called, without its suffix.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def names_in(folder: Path, most: int) -> list[str]:
    """The names of the files of a folder, in order; of so many entries at most."""
    try:
        with os.scandir(folder) as entries:
            names = [each.name for each, _ in zip(entries, range(most), strict=False)]
    except OSError:
        return []
    files = (name for name in names if name.endswith(SUFFIX) and not name.startswith("."))
    return sorted(name.removesuffix(SUFFIX) for name in files)


def bytes_of(folder: Path, name: str, bytes_max: int, kind: str) -> bytes:
    """What a file has, as it is now, and one byte more than it may; `kind` is what it is called.

    Raises `FileNotFoundError` if there is none. A link that leads elsewhere is refused: who may
    write in the folder need not read other files.
    """
    path = folder / f"{name}{SUFFIX}"
    try:
        # Its name has no folder in it, so that only a link can lead elsewhere.
        if path.is_symlink() and not path.resolve(strict=True).is_relative_to(folder.resolve()):
            raise Invalid(
                f"{path} is a link that leads out of the {kind}s folder.",
                "Put the file itself there.",
            )
        refuse_special(str(path))
        with path.open("rb") as file:
            return file.read(bytes_max + 1)
    except FileNotFoundError:
        raise
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "links that lead to each other"
        raise Invalid(
            f"The {kind} file {path} cannot be read: {reason}.", "Check the file."
        ) from error


def text_of_file(content: bytes, source: str, bytes_max: int, kind: str) -> str:
    """The text that a file's bytes are; `Invalid` if they are none, or too many."""
    if len(content) > bytes_max:
        raise Invalid(
            f"A {kind} file may have {bytes_max >> 10} KiB; {source} has more.",
            "Put long texts into files of their own, and name them.",
            code="too_large",
        )
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Invalid(
            f"Expected text in UTF-8, but {source} has other bytes at position {error.start}.",
            "Save it as UTF-8.",
        ) from error
    check_text(text, source)
    return text


def absent(kind: str, folder: Path, name: str, there: Iterable[str]) -> NotFound:
    """The error of a name that no file has; it names those that are there."""
    names = list(there)
    near = get_close_matches(name, names, 1)
    if near:
        remedy = f"Did you mean {near[0]}?"
    else:
        remedy = f"There are: {some_of(names, 20)}." if names else f"None are there: {folder}."
    return NotFound(f"There is no {kind} {name!r}.", remedy)


def shown(value: object) -> str:
    """A value of a field in an error: short, and without what is in it."""
    if value is None:
        return "nothing"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    return repr(value)[:60]
