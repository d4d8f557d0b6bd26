"""Finds schedule files in their folder, and reads them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from agentq.client.task_input.task_file import refuse_special
from agentq.core.errors import Invalid, NotFound
from agentq.schedules.model import Schedule
from agentq.schedules.parsing import SCHEDULE_BYTES_MAX, parse_schedule

SUFFIX = ".md"
#: A folder with more files than this is another folder.
FILES_MAX = 50_000
#: What tells whether a file was written since: time of the change, size, and which file it is.
Signature: TypeAlias = tuple[int, int, int]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def scan(folder: Path) -> dict[str, Signature]:
    """The schedule files of the folder, by name; none if there is no such folder."""
    found: dict[str, Signature] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if not name.endswith(SUFFIX) or name.startswith("."):
                    continue
                try:
                    state = entry.stat()
                except OSError:
                    found[name[: -len(SUFFIX)]] = (0, 0, 0)  # reading it says what is wrong
                    continue
                found[name[: -len(SUFFIX)]] = (state.st_mtime_ns, state.st_size, state.st_ino)
                if len(found) > FILES_MAX:
                    break
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise Invalid(
            f"The schedules folder {folder} cannot be read: {error.strerror}.", "Check it."
        ) from error
    return found


def doubles(names: Iterable[str]) -> dict[str, str]:
    """Names that differ from an earlier one in capitals only: the earlier one of each."""
    first: dict[str, str] = {}
    return {
        name: first[name.casefold()]
        for name in sorted(names)
        if first.setdefault(name.casefold(), name) != name
    }


def content_of(folder: Path, name: str) -> bytes:
    """The bytes of a schedule's file, as it is now."""
    name = name.removesuffix(SUFFIX)
    path = folder / f"{name}{SUFFIX}"
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{path}: the name of a schedule is 1 to 64 letters, digits, - and _, and starts with a"
            " letter or digit.",
            "Rename the file.",
        )
    try:
        if not path.resolve(strict=True).is_relative_to(folder.resolve()):
            raise Invalid(
                f"{path} is a link that leads out of the schedules folder.",
                "Put the file itself there.",
            )
        refuse_special(str(path))
        with path.open("rb") as file:
            return file.read(SCHEDULE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise _absent(folder, name) from None
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "links that lead to each other"
        raise Invalid(
            f"The schedule file {path} cannot be read: {reason}.", "Check the file."
        ) from error


def read_schedule(folder: Path, name: str) -> Schedule:
    """Read the schedule `name` from the file NAME.md in `folder`."""
    name = name.removesuffix(SUFFIX)
    content = content_of(folder, name)
    return parsed(content, name, folder / f"{name}{SUFFIX}")


@lru_cache(maxsize=256)
def parsed(content: bytes, name: str, path: Path) -> Schedule:
    """The schedule that a file's content is; the same words are not taken apart again."""
    return parse_schedule(content, name, path)


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _absent(folder: Path, name: str) -> NotFound:
    there = sorted(scan(folder))
    near = get_close_matches(name, there, 1)
    if near:
        remedy = f"Did you mean {near[0]}?"
    else:
        shown = ", ".join(there[:20])
        remedy = f"There are: {shown}." if there else f"None are there: {folder}."
    return NotFound(f"There is no schedule {name!r}.", remedy)
